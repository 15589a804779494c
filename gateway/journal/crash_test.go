package journal_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"tailgate/gateway/journal"
	"tailgate/gateway/journal/journaltest"
)

var modes = []journal.SyncMode{journal.SyncOff, journal.SyncOS, journal.SyncAlways}

func memOptions(fs *journaltest.Disk, mode journal.SyncMode) journal.Options {
	return journal.Options{Dir: "/log", Sync: mode, FS: fs,
		SegmentBytes: journal.MinSegmentBytes, MaxPendingBytes: journal.MinMaxPendingBytes}
}

// scriptSizes are the payloads of a script: enough for several segments, with
// records of every alignment and some of several pages.
var scriptSizes = []int{0, 1, 96, 30_000, 4096, 500, 40_000, 96, 65_536, 20_000, 7, 33_000, 60_000, 96, 48_000, 3, 50_000, 96, 96}

// snapshotsAt are the places in the script where a snapshot is written: of the second
// segment, of the third, which prunes the first, and of the fourth, which prunes the
// second and the oldest snapshot.
var snapshotsAt = []int{9, 13, 17}

// play runs one process: open, append and commit, snapshots, close. While a file is being
// synced two more entries come in, so that groups overlap. It returns when the
// journal is closed; errors of the journal are the caller's to expect.
func play(fs *journaltest.Disk, opts journal.Options, h *history) error {
	return playQuietly(fs, opts, h, snapshotsAt, func(*journal.Journal, error) {})
}

// playQuietly is play with snapshots at other places. When nothing is under way it calls
// quiet, with the error of a snapshot if that was the last thing.
func playQuietly(fs *journaltest.Disk, opts journal.Options, h *history, snapshots []int, quiet func(*journal.Journal, error)) error {
	opts.FS = fs
	j, got, _, err := collect(opts)
	if err != nil {
		return err
	}
	if err := equal(got, h.entries); err != nil {
		return errors.Join(err, j.Close())
	}
	var inSync atomic.Int32
	inner := fs.Intercept(nil)
	fs.Intercept(func(c journaltest.Call) *journaltest.Fault {
		if c.Op == journaltest.Sync && opts.Sync == journal.SyncAlways && inSync.Add(1) <= 8 {
			if taken, _ := h.append(j, opts.Term, 300); taken {
				h.commit(j)
			}
		}
		if inner == nil {
			return nil
		}
		return inner(c)
	})
	defer func() { fs.Intercept(inner) }()
	var errs []error
	for i, size := range scriptSizes {
		if _, err := h.append(j, opts.Term, size); err == nil && i%3 != 1 {
			h.commit(j)
			synctest.Wait()
			quiet(j, nil)
		}
		if slices.Contains(snapshots, i) {
			err := h.keep(j)
			synctest.Wait()
			quiet(j, err)
			errs = append(errs, err)
		}
	}
	h.commit(j)
	synctest.Wait()
	quiet(j, nil)
	return errors.Join(append(errs, j.Close(), h.settled())...)
}

// oneAtATime lets f keep state: the writer and the background call the file system
// at the same time.
func oneAtATime(f func(journaltest.Call) *journaltest.Fault) func(journaltest.Call) *journaltest.Fault {
	var mu sync.Mutex
	return func(c journaltest.Call) *journaltest.Fault {
		mu.Lock()
		defer mu.Unlock()
		return f(c)
	}
}

// TestKill stops the process at every call it makes to the file system, with the
// call done not at all or, for a write, up to some byte.
func TestKill(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, uint64(mode)))
				fs, h := journaltest.NewDisk(), newHistory()
				images := 0
				fs.Intercept(oneAtATime(func(c journaltest.Call) *journaltest.Fault {
					if t.Failed() || c.N%every != 0 {
						return nil
					}
					p := h.promise()
					if mode == journal.SyncOff {
						p.acked = p.kept // no promise but a snapshot
					}
					for range 3 {
						images++
						kept := 0
						if c.Op == journaltest.Write {
							kept = rng.IntN(len(c.Data) + 1)
						}
						after := fs.Killed(&c, kept)
						survives(t, after, memOptions(nil, mode), p, rng)
						if t.Failed() {
							t.Logf("killed at call %d: %s %s, %d of %d bytes", c.N, c.Op, c.Path, kept, len(c.Data))
							return nil
						}
					}
					return nil
				}))
				if err := play(fs, memOptions(nil, mode), h); err != nil {
					t.Fatal(err)
				}
				if segs, snaps := fs.Paths(".seg"), fs.Paths(".snap"); images < 60/every || len(segs) != 2 || len(snaps) != 2 {
					t.Fatalf("%d images, left are %v, %v: the script is too short", images, segs, snaps)
				}
			})
		})
	}
}

// TestPowerCut cuts the power at every call of a journal under SyncAlways: every
// released entry is there, whatever part of the rest is.
func TestPowerCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(2, 2))
		fs, h := journaltest.NewDisk(), newHistory()
		fs.Intercept(oneAtATime(func(c journaltest.Call) *journaltest.Fault {
			if t.Failed() || c.N%every != 0 {
				return nil
			}
			p := h.promise()
			for range 8 {
				survives(t, fs.PowerCut(rng), memOptions(nil, journal.SyncAlways), p, rng)
				if t.Failed() {
					t.Logf("power cut at call %d: %s %s", c.N, c.Op, c.Path)
					return nil
				}
			}
			return nil
		}))
		if err := play(fs, memOptions(nil, journal.SyncAlways), h); err != nil {
			t.Fatal(err)
		}
	})
}

// secondSegment returns what a process under SyncOS that dies leaves when its second
// segment has just got its name: the first is whole and not confirmed by any mark.
func secondSegment(t *testing.T) (image *journaltest.Disk, entries []journal.Entry) {
	fs, h := journaltest.NewDisk(), newHistory()
	fs.Intercept(oneAtATime(func(c journaltest.Call) *journaltest.Fault {
		if c.Op == journaltest.SyncDir && image == nil && len(fs.Paths(".seg")) > 1 {
			image = fs.Killed(nil, 0)
			entries = h.promise().entries
		}
		return nil
	}))
	if err := playQuietly(fs, memOptions(nil, journal.SyncOS), h, nil, func(*journal.Journal, error) {}); err != nil {
		t.Fatal(err)
	}
	if image == nil || len(image.Paths(".seg")) != 2 {
		t.Fatal("no folder was synced behind the second segment")
	}
	return image, entries
}

// TestOpenIsDurable: what Open has replayed is on the disk when it returns, names
// included, even on a full disk, where it begins no segment that would see to it.
func TestOpenIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 5))
		image, want := secondSegment(t)
		for range 20 {
			fs := image.Killed(nil, 0)
			fs.SetSpace(-1 << 30) // full, whatever recovery gives back
			j, got, _ := open(t, memOptions(fs, journal.SyncOS))
			after := fs.PowerCut(rng)
			if err := errors.Join(j.Close(), equal(got, want[:min(len(got), len(want))])); err != nil {
				t.Fatal(err)
			}
			j, again, _ := open(t, memOptions(after, journal.SyncOS))
			if err := errors.Join(j.Close(), equal(again, got)); err != nil {
				t.Fatalf("after the power cut: %v", err)
			}
		}
	})
}

// TestCloseSyncsNames: the segment left behind is synced, folder included, before the
// one after it has got its name; Close makes that name durable too.
func TestCloseSyncsNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(7, 7))
		fs, h := journaltest.NewDisk(), newHistory()
		j, _, _ := open(t, memOptions(fs, journal.SyncOS))
		synctest.Wait()
		fs.Intercept(func(c journaltest.Call) *journaltest.Fault {
			if c.Op == journaltest.Rename {
				synctest.Wait() // the background has nothing to do any more
			}
			return nil
		})
		for range 3 {
			if _, err := h.append(j, 0, 50_000); err != nil {
				t.Fatal(err)
			}
			h.commit(j)
		}
		if err := errors.Join(j.Close(), h.settled()); err != nil || len(fs.Paths(".seg")) != 2 {
			t.Fatalf("%v, %d segments", err, len(fs.Paths(".seg")))
		}
		for range 10 {
			j, got, _ := open(t, memOptions(fs.PowerCut(rng), journal.SyncOS))
			if err := errors.Join(j.Close(), equal(got, h.entries)); err != nil {
				t.Fatalf("after the power cut: %v", err)
			}
		}
	})
}

// TestLaterSegmentProves loses the end of a segment: the next one proves that there
// was more, though no mark does.
func TestLaterSegmentProves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		image, _ := secondSegment(t)
		first := image.Content(image.Paths(".seg")[0])
		clear(first[len(first)/2:])
		_, _, report, err := collect(memOptions(image, journal.SyncOS))
		damage := (*journal.DamageError)(nil)
		if !errors.As(err, &damage) || damage.File != image.Paths(".seg")[0] || !strings.Contains(err.Error(), "later segment") {
			t.Fatalf("%v, %v", err, report)
		}
	})
}

// TestPowerCutWithoutPromise cuts the power under the other modes. Nothing is
// promised but honesty: a prefix, or an error that names the place. Below the
// durable mark nothing may be missing, and Cut makes the log usable.
func TestPowerCutWithoutPromise(t *testing.T) {
	for _, mode := range []journal.SyncMode{journal.SyncOff, journal.SyncOS} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(3, uint64(mode)))
				fs, h := journaltest.NewDisk(), newHistory()
				var refused, opened int
				fs.Intercept(oneAtATime(func(c journaltest.Call) *journaltest.Fault {
					if t.Failed() || c.N%every != 0 {
						return nil
					}
					p := h.promise()
					entries := p.entries
					for range 8 {
						after := fs.PowerCut(rng)
						opts := memOptions(after, mode)
						j, got, report, err := collect(opts)
						if damage := (*journal.DamageError)(nil); errors.As(err, &damage) {
							refused++
							if strings.Contains(err.Error(), "no crash shortens a file") {
								t.Errorf("and yet this one did: %v", err)
							}
							if damage.LSN <= damage.Durable {
								t.Errorf("LSN %d is lost below the durable mark %d: %v", damage.LSN, damage.Durable, err)
							}
							if _, err := journal.Cut(opts.Dir, after, damage.LSN); err != nil {
								t.Errorf("cut: %v", err)
							}
							j, got, report, err = collect(opts)
							if err != nil {
								t.Errorf("open after cut: %v", err)
								continue
							}
						} else if err != nil {
							t.Errorf("open: %v", err)
							continue
						} else {
							opened++
						}
						if report.Restored < p.kept {
							t.Errorf("began with LSN %d, there was a snapshot of LSN %d", report.Restored, p.kept)
						}
						if err := errors.Join(equal(got, entries[:min(len(got), len(entries))]), j.Close()); err != nil {
							t.Error(err)
						}
					}
					if t.Failed() {
						t.Logf("power cut at call %d: %s %s", c.N, c.Op, c.Path)
					}
					return nil
				}))
				if err := play(fs, memOptions(nil, mode), h); err != nil {
					t.Fatal(err)
				}
				if refused == 0 || opened == 0 {
					t.Fatalf("%d refused, %d opened: the cuts are all alike", refused, opened)
				}
			})
		})
	}
}
