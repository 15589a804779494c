package feed

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSameForEveryReader: from whatever place and however late, all readers get the same events with the same bytes.
func TestSameForEveryReader(t *testing.T) {
	s := newSource(t, Options{})
	live := openAt(t, s.feed, 0, 0, 0)
	s.enter(0, 700)
	s.enter(1, 5)
	want := s.all(0, 1)
	if len(want) != 700 {
		t.Fatalf("%d events, want 700", len(want))
	}
	for from, r := range map[uint64]*Reader{1: live, 2: openAt(t, s.feed, 0, 1, 2), 500: openAt(t, s.feed, 0, 0, 500), 700: openAt(t, s.feed, 0, 0, 700)} {
		if _, place := r.Place(); place != from {
			t.Errorf("place %d, want %d", place, from)
		}
		for i, e := range take(t, r, 700-int(from)+1) {
			if number := from + uint64(i); e.Epoch != 1 || e.Sequence != number || !bytes.Equal(e.Report, want[number-1]) {
				t.Fatalf("from %d: event %d of epoch %d is %x, want number %d, %x", from, e.Sequence, e.Epoch, e.Report, number, want[number-1])
			}
		}
		quiet(t, r)
	}
}

// TestNothingLeavesBeforeItIsCommitted, and what a context's end kept back is not passed over.
func TestNothingLeavesBeforeItIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, Options{})
		r := openAt(t, s.feed, 0, 0, 0)
		s.hold()
		s.enter(0, 3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		if events, err := r.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%d events left before they were committed (%v)", len(events), err)
		}
		cancel()
		var got []transports.Event
		var wait sync.WaitGroup
		wait.Go(func() { got = take(t, r, 3) })
		synctest.Wait()
		if got != nil {
			t.Fatal("events left before they were committed")
		}
		s.release(nil)
		wait.Wait()
		if got[0].Sequence != 1 {
			t.Errorf("the first event is number %d, want 1", got[0].Sequence)
		}
	})
}

func TestJournalFailureEndsTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, Options{})
		r := openAt(t, s.feed, 0, 0, 0)
		s.hold()
		s.enter(0, 1)
		cause := errors.New("no more disk")
		var wait sync.WaitGroup
		wait.Go(func() {
			_, err := r.Next(t.Context())
			if f := transports.AsFault(err); f.Reason != pb.Reason_REASON_JOURNAL_UNAVAILABLE || !f.Final || !errors.Is(err, cause) {
				t.Errorf("got %v, want a final JOURNAL_UNAVAILABLE", err)
			}
		})
		synctest.Wait()
		s.release(cause)
		wait.Wait()
	})
}

// TestEndReachesAWaitingReader in each place where it can wait: for events, for the journal, for its turn.
func TestEndReachesAWaitingReader(t *testing.T) {
	why := transports.Refuse(pb.Reason_REASON_SESSION_REPLACED, "replaced")
	for name, prepare := range map[string]func(s *source){
		"for events":      func(*source) {},
		"for the journal": func(s *source) { s.hold(); s.enter(0, 1) },
		"for its turn": func(s *source) {
			s.feed.nearEnd = 100
			s.enter(0, 101)
			s.feed.catchUp.turn(1_000_000)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSource(t, Options{CatchUpRate: 1})
				prepare(s)
				r := openAt(t, s.feed, 0, 0, 0)
				var wait sync.WaitGroup
				wait.Go(func() {
					if events, err := r.Next(t.Context()); !errors.Is(err, why) {
						t.Errorf("%d events, %v", len(events), err)
					}
				})
				synctest.Wait()
				r.End(why)
				r.End(transports.Refuse(pb.Reason_REASON_THROTTLED, "too late"))
				wait.Wait()
				s.release(nil) // a release that nobody waits for any more
				if _, err := r.Next(t.Context()); !errors.Is(err, why) {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}

func TestReadersAreBounded(t *testing.T) {
	s := newSource(t, Options{MaxReaders: 3, MaxReadersOfAccount: 2})
	a, b := openAt(t, s.feed, 0, 0, 0), openAt(t, s.feed, 0, 0, 0)
	if _, err := s.feed.Open(0, 0, 0); transports.AsFault(err).Reason != pb.Reason_REASON_OVERLOADED {
		t.Errorf("a third reader of one account: %v, want OVERLOADED", err)
	}
	openAt(t, s.feed, 1, 0, 0)
	if _, err := s.feed.Open(1, 0, 0); transports.AsFault(err).Reason != pb.Reason_REASON_OVERLOADED {
		t.Errorf("a fourth reader: %v, want OVERLOADED", err)
	}
	a.Close()
	a.Close()
	if n := s.feed.Readers(); n != 2 {
		t.Errorf("%d readers after one was closed twice, want 2", n)
	}
	openAt(t, s.feed, 1, 0, 0)
	_ = b
}

func TestClosedFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, Options{})
		draining := transports.Refuse(pb.Reason_REASON_DRAINING, "stopping")
		var wait sync.WaitGroup
		for range 3 {
			r := openAt(t, s.feed, 0, 0, 0)
			wait.Go(func() {
				if _, err := r.Next(t.Context()); !errors.Is(err, draining) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		s.feed.Close(draining)
		wait.Wait()
		if _, err := s.feed.Open(0, 0, 0); !errors.Is(err, draining) {
			t.Errorf("a new reader: %v", err)
		}
	})
}

// TestCatchingUpIsPaced: whoever is far behind gets the rate, which all of them share; the last stretch and what is live come at once.
func TestCatchingUpIsPaced(t *testing.T) {
	const rate, near, far = 1000, 512, 2560
	for _, readers := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			s := newSource(t, Options{CatchUpRate: rate})
			s.feed.nearEnd = near
			s.enter(0, near+far)
			begin := time.Now()
			var wait sync.WaitGroup
			for range readers {
				r := openAt(t, s.feed, 0, 0, 0)
				wait.Go(func() { take(t, r, near+far) })
			}
			wait.Wait()
			// The first turn comes at once, and the last one brings the last reader near the end.
			took, want := time.Since(begin), time.Duration(readers*far-transports.MaxEvents)*time.Second/rate
			if took != want {
				t.Errorf("%d readers: %v for %d events each, want %v", readers, took, near+far, want)
			}
		})
	}
}

// TestNoEventIsMissed: readers beside a writer, some of them coming late, all get everything once and in order.
func TestNoEventIsMissed(t *testing.T) {
	const total, readers = 3_000, 4
	s := newSource(t, Options{})
	var wait sync.WaitGroup
	for n := range readers {
		wait.Go(func() {
			r := openAt(t, s.feed, 0, 1, 0)
			next := uint64(1)
			for next <= total {
				events, err := r.Next(t.Context())
				if err != nil {
					t.Errorf("reader %d: %v", n, err)
					return
				}
				for _, e := range events {
					if e.Sequence != next {
						t.Errorf("reader %d: event %d, want %d", n, e.Sequence, next)
						return
					}
					next++
				}
			}
		})
	}
	s.enter(0, total)
	wait.Wait()
}

// TestLiveReaderTakesNothingFromTheHeap, nor does the writer for it.
func TestLiveReaderTakesNothingFromTheHeap(t *testing.T) {
	s := newSource(t, Options{})
	touched := []uint32{0}
	if n := testing.AllocsPerRun(100, func() { s.feed.Touched(touched) }); n != 0 {
		t.Errorf("%v allocations to wake nobody", n)
	}
	r := openAt(t, s.feed, 0, 0, 0)
	s.enter(0, 10_000)
	ctx := t.Context()
	for range 10 {
		if _, err := r.Next(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(20, func() {
		s.feed.Touched(touched)
		if events, err := r.Next(ctx); err != nil || len(events) != transports.MaxEvents {
			t.Fatal(len(events), err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

// BenchmarkNext is a batch of 256 events for one reader, and BenchmarkCopy the part of it that the writer's lock is held for.
func BenchmarkNext(b *testing.B) {
	s := newSource(b, Options{})
	s.enter(0, 100_000)
	r, err := s.feed.Open(0, 0, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	b.ReportAllocs()
	for b.Loop() {
		if r.next > 99_000 {
			r.next = 1
		}
		r.behind = 0 // not paced
		if _, err := r.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*transports.MaxEvents/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkCopy(b *testing.B) {
	s := newSource(b, Options{})
	s.enter(0, 100_000)
	var reports []orders.Report
	from := uint64(1)
	b.ReportAllocs()
	for b.Loop() {
		s.Read(func(state *orders.State, _ uint64) { reports = state.Events(0, 1, from, lockBatch, reports[:0]) })
		if from += lockBatch; from > 99_000 {
			from = 1
		}
	}
}
