package journal_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"tailgate/gateway/journal"
	"tailgate/gateway/journal/journaltest"
)

// TestAppendBatch: a batch gets LSNs in a row and comes back as single entries do.
func TestAppendBatch(t *testing.T) {
	opts := memOptions(journaltest.NewDisk(), journal.SyncOS)
	j, _, _ := open(t, opts)
	var want []journal.Entry
	for size := range 20 {
		var batch [][]byte
		for i := range size {
			n := uint64(len(want) + 1)
			want = append(want, journal.Entry{LSN: n, TimeNs: int64(size), Payload: payload(n, 10*i)})
			batch = append(batch, want[n-1].Payload)
		}
		first, err := j.AppendBatch(int64(size), batch)
		if err != nil || size > 0 && first != uint64(len(want)-size+1) || size == 0 && first != 0 {
			t.Fatalf("batch of %d: LSN %d, %v", size, first, err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := j.AppendBatch(0, nil); !errors.Is(err, journal.ErrClosed) {
		t.Error(err)
	}
	j, got, _ := open(t, opts)
	if err := errors.Join(equal(got, want), j.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestAppendBatchAllOrNothing: a batch that is refused, whatever for, leaves no part of
// itself and uses no LSN.
func TestAppendBatchAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := journaltest.NewDisk()
		j, _, _ := open(t, memOptions(fs, journal.SyncOS))
		synctest.Wait()
		w := newReleased()
		want := uint64(0)
		try := func(is error, sizes ...int) {
			t.Helper()
			var batch [][]byte
			for _, size := range sizes {
				batch = append(batch, payload(1, size))
			}
			first, err := j.AppendBatch(0, batch)
			if !errors.Is(err, is) || err == nil && first != want+1 {
				t.Fatalf("LSN %d, %v; want %v", first, err, is)
			}
			if err == nil {
				want += uint64(len(sizes))
			}
			if last := j.Stats().AppendedLSN; last != want {
				t.Fatalf("last LSN %d, want %d", last, want)
			}
		}
		// Half of MaxPendingBytes, which is a segment here, less 108 bytes.
		most := journal.MinMaxPendingBytes/2 - segmentHeader - recordHeader
		try(journal.ErrTooLarge, 1, journal.MaxPayloadBytes+1)
		rest := most - 3*recordHeader - 2*60_000
		try(journal.ErrTooLarge, 60_000, 60_000, rest+1)
		try(nil, 1, 2, 3)
		try(journal.ErrBacklog, 60_000, 60_000, rest) // the buffer has room for less
		j.Commit(w, 0)
		if err := <-w.ch; err != nil {
			t.Fatal(err)
		}
		try(nil, 60_000, 60_000, rest) // the largest, in a segment of its own
		j.Commit(w, 0)
		if err := <-w.ch; err != nil || len(fs.Paths(".seg")) != 2 {
			t.Fatal(err, fs.Paths(".seg"))
		}
		synctest.Wait()
		fs.SetSpace(0)
		try(nil, 1000, 1000) // into the segment prepared before
		try(nil, 60_000, 60_000)
		j.Commit(w, 0)
		if err := <-w.ch; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		try(journal.ErrFull, 1000, 60_000)
		try(nil, 100, 100)
		fs.Intercept((&journaltest.Failure{N: 1, Ops: []journaltest.Op{journaltest.Write}}).Before)
		j.Commit(w, 0)
		if err := <-w.ch; !errors.Is(err, journal.ErrFailed) {
			t.Fatal(err)
		}
		try(journal.ErrFailed, 1)
		if err := j.Close(); !errors.Is(err, journal.ErrFailed) {
			t.Fatal(err)
		}
	})
}

// TestFence: the writer is told, what it had appended is kept, and the folder is for the
// new term, also when the old process has died at once.
func TestFence(t *testing.T) {
	for _, mode := range modes {
		synctest.Test(t, func(t *testing.T) {
			fs, h := journaltest.NewDisk(), newHistory()
			opts := memOptions(fs, mode)
			opts.Term = 5
			j, _, _ := open(t, opts)
			if _, err := h.append(j, 5, 100); err != nil || j.Term() != 5 {
				t.Fatal(err, j.Term())
			}
			for _, term := range []uint64{4, 5} {
				if err := j.Fence(term); !errors.Is(err, journal.ErrTerm) {
					t.Fatal(err)
				}
			}
			if err := j.Err(); err != nil {
				t.Fatalf("after fences that were refused: %v", err)
			}
			if err := j.Fence(9); err != nil || j.Term() != 9 {
				t.Fatal(err, j.Term())
			}
			image := fs.Killed(nil, 0)
			_, err := j.Append(0, nil)
			_, batch := j.AppendBatch(0, [][]byte{nil})
			for _, err := range []error{err, batch, j.Snapshot(1, nil), j.Fence(8), j.Err()} {
				if !errors.Is(err, journal.ErrTerm) {
					t.Errorf("after the fence: %v", err)
				}
			}
			h.commit(j)
			synctest.Wait()
			if err := errors.Join(j.Close(), h.settled()); err != nil || h.acked != 1 || !errors.Is(j.Err(), journal.ErrTerm) {
				t.Fatal(err, h.acked, j.Err())
			}
			if err := j.Fence(10); !errors.Is(err, journal.ErrClosed) {
				t.Error(err)
			}
			for _, fs := range []*journaltest.Disk{image, fs} {
				opts.FS, opts.Term = fs, 8
				if _, _, _, err := collect(opts); !errors.Is(err, journal.ErrTerm) || !strings.Contains(err.Error(), "term 9") {
					t.Fatal(err)
				}
				opts.Term = 9
				j, got, _ := open(t, opts)
				if err := j.Close(); err != nil || fs != image && len(got) != 1 {
					t.Fatal(err, len(got))
				}
			}
		})
	}
}

// TestFailureAfterFence: what was appended before the fence cannot be written, which is
// worse than the fence, and nobody is told that it was.
func TestFailureAfterFence(t *testing.T) {
	for _, mode := range promising {
		synctest.Test(t, func(t *testing.T) {
			fs, h := journaltest.NewDisk(), newHistory()
			j, _, _ := open(t, memOptions(fs, mode))
			if _, err := h.append(j, 0, 100); err != nil {
				t.Fatal(err)
			}
			if err := j.Fence(1); err != nil {
				t.Fatal(err)
			}
			fs.Intercept(func(c journaltest.Call) *journaltest.Fault {
				if c.Op == journaltest.Write && strings.HasSuffix(c.Path, ".seg") {
					return &journaltest.Fault{Err: syscall.EIO}
				}
				return nil
			})
			h.commit(j)
			synctest.Wait()
			if err := j.Err(); !errors.Is(err, journal.ErrFailed) {
				t.Errorf("%v: Err is %v", mode, err)
			}
			if err := j.Close(); !errors.Is(err, syscall.EIO) {
				t.Errorf("%v: close: %v", mode, err)
			}
			if err := h.settled(); err != nil || h.acked != 0 {
				t.Errorf("%v: %v, LSN %d acked", mode, err, h.acked)
			}
		})
	}
}

// TestEntries reads a log as dump does, and a part of it, from every place.
func TestEntries(t *testing.T) {
	fs, _, entries := keptLog(t, journal.SyncOS, false)
	report, err := journal.Verify("/log", fs, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := report.FirstLSN
	read := func(from uint64, most int) (got []journal.Entry, err error) {
		for e, err := range journal.Entries("/log", fs, from) {
			if err != nil {
				return got, err
			}
			e.Payload = []byte(string(e.Payload))
			if got = append(got, e); len(got) == most {
				break
			}
		}
		return got, nil
	}
	for from := first; from <= uint64(len(entries))+1; from++ {
		got, err := read(from, 1000)
		if err := errors.Join(err, equal(got, entries[from-1:])); err != nil {
			t.Fatalf("from LSN %d: %v", from, err)
		}
	}
	got, err := read(0, 2)
	if err := errors.Join(err, equal(got, entries[first-1:first+1])); err != nil {
		t.Fatal(err)
	}
	if got, err := read(first-1, 1000); !errors.Is(err, journal.ErrPruned) || len(got) != 0 || !strings.Contains(err.Error(), fmt.Sprint(first)) {
		t.Fatal(err)
	}
	if err := journal.ReadFrom("/log", fs, first, uint64(len(entries))+1, func(journal.Entry) error { return nil }); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("ends with LSN %d", len(entries))) {
		t.Fatal(err)
	}
	for _, r := range [][2]uint64{{0, 5}, {first + 2, first + 1}} {
		if err := journal.ReadFrom("/log", fs, r[0], r[1], nil); err == nil || errors.Is(err, journal.ErrPruned) {
			t.Fatal(err)
		}
	}
	flip(fs, fs.Paths(".seg")[1], segmentHeader+3)
	if got, err := read(0, 1000); !errors.Is(err, journal.ErrDamaged) || len(got) == 0 {
		t.Fatal(len(got), err)
	}
}
