package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"tailgate/gateway/journal"
	"tailgate/gateway/journal/journaltest"
)

// TestFaults fails every call of a process in turn (recovery of a torn log, appends,
// commits, changes of segment, snapshots, prunes, the notes of all that, close), once or
// from then on, and lets the process go on as long as it can. Then it dies, and under
// SyncAlways the power goes: what was released without an error is there. Meanwhile
// nothing is acked any more once a write or a sync of the log has failed, and what a
// failed snapshot costs is the snapshot.
func TestFaults(t *testing.T) {
	kinds := map[string]*journaltest.Failure{
		// Only writes know the difference between half of them and nothing.
		"EIO half of a write":       {Short: true},
		"EIO nothing of a write":    {Ops: []journaltest.Op{journaltest.Write}},
		"EIO from then on":          {Short: true, Lasting: true},
		"ENOSPC half of a write":    {Err: syscall.ENOSPC, Short: true},
		"ENOSPC nothing of a write": {Err: syscall.ENOSPC, Ops: []journaltest.Op{journaltest.Write}},
		"ENOSPC from then on":       {Err: syscall.ENOSPC, Lasting: true, Match: takesSpace},
	}
	for _, mode := range modes {
		for kind, failure := range kinds {
			if mode == journal.SyncOff && kind != "EIO half of a write" {
				continue // it promises nothing: one kind shows that it stays usable
			}
			t.Run(mode.String()+"/"+kind, func(t *testing.T) {
				var base *journaltest.Disk
				h := newHistory()
				synctest.Test(t, func(t *testing.T) { base = tornLog(t, mode, h) })
				var seen faultsSeen
				reached := true
				for n := 1; reached && !t.Failed(); n += every {
					synctest.Test(t, func(t *testing.T) {
						f := &journaltest.Failure{N: n, Err: failure.Err, Short: failure.Short, Lasting: failure.Lasting, Ops: failure.Ops, Match: failure.Match}
						reached = faultAt(t, base.Killed(nil, 0), mode, h, f, &seen)
					})
				}
				if every > 1 {
					return // a part of the calls need not have all of them
				}
				if lasting := failure.Lasting && failure.Match == nil; !lasting && !t.Failed() && (seen.snapshots == 0 || seen.after == 0) {
					t.Errorf("%+v: the faults are all alike", seen)
				}
				if failure.Err == 0 && seen.log == 0 {
					t.Errorf("%+v: no write of the log failed", seen)
				}
			})
		}
	}
}

// takesSpace: on a full disk what is written already can be written again.
func takesSpace(c journaltest.Call) bool {
	return c.Op == journaltest.Allocate || c.Op == journaltest.Create || c.Op == journaltest.Write && ofSnapshot(c.Path)
}

func ofSnapshot(path string) bool { return strings.HasPrefix(filepath.Base(path), "snapshot") }

// ofLog reports whether the failure of c leaves open what of the log is on the disk. A
// full disk does not, where it keeps a segment from being prepared or the state from being
// noted: both are tried again.
func ofLog(c journaltest.Call, full bool) bool {
	name := filepath.Base(c.Path)
	switch {
	case c.Op == journaltest.SyncDir:
		return true
	case c.Op != journaltest.Write && c.Op != journaltest.Sync:
		return false
	case strings.HasPrefix(name, "prepared"):
		return c.Op == journaltest.Write || !full
	default:
		return strings.HasSuffix(name, ".seg") || name == "STATE" && !full
	}
}

// faultsSeen counts what the faults of a kind have hit.
type faultsSeen struct {
	log       int // the running log's files
	snapshots int // a snapshot was refused
	after     int // a snapshot was written later in the same process
}

// tornLog returns a log with a torn tail, so that recovery has something to do.
func tornLog(t *testing.T, mode journal.SyncMode, h *history) *journaltest.Disk {
	fs := journaltest.NewDisk()
	if err := play(fs, memOptions(nil, mode), h); err != nil {
		t.Fatal(err)
	}
	segments := fs.Paths(".seg")
	data := fs.Content(segments[len(segments)-1])
	copy(data[len(bytes.TrimRight(data, "\x00"))+9:], "torn")
	return fs
}

// faultAt opens the log in fs, fails the calls that f names, and reports whether there
// was one.
func faultAt(t *testing.T, fs *journaltest.Disk, mode journal.SyncMode, before *history, f *journaltest.Failure, seen *faultsSeen) (reached bool) {
	rng := rand.New(rand.NewPCG(4, uint64(f.N)))
	h := newHistory()
	h.entries = slices.Clone(before.entries)
	h.acked, h.kept = uint64(len(h.entries)), before.kept
	fs.Intercept(f.Before)
	stopped, ackedThen, refused := false, uint64(0), false
	_ = playQuietly(fs, memOptions(nil, mode), h, snapshotsAt, func(j *journal.Journal, snapshot error) {
		hit := f.Hit()
		acked := h.promise().acked
		switch {
		case stopped && mode != journal.SyncOff && acked > ackedThen:
			t.Errorf("LSN %d acked after %s %s had failed", acked, hit.Op, hit.Path)
		case stopped:
		case hit != nil && ofLog(*hit, f.Err == syscall.ENOSPC):
			seen.log++
			stopped, ackedThen = true, acked
			if !errors.Is(j.Err(), journal.ErrFailed) {
				t.Errorf("the journal goes on although %s %s has failed: %v", hit.Op, hit.Path, j.Err())
			}
		case hit != nil && !f.Lasting && (ofSnapshot(hit.Path) || hit.Op == journaltest.Remove) && j.Err() != nil:
			t.Errorf("the journal stopped because %s %s has failed: %v", hit.Op, hit.Path, j.Err())
		}
		if snapshot != nil {
			refused = true
			seen.snapshots++
			if hit == nil {
				t.Errorf("snapshot: %v", snapshot)
			}
		} else if refused && h.promise().kept > before.kept {
			seen.after++
		}
	})
	fs.Intercept(nil)
	if h.err != nil {
		t.Error(h.err)
	}
	p := h.promise()
	if mode == journal.SyncOff {
		p.acked = p.kept
	}
	survives(t, fs.Killed(nil, 0), memOptions(nil, mode), p, rng)
	if mode == journal.SyncAlways {
		survives(t, fs.PowerCut(rng), memOptions(nil, mode), p, rng)
	}
	if t.Failed() {
		t.Fatalf("with %v at call %d: %+v", fmt.Sprint(f.Err), f.N, f.Hit())
	}
	return f.Hit() != nil
}
