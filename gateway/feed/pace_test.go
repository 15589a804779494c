package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tailgate/transports"
)

// Rates of these tests: a turn takes turnTime, and a reader with farBehind events before it needs turns of them.
const (
	catchUpRate = 1000
	turnTime    = transports.MaxEvents * time.Second / catchUpRate
	near        = 512
	turns       = 10
	farBehind   = near + turns*transports.MaxEvents
)

// TestCatchingUpIsPaced: whoever is far behind gets the rate, which all of them share; the last stretch and what is live come at once.
func TestCatchingUpIsPaced(t *testing.T) {
	for _, readers := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			s := newSource(t, Options{CatchUpRate: catchUpRate})
			s.feed.nearEnd = near
			s.enter(0, farBehind)
			begin := time.Now()
			var wait sync.WaitGroup
			for range readers {
				r := openAt(t, s.feed, 0, 0, 0)
				wait.Go(func() { take(t, r, farBehind) })
			}
			wait.Wait()
			// The first turn comes at once, and the last one brings the last reader near the end.
			if took, want := time.Since(begin), time.Duration(readers*turns-1)*turnTime; took != want {
				t.Errorf("%d readers: %v for %d events each, want %v", readers, took, farBehind, want)
			}
		})
	}
}

// TestQuietTimeIsNotMadeUpFor: after an hour in which nobody was behind, nobody gets more than the rate.
func TestQuietTimeIsNotMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, Options{CatchUpRate: catchUpRate})
		s.feed.nearEnd = near
		s.enter(0, farBehind)
		for range 2 {
			r := openAt(t, s.feed, 0, 0, 0)
			begin := time.Now()
			take(t, r, farBehind)
			if took, want := time.Since(begin), (turns-1)*turnTime; took != want {
				t.Errorf("%v, want %v", took, want)
			}
			time.Sleep(time.Hour)
		}
	})
}

// TestWhoLeavesCostsNothing: readers that ask for a turn and leave before it comes, again and again, take no time from one that stays.
func TestWhoLeavesCostsNothing(t *testing.T) {
	const alone = (turns - 1) * turnTime
	for account, most := range []time.Duration{
		alone,     // of the same account: who stays is the first in line before the next turn comes
		2 * alone, // of another account: its share goes to whoever of them is there when its turn comes
	} {
		t.Run(fmt.Sprint("account ", account), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSource(t, Options{CatchUpRate: catchUpRate})
				s.feed.nearEnd = near
				s.enter(0, farBehind)
				s.enter(1, farBehind)
				ctx, cancel := context.WithCancel(t.Context())
				var wait sync.WaitGroup
				left := 0 // guarded by mu
				var mu sync.Mutex
				for n := range 20 {
					random := rand.New(rand.NewPCG(1, uint64(n)))
					wait.Go(func() {
						for ctx.Err() == nil {
							patience, end := context.WithTimeout(ctx, time.Duration(1+random.IntN(int(turnTime/4))))
							r, err := s.feed.OpenStream(new(Owner), uint32(account), 0, 0)
							if err != nil {
								t.Error(err)
							} else {
								if _, err := r.Next(patience); err != nil {
									mu.Lock()
									left++
									mu.Unlock()
								}
								r.Close()
							}
							end()
						}
					})
				}
				r := openAt(t, s.feed, 0, 0, 0)
				begin := time.Now()
				take(t, r, farBehind)
				took := time.Since(begin)
				cancel()
				wait.Wait()
				if most += 2 * turnTime; took > most { // whoever came first may have had the first turns
					t.Errorf("%v to catch up beside %d who left, want at most %v", took, left, most)
				}
				if left < 100 {
					t.Errorf("only %d left before their turn: this shows nothing", left)
				}
			})
		})
	}
}

// TestUnusedTurnIsGivenBack: a turn that comes at the moment in which its reader leaves is the next one's, at once.
func TestUnusedTurnIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(catchUpRate)
		first, second := newClaim(), newClaim()
		p.ask(0, &first) // granted at once
		p.ask(1, &second)
		if len(first.granted) != 1 || len(second.granted) != 0 {
			t.Fatalf("%d and %d turns, want the first reader's only", len(first.granted), len(second.granted))
		}
		p.giveUp(0, &first)
		if len(first.granted) != 0 || len(second.granted) != 1 {
			t.Errorf("%d and %d turns after the first reader gave its own back, want the second's only", len(first.granted), len(second.granted))
		}
		p.ask(0, &first)
		time.Sleep(turnTime - 1)
		synctest.Wait()
		if len(first.granted) != 0 {
			t.Error("a turn came early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if len(first.granted) != 1 {
			t.Error("a turn did not come in time")
		}
	})
}

// TestAccountsHaveEqualShares: one reader of an account catches up beside many of another as fast as beside one.
func TestAccountsHaveEqualShares(t *testing.T) {
	for _, others := range []int{1, 40} {
		synctest.Test(t, func(t *testing.T) {
			s := newSource(t, Options{CatchUpRate: catchUpRate})
			s.feed.nearEnd = near
			s.enter(0, farBehind)
			s.enter(1, farBehind)
			ctx, cancel := context.WithCancel(t.Context())
			var wait sync.WaitGroup
			for range others {
				r := openAt(t, s.feed, 1, 0, 0)
				wait.Go(func() {
					for ctx.Err() == nil {
						if _, err := r.Next(ctx); err != nil && ctx.Err() == nil {
							t.Error(err)
							return
						}
					}
				})
			}
			synctest.Wait() // all of them are in line
			begin := time.Now()
			take(t, openAt(t, s.feed, 0, 0, 0), farBehind)
			if took, want := time.Since(begin), 2*turns*turnTime; took < want-2*turnTime || took > want {
				t.Errorf("beside %d readers of another account: %v, want each second turn, %v", others, took, want)
			}
			cancel()
			wait.Wait()
		})
	}
}

// TestContextEndLosesNothing in each place where a reader can wait: for events, for the journal, for its turn. Afterwards it is as it was.
func TestContextEndLosesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(s *source)
		events        int
	}{
		"for events":      {before: func(*source) {}, after: func(s *source) { s.enter(0, 3) }, events: 3},
		"for the journal": {before: func(s *source) { s.hold(); s.enter(0, 3) }, after: func(s *source) { s.release(nil) }, events: 3},
		"for its turn": {
			before: func(s *source) { s.feed.catchUp.next = time.Now().Add(2 * time.Hour); s.enter(0, farBehind) },
			after:  func(*source) {}, events: farBehind,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSource(t, Options{CatchUpRate: catchUpRate})
				s.feed.nearEnd = near
				c.before(s)
				r := openAt(t, s.feed, 0, 0, 0)
				for range 3 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if events, err := r.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
						t.Fatalf("%d events, %v; want the context's error", len(events), err)
					}
					cancel()
				}
				c.after(s)
				for i, e := range take(t, r, c.events) {
					if e.Sequence != uint64(i)+1 {
						t.Fatalf("event %d, want %d", e.Sequence, i+1)
					}
				}
			})
		})
	}
}
