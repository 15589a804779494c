package feed

import (
	"testing"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// TestPlaces asks for places in a stream of three epochs with 2, 3 and 1 events.
func TestPlaces(t *testing.T) {
	s := newSource(t, Options{})
	s.enter(0, 2)
	s.endDay() // both orders expire: events 1 and 2 of epoch 2
	s.enter(0, 1)
	s.endDay() // one expires: event 1 of epoch 3
	for _, c := range []struct {
		epoch uint32
		from  uint64
		field string // of the fault, empty = none
		at    uint32
		next  uint64
	}{
		{epoch: 0, from: 0, at: 3, next: 1},
		{epoch: 0, from: 1, at: 3, next: 1},
		{epoch: 0, from: 2, at: 3, next: 2},
		{epoch: 0, from: 3, field: "from_sequence"},
		{epoch: 3, from: 2, at: 3, next: 2},
		{epoch: 2, from: 0, at: 2, next: 1},
		{epoch: 2, from: 3, at: 2, next: 3},
		{epoch: 2, from: 4, at: 3, next: 1}, // all of it was read: the next event is the new epoch's first
		{epoch: 2, from: 5, field: "from_sequence"},
		{epoch: 1, from: 1, field: "epoch"},
		{epoch: 4, from: 1, field: "epoch"},
		{epoch: 3, from: 1<<64 - 1, field: "from_sequence"},
	} {
		r, err := s.feed.OpenStream(new(Owner), 0, c.epoch, c.from)
		if c.field != "" {
			f := transports.AsFault(err)
			if err == nil || f.Reason != pb.Reason_REASON_MALFORMED || f.Field != c.field {
				t.Errorf("epoch %d, from %d: %v, want MALFORMED about %s", c.epoch, c.from, err, c.field)
			}
			continue
		}
		if err != nil {
			t.Errorf("epoch %d, from %d: %v", c.epoch, c.from, err)
			continue
		}
		if epoch, next := r.Place(); epoch != c.at || next != c.next {
			t.Errorf("epoch %d, from %d: placed at %d of epoch %d, want %d of %d", c.epoch, c.from, next, epoch, c.next, c.at)
		}
		r.Close()
	}
	if n := s.feed.Readers(); n != 0 {
		t.Errorf("%d readers are left", n)
	}
}

// TestEpochsFollowEachOther: the rest of an epoch, then the new one from 1, in batches that never mix them.
func TestEpochsFollowEachOther(t *testing.T) {
	s := newSource(t, Options{})
	r := openAt(t, s.feed, 0, 0, 0)
	s.enter(0, 300)
	take(t, r, 256)
	s.endDay()
	s.enter(0, 1)
	batch, err := r.Next(t.Context())
	if err != nil || len(batch) != 44 || batch[43].Epoch != 1 || batch[43].Sequence != 300 {
		t.Fatalf("%d events, %v; want the 44 left of epoch 1", len(batch), err)
	}
	events := take(t, r, 301)
	if first, last := events[0], events[300]; first.Epoch != 2 || first.Sequence != 1 || last.Epoch != 2 || last.Sequence != 301 {
		t.Errorf("the new epoch begins with event %d of epoch %d and ends with %d of %d", first.Sequence, first.Epoch, last.Sequence, last.Epoch)
	}
	quiet(t, r)

	// A reader that has everything of an epoch without events of its own in the next one waits, and goes on.
	s.endDay()
	take(t, r, 1)
	s.endDay()
	quiet(t, r)
	s.endDay()
	s.enter(0, 1)
	if e := take(t, r, 1); e[0].Epoch != 5 || e[0].Sequence != 1 {
		t.Errorf("event %d of epoch %d, want the first of epoch 5", e[0].Sequence, e[0].Epoch)
	}
}

// TestSleptThroughAnEpoch: what a reader did not take for two ends of the day is let go.
func TestSleptThroughAnEpoch(t *testing.T) {
	s := newSource(t, Options{})
	r := openAt(t, s.feed, 0, 0, 0)
	s.enter(0, 1)
	s.endDay()
	s.endDay()
	_, err := r.Next(t.Context())
	if f := transports.AsFault(err); f.Reason != pb.Reason_REASON_SLOW_READER || !f.Final {
		t.Errorf("got %v, want a final SLOW_READER", err)
	}
}
