package orders

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func snapshotOf(t testing.TB, s *State) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// streams lists all events that a state has.
func streams(s *State) (all []Report) {
	for account := range s.accounts {
		for _, epoch := range []uint32{s.Epoch() - 1, s.Epoch()} {
			all = s.Events(uint32(account), epoch, 1, 1<<30, all)
		}
	}
	return all
}

// TestRestoredStateGoesOnEqually: a state restored at any moment gives the same bytes again, and the same answers, events and
// contents to what comes then.
func TestRestoredStateGoesOnEqually(t *testing.T) {
	for seed := range uint64(4) {
		f := newFlow(t, 10+seed, Options{MaxIDs: 2000})
		for moment := range 10 {
			for range 50 + 100*int(seed) {
				f.try(f.next())
			}
			text := snapshotOf(t, f.rig.state)
			restored, err := RestoreSnapshot(Options{MaxIDs: 3000, MaxOpenOrders: 2000}, iotest.HalfReader(bytes.NewReader(text)))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(snapshotOf(t, restored), text) {
				t.Fatalf("seed %d, moment %d: the restored state's snapshot differs", seed, moment)
			}
			if !slices.Equal(streams(f.rig.state), streams(restored)) || !slices.Equal(contents(f.rig.state, flowAccounts), contents(restored, flowAccounts)) {
				t.Fatalf("seed %d, moment %d: the restored state shows something else", seed, moment)
			}
			for step := range 300 {
				c := f.next()
				out, journaled := f.try(c)
				if !journaled {
					continue
				}
				if again := apply(t, restored, f.rig.journal[len(f.rig.journal)-1]); !same(c, out, again) {
					t.Fatalf("seed %d, moment %d, step %d: answers\n%+v, restored\n%+v", seed, moment, step, out, again)
				}
			}
			if f.rig.state.Digest() != restored.Digest() || !slices.Equal(streams(f.rig.state), streams(restored)) {
				t.Fatalf("seed %d, moment %d: the restored state went another way", seed, moment)
			}
		}
	}
}

// TestPagesGoOnAfterARestore: the cursor of a page that ended at an order which has ended meanwhile finds what is behind it.
func TestPagesGoOnAfterARestore(t *testing.T) {
	r := newRig(t, Options{MaxIDs: 100}, "alpha")
	for i := range 6 {
		r.do(limit(0, fmt.Sprint("o", i), 1, 1, 100))
	}
	_, next, _ := r.state.List(0, true, 0, 2, nil)
	r.do(cancel(0, "", "o1"))
	r.do(cancel(0, "", "o2"))
	restored, err := RestoreSnapshot(Options{MaxIDs: 100}, bytes.NewReader(snapshotOf(t, r.state)))
	if err != nil {
		t.Fatal(err)
	}
	page, _, _ := restored.List(0, true, next, 10, nil)
	if len(page) != 3 || page[0].ClientOrderID != id("o3") {
		t.Errorf("second page is %+v, want o3 to o5", page)
	}
}

// TestDamagedSnapshotIsRefused: cut anywhere, or with any byte changed, it is an error and no state.
func TestDamagedSnapshotIsRefused(t *testing.T) {
	f := newFlow(t, 3, Options{MaxIDs: 1000})
	for range 250 {
		f.try(f.next())
	}
	text := snapshotOf(t, f.rig.state)
	options := Options{MaxIDs: 1000, MaxOpenOrders: 1000}
	refused := func(what string, damaged []byte) {
		if s, err := RestoreSnapshot(options, bytes.NewReader(damaged)); s != nil || !errors.Is(err, ErrSnapshot) && !errors.Is(err, ErrReplay) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	step := max(1, len(text)/150)
	for i := 0; i < len(text); i += step {
		refused(fmt.Sprintf("cut to %d of %d bytes", i, len(text)), text[:i])
		damaged := slices.Clone(text)
		damaged[i] ^= byte(1 + i%255)
		refused(fmt.Sprintf("byte %d of %d changed", i, len(text)), damaged)
	}
	broken := errors.New("disk")
	if _, err := RestoreSnapshot(options, iotest.ErrReader(broken)); !errors.Is(err, broken) || errors.Is(err, ErrSnapshot) {
		t.Errorf("a reader's fault came back as %v", err)
	}
}

// TestSnapshotThatDoesNotFit: less room than the snapshot needs is an error that says so.
func TestSnapshotThatDoesNotFit(t *testing.T) {
	r := newRig(t, Options{MaxIDs: 100}, "alpha")
	for i := range 20 {
		r.do(limit(0, fmt.Sprint("o", i), 1, 1, int64(50+i)))
		r.do(cancel(0, fmt.Sprint("r", i), "none"))
	}
	for i := range 3 {
		r.do(logon(0, fmt.Sprint("s", i), stays))
	}
	text := snapshotOf(t, r.state)
	for _, row := range []struct {
		options Options
		want    string
	}{
		{Options{MaxIDs: 19}, "20 orders, max_ids is 19"},
		{Options{MaxEvents: 39}, "40 events of the day, max_events is 39"},
		{Options{MaxSessions: 2}, "sessions in 3 places, max_sessions is 2"},
		{Options{MaxOpenOrders: 19}, "book full"},
		{Options{MaxLevels: 19}, "book full"},
	} {
		if _, err := RestoreSnapshot(row.options, bytes.NewReader(text)); !errors.Is(err, ErrReplay) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("with %+v: %v, want ErrReplay with %q", row.options, err, row.want)
		}
	}
	enough := Options{MaxIDs: 20, MaxEvents: 40, MaxSessions: 3, MaxSessionsOfAccount: 1, MaxOpenOrders: 20, MaxLevels: 20}
	if _, err := RestoreSnapshot(enough, bytes.NewReader(text)); err != nil {
		t.Errorf("with just enough room: %v", err)
	}
}

// FuzzRestore: whatever a snapshot's bytes are, to read them does not panic, and what they give can be written. The checksum is left
// out, since it would keep everything else out.
func FuzzRestore(f *testing.F) {
	options := Options{MaxIDs: 1000, MaxOpenOrders: 100, MaxLevels: 100}
	flow := newFlow(f, 3, options)
	for range 40 {
		flow.try(flow.next())
	}
	flow.rig.state.pass(&pass{flush: func(block []byte) error { f.Add(slices.Clone(block)); return nil }})
	f.Fuzz(func(t *testing.T, text []byte) {
		state, err := New(options)
		if err != nil {
			t.Fatal(err)
		}
		fill := func() (block []byte, err error) {
			block, text = text, nil
			if len(block) == 0 {
				err = ErrSnapshot
			}
			return block, err
		}
		if err := state.restore(&pass{reading: true, fill: fill}); err == nil {
			snapshotOf(t, state)
		} else if !errors.Is(err, ErrSnapshot) && !errors.Is(err, ErrReplay) {
			t.Fatalf("%v is neither ErrSnapshot nor ErrReplay", err)
		}
	})
}
