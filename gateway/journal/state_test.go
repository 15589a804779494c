package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"tailgate/gateway/journal"
	"tailgate/gateway/journal/journaltest"
)

const (
	statePath = "/log/STATE"
	stateSlot = 4096 // bytes, as the package comment has it
	stateNote = 80
)

// stoppedLog writes n entries of 4,000 bytes, 32 of which fill a segment, in commits
// of ten, and returns what a clean stop or a kill leaves. It runs in a bubble.
func stoppedLog(t *testing.T, mode journal.SyncMode, n int, closed bool) (*journaltest.Disk, []journal.Entry) {
	t.Helper()
	fs, h := journaltest.NewDisk(), newHistory()
	j, _, _ := open(t, memOptions(fs, mode))
	for i := range n {
		if i%10 == 0 {
			h.commit(j)
			synctest.Wait() // the background has nothing to do any more
		}
		if _, err := h.append(j, 0, 4000); err != nil {
			t.Fatal(err)
		}
	}
	h.commit(j)
	synctest.Wait()
	image := fs.Killed(nil, 0)
	if err := errors.Join(j.Close(), h.settled()); err != nil {
		t.Fatal(err)
	}
	if closed {
		image = fs
	}
	return image, h.entries
}

// cutFile shortens path to size bytes.
func cutFile(fs *journaltest.Disk, path string, size int) {
	fs.SetContent(path, bytes.Clone(fs.Content(path)[:size]))
}

func removeFile(t *testing.T, fs *journaltest.Disk, path string) {
	t.Helper()
	if err := fs.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// TestLostEnd takes from a stopped log what nothing behind it can prove. Each time
// the start is refused, changes nothing, and names what is missing; what is left is
// given up to with Cut.
func TestLostEnd(t *testing.T) {
	const firstOfSecond = 33
	cases := []struct {
		name    string
		entries int // 20 are one segment, 50 are two
		killed  bool
		do      func(t *testing.T, fs *journaltest.Disk, last string)
		file    string // empty is that of the last segment
		lsn     uint64 // from which on nothing is left
		why     string
	}{
		{"last segment removed", 50, false, func(t *testing.T, fs *journaltest.Disk, last string) { removeFile(t, fs, last) }, "", firstOfSecond, "LSN 50"},
		{"last segment removed", 50, true, func(t *testing.T, fs *journaltest.Disk, last string) { removeFile(t, fs, last) }, "", firstOfSecond, statePath},
		{"only segment removed", 20, false, func(t *testing.T, fs *journaltest.Disk, last string) { removeFile(t, fs, last) }, "", 1, "LSN 20"},
		{"only segment removed", 20, true, func(t *testing.T, fs *journaltest.Disk, last string) { removeFile(t, fs, last) }, "", 1, statePath},
		{"all segments removed", 50, true, func(t *testing.T, fs *journaltest.Disk, last string) {
			for _, path := range fs.Paths(".seg") {
				removeFile(t, fs, path)
			}
		}, "/log/00000000000000000001.seg", 1, statePath},
		{"first segment removed", 50, true, func(t *testing.T, fs *journaltest.Disk, _ string) { removeFile(t, fs, fs.Paths(".seg")[0]) }, "", 1, "segments are missing"},
		{"cut in a record", 20, false, func(_ *testing.T, fs *journaltest.Disk, last string) { cutFile(fs, last, 5000) }, "", 2, "5000 bytes of the 131072"},
		{"cut in a record", 20, true, func(_ *testing.T, fs *journaltest.Disk, last string) { cutFile(fs, last, 5000) }, "", 2, "5000 bytes of the 131072"},
		{"cut behind a record", 50, true, func(_ *testing.T, fs *journaltest.Disk, last string) { cutFile(fs, last, segmentHeader+4044) }, "", firstOfSecond + 1, "4108 bytes of the 131072"},
		{"cut behind the last record", 50, true, func(_ *testing.T, fs *journaltest.Disk, last string) { cutFile(fs, last, journal.MinSegmentBytes-1) }, "", 51, "131071 bytes of the 131072"},
		{"cut in the header", 50, true, func(_ *testing.T, fs *journaltest.Disk, last string) { cutFile(fs, last, 40) }, "", firstOfSecond, "40 bytes of the 131072"},
		{"empty", 20, false, func(_ *testing.T, fs *journaltest.Disk, last string) { cutFile(fs, last, 0) }, "", 1, "0 bytes of the 131072"},
		{"empty", 50, true, func(_ *testing.T, fs *journaltest.Disk, last string) { cutFile(fs, last, 0) }, "", firstOfSecond, "0 bytes of the 131072"},
		{"zeros", 50, true, func(_ *testing.T, fs *journaltest.Disk, last string) { clear(fs.Content(last)) }, "", firstOfSecond, statePath},
		{"zeros behind the header", 50, false, func(_ *testing.T, fs *journaltest.Disk, last string) { clear(fs.Content(last)[segmentHeader:]) }, "", firstOfSecond, "LSN 50"},
		{"state removed", 50, false, func(t *testing.T, fs *journaltest.Disk, _ string) { removeFile(t, fs, statePath) }, statePath, 51, "no such file"},
		{"state empty", 50, true, func(t *testing.T, fs *journaltest.Disk, _ string) { cutFile(fs, statePath, 0) }, statePath, 51, "a file of 0 bytes"},
		{"state cut", 50, true, func(t *testing.T, fs *journaltest.Disk, _ string) { cutFile(fs, statePath, stateSlot) }, statePath, 51, "a file of 4096 bytes"},
		{"state zeros", 20, false, func(t *testing.T, fs *journaltest.Disk, _ string) { clear(fs.Content(statePath)) }, statePath, 21, "no note"},
	}
	for _, mode := range promising {
		for _, c := range cases {
			how := "closed"
			if c.killed {
				how = "killed"
			}
			t.Run(fmt.Sprintf("%v/%s/%s/%d", mode, how, c.name, c.entries), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fs, entries := stoppedLog(t, mode, c.entries, !c.killed)
					file := c.file
					last := fs.Paths(".seg")[len(fs.Paths(".seg"))-1]
					if file == "" {
						file = last
					}
					c.do(t, fs, last)
					before := fs.Killed(nil, 0)
					_, got, _, err := collect(memOptions(fs, mode))
					damage := (*journal.DamageError)(nil)
					if !errors.As(err, &damage) || damage.File != file || damage.LSN != c.lsn || !strings.Contains(err.Error(), c.why) {
						t.Fatalf("%v; want damage at LSN %d of %s, %q", err, c.lsn, file, c.why)
					}
					if err := equal(got, entries[:c.lsn-1]); err != nil {
						t.Fatal(err)
					}
					if _, verr := journal.Verify("/log", fs, nil); verr == nil || verr.Error() != err.Error() {
						t.Fatalf("verify: %v; want %v", verr, err)
					}
					for _, path := range before.Paths("") {
						if !bytes.Equal(before.Content(path), fs.Content(path)) {
							t.Fatalf("the refused start changed %s", path)
						}
					}
					if was, is := before.Paths(""), fs.Paths(""); !slices.Equal(was, is) {
						t.Fatalf("the refused start left %v of %v", is, was)
					}
					goesOn(t, fs, mode, damage.LSN, entries[:c.lsn-1])
				})
			})
		}
	}
}

// goesOn cuts the log from lsn on and builds on what is left.
func goesOn(t *testing.T, fs *journaltest.Disk, mode journal.SyncMode, lsn uint64, left []journal.Entry) {
	t.Helper()
	if _, err := journal.Cut("/log", fs, lsn); err != nil {
		t.Fatalf("cut: %v", err)
	}
	h := newHistory()
	for range 2 {
		j, got, _ := open(t, memOptions(fs, mode))
		if err := equal(got, slices.Concat(left, h.entries[min(len(left), len(h.entries)):])); err != nil {
			t.Fatalf("after the cut: %v", err)
		}
		h.entries = got
		_, err := h.append(j, 0, 100)
		if err := errors.Join(err, j.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLostEndOfNewSegment shortens a segment that the state does not know yet,
// because the process died between its name and the note.
func TestLostEndOfNewSegment(t *testing.T) {
	for _, mode := range promising {
		for _, size := range []int{0, 40, segmentHeader, 5000, journal.MinSegmentBytes - 1} {
			synctest.Test(t, func(t *testing.T) {
				fs, h := journaltest.NewDisk(), newHistory()
				j, _, _ := open(t, memOptions(fs, mode))
				synctest.Wait()
				var image *journaltest.Disk
				fs.Intercept(oneAtATime(func(c journaltest.Call) *journaltest.Fault {
					if c.Path == statePath && image == nil {
						image = fs.Killed(nil, 0)
					}
					return nil
				}))
				for range 4 {
					if _, err := h.append(j, 0, 40_000); err != nil {
						t.Fatal(err)
					}
					h.commit(j)
					synctest.Wait()
				}
				fs.Intercept(nil)
				if err := errors.Join(j.Close(), h.settled()); err != nil {
					t.Fatal(err)
				}
				last := image.Paths(".seg")[1]
				whole := image.Killed(nil, 0)
				j, got, _ := open(t, memOptions(whole, mode))
				if err := errors.Join(j.Close(), equal(got, h.entries[:len(got)])); err != nil || len(got) < 3 {
					t.Fatalf("%d entries before the note, %v", len(got), err)
				}
				cutFile(image, last, size)
				_, _, _, err := collect(memOptions(image, mode))
				if want := fmt.Sprintf("%d bytes of the 131072 that it had when it got its name", size); !errors.Is(err, journal.ErrDamaged) ||
					!strings.Contains(err.Error(), last) || !strings.Contains(err.Error(), want) {
					t.Fatalf("%v: cut to %d bytes: %v", mode, size, err)
				}
			})
		}
	}
}

// TestForeignFiles puts files of another journal, written by the same calls, into
// the places of this one's: the start is refused and names both files.
func TestForeignFiles(t *testing.T) {
	const first, second = "/log/00000000000000000001.seg", "/log/00000000000000000033.seg"
	header := func(b []byte) []byte { clear(b[segmentHeader:]); return b }
	whole := func(b []byte) []byte { return b }
	for _, c := range []struct {
		name    string
		path    string
		part    func([]byte) []byte
		noState bool
		at      string // where the damage is told
		lsn     uint64
		besides string // the other file
	}{
		{"second segment", second, whole, false, second, 33, statePath},
		{"second segment, only begun", second, header, false, second, 33, statePath},
		{"first segment", first, whole, false, first, 1, statePath},
		{"state", statePath, whole, false, first, 1, statePath},
		{"second segment, no state", second, whole, true, second, 33, first},
	} {
		for _, closed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/closed=%v", c.name, closed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fs, entries := stoppedLog(t, journal.SyncOS, 50, closed)
					other, _ := stoppedLog(t, journal.SyncOS, 50, closed)
					fs.SetContent(c.path, c.part(bytes.Clone(other.Content(c.path))))
					if c.noState {
						removeFile(t, fs, statePath)
					}
					_, got, _, err := collect(memOptions(fs, journal.SyncOS))
					damage := (*journal.DamageError)(nil)
					if !errors.As(err, &damage) || damage.File != c.at || damage.LSN != c.lsn || !strings.Contains(damage.Found, c.besides) ||
						!strings.Contains(damage.Found, "of journal") {
						t.Fatalf("%v; want damage at LSN %d of %s, against %s", err, c.lsn, c.at, c.besides)
					}
					if err := equal(got, entries[:c.lsn-1]); err != nil {
						t.Fatal(err)
					}
					goesOn(t, fs, journal.SyncOS, c.lsn, entries[:c.lsn-1])
				})
			})
		}
	}
}

// TestStateNoteLost damages either note of the state, as a torn write does: the other
// one serves, and asks for nothing that was cut since. The second log was killed after a
// start without space for a segment, so that its newest file is one that was cut.
func TestStateNoteLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, entries := stoppedLog(t, journal.SyncOS, 50, true)
		full := fs.Killed(nil, 0)
		full.SetSpace(-1 << 30)
		j, _, _ := open(t, memOptions(full, journal.SyncOS))
		short := full.Killed(nil, 0)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		last := short.Paths(".seg")[1]
		if len(short.Content(last)) == journal.MinSegmentBytes {
			t.Fatal("the newest segment was not cut")
		}
		for what, log := range map[string]*journaltest.Disk{"closed": fs, "cut": short} {
			for slot := range 2 {
				for at := range stateNote {
					image := log.Killed(nil, 0)
					image.Content(statePath)[slot*stateSlot+at] ^= 1 << (at % 8)
					j, got, _, err := collect(memOptions(image, journal.SyncOS))
					if err != nil {
						t.Fatalf("%s, note %d flipped at byte %d: %v", what, slot, at, err)
					}
					if err := errors.Join(equal(got, entries), j.Close()); err != nil {
						t.Fatalf("%s, note %d flipped at byte %d: %v", what, slot, at, err)
					}
				}
			}
		}
	})
}

// TestStateAfterFailedSync: a note whose sync failed is whole in what the kernel shows
// and torn on the disk. The next start loses the power in the middle of its own notes.
func TestStateAfterFailedSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(8, 8))
		fs, h := journaltest.NewDisk(), newHistory()
		j, _, _ := open(t, memOptions(fs, journal.SyncAlways))
		synctest.Wait()
		if _, err := h.append(j, 0, 100); err != nil {
			t.Fatal(err)
		}
		fs.Intercept(func(c journaltest.Call) *journaltest.Fault {
			if c.Op == journaltest.Sync && c.Path == statePath {
				return &journaltest.Fault{Err: syscall.EIO}
			}
			return nil
		})
		if err := j.Close(); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), statePath) {
			t.Fatalf("close: %v", err)
		}
		torn := 0
		for slot := range 2 {
			shown, disk := fs.Content(statePath)[slot*stateSlot:][:stateNote], fs.Stored(statePath)[slot*stateSlot:][:stateNote]
			if !bytes.Equal(shown, disk) {
				copy(disk, shown[:stateNote*3/4])
				torn++
			}
		}
		cuts := 0
		fs.Intercept(oneAtATime(func(c journaltest.Call) *journaltest.Fault {
			if c.Op != journaltest.Write || c.Path != statePath || t.Failed() {
				return nil
			}
			cuts++
			after := fs.PowerCut(rng)
			state := bytes.Clone(after.Content(statePath))
			copy(state[c.Off:], c.Data[:stateNote*3/4])
			after.SetContent(statePath, state)
			survives(t, after, memOptions(nil, journal.SyncAlways), promise{entries: h.entries, acked: 1}, rng)
			return nil
		}))
		j, _, _ = open(t, memOptions(fs, journal.SyncAlways))
		if err := j.Close(); err != nil || cuts < 4 || torn != 1 {
			t.Fatalf("%v, %d notes torn, the power cut %d times", err, torn, cuts)
		}
	})
}

// TestForeignMark: the durable mark of another journal's segment says nothing about
// this one.
func TestForeignMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, _ := stoppedLog(t, journal.SyncOff, 31, false)
		other, _ := stoppedLog(t, journal.SyncAlways, 50, false)
		fs.Content(fs.Paths(".seg")[0])[segmentHeader+5] ^= 1 // the first record
		fs.SetContent(other.Paths(".seg")[1], bytes.Clone(other.Content(other.Paths(".seg")[1])))
		_, _, _, err := collect(memOptions(fs, journal.SyncOff))
		damage := (*journal.DamageError)(nil)
		if !errors.As(err, &damage) || damage.LSN != 1 || damage.Durable != 0 {
			t.Fatalf("%v; want damage at LSN 1 and no durable mark", err)
		}
	})
}

// cutWhileListed cuts the log when its reader has read the state and asks for the files.
type cutWhileListed struct {
	*journaltest.Disk
	lsn uint64
}

func (fs cutWhileListed) List(dir string) ([]string, error) {
	if _, err := journal.Cut(dir, fs.Disk, fs.lsn); err != nil {
		return nil, err
	}
	return fs.Disk.List(dir)
}

// TestVerifyBesideCut: a log cut while it is read is not called damaged.
func TestVerifyBesideCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, _ := stoppedLog(t, journal.SyncOS, 50, true)
		for _, lsn := range []uint64{45, 33, 1} {
			_, err := journal.Verify("/log", cutWhileListed{fs.Killed(nil, 0), lsn}, nil)
			if err == nil || errors.Is(err, journal.ErrDamaged) || !strings.Contains(err.Error(), "read it again") {
				t.Errorf("cut from LSN %d: %v", lsn, err)
			}
		}
	})
}
