package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
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
			s.feed.catchUp.next = time.Now().Add(time.Hour)
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

// TestReadersAreBounded plays scripts of readers that are opened ("stream" or "session", whose, of which account; "over x" = in place of
// reader x) and closed. Each step is followed by how many are open then, or by "-" where it is refused as OVERLOADED.
func TestReadersAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		script  string
	}{
		"over all accounts": {Options{MaxReaders: 3}, `
			a stream K 0   1
			b stream L 1   2
			c session 0    3
			d session 1    -
			d stream K 1   -
			a close        2
			a close        2
			d stream M 1   3`},
		"of an account": {Options{MaxReadersOfAccount: 2}, `
			a stream K 0   1
			b session 0    2
			c session 0    -
			c stream L 0   -
			c stream L 1   3`},
		"a quarter of all is the sessions'": {Options{MaxReaders: 4}, `
			a stream K 0   1
			b stream L 1   2
			c stream K 0   3
			d stream M 1   -
			d session 1    4
			e session 1    -
			d close        3
			d stream M 1   -
			a close        2
			d stream M 1   3`},
		"a quarter of an account's is the sessions'": {Options{MaxReadersOfAccount: 4}, `
			a stream K 0   1
			b stream L 0   2
			c stream K 0   3
			d stream M 0   -
			d session 0    4
			e session 0    -
			e stream K 1   5
			a close        4
			a session 0    5
			b close        4
			b stream L 0   5`},
		"streams of a key": {Options{MaxStreamsOfOwner: 2}, `
			a stream K 0   1
			b stream K 1   2
			c stream K 0   -
			c stream L 0   3
			d session 0    4
			a close        3
			a stream K 1   4`},
		"a session takes the place of the one that it replaces": {Options{MaxReaders: 2, MaxReadersOfAccount: 2}, `
			a session 0        1
			b stream K 0       2
			c session 0        -
			c session 0 over a 3
			d session 0        -
			d stream K 1       -
			a close            2
			d session 0 over a -
			d session 0 over c 3
			d close            2`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, c.options)
			owners, readers := map[string]*Owner{"K": {}, "L": {}, "M": {}}, map[string]*Reader{}
			for line := range strings.SplitSeq(strings.TrimSpace(c.script), "\n") {
				words := strings.Fields(line)
				reader, verb, args, want := words[0], words[1], words[2:len(words)-1], words[len(words)-1]
				var r *Reader
				var err error
				switch {
				case verb == "close":
					readers[reader].Close()
				case verb == "stream":
					r, err = s.feed.OpenStream(owners[args[0]], uint32(args[1][0]-'0'), 0, 0)
				case len(args) == 3:
					r, err = s.feed.OpenSession(readers[args[2]], uint32(args[0][0]-'0'), 0, 0)
				default:
					r, err = s.feed.OpenSession(nil, uint32(args[0][0]-'0'), 0, 0)
				}
				if r != nil {
					readers[reader] = r
				}
				got := fmt.Sprint(s.feed.Readers())
				if err != nil {
					got = transports.AsFault(err).Reason.String()
				}
				if want == "-" {
					want = pb.Reason_REASON_OVERLOADED.String()
				}
				if got != want {
					t.Fatalf("%q: %s (%v)", strings.TrimSpace(line), got, err)
				}
			}
			for _, r := range readers {
				r.Close()
			}
			if n := s.feed.Readers(); n != 0 || s.feed.streams != 0 || owners["K"].streams+owners["L"].streams+owners["M"].streams != 0 {
				t.Errorf("%d readers, %d of them streams, are counted after all were closed", n, s.feed.streams)
			}
		})
	}
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
		if _, err := s.feed.OpenStream(new(Owner), 0, 0, 0); !errors.Is(err, draining) {
			t.Errorf("a new reader: %v", err)
		}
	})
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
	r, err := s.feed.OpenStream(new(Owner), 0, 0, 0)
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
