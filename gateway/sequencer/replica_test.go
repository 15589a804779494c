package sequencer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tailgate/gateway/orders"
	"tailgate/matching"
)

func digestOf(s *Sequencer) (digest any) {
	s.Read(func(state *orders.State, _ uint64) { digest = state.Digest() })
	return digest
}

// TestSnapshotAndTheRestOfTheLog give the state that the whole log gives, and the snapshot that a replica folds is the live one's to the byte.
func TestSnapshotAndTheRestOfTheLog(t *testing.T) {
	options := orders.Options{MaxIDs: 1000}
	s, log := started(t, options)
	enter := func(from, to int) {
		for n := from; n < to; n++ {
			if err := s.Execute(order(n, matching.Side(1+n%3/2)), &orders.Answer{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	enter(0, 100)
	if err := s.Snapshot(); err != nil {
		t.Fatal(err)
	}
	snapshot, lsn := slices.Clone(log.snapshot.Bytes()), log.snapshotLSN
	if lsn != uint64(len(log.records)) {
		t.Fatalf("the snapshot is of record %d, the log ends at %d", lsn, len(log.records))
	}

	folded := newReplica(t, options)
	for i, record := range log.records {
		if err := folded.Replay(uint64(i+1), record); err != nil {
			t.Fatal(err)
		}
	}
	if err := folded.Snapshot(log); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(log.snapshot.Bytes(), snapshot) || log.snapshotLSN != lsn {
		t.Error("the log folded gives another snapshot than the live state")
	}

	enter(100, 200)
	restored := newReplica(t, options)
	if err := restored.Restore(lsn, bytes.NewReader(snapshot)); err != nil {
		t.Fatal(err)
	}
	if restored.Last() != lsn {
		t.Errorf("the restored state is of record %d, want %d", restored.Last(), lsn)
	}
	for i, record := range log.records[lsn:] {
		if err := restored.Replay(lsn+uint64(i)+1, record); err != nil {
			t.Fatal(err)
		}
	}
	again := New(restored, log)
	if digestOf(again) != digestOf(s) {
		t.Error("the snapshot and the rest of the log give another state")
	}
	var answer orders.Answer
	if err := again.Execute(order(3, matching.Buy), &answer); err != nil || !answer.Duplicate {
		t.Errorf("an id from before the snapshot: %v, %+v; want its first answer again", err, answer)
	}
}

func TestDamagedSnapshotIsNamed(t *testing.T) {
	r := newReplica(t, orders.Options{MaxIDs: 10})
	err := r.Restore(42, strings.NewReader("not a snapshot"))
	if err == nil || !strings.HasPrefix(err.Error(), "snapshot at log sequence number 42: ") || r.Last() != 0 {
		t.Errorf("got %v, last is %d", err, r.Last())
	}
}

// watcher writes down what an observer hears.
type watcher struct{ heard []string }

func (w *watcher) Touched(accounts []uint32) {
	w.heard = append(w.heard, fmt.Sprint("touched ", accounts))
}

func (w *watcher) Changed(state *orders.State, c *orders.Command) {
	w.heard = append(w.heard, fmt.Sprint(c.Kind, " in epoch ", state.Epoch()))
}

func TestObserverHearsWhatWasApplied(t *testing.T) {
	s, log := started(t, orders.Options{MaxIDs: 10})
	w := &watcher{}
	s.Observe(w)
	other := orders.Command{Kind: orders.DefineAccount, Name: "other"}
	sell := order(2, matching.Sell)
	sell.Account = 1
	timer := orders.Command{Kind: orders.CancelAllAfter, TriggerNs: 1}
	stale := orders.Command{Kind: orders.FireTimer, TriggerNs: 2}
	day := orders.Command{Kind: orders.EndDay}
	for i, step := range []struct {
		command *orders.Command
		heard   []string
	}{
		{&other, []string{"DEFINE_ACCOUNT in epoch 1"}},
		{order(1, matching.Buy), []string{"touched [0]"}},
		{order(1, matching.Buy), nil}, // a repetition
		{sell, []string{"touched [1 0]"}},
		{order(3, matching.Buy), []string{"touched [0]"}},
		{&timer, []string{"CANCEL_ALL_AFTER in epoch 1"}},
		{&stale, nil}, // changes nothing
		{&day, []string{"touched [0]", "END_DAY in epoch 2"}},
	} {
		w.heard = nil
		if err := s.Execute(step.command, &orders.Answer{}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(w.heard, step.heard) {
			t.Errorf("step %d: heard %q, want %q", i+1, w.heard, step.heard)
		}
	}
	w.heard = nil
	log.refuse = errors.New("disk full")
	if err := s.Execute(order(4, matching.Buy), &orders.Answer{}); err == nil || w.heard != nil {
		t.Errorf("what was not journaled: %v, heard %q", err, w.heard)
	}
}
