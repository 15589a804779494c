package server

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"tailgate/gateway/journal/journaltest"
)

// tradedOn returns a gateway over the disk whose state has a snapshot of many blocks.
func tradedOn(t *testing.T, disk *journaltest.Disk, c Config) *Server {
	t.Helper()
	s, err := openOver(context.Background(), c, nil, disk)
	if err != nil {
		t.Fatal(err)
	}
	trade(t, s, 0, 5000)
	return s
}

// stuckSnapshot makes the disk hold the first write of the next snapshot until release is closed. began is closed when it is there, and
// writes says how many there were.
func stuckSnapshot(disk *journaltest.Disk, release <-chan struct{}) (began <-chan struct{}, writes func() int) {
	var mu sync.Mutex
	n, first := 0, make(chan struct{})
	disk.Intercept(func(c journaltest.Call) *journaltest.Fault {
		if c.Op != journaltest.Write || filepath.Ext(c.Path) != ".tmp" {
			return nil
		}
		mu.Lock()
		n++
		isFirst := n == 1
		mu.Unlock()
		if isFirst {
			close(first)
			<-release
		}
		return nil
	})
	return first, func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// TestShutdownGivesUpASnapshot: one that is being made on a disk that hangs keeps no stop beyond its context, and is not gone on with once
// the disk moves again. This is so for one that is folded beside the gateway and for one of the live state.
func TestShutdownGivesUpASnapshot(t *testing.T) {
	for name, every := range map[string]uint64{"beside the running gateway": 0, "at the stop": 10_000} {
		t.Run(name, func(t *testing.T) {
			c := quiet(t)
			c.Journal.Dir, c.Journal.SnapshotEvery = "journal", every
			disk := journaltest.NewDisk()
			s := tradedOn(t, disk, c)
			want := digest(s)
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			began, writes := stuckSnapshot(disk, ctx.Done())
			if every == 0 {
				s.snapshots.Now()
				<-began
			}
			err := s.Shutdown(ctx)
			select {
			case <-began:
			default:
				t.Fatal("no snapshot was begun: the test has lost its subject")
			}
			if every == 0 && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("shutdown: %v, want the end of its context", err)
			}
			<-s.snapshots.done
			left := disk.Paths(".snap")
			if n := writes(); n != 1 || len(left) > 0 || len(disk.Paths(".tmp")) > 0 {
				t.Errorf("%d writes of the snapshot, and there are %q and %q: want 1, and none", n, left, disk.Paths(".tmp"))
			}
			disk.Intercept(nil)
			s, err = openOver(context.Background(), c, nil, disk)
			if err != nil {
				t.Fatal(err)
			}
			defer stop(t, s)
			if digest(s) != want {
				t.Error("the next start gives another state")
			}
		})
	}
}

// TestStopOfSnapshotsWaitsForWhatEnds: with time enough the goroutine has ended when Stop returns.
func TestStopOfSnapshotsWaitsForWhatEnds(t *testing.T) {
	c := quiet(t)
	c.Journal.Dir = "journal"
	disk := journaltest.NewDisk()
	s := tradedOn(t, disk, c)
	defer stop(t, s)
	release := make(chan struct{})
	began, writes := stuckSnapshot(disk, release)
	s.snapshots.Now()
	<-began
	s.snapshots.cancel()
	close(release)
	if err := s.snapshots.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := writes(); n != 1 || len(disk.Paths(".snap")) > 0 {
		t.Errorf("%d writes, snapshots %q: want 1, and none", n, disk.Paths(".snap"))
	}
}

// TestContextEndsARestore: at a start and in a fold a snapshot that has no record behind it is read no further than the context allows.
func TestContextEndsARestore(t *testing.T) {
	c := quiet(t)
	c.Journal.Dir, c.Journal.SnapshotEvery = "journal", 10_000
	disk := journaltest.NewDisk()
	s := tradedOn(t, disk, c)
	stop(t, s)
	if snapshots := disk.Paths(".snap"); len(snapshots) != 1 {
		t.Fatalf("snapshots %q: want one", snapshots)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := openOver(ended, c, nil, disk); !errors.Is(err, context.Canceled) {
		t.Errorf("a start: %v", err)
	}
	s, err := openOver(context.Background(), c, nil, disk)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, s)
	if _, err := s.snapshots.fold(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a fold: %v", err)
	}
}
