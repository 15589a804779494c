package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"tailgate/gateway/journal"
	"tailgate/gateway/journal/journaltest"
)

const (
	segmentHeader = 64 // bytes, as the package comment has it
	recordHeader  = 44
)

// promising are the modes under which a released entry survives the process.
var promising = []journal.SyncMode{journal.SyncOS, journal.SyncAlways}

// smallLog writes a log of ten entries, one commit each, and returns its file
// system, the entries, and where each record begins and the last one ends.
func smallLog(t *testing.T, mode journal.SyncMode, closed bool) (fs *journaltest.Disk, entries []journal.Entry, starts []int) {
	t.Helper()
	fs = journaltest.NewDisk()
	j, _, _ := open(t, memOptions(fs, mode))
	h := newHistory()
	off := segmentHeader
	for i := range 10 {
		size := 5 * i
		if _, err := h.append(j, 0, size); err != nil {
			t.Fatal(err)
		}
		w := newReleased()
		j.Commit(w, 0)
		if err := <-w.ch; err != nil {
			t.Fatal(err)
		}
		starts = append(starts, off)
		off += recordHeader + size
	}
	starts = append(starts, off)
	image := fs
	if !closed {
		image = fs.Killed(nil, 0)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return image, h.entries, starts
}

// TestZeroedTail fills the only file with zeros from every byte on, as a write that a
// dying process did not finish leaves it. The header was written before the file got
// its name.
func TestZeroedTail(t *testing.T) {
	for _, mode := range promising {
		t.Run(mode.String(), func(t *testing.T) {
			log, entries, starts := smallLog(t, mode, false)
			path := log.Paths(".seg")[0]
			end := starts[len(starts)-1]
			whole := bytes.Clone(log.Content(path)[:end])
			for at := 0; at < end+10; at += every {
				fs := log.Killed(nil, 0)
				clear(fs.Content(path)[at:])
				keep := 0
				for keep < len(entries) && starts[keep+1] <= at {
					keep++
				}
				j, got, report, err := collect(memOptions(fs, mode))
				if at < len(bytes.TrimRight(whole[:segmentHeader], "\x00")) {
					if !errors.Is(err, journal.ErrDamaged) || !strings.Contains(err.Error(), path) {
						t.Fatalf("zeros from byte %d, in the header: %v", at, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("zeros from byte %d: %v", at, err)
				}
				// A record that ends in zeros is whole already when only those are missing.
				if len(got) == keep+1 && len(bytes.TrimRight(whole[:starts[keep+1]], "\x00")) <= at {
					keep++
				}
				if err := equal(got, entries[:keep]); err != nil {
					t.Fatalf("zeros from byte %d: %v", at, err)
				}
				torn := report.Torn
				between := len(bytes.TrimRight(whole[:min(at, end)], "\x00")) > starts[keep]
				if between != (torn != nil && torn.Bytes > 0) {
					t.Fatalf("zeros from byte %d: report %v", at, report)
				}
				if torn != nil && (torn.Offset != int64(starts[keep]) || torn.LSN != uint64(keep+1) || torn.File != path) {
					t.Fatalf("zeros from byte %d: torn %+v, want LSN %d at byte %d", at, torn, keep+1, starts[keep])
				}
				h := newHistory()
				h.entries = got
				if _, err := h.append(j, 0, 33); err != nil {
					t.Fatal(err)
				}
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				if at%5 != 0 && at > segmentHeader && at != starts[keep] {
					continue // going on is the same work for each; a fifth of them shows it
				}
				j, again, report := open(t, memOptions(fs, mode))
				if err := errors.Join(equal(again, h.entries), j.Close()); err != nil || report.Torn != nil {
					t.Fatalf("zeros from byte %d, reopened: %v, %v", at, err, report)
				}
			}
		})
	}
}

// TestFlippedByte changes every byte of a log in turn. Wrong data never comes back;
// and what a later byte of the log proves to have been whole is never cut.
func TestFlippedByte(t *testing.T) {
	for _, mode := range promising {
		for _, closed := range []bool{true, false} {
			name := mode.String() + "/killed"
			if closed {
				name = mode.String() + "/closed"
			}
			t.Run(name, func(t *testing.T) {
				fs, entries, starts := smallLog(t, mode, closed)
				path := fs.Paths(".seg")[0]
				log := fs
				end := len(bytes.TrimRight(fs.Content(path), "\x00"))
				// Behind the last record nothing proves it, unless there is a close mark.
				proven := starts[len(starts)-2]
				if closed {
					proven = starts[len(starts)-1]
				}
				for at := 0; at < end; at += every {
					for _, flip := range []byte{1 << (at % 8), 0xff} {
						if flip == 0xff && at%4 != 0 {
							continue
						}
						fs := log.Killed(nil, 0)
						fs.Content(path)[at] ^= flip
						data := bytes.Clone(fs.Content(path))
						j, got, report, err := collect(memOptions(fs, mode))
						if damage := (*journal.DamageError)(nil); errors.As(err, &damage) {
							if damage.File != path || damage.Offset > int64(at) || !errors.Is(err, journal.ErrDamaged) ||
								!strings.Contains(err.Error(), path) {
								t.Fatalf("byte %d: %v", at, err)
							}
							if !bytes.Equal(data, fs.Content(path)) {
								t.Fatalf("byte %d: the damaged file was changed", at)
							}
							if err := equal(got, entries[:len(got)]); err != nil {
								t.Fatalf("byte %d: %v", at, err)
							}
							continue
						}
						if err != nil {
							t.Fatalf("byte %d: %v", at, err)
						}
						if at < proven || report.Torn == nil {
							t.Fatalf("byte %d of %d: accepted: %v", at, end, report)
						}
						if err := errors.Join(equal(got, entries[:len(got)]), j.Close()); err != nil {
							t.Fatalf("byte %d: %v", at, err)
						}
					}
				}
			})
		}
	}
}

// TestDamage has one case for each rule of the package comment.
func TestDamage(t *testing.T) {
	zero := func(b []byte) { clear(b) }
	flip := func(b []byte) { b[len(b)/2] ^= 4 }
	cases := []struct {
		name   string
		mode   journal.SyncMode
		record int // damaged, from 0; the log has ten
		closed bool
		do     func([]byte)
		torn   bool
		why    string // part of the message
	}{
		{"below the mark, flipped", journal.SyncAlways, 3, false, flip, false, "durable mark"},
		{"below the mark, lost", journal.SyncAlways, 3, false, zero, false, "durable mark"},
		{"last, flipped", journal.SyncAlways, 9, false, flip, true, "CRC32C is wrong"},
		{"last, flipped, closed", journal.SyncAlways, 9, true, flip, false, "durable mark"},
		{"last, lost, closed", journal.SyncOS, 9, true, zero, false, "durable mark"},
		{"records behind", journal.SyncOS, 3, false, flip, false, "whole records from LSN 5"},
		{"records behind, lost", journal.SyncOS, 3, false, zero, false, "whole records from LSN 5"},
		{"last", journal.SyncOS, 9, false, flip, true, "CRC32C is wrong"},
	}
	for _, c := range cases {
		t.Run(c.mode.String()+"/"+c.name, func(t *testing.T) {
			fs, entries, starts := smallLog(t, c.mode, c.closed)
			c.do(fs.Content(fs.Paths(".seg")[0])[starts[c.record]:starts[c.record+1]])
			j, got, report, err := collect(memOptions(fs, c.mode))
			if err := equal(got, entries[:c.record]); err != nil {
				t.Fatal(err)
			}
			if c.torn {
				if err != nil || report.Torn == nil || !strings.Contains(report.String(), c.why) {
					t.Fatalf("%v, %v", err, report)
				}
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				return
			}
			damage := (*journal.DamageError)(nil)
			if !errors.As(err, &damage) || damage.Offset != int64(starts[c.record]) || damage.LSN != uint64(c.record+1) ||
				!strings.Contains(err.Error(), c.why) ||
				!strings.HasSuffix(err.Error(), fmt.Sprintf("everything above (journal cut %d)", c.record+1)) {
				t.Fatalf("%v", err)
			}
			// The operator gives up what cannot be read, and what stood above it.
			cut, err := journal.Cut("/log", fs, damage.LSN)
			if err != nil || cut.Torn == nil || cut.LastLSN != damage.LSN-1 {
				t.Fatalf("cut: %v, %v", cut, err)
			}
			j, got, _ = open(t, memOptions(fs, c.mode))
			if err := errors.Join(equal(got, entries[:c.record]), j.Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestGroupOutOfOrder loses one record of a group that no later one confirms, as a
// power cut does that lands pages in another order.
func TestGroupOutOfOrder(t *testing.T) {
	fs := journaltest.NewDisk()
	j, _, _ := open(t, memOptions(fs, journal.SyncAlways))
	h := newHistory()
	for range 8 {
		if _, err := h.append(j, 0, 100); err != nil {
			t.Fatal(err)
		}
	}
	w := newReleased()
	j.Commit(w, 8)
	if err := <-w.ch; err != nil {
		t.Fatal(err)
	}
	image := fs.Killed(nil, 0)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	const record = recordHeader + 100
	clear(image.Content(image.Paths(".seg")[0])[segmentHeader+4*record:][:record])
	j, got, report := open(t, memOptions(image, journal.SyncAlways))
	if err := errors.Join(equal(got, h.entries[:4]), j.Close()); err != nil {
		t.Fatal(err)
	}
	want := journal.TornTail{File: image.Paths(".seg")[0], Offset: segmentHeader + 4*record, LSN: 5, Bytes: 4 * record, Records: 3,
		Why: "zeros, with other bytes behind them"}
	if report.Torn == nil || *report.Torn != want {
		t.Fatalf("torn %+v, want %+v", report.Torn, want)
	}
}

// TestGroupConfirmsTheOneBefore damages the last record of a group that was being
// synced while the next one came in: the next one proves that it had been whole.
func TestGroupConfirmsTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := journaltest.NewDisk()
		j, _, _ := open(t, memOptions(fs, journal.SyncAlways))
		synctest.Wait()
		h := newHistory()
		group := func() {
			for range 3 {
				if _, err := h.append(j, 0, 100); err != nil {
					t.Error(err)
				}
			}
			h.commit(j)
		}
		fs.Intercept(func(c journaltest.Call) *journaltest.Fault {
			if c.Op == journaltest.Sync && len(h.entries) == 3 {
				group()
			}
			return nil
		})
		group()
		synctest.Wait()
		image := fs.Killed(nil, 0)
		if err := errors.Join(j.Close(), h.settled()); err != nil {
			t.Fatal(err)
		}
		const record = recordHeader + 100
		image.Content(image.Paths(".seg")[0])[segmentHeader+3*record-1] ^= 1
		damage := (*journal.DamageError)(nil)
		if _, _, _, err := collect(memOptions(image, journal.SyncAlways)); !errors.As(err, &damage) || damage.LSN != 3 || damage.Durable != 3 {
			t.Fatalf("open: %v", err)
		}
	})
}

// TestMissingSegment takes away each segment of a log in turn, the last one too.
func TestMissingSegment(t *testing.T) {
	for missing := range 4 {
		fs := journaltest.NewDisk()
		for range 4 {
			j, got, _ := open(t, memOptions(fs, journal.SyncOS))
			h := newHistory()
			h.entries = got
			if _, err := h.append(j, 0, 10); err != nil {
				t.Fatal(err)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}
		path := fs.Paths(".seg")[missing]
		if err := fs.Remove(path); err != nil {
			t.Fatal(err)
		}
		_, got, _, err := collect(memOptions(fs, journal.SyncOS))
		if !errors.Is(err, journal.ErrDamaged) || len(got) != missing {
			t.Fatalf("without %s: %d entries, %v", path, len(got), err)
		}
		if _, err := journal.Verify("/log", fs, nil); !errors.Is(err, journal.ErrDamaged) {
			t.Fatalf("verify without %s: %v", path, err)
		}
	}
}

// TestCut gives up every LSN in turn.
func TestCut(t *testing.T) {
	for lsn := uint64(1); lsn <= 12; lsn++ {
		fs, entries, starts := smallLog(t, journal.SyncOS, true)
		report, err := journal.Cut("/log", fs, lsn)
		if err != nil {
			t.Fatal(err)
		}
		keep := min(int(lsn)-1, len(entries))
		// A cut above the last entry finds nothing but the close mark, if that.
		if lsn <= 10 && (report.Torn == nil || report.Torn.LSN != lsn || report.Torn.Offset != int64(starts[keep]) && lsn > 1) {
			t.Fatalf("cut from LSN %d: %v", lsn, report)
		}
		j, got, _ := open(t, memOptions(fs, journal.SyncOS))
		if err := errors.Join(equal(got, entries[:keep]), j.Close()); err != nil {
			t.Fatalf("cut from LSN %d: %v", lsn, err)
		}
	}
	if _, err := journal.Cut("/log", journaltest.NewDisk(), 0); err == nil {
		t.Fatal("cut from LSN 0 was accepted")
	}
}
