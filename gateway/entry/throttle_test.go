package entry

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// throttleOf returns a throttle of an account with a rate in a firm with a rate.
func throttleOf(account, firm uint32) *throttle {
	t := &throttle{penalty: time.Second}
	t.rate.Store(account)
	t.firm.Store(&limiter{})
	t.firm.Load().rate.Store(firm)
	return t
}

// TestThrottle plays scripts of n requests of one class after a pause: how many are let through, and what the last one is told.
func TestThrottle(t *testing.T) {
	type step struct {
		after   time.Duration
		class   class
		n       int
		through int
		retry   time.Duration // of the last refusal
		final   bool          // the last refusal ended the session
	}
	const ms = time.Millisecond
	for _, c := range []struct {
		name          string
		account, firm uint32
		steps         []step
	}{
		{"without a rate everything passes", 0, 0, []step{
			{class: ordering, n: 100_000, through: 100_000},
			{class: canceling, n: 100_000, through: 100_000},
		}},
		{"a burst is one second's worth, then as time gives", 10, 0, []step{
			{class: ordering, n: 11, through: 10, retry: 100 * ms},
			{after: 99 * ms, class: ordering, n: 1, retry: 1 * ms},
			{after: 1 * ms, class: ordering, n: 1, through: 1},
			{after: 350 * ms, class: ordering, n: 4, through: 3, retry: 50 * ms},
			{after: time.Hour, class: ordering, n: 11, through: 10, retry: 100 * ms},
		}},
		{"cancels and reads have four times the room, each their own", 10, 0, []step{
			{class: ordering, n: 11, through: 10, retry: 100 * ms},
			{class: canceling, n: 41, through: 40, retry: 25 * ms},
			{class: reading, n: 41, through: 40, retry: 25 * ms},
		}},
		{"the firm's rate holds an account without one", 0, 5, []step{
			{class: ordering, n: 6, through: 5, retry: 200 * ms},
		}},
		{"the lower rate holds", 10, 5, []step{
			{class: ordering, n: 6, through: 5, retry: 200 * ms},
			{after: 400 * ms, class: ordering, n: 3, through: 2, retry: 200 * ms},
		}},
		{"the firm's refusal costs the account nothing", 8, 5, []step{
			{class: ordering, n: 10, through: 5, retry: 200 * ms}, // were it not so, the account would refuse, for 125 ms
		}},
		{"the higher firm rate does not matter", 5, 50, []step{
			{class: ordering, n: 6, through: 5, retry: 200 * ms},
		}},
		{"a second's worth of refusals is borne, one more ends the session and shuts the account out", 10, 0, []step{
			{class: ordering, n: 20, through: 10, retry: 100 * ms},
			{class: ordering, n: 1, retry: time.Second, final: true},
			{class: canceling, n: 1, retry: time.Second},
			{after: 600 * ms, class: ordering, n: 1, retry: 400 * ms},
			{after: 400 * ms, class: ordering, n: 10, through: 10},
		}},
		{"refusals of another second do not count", 10, 0, []step{
			{class: ordering, n: 20, through: 10, retry: 100 * ms},
			{after: time.Second, class: ordering, n: 20, through: 10, retry: 100 * ms},
			{after: time.Second, class: ordering, n: 21, through: 10, retry: time.Second, final: true},
		}},
		{"nor do they begin anew at the edge of a second", 10, 0, []step{
			{class: ordering, n: 11, through: 10, retry: 100 * ms},
			{after: 990 * ms, class: ordering, n: 18, through: 9, retry: 10 * ms},
			{after: 20 * ms, class: ordering, n: 3, through: 1, retry: time.Second, final: true},
		}},
		{"a refusal weighs as much as it is of a second's worth", 10, 0, []step{
			{class: ordering, n: 15, through: 10, retry: 100 * ms},
			{class: canceling, n: 60, through: 40, retry: 25 * ms},
			{class: canceling, n: 1, retry: time.Second, final: true},
		}},
		{"what the penalty refuses does not prolong it", 1, 0, []step{
			{class: ordering, n: 3, through: 1, retry: time.Second, final: true},
			{after: 500 * ms, class: ordering, n: 100, retry: 500 * ms},
			{after: 500 * ms, class: ordering, n: 1, through: 1},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				throttle := throttleOf(c.account, c.firm)
				for i, s := range c.steps {
					time.Sleep(s.after)
					through := 0
					var last *transports.Fault
					for range s.n {
						if f := throttle.admit(s.class); f == nil {
							through++
						} else {
							last = f
						}
					}
					if through != s.through {
						t.Errorf("step %d: %d let through, want %d", i+1, through, s.through)
					}
					if last == nil {
						continue
					}
					if last.Reason != pb.Reason_REASON_THROTTLED || last.Outcome != pb.Outcome_OUTCOME_NOT_PROCESSED || last.RetryAfter != s.retry || last.Final != s.final {
						t.Errorf("step %d: %v, %s, retry after %v, final %v; want retry after %v, final %v", i+1, last, last.Outcome, last.RetryAfter, last.Final, s.retry, s.final)
					}
				}
			})
		})
	}
}

// TestRetryAfterIsTrue: who comes back when he was told to gets through, and a nanosecond earlier he does not, whatever the rate.
func TestRetryAfterIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.OneOf(rapid.Uint32Range(1, 1000), rapid.Uint32Range(1, 1<<32-1)).Draw(t, "rate")
		now := rapid.Int64Range(1, 1<<60).Draw(t, "now")
		var b bucket
		for range min(rate, 2000) {
			if _, ok := b.take(now, rate); !ok {
				t.Fatalf("rate %d: refused within the first second's worth", rate)
			}
		}
		if rate > 2000 {
			return
		}
		wait, ok := b.take(now, rate)
		if ok || wait <= 0 {
			t.Fatalf("rate %d: one more than a second's worth at once got through", rate)
		}
		if again, ok := b.take(now+int64(wait)-1, rate); ok || again != 1 {
			t.Fatalf("rate %d: through, or told to wait %v, a nanosecond early", rate, again)
		}
		if _, ok := b.take(now+int64(wait), rate); !ok {
			t.Fatalf("rate %d: refused at the time that was told", rate)
		}
	})
}

// TestRateIsKept: over any stretch of time no more passes than a second's worth and what the time gives, with many at it at once.
func TestRateIsKept(t *testing.T) {
	const rate, seconds = 1000, 5
	var b bucket
	var clock, through atomic.Int64
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for {
				now := clock.Add(10_000) // the goroutines' clocks overtake each other
				if now > seconds*int64(time.Second) {
					return
				}
				if _, ok := b.take(now, rate); ok {
					through.Add(1)
				}
			}
		})
	}
	wait.Wait()
	if n := through.Load(); n > rate*(seconds+1) || n < rate*seconds {
		t.Errorf("%d requests got through in %d seconds, allowed are %d and %d more", n, seconds, rate*seconds, rate)
	}
}

func BenchmarkAdmit(b *testing.B) {
	for name, t := range map[string]*throttle{"no_rate": throttleOf(0, 0), "account_and_firm": throttleOf(1<<31, 1<<31)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if f := t.admit(ordering); f != nil {
					b.Fatal(f)
				}
			}
		})
	}
}
