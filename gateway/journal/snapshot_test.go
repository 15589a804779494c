package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"tailgate/gateway/journal"
	"tailgate/gateway/journal/journaltest"
)

// keptLog plays the script and returns a closed log with two snapshots: of segments
// either the last two, or all four.
func keptLog(t *testing.T, mode journal.SyncMode, all bool) (*journaltest.Disk, journal.Options, []journal.Entry) {
	t.Helper()
	fs, h := journaltest.NewDisk(), newHistory()
	opts := memOptions(fs, mode)
	opts.KeepSegments = all
	synctest.Test(t, func(t *testing.T) {
		if err := play(fs, opts, h); err != nil {
			t.Fatal(err)
		}
	})
	segs, snaps := fs.Paths(".seg"), fs.Paths(".snap")
	if want := map[bool]int{false: 2, true: 4}[all]; len(segs) != want || len(snaps) != 2 {
		t.Fatalf("%v, %v", segs, snaps)
	}
	return fs, opts, h.entries
}

// flip changes a bit in place.
func flip(fs *journaltest.Disk, path string, at int) { fs.Content(path)[at] ^= 1 << (at % 8) }

// TestSnapshotDamaged damages the newest snapshot in every way a file can be: it is never
// used, the one before it is, and nothing is missing. The next prune removes it.
func TestSnapshotDamaged(t *testing.T) {
	log, opts, entries := keptLog(t, journal.SyncOS, false)
	newest := log.Paths(".snap")[1]
	whole := log.Content(newest)
	damages := map[string]func(fs *journaltest.Disk){
		"empty":     func(fs *journaltest.Disk) { fs.SetContent(newest, nil) },
		"longer":    func(fs *journaltest.Disk) { fs.SetContent(newest, append(bytes.Clone(whole), 0)) },
		"shorter":   func(fs *journaltest.Disk) { cutFile(fs, newest, len(whole)-1) },
		"header":    func(fs *journaltest.Disk) { cutFile(fs, newest, 64) },
		"one block": func(fs *journaltest.Disk) { cutFile(fs, newest, 64+65536+4) },
		"another's": func(fs *journaltest.Disk) {
			other, _, _ := keptLog(t, journal.SyncOS, false)
			fs.SetContent(newest, bytes.Clone(other.Content(newest)))
		},
		"another name": func(fs *journaltest.Disk) { fs.SetContent(newest, bytes.Clone(fs.Content(fs.Paths(".snap")[0]))) },
	}
	for at := 0; at < len(whole); at += 1 + max(0, at-63)*211/max(1, at) {
		damages[fmt.Sprintf("flipped at byte %d", at)] = func(fs *journaltest.Disk) { flip(fs, newest, at) }
	}
	if len(damages) < 300 {
		t.Fatalf("only %d damages", len(damages))
	}
	for name, damage := range damages {
		fs := log.Killed(nil, 0)
		damage(fs)
		opts.FS = fs
		_, verr := journal.Verify("/log", fs, nil)
		if bad := (*journal.SnapshotError)(nil); !errors.As(verr, &bad) || bad.File != newest || !errors.Is(verr, journal.ErrDamaged) {
			t.Fatalf("%s: verify: %v", name, verr)
		}
		j, got, report := open(t, opts)
		if err := equal(got, entries); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(report.Snapshots) != 2 || report.Snapshots[0].Damage == nil || report.Restored != report.Snapshots[1].LSN {
			t.Fatalf("%s: %v", name, report)
		}
		h := newHistory()
		h.entries = got
		_, err := h.append(j, 0, 5)
		if err := errors.Join(err, h.keep(j), j.Close()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if snaps := fs.Paths(".snap"); len(snaps) != 2 || slices.Contains(snaps, newest) {
			t.Fatalf("%s: left are %v", name, snaps)
		}
	}
}

// TestNoSnapshotLeft damages both: the whole log stands in, if it is there.
func TestNoSnapshotLeft(t *testing.T) {
	for _, all := range []bool{true, false} {
		fs, opts, entries := keptLog(t, journal.SyncAlways, all)
		for _, path := range fs.Paths(".snap") {
			flip(fs, path, 1000)
		}
		j, got, report, err := collect(opts)
		if all {
			if err := errors.Join(err, equal(got, entries)); err != nil || report.Restored != 0 || len(report.Snapshots) != 2 {
				t.Fatalf("%v, %v", err, report)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		lost := (*journal.SnapshotError)(nil)
		if !errors.As(err, &lost) || lost.File != fs.Paths(".snap")[1] || lost.Lost == "" || !strings.Contains(err.Error(), "Restore the folder from a copy") {
			t.Fatal(err)
		}
		if _, verr := journal.Verify("/log", fs, nil); !errors.As(verr, &lost) || lost.Lost == "" {
			t.Fatal(verr)
		}
	}
}

// lateDamage damages a snapshot between the check of it and the reading.
type lateDamage struct {
	*journaltest.Disk
	path string
	open *int
}

func (fs lateDamage) Open(path string, write bool) (journal.File, error) {
	if path == fs.path {
		if *fs.open++; *fs.open == 3 { // the header, the check, the content
			flip(fs.Disk, path, 64+65536+4+50)
		}
	}
	return fs.Disk.Open(path, write)
}

// TestSnapshotDamagedWhileRead: no wrong byte is handed over, and Open fails rather than
// go on from a part.
func TestSnapshotDamagedWhileRead(t *testing.T) {
	fs, opts, _ := keptLog(t, journal.SyncOS, false)
	newest, opens, given := fs.Paths(".snap")[1], 0, 0
	opts.FS = lateDamage{fs, newest, &opens}
	opts.Restore = func(_ uint64, r io.Reader) error {
		b, err := io.ReadAll(r)
		given = len(b)
		return err
	}
	if _, _, err := journal.Open(opts, nil); err == nil || !strings.Contains(err.Error(), "block 1") || given != 65536 {
		t.Fatalf("%d bytes given, %v", given, err)
	}
	opts.Restore = nil
	if j, _, report := open(t, opts); report.Restored == 0 || j.Close() != nil {
		t.Fatal(report)
	}
}

// TestVanished takes each file of a pruned log away in turn.
func TestVanished(t *testing.T) {
	log, opts, entries := keptLog(t, journal.SyncOS, false)
	segs, snaps := log.Paths(".seg"), log.Paths(".snap")
	for _, c := range []struct {
		gone []string
		why  string // of the refusal; empty when nothing is missing
	}{
		{segs[:1], "segments are missing. Restore the folder from a copy"},
		{segs[1:], "LSN"},
		{segs, "no such file"},
		{snaps[:1], ""},
		{snaps[1:], ""},
		{snaps, "what was before is in snapshots only"},
		{[]string{statePath}, "STATE"},
		{append([]string{statePath}, segs...), "STATE"},
	} {
		fs := log.Killed(nil, 0)
		for _, path := range c.gone {
			removeFile(t, fs, path)
		}
		opts.FS = fs
		j, got, report, err := collect(opts)
		if c.why == "" {
			if err := errors.Join(err, equal(got, entries)); err != nil || report.Restored == 0 {
				t.Errorf("without %v: %v, %v", c.gone, err, report)
				continue
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		if !errors.Is(err, journal.ErrDamaged) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("without %v: %v", c.gone, err)
		}
		if _, err := journal.Verify("/log", fs, nil); !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("verify without %v: %v", c.gone, err)
		}
	}
	// A lost state is made anew by a cut behind the end.
	fs := log.Killed(nil, 0)
	removeFile(t, fs, statePath)
	if _, err := journal.Cut("/log", fs, uint64(len(entries))+1); err != nil {
		t.Fatal(err)
	}
	opts.FS = fs
	j, got, report := open(t, opts)
	if err := errors.Join(j.Close(), equal(got, entries)); err != nil || report.FirstLSN == 1 {
		t.Fatal(err, report)
	}
}

// TestRestoreMissing: a log whose beginning was pruned is not taken for a whole one.
func TestRestoreMissing(t *testing.T) {
	_, pruned, _ := keptLog(t, journal.SyncOS, false)
	if _, _, err := journal.Open(pruned, nil); err == nil || !strings.Contains(err.Error(), "set Options.Restore") {
		t.Fatal(err)
	}
	_, opts, entries := keptLog(t, journal.SyncOS, true)
	n := 0
	j, report, err := journal.Open(opts, func(journal.Entry) error { n++; return nil })
	if err != nil || n != len(entries) || report.Restored != 0 || j.Close() != nil {
		t.Fatal(err, n, report)
	}
}

// TestPruneInterrupted: what a prune has removed may come back in part. It is no part of
// the log, whatever is missing between it and the rest, and the next prune removes it.
func TestPruneInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, h := journaltest.NewDisk(), newHistory()
		opts := memOptions(fs, journal.SyncOS)
		j, _, _ := open(t, opts)
		snap := func() {
			for range 12 {
				if _, err := h.append(j, 0, 50_000); err != nil {
					t.Fatal(err)
				}
				h.commit(j)
				synctest.Wait()
			}
			if err := h.keep(j); err != nil {
				t.Fatal(err)
			}
		}
		snap()
		var image *journaltest.Disk
		fs.Intercept(func(c journaltest.Call) *journaltest.Fault {
			if c.Op == journaltest.Remove && image == nil {
				image = fs.Killed(nil, 0)
			}
			return nil
		})
		snap()
		segs := image.Paths(".seg")
		if err := j.Close(); err != nil || len(segs) < 10 {
			t.Fatal(err, segs)
		}
		pruned := segs[:slices.Index(segs, fs.Paths(".seg")[0])]
		for i := range pruned {
			after := image.Killed(nil, 0)
			removeFile(t, after, pruned[i])
			opts.FS = after
			j, got, report := open(t, opts)
			if err := equal(got, h.entries[:24]); err != nil || report.FirstLSN == 1 {
				t.Fatalf("without %s: %v, %v", pruned[i], err, report)
			}
			next := newHistory()
			next.entries = got
			_, err := next.append(j, 0, 1)
			if err := errors.Join(err, next.keep(j), j.Close()); err != nil {
				t.Fatal(err)
			}
			for _, path := range after.Paths(".seg") {
				if slices.Contains(pruned, path) {
					t.Fatalf("%s is still there", path)
				}
			}
		}
	})
}

// TestCutSnapshots cuts at every LSN: a snapshot of what is given up goes, and a cut that
// would leave nothing to begin with is refused and changes nothing. The power goes at
// every call of a cut: done again, it comes to its end.
func TestCutSnapshots(t *testing.T) {
	for _, all := range []bool{true, false} {
		log, opts, entries := keptLog(t, journal.SyncOS, all)
		older := uint64(14) // the LSN of the older snapshot, from snapshotsAt
		rng := rand.New(rand.NewPCG(9, 9))
		for lsn := uint64(1); lsn <= uint64(len(entries))+1; lsn++ {
			fs := log.Killed(nil, 0)
			var images []*journaltest.Disk
			fs.Intercept(func(c journaltest.Call) *journaltest.Fault {
				if c.Op != journaltest.Close {
					images = append(images, fs.PowerCut(rng))
				}
				return nil
			})
			_, err := journal.Cut("/log", fs, lsn)
			if !all && lsn > 1 && lsn <= older {
				if bad := (*journal.SnapshotError)(nil); !errors.As(err, &bad) || len(images) != 0 {
					t.Fatalf("cut from LSN %d: %v after %d calls", lsn, err, len(images))
				}
				continue
			}
			if err != nil {
				t.Fatalf("cut from LSN %d: %v", lsn, err)
			}
			for i, image := range append(images, fs) {
				if i < len(images) && i%every != 0 {
					continue
				}
				if _, err := journal.Cut("/log", image, lsn); err != nil {
					t.Fatalf("cut from LSN %d again after call %d: %v", lsn, i, err)
				}
				opts.FS = image
				j, got, report := open(t, opts)
				if err := errors.Join(equal(got, entries[:lsn-1]), j.Close()); err != nil || report.Restored >= lsn {
					t.Fatalf("cut from LSN %d, power cut at call %d: %v, %v", lsn, i, err, report)
				}
			}
		}
	}
}

// TestSnapshotRefused: what is no place for a snapshot, and a writer that fails.
func TestSnapshotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, h := journaltest.NewDisk(), newHistory()
		j, _, _ := open(t, memOptions(fs, journal.SyncOS))
		for range 3 {
			if _, err := h.append(j, 0, 5); err != nil {
				t.Fatal(err)
			}
		}
		never := func(io.Writer) error { t.Error("write was called"); return nil }
		for _, lsn := range []uint64{0, 4} {
			if err := j.Snapshot(lsn, never); err == nil || !strings.Contains(err.Error(), "LSN 1 to 3") {
				t.Errorf("LSN %d: %v", lsn, err)
			}
		}
		broken := errors.New("cannot be encoded")
		if err := j.Snapshot(2, func(w io.Writer) error { _, _ = w.Write(make([]byte, 1<<20)); return broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
		// Nobody looks at the error of Write, and yet there is no snapshot.
		fs.SetSpace(100_000)
		err := j.Snapshot(2, func(w io.Writer) error { _, _ = w.Write(make([]byte, 1<<20)); return nil })
		if !errors.Is(err, syscall.ENOSPC) {
			t.Error(err)
		}
		if left := append(fs.Paths(".snap"), fs.Paths("snapshot.tmp")...); len(left) != 0 {
			t.Errorf("left are %v", left)
		}
		fs.SetSpace(1 << 30)
		if err := j.Snapshot(2, func(io.Writer) error { return nil }); err != nil {
			t.Error(err)
		}
		if err := j.Snapshot(2, never); err != nil {
			t.Errorf("the same again: %v", err)
		}
		if err := j.Snapshot(1, never); err == nil || !strings.Contains(err.Error(), "there is one of LSN 2") {
			t.Error(err)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
		if err := j.Snapshot(3, never); !errors.Is(err, journal.ErrClosed) {
			t.Error(err)
		}
		if err := j.ReadSnapshot(func(_ uint64, r io.Reader) error { _, err := io.ReadAll(r); return err }); !errors.Is(err, journal.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestSnapshotHoldsNobodyUp stops a snapshot in the middle of its file, and in the sync
// of the log before it: appends and commits go on, and Close ends it.
func TestSnapshotHoldsNobodyUp(t *testing.T) {
	for _, op := range []journaltest.Op{journaltest.Write, journaltest.Sync} {
		for _, mode := range modes {
			if op == journaltest.Sync && mode == journal.SyncAlways {
				continue // there a commit waits for the same sync
			}
			synctest.Test(t, func(t *testing.T) {
				fs, h := journaltest.NewDisk(), newHistory()
				j, _, _ := open(t, memOptions(fs, mode))
				add := func() {
					if _, err := h.append(j, 0, 100); err != nil {
						t.Fatal(err)
					}
					h.commit(j)
				}
				add()
				synctest.Wait()
				goOn, held := make(chan struct{}), make(chan struct{})
				var once sync.Once
				fs.Intercept(func(c journaltest.Call) *journaltest.Fault {
					if c.Op == op && (ofSnapshot(c.Path) || op == journaltest.Sync && strings.HasSuffix(c.Path, ".seg")) {
						once.Do(func() { close(held); <-goOn })
					}
					return nil
				})
				ended := make(chan error)
				go func() {
					ended <- j.Snapshot(1, func(w io.Writer) error {
						for {
							if _, err := w.Write(make([]byte, 1000)); err != nil {
								return err
							}
						}
					})
				}()
				<-held
				for range 50 {
					add()
				}
				if mode == journal.SyncAlways {
					synctest.Wait()
				}
				if acked := h.promise().acked; acked != 51 {
					t.Errorf("%v, %s: LSN %d acked of 51 while a snapshot is held up", mode, op, acked)
				}
				closed := make(chan error)
				go func() { closed <- j.Close() }()
				for !errors.Is(j.Fence(0), journal.ErrClosed) {
					runtime.Gosched() // Close has begun and waits for a mutex: no bubble sees that
				}
				close(goOn)
				if err := <-ended; !errors.Is(err, journal.ErrClosed) {
					t.Errorf("%v, %s: %v", mode, op, err)
				}
				if err := <-closed; err != nil {
					t.Error(err)
				}
				if left := append(fs.Paths(".snap"), fs.Paths("snapshot.tmp")...); len(left) != 0 {
					t.Errorf("%v, %s: left are %v", mode, op, left)
				}
			})
		}
	}
}

// TestSnapshotsBesideWriters folds, snapshots and prunes in the background while others
// append and commit, on the real file system, then begins with what is there.
func TestSnapshotsBesideWriters(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			opts := journal.Options{Dir: t.TempDir(), Sync: mode, SegmentBytes: 256 << 10}
			j, _, _ := open(t, opts)
			var sequencer sync.Mutex
			var writers sync.WaitGroup
			n := uint64(0)
			for range 4 {
				writers.Go(func() {
					w := newReleased()
					for range 800 {
						sequencer.Lock()
						n++
						appendWait(t, j, payload(n, int(n%900)))
						sequencer.Unlock()
						j.Commit(w, 0)
						if err := <-w.ch; err != nil {
							t.Error(err)
						}
					}
				})
			}
			const end = 3201 // the last one alone, so that the two newest snapshots are at the end
			folded := make(chan int)
			go func() {
				var entries []journal.Entry
				rounds := 0
				for last := uint64(0); last < end; {
					to := j.Committed()
					if to == last {
						runtime.Gosched()
						continue
					}
					err := j.ReadFrom(last+1, to, func(e journal.Entry) error {
						e.Payload = bytes.Clone(e.Payload)
						entries = append(entries, e)
						return nil
					})
					if err == nil {
						err = j.Snapshot(to, func(w io.Writer) error { return writeEntries(w, entries) })
					}
					if err != nil {
						t.Error(err)
						break
					}
					last = to
					rounds++
				}
				folded <- rounds
			}()
			writers.Wait()
			for j.Stats().SnapshotLSN < end-1 && !t.Failed() {
				runtime.Gosched()
			}
			n++
			appendWait(t, j, payload(n, int(n%900)))
			w := newReleased()
			j.Commit(w, 0)
			if err := <-w.ch; err != nil {
				t.Fatal(err)
			}
			if rounds := <-folded; rounds < 2 {
				t.Errorf("%d snapshots", rounds)
			}
			if report, err := journal.Verify(opts.Dir, nil, nil); err != nil || len(report.Snapshots) != 2 {
				t.Errorf("%v, %v", err, report)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			j, got, report := open(t, opts)
			if err := j.Close(); err != nil || uint64(len(got)) != n || report.FirstLSN == 1 || report.Restored != n {
				t.Fatalf("%v, %d entries of %d, %v", err, len(got), n, report)
			}
			for i, e := range got {
				if e.LSN != uint64(i+1) || !bytes.Equal(e.Payload, payload(e.LSN, int(e.LSN%900))) {
					t.Fatalf("entry %d is of LSN %d", i, e.LSN)
				}
			}
		})
	}
}
