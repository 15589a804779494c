package journal_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tailgate/gateway/journal"
	"tailgate/gateway/journal/journaltest"
)

// snapReads counts the snapshots that are opened to be read, and holds up their reads.
type snapReads struct {
	*journaltest.Disk
	opened *atomic.Int32
	before func() // a block of one is read; nil holds nothing up
}

func (fs snapReads) Open(path string, write bool) (journal.File, error) {
	f, err := fs.Disk.Open(path, write)
	if err != nil || !strings.HasSuffix(path, ".snap") {
		return f, err
	}
	fs.opened.Add(1)
	return heldFile{f, fs.before}, nil
}

type heldFile struct {
	journal.File
	before func()
}

func (f heldFile) ReadAt(p []byte, off int64) (int, error) {
	if f.before != nil && len(p) > segmentHeader { // a block
		f.before()
	}
	return f.File.ReadAt(p, off)
}

// TestSnapshotStopped: an error of write, after any number of bytes, comes back as it is,
// and all is as before: no file, no prune, no snapshot read again, and entries are taken.
func TestSnapshotStopped(t *testing.T) {
	errStop := errors.New("the context has ended")
	for _, mode := range modes {
		for _, written := range []int{0, 1, 65_536, 65_537, 9 << 20} {
			synctest.Test(t, func(t *testing.T) {
				fs := snapReads{Disk: journaltest.NewDisk(), opened: new(atomic.Int32)}
				h := newHistory()
				opts := memOptions(fs.Disk, mode)
				opts.FS = fs
				j, _, _ := open(t, opts)
				for range 3 {
					for range 50 {
						if _, err := h.append(j, 0, 2000); err != nil {
							t.Fatal(err)
						}
						h.commit(j)
						synctest.Wait()
					}
					if err := h.keep(j); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := h.append(j, 0, 2000); err != nil {
					t.Fatal(err)
				}
				h.commit(j)
				synctest.Wait()
				before, opened := fs.Paths(""), fs.opened.Load()
				err := j.Snapshot(151, func(w io.Writer) error {
					if _, err := w.Write(make([]byte, written)); err != nil {
						t.Error(err)
					}
					return errStop
				})
				if err != errStop { //nolint:errorlint // as it is, so that the caller's own comparison holds
					t.Errorf("%v; want the error of write as it is", err)
				}
				if after := fs.Paths(""); !slices.Equal(before, after) {
					t.Errorf("left are %v of %v", after, before)
				}
				if n := fs.opened.Load() - opened; n != 0 {
					t.Errorf("%d snapshots were read", n)
				}
				if j.Err() != nil || j.Stats().SnapshotLSN != 150 {
					t.Errorf("%v, %+v", j.Err(), j.Stats())
				}
				if err := errors.Join(h.keep(j), j.Close(), h.settled()); err != nil || fs.opened.Load() == opened {
					t.Errorf("the next one: %v", err)
				}
				j, got, report := open(t, opts)
				if err := errors.Join(equal(got, h.entries), j.Close()); err != nil || report.Restored != 151 {
					t.Errorf("%v, %v", err, report)
				}
			})
		}
	}
}

// TestFullDisk: where neither a segment nor a snapshot fits, everything is refused and a
// snapshot does not help; where a snapshot fits, its prune brings entries back.
func TestFullDisk(t *testing.T) {
	for _, mode := range modes {
		synctest.Test(t, func(t *testing.T) {
			fs, h := journaltest.NewDisk(), newHistory()
			j, _, _ := open(t, memOptions(fs, mode))
			add := func(n int) (err error) {
				for ; n > 0 && err == nil; n-- {
					_, err = h.append(j, 0, 4000)
					h.commit(j)
					synctest.Wait()
				}
				return err
			}
			for range 2 {
				if err := errors.Join(add(40), h.keep(j)); err != nil { // more than a segment
					t.Fatal(err)
				}
			}
			fs.SetSpace(0)
			if err := add(1000); !errors.Is(err, journal.ErrFull) {
				t.Fatal(err)
			}
			err := j.Snapshot(uint64(len(h.entries)), func(w io.Writer) error { return writeEntries(w, h.entries) })
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("a snapshot without space: %v", err)
			}
			time.Sleep(time.Second) // of the bubble's clock
			if err := add(1); !errors.Is(err, journal.ErrFull) || j.Err() != nil {
				t.Errorf("append: %v, Err is %v", err, j.Err())
			}
			fs.SetSpace(journal.MinSegmentBytes - 1)
			if err := h.keep(j); err != nil {
				t.Errorf("a snapshot that fits: %v", err)
			}
			time.Sleep(time.Second)
			if err := add(1); err != nil {
				t.Errorf("append after the prune: %v", err)
			}
			if acked := h.promise().acked; acked != uint64(len(h.entries)) {
				t.Errorf("LSN %d acked of %d", acked, len(h.entries))
			}
			if err := errors.Join(j.Close(), h.settled()); err != nil {
				t.Error(err)
			}
			j, got, _ := open(t, memOptions(fs, mode))
			if err := errors.Join(equal(got, h.entries), j.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSnapshotWithAHole: write has not heard that the journal was closed, and what it wrote
// behind that is lost: no snapshot.
func TestSnapshotWithAHole(t *testing.T) {
	fs := journaltest.NewDisk()
	j, _, _ := open(t, memOptions(fs, journal.SyncOS))
	if _, err := j.Append(0, nil); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	err := j.Snapshot(1, func(w io.Writer) error {
		_, _ = w.Write([]byte("the beginning"))
		go func() { closed <- j.Close() }()
		<-journal.Stopping(j)
		_, _ = w.Write([]byte("the end"))
		return nil
	})
	if !errors.Is(err, journal.ErrClosed) || len(fs.Paths(".snap")) != 0 {
		t.Errorf("%v, left are %v", err, fs.Paths(".snap"))
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestCloseEndsReading: Close waits for one block of a snapshot and not for the rest,
// where it is read to be used, where it is only checked before that, and where a prune
// checks it.
func TestCloseEndsReading(t *testing.T) {
	content := bytes.Repeat([]byte("state"), 100_000) // 8 blocks
	write := func(w io.Writer) error { _, err := w.Write(content); return err }
	for _, c := range []struct {
		name string
		held int32 // the block of the read at which Close comes
		do   func(j *journal.Journal) error
	}{
		{"checked", 3, func(j *journal.Journal) error {
			return j.ReadSnapshot(func(uint64, io.Reader) error { return errors.New("restore was called") })
		}},
		{"restored", 8 + 3, func(j *journal.Journal) error {
			return j.ReadSnapshot(func(_ uint64, r io.Reader) error { _, err := io.Copy(io.Discard, r); return err })
		}},
		{"pruned", 3, func(j *journal.Journal) error { return j.Snapshot(2, write) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var j *journal.Journal
			var reads atomic.Int32
			armed, closed := false, make(chan error, 1)
			fs := snapReads{journaltest.NewDisk(), new(atomic.Int32), func() {
				if armed && reads.Add(1) == c.held {
					go func() { closed <- j.Close() }()
					<-journal.Stopping(j)
				}
			}}
			opts := memOptions(fs.Disk, journal.SyncOS)
			opts.FS = fs
			j, _, _ = open(t, opts)
			for range 2 {
				if _, err := j.Append(0, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := j.Snapshot(1, write); err != nil {
				t.Fatal(err)
			}
			armed = true
			if err := c.do(j); !errors.Is(err, journal.ErrClosed) || reads.Load() > c.held {
				t.Errorf("%v after %d blocks, Close came at %d", err, reads.Load(), c.held)
			}
			if err := <-closed; err != nil {
				t.Error(err)
			}
		})
	}
}
