package entry

import (
	"sync"
	"sync/atomic"
	"time"

	"tailgate/gateway/orders"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// The throttle has two tiers. The first refuses a request that is over the account's or its firm's rate and says when there is room.
// The second is for who does not heed that: refusals have a bucket like requests, a second's worth at the rate that refused, and one that
// finds it empty ends the session and shuts the account out for the penalty time. There is no edge of a window to hide behind. A repetition of
// an id costs what a new one costs: whether it is one is only known behind the throttle.
//
// Without a rate a request costs three loads (the account's rate, which firm, the firm's rate) and no clock.

// class is what a request counts as. Each has a bucket of its own, so that a flood of one never holds up another.
type class uint8

const (
	ordering  class = iota // new orders and replaces: the configured rate
	canceling              // cancels, mass cancels, dead-man timers, logons: roomFactor times as many
	reading                // orders, books, instruments: likewise
	classes
)

// roomFactor is how much more room than new orders all else has: who is over his rate must still get out.
const roomFactor = 4

var perSecond = [classes]uint32{ordering: 1, canceling: roomFactor, reading: roomFactor}

// bucket is a token bucket of one second's worth, kept as the generic cell rate algorithm (ITU-T I.371, virtual scheduling): all its
// state is the time at which it will be full again, so that one compare-and-swap takes a token and nobody has to fill it.
type bucket struct{ full atomic.Int64 } // gateway clock, nanoseconds

// take takes a token where there is one. Otherwise it returns how long it takes until there is. rate is tokens a second, not 0; rates that
// do not divide a second are held a little too low, by less than rate parts in 10^9.
func (b *bucket) take(now int64, rate uint32) (wait time.Duration, ok bool) {
	interval := (int64(time.Second) + int64(rate) - 1) / int64(rate)
	depth := interval * int64(rate)
	for {
		full := b.full.Load()
		next := max(full, now) + interval
		if over := next - now - depth; over > 0 {
			return time.Duration(over), false
		}
		if b.full.CompareAndSwap(full, next) {
			return 0, true
		}
	}
}

// giveBack returns a token.
func (b *bucket) giveBack(rate uint32) {
	b.full.Add(-(int64(time.Second) + int64(rate) - 1) / int64(rate))
}

// limiter holds an account or a firm to its rate. Safe for concurrent use.
type limiter struct {
	rate    atomic.Uint32 // new orders and replaces a second; 0 = no bound
	buckets [classes]bucket
}

// throttle is the limiter of an account together with its firm's, and the second tier.
type throttle struct {
	limiter
	firm     atomic.Pointer[limiter] // never nil
	penalty  time.Duration
	shutTill atomic.Int64 // gateway clock: refuses everything before
	refusals bucket       // second tier
}

// limited reports whether there is any rate to hold.
func (t *throttle) limited() bool { return t.rate.Load() != 0 || t.firm.Load().rate.Load() != 0 }

// shut refuses while the account is shut out. It costs nothing without a rate.
func (t *throttle) shut() error {
	if !t.limited() {
		return nil
	}
	if wait := t.shutTill.Load() - transports.Now(); wait > 0 {
		return t.shutFault(time.Duration(wait))
	}
	return nil
}

// admit lets a request through, or refuses it. A fault that is Final means that the session is over.
func (t *throttle) admit(c class) *transports.Fault {
	if !t.limited() {
		return nil
	}
	now := transports.Now()
	if wait := t.shutTill.Load() - now; wait > 0 {
		return t.shutFault(time.Duration(wait))
	}
	own, firm := t.rate.Load(), t.firm.Load()
	if own != 0 {
		if wait, ok := t.buckets[c].take(now, scale(own, c)); !ok {
			return t.refuse(now, scale(own, c), wait, "account")
		}
	}
	if rate := firm.rate.Load(); rate != 0 {
		if wait, ok := firm.buckets[c].take(now, scale(rate, c)); !ok {
			if own != 0 {
				t.buckets[c].giveBack(scale(own, c))
			}
			return t.refuse(now, scale(rate, c), wait, "firm")
		}
	}
	return nil
}

// scale is a class's rate, at most what 32 bits hold.
func scale(rate uint32, c class) uint32 {
	return uint32(min(uint64(rate)*uint64(perSecond[c]), 1<<32-1))
}

// refuse counts a refusal; one too many ends the session.
func (t *throttle) refuse(now int64, rate uint32, wait time.Duration, whose string) *transports.Fault {
	if _, borne := t.refusals.take(now, rate); !borne {
		t.shutTill.Store(now + int64(t.penalty))
		t.refusals.full.Store(now) // after the penalty all is forgiven
		f := t.shutFault(t.penalty)
		f.Final = true
		return f
	}
	f := transports.Refuse(pb.Reason_REASON_THROTTLED, "more than the %s's %d requests of this kind in a second; wait for retry_after", whose, rate)
	f.RetryAfter = wait
	return f
}

func (t *throttle) shutFault(wait time.Duration) *transports.Fault {
	f := transports.Refuse(pb.Reason_REASON_THROTTLED, "the account did not heed the refusals of its rate and is shut out for %s", t.penalty)
	f.RetryAfter = wait
	return f
}

// unlimited is a throttle that nobody can have a rate set for.
func unlimited() *throttle {
	t := &throttle{}
	t.firm.Store(&limiter{})
	return t
}

// throttles holds those of all accounts and firms, by number. They are made on first use and follow the state through changed.
type throttles struct {
	penalty  time.Duration
	mu       sync.Mutex // a leaf
	accounts map[uint32]*throttle
	firms    map[uint32]*limiter
	noFirm   *limiter // of accounts without one
}

func newThrottles(penalty time.Duration) throttles {
	return throttles{penalty: penalty, accounts: make(map[uint32]*throttle), firms: make(map[uint32]*limiter), noFirm: &limiter{}}
}

// account returns an account's throttle. It runs under the writer's lock.
func (t *throttles) account(state *orders.State, number uint32) *throttle {
	t.mu.Lock()
	defer t.mu.Unlock()
	made := t.accounts[number]
	if made == nil {
		made = &throttle{penalty: t.penalty}
		made.rate.Store(state.Limits(orders.Scope{Number: number}).MaxOrderRate)
		made.firm.Store(t.firmOf(state, number))
		t.accounts[number] = made
	}
	return made
}

// firmOf returns the limiter of an account's firm. t.mu is held.
func (t *throttles) firmOf(state *orders.State, account uint32) *limiter {
	number, ok := state.FirmOf(account)
	if !ok {
		return t.noFirm
	}
	made := t.firms[number]
	if made == nil {
		made = &limiter{}
		made.rate.Store(state.Limits(orders.Scope{Firm: true, Number: number}).MaxOrderRate)
		t.firms[number] = made
	}
	return made
}

// changed follows a command that set limits or moved an account to another firm. It runs under the writer's lock.
func (t *throttles) changed(state *orders.State, c *orders.Command) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case c.Kind == orders.DefineAccount:
		number, _ := state.Account(c.Name)
		if have := t.accounts[number]; have != nil {
			have.firm.Store(t.firmOf(state, number))
		}
	case c.Scope.Firm:
		if have := t.firms[c.Scope.Number]; have != nil {
			have.rate.Store(c.Limits.MaxOrderRate)
		}
	default:
		if have := t.accounts[c.Scope.Number]; have != nil {
			have.rate.Store(c.Limits.MaxOrderRate)
		}
	}
}
