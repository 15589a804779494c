package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tailgate/gateway/journal"
	"tailgate/gateway/journal/journaltest"
)

// TestFull runs out of space, goes on reading and acking, and recovers.
func TestFull(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs, h := journaltest.NewDisk(), newHistory()
				fs.SetSpace(2*journal.MinSegmentBytes + 2*stateSlot)
				var log strings.Builder
				opts := memOptions(fs, mode)
				opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
				j, _, _ := open(t, opts)
				fill := func() error {
					for {
						synctest.Wait()
						if _, err := h.append(j, 0, 10_000); err != nil {
							return err
						}
						h.commit(j)
					}
				}
				err := fill()
				if !errors.Is(err, journal.ErrFull) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "/log") {
					t.Fatalf("append on a full disk: %v", err)
				}
				if entries, acked := h.snapshot(); acked != uint64(len(entries)) || acked < 20 || j.Err() != nil || !j.Stats().NoSpace {
					t.Fatalf("%d of %d acked, %v, %+v", acked, len(entries), j.Err(), j.Stats())
				}
				if report, err := journal.Verify("/log", fs, nil); err != nil || report.LastLSN != j.Committed() {
					t.Fatalf("reading on a full disk: %v, %v", report, err)
				}
				fs.AddSpace(journal.MinSegmentBytes)
				<-time.After(time.Second) // of the bubble's clock: the journal tries again
				if err := fill(); !errors.Is(err, journal.ErrFull) {
					t.Fatalf("after space was back: %v", err)
				}
				entries, _ := h.snapshot()
				if len(entries) < 30 {
					t.Fatalf("%d entries: nothing was taken after space was back", len(entries))
				}
				if err := errors.Join(j.Close(), h.settled()); err != nil {
					t.Fatal(err)
				}
				if strings.Count(log.String(), "has no space") != 2 || strings.Count(log.String(), "space again") != 1 {
					t.Fatalf("log:\n%s", log.String())
				}
				// A process that starts on the full disk replays and refuses entry.
				fs.SetSpace(0)
				j, got, _ := open(t, memOptions(fs, mode))
				if err := equal(got, entries); err != nil {
					t.Fatal(err)
				}
				if _, err := h.append(j, 0, 10); !errors.Is(err, journal.ErrFull) {
					t.Fatalf("append after a start on a full disk: %v", err)
				}
				fs.SetSpace(1 << 30)
				<-time.After(time.Second)
				if _, err := h.append(j, 0, 10); err != nil {
					t.Fatal(err)
				}
				h.commit(j)
				if err := errors.Join(j.Close(), h.settled()); err != nil {
					t.Fatal(err)
				}
				j, got, _ = open(t, memOptions(fs, mode))
				if err := errors.Join(equal(got, h.entries), j.Close()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestBacklog holds a write back: Append goes on up to its bound without waiting,
// and everything taken is written when the disk moves again.
func TestBacklog(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs, h := journaltest.NewDisk(), newHistory()
				opts := memOptions(fs, mode)
				opts.SegmentBytes = 1 << 20
				j, _, _ := open(t, opts)
				synctest.Wait()
				move := make(chan struct{})
				fs.Intercept(func(c journaltest.Call) *journaltest.Fault {
					if c.Op == journaltest.Write {
						<-move
					}
					return nil
				})
				size, taken := 1000, 0
				if _, err := h.append(j, 0, size); err != nil {
					t.Fatal(err)
				}
				committed := make(chan struct{})
				go func() { h.commit(j); close(committed) }()
				synctest.Wait() // the first entry is in the write that does not return
				for {
					_, err := h.append(j, 0, size)
					if errors.Is(err, journal.ErrBacklog) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					taken++
				}
				if want := opts.MaxPendingBytes / 2 / (size + recordHeader); taken != want {
					t.Fatalf("%d entries taken before ErrBacklog, want %d", taken, want)
				}
				if _, acked := h.snapshot(); mode != journal.SyncOff && acked != 0 {
					t.Fatalf("LSN %d acked while the write hangs", acked)
				}
				close(move)
				<-committed
				h.commit(j)
				synctest.Wait()
				if _, err := h.append(j, 0, size); err != nil {
					t.Fatalf("append after the backlog: %v", err)
				}
				if err := errors.Join(j.Close(), h.settled()); err != nil {
					t.Fatal(err)
				}
				j, got, _ := open(t, memOptions(fs, mode))
				if err := errors.Join(equal(got, h.entries), j.Close()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestSharedSync lets commits come in while a sync is under way: they share the
// next one, and are released in the order of their Commits.
func TestSharedSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := journaltest.NewDisk()
		var syncs []time.Duration
		opts := memOptions(fs, journal.SyncAlways)
		opts.OnSync = func(d time.Duration) { syncs = append(syncs, d) }
		j, _, _ := open(t, opts)
		for range 40 { // so that the queue's ring grows in the middle of a turn
			j.Commit(newReleased(), 0)
		}
		synctest.Wait()
		fs.Intercept(func(c journaltest.Call) *journaltest.Fault {
			if c.Op == journaltest.Sync {
				<-time.After(10 * time.Millisecond)
			}
			return nil
		})
		var order []uint64
		waiter := waiterFunc(func(mark uint64, err error) {
			if err != nil {
				t.Error(err)
			}
			order = append(order, mark)
		})
		for mark := range uint64(100) {
			if _, err := j.Append(0, nil); err != nil {
				t.Fatal(err)
			}
			j.Commit(waiter, mark)
			if mark == 0 {
				synctest.Wait() // it is being synced alone
			}
		}
		<-time.After(time.Second)
		synctest.Wait()
		if len(syncs) != 2 || syncs[0] != 10*time.Millisecond {
			t.Errorf("syncs took %v, want two of 10ms", syncs)
		}
		for i, mark := range order {
			if uint64(i) != mark {
				t.Fatalf("released in the order %v", order)
			}
		}
		if len(order) != 100 {
			t.Errorf("%d released, want 100", len(order))
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFailureIsFinal fails one write or sync: its waiters get the reason, and
// nothing is taken or acked any more although the disk works again.
func TestFailureIsFinal(t *testing.T) {
	for _, c := range []struct {
		mode journal.SyncMode
		op   journaltest.Op
	}{{journal.SyncOS, journaltest.Write}, {journal.SyncAlways, journaltest.Write}, {journal.SyncAlways, journaltest.Sync}} {
		t.Run(c.mode.String()+"/"+string(c.op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := journaltest.NewDisk()
				j, _, _ := open(t, memOptions(fs, c.mode))
				synctest.Wait()
				failures := 0
				fs.Intercept(func(got journaltest.Call) *journaltest.Fault {
					if got.Op == c.op && failures == 0 {
						failures++
						return &journaltest.Fault{Err: syscall.EIO}
					}
					return nil
				})
				w := newReleased()
				if _, err := j.Append(0, []byte("lost")); err != nil {
					t.Fatal(err)
				}
				j.Commit(w, 1)
				err := <-w.ch
				if !errors.Is(err, journal.ErrFailed) || !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "/log/0000") {
					t.Fatalf("released with %v", err)
				}
				if _, err := j.Append(0, nil); !errors.Is(err, journal.ErrFailed) {
					t.Fatalf("append after the failure: %v", err)
				}
				j.Commit(w, 2)
				if err := <-w.ch; !errors.Is(err, journal.ErrFailed) {
					t.Fatalf("commit after the failure: %v", err)
				}
				if j.Err() == nil || j.Committed() != 0 {
					t.Fatalf("err %v, committed mark %d", j.Err(), j.Committed())
				}
				if err := j.Close(); !errors.Is(err, journal.ErrFailed) {
					t.Fatalf("close: %v", err)
				}
			})
		})
	}
}

// TestClose closes with commits under way and after.
func TestClose(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs, h := journaltest.NewDisk(), newHistory()
				j, _, _ := open(t, memOptions(fs, mode))
				for range 50 {
					if _, err := h.append(j, 0, 500); err != nil {
						t.Fatal(err)
					}
					h.commit(j)
				}
				synctest.Wait()
				for range 2 { // never committed, in two segments, and yet closed
					if _, err := h.append(j, 0, 60_000); err != nil {
						t.Fatal(err)
					}
				}
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				rng := rand.New(rand.NewPCG(6, 6))
				for range 10 {
					j, got, report := open(t, memOptions(fs.PowerCut(rng), mode))
					if err := errors.Join(j.Close(), equal(got, h.entries)); err != nil || !report.CleanClose || report.Segments != 2 {
						t.Fatalf("after close and power cut: %v, %v", err, report)
					}
				}
				h.commit(j)
				if err := h.settled(); err != nil {
					t.Fatal(err)
				}
				if _, acked := h.snapshot(); acked != 52 {
					t.Fatalf("LSN %d acked, want 52", acked)
				}
				if _, err := j.Append(0, nil); !errors.Is(err, journal.ErrClosed) {
					t.Fatalf("append after close: %v", err)
				}
				if err := j.Close(); !errors.Is(err, journal.ErrClosed) {
					t.Fatalf("second close: %v", err)
				}
				for _, path := range fs.Paths("") {
					if !strings.HasSuffix(path, ".seg") && path != "/log/STATE" {
						t.Errorf("%s is left behind", path)
					}
				}
			})
		})
	}
}

// TestConcurrentCommits has many callers append under one lock and commit outside
// of it, on the real file system and over several segments.
func TestConcurrentCommits(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			opts := journal.Options{Dir: t.TempDir(), Sync: mode, SegmentBytes: 256 << 10}
			j, _, _ := open(t, opts)
			const callers, batches = 8, 60
			h := newHistory()
			var workers sync.WaitGroup
			released := make([][]uint64, callers)
			for id := range callers {
				workers.Go(func() {
					all := make(chan struct{})
					w := waiterFunc(func(mark uint64, err error) {
						if err != nil {
							t.Errorf("caller %d: %v", id, err)
						}
						if mode != journal.SyncOff && j.Committed() < mark {
							t.Errorf("caller %d: mark %d released, committed mark %d", id, mark, j.Committed())
						}
						released[id] = append(released[id], mark)
						if len(released[id]) == batches {
							close(all)
						}
					})
					for batch := range batches {
						h.sequencer.Lock()
						for i := range 1 + (id+batch)%7 {
							n := uint64(len(h.entries) + 1)
							p := payload(n, 50*i)
							lsn, err := j.Append(int64(n), p)
							if errors.Is(err, journal.ErrBacklog) {
								break // a legal refusal: nothing was taken
							}
							if err != nil || lsn != n {
								t.Errorf("LSN %d, want %d: %v", lsn, n, err)
								break
							}
							h.entries = append(h.entries, journal.Entry{LSN: n, TimeNs: int64(n), Payload: p})
						}
						mark := uint64(len(h.entries))
						h.sequencer.Unlock()
						j.Commit(w, mark)
					}
					<-all
				})
			}
			workers.Wait()
			for id, marks := range released {
				for i := 1; i < len(marks); i++ {
					if marks[i] < marks[i-1] {
						t.Errorf("caller %d was released in the order %v", id, marks)
					}
				}
			}
			if mode != journal.SyncOff && j.Committed() != uint64(len(h.entries)) {
				t.Errorf("committed mark %d, appended %d", j.Committed(), len(h.entries))
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			j, got, _ := open(t, opts)
			if err := errors.Join(equal(got, h.entries), j.Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestVerifyBesideWriter reads the log again and again while it is written.
func TestVerifyBesideWriter(t *testing.T) {
	for _, mode := range []journal.SyncMode{journal.SyncOS, journal.SyncAlways} {
		t.Run(mode.String(), func(t *testing.T) {
			opts := journal.Options{Dir: t.TempDir(), Sync: mode, SegmentBytes: 256 << 10}
			j, _, _ := open(t, opts)
			size := func(lsn uint64) int { return int(lsn % 1500) }
			n, w := uint64(0), newReleased()
			for range 20 {
				committed := j.Committed()
				read := make(chan error)
				go func() {
					report, err := journal.Verify(opts.Dir, nil, func(e journal.Entry) error {
						if want := payload(e.LSN, size(e.LSN)); !bytes.Equal(want, e.Payload) {
							return fmt.Errorf("LSN %d is not what was appended", e.LSN)
						}
						return nil
					})
					if err == nil && report.LastLSN < committed {
						err = fmt.Errorf("last LSN %d, committed mark %d before", report.LastLSN, committed)
					}
					read <- err
				}()
				// The writer goes on until the read is over, up to a bound.
				var err error
				over := false
				for i := 0; i < 300 && !over; i++ {
					if _, err := j.Append(0, payload(n+1, size(n+1))); err == nil {
						n++
					} else if !errors.Is(err, journal.ErrBacklog) {
						t.Fatal(err)
					}
					j.Commit(w, n)
					if err := <-w.ch; err != nil {
						t.Fatal(err)
					}
					select {
					case err = <-read:
						over = true
					default:
					}
				}
				if !over {
					err = <-read
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			if report, err := journal.Verify(opts.Dir, nil, nil); err != nil || report.LastLSN != n || !report.CleanClose {
				t.Fatalf("%v, %v, want LSN %d", report, err, n)
			}
		})
	}
}

// tornReads is a file system whose first read of each file misses some bytes, as one
// does that runs beside the write of them.
type tornReads struct {
	*journaltest.Disk
	from, to int
}

type tornFile struct {
	journal.File
	fs   tornReads
	read bool
}

func (fs tornReads) Open(path string, write bool) (journal.File, error) {
	f, err := fs.Disk.Open(path, write)
	return &tornFile{f, fs, false}, err
}

func (f *tornFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if !f.read && off == 0 && len(p) >= f.fs.to {
		clear(p[f.fs.from:f.fs.to])
		f.read = true
	}
	return n, err
}

// TestVerifyReadsAgain: a record read half written, with whole ones behind it, is
// read once more beside a writer, and is damage where nobody writes.
func TestVerifyReadsAgain(t *testing.T) {
	fs, entries, starts := smallLog(t, journal.SyncOS, false)
	for i := range entries[:len(entries)-1] {
		torn := tornReads{fs, starts[i] + 2, starts[i+1]}
		report, err := journal.Verify("/log", torn, nil)
		if err != nil || report.Records != uint64(len(entries)) || report.Torn != nil {
			t.Errorf("LSN %d torn: %v, %v", i+1, report, err)
		}
		opts := memOptions(nil, journal.SyncOS)
		opts.FS = torn
		if _, _, _, err := collect(opts); !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("LSN %d torn: open gives %v", i+1, err)
		}
	}
}

func TestLockedFolder(t *testing.T) {
	opts := journal.Options{Dir: t.TempDir()}
	j, _, _ := open(t, opts)
	_, _, _, err := collect(opts)
	if !errors.Is(err, journal.ErrLocked) || !strings.Contains(err.Error(), filepath.Join(opts.Dir, "LOCK")) {
		t.Fatalf("second open: %v", err)
	}
	if _, err := journal.Cut(opts.Dir, nil, 1); !errors.Is(err, journal.ErrLocked) {
		t.Fatalf("cut of an open log: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, _, _ = open(t, opts)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTermFence(t *testing.T) {
	opts := journal.Options{Dir: t.TempDir(), Term: 7}
	j, _, _ := open(t, opts) // an entry is not needed: to open is to take over
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	opts.Term = 6
	if _, _, _, err := collect(opts); !errors.Is(err, journal.ErrTerm) {
		t.Fatalf("open with an older term: %v", err)
	}
	opts.Term = 8
	j, _, _ = open(t, opts)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReplayErrorEndsOpen(t *testing.T) {
	opts := journal.Options{Dir: t.TempDir()}
	j, _, _ := open(t, opts)
	if _, err := j.Append(0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	unknown := errors.New("unknown command")
	if _, _, err := journal.Open(opts, func(journal.Entry) error { return unknown }); !errors.Is(err, unknown) {
		t.Fatalf("open: %v", err)
	}
	j, got, _ := open(t, opts)
	if err := j.Close(); err != nil || len(got) != 1 {
		t.Fatalf("%v, %d entries", err, len(got))
	}
}

func TestPayloadBound(t *testing.T) {
	j, _, _ := open(t, memOptions(journaltest.NewDisk(), journal.SyncOS))
	if _, err := j.Append(0, make([]byte, journal.MaxPayloadBytes+1)); !errors.Is(err, journal.ErrTooLarge) {
		t.Errorf("one byte too many: %v", err)
	}
	if lsn, err := j.Append(0, make([]byte, journal.MaxPayloadBytes)); err != nil || lsn != 1 {
		t.Errorf("the largest: LSN %d, %v", lsn, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOptionsOutOfBounds(t *testing.T) {
	for want, opts := range map[string]journal.Options{
		"Dir":             {},
		"sync mode":       {Dir: "/log", Sync: 3},
		"SegmentBytes":    {Dir: "/log", SegmentBytes: journal.MinSegmentBytes - 1},
		"MaxPendingBytes": {Dir: "/log", MaxPendingBytes: journal.MaxMaxPendingBytes + 1},
	} {
		opts.FS = journaltest.NewDisk()
		if _, _, _, err := collect(opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want a word about %s", opts, err, want)
		}
	}
}

func TestSyncModeText(t *testing.T) {
	for _, mode := range modes {
		text, err := mode.MarshalText()
		var back journal.SyncMode = 99
		if err := errors.Join(err, back.UnmarshalText(text)); err != nil || back != mode {
			t.Errorf("%v became %q and %v: %v", mode, text, back, err)
		}
	}
	var mode journal.SyncMode
	if err := mode.UnmarshalText([]byte("fsync")); err == nil || !strings.Contains(err.Error(), "off, os, always") {
		t.Errorf("unknown mode: %v", err)
	}
}
