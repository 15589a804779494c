package credit

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// never is a time before all others.
const never = math.MinInt64 / 2

// Share is one connection's part of the pool. Safe for concurrent use; calls about the client's frames come in the order of the frames, those of Answer in the
// order of the answers, those of Completed likewise.
type Share struct {
	pool    *Pool
	account *account
	told    Notice
	granted atomic.Uint32 // written with the pool's lock
	pending atomic.Uint32 // notices that somebody is about to deliver
	behind  *Share        // the next whom that goroutine tells
	ask     atomic.Uint32 // units of the RECLAIM
	broken  error         // what Violated says, set once

	// With the pool's lock.
	floor     uint32 // what it takes of no float: its own, and while the pool is short its small answers under way
	own       uint32
	reserve   uint32 // counted among the pool's floors
	released  uint32
	used      uint32
	completed uint32
	urgent    uint32 // cost of urgent requests in service
	closed    bool
	held      bool

	queued   uint32 // cost of what the client has queued, as its last frame said
	next     uint32 // cost of the first message of those
	standing uint32 // cost for which it stands in the queue unasked

	// What the pool's sums hold of this share, see settle.
	lent    uint32
	hoarded uint32 // float that is taken for a hoard
	out     uint32
	busy    uint32
	unmet   uint32

	turn   link[Share] // in the account's queue
	hoard  link[Share] // in the pool's list of unspent float
	asking link[Share] // in the pool's list of open RECLAIMs

	grantedAt int64  // when the last grant of float left
	riding    bool   // it leaves with an answer that has not left yet
	demanded  bool   // the client had asked for it
	prompt    bool   // the last request used a grant soon after it had left
	target    uint32 // Used + Released that answers the RECLAIM
	askedAt   int64  // uptime of the RECLAIM

	// The grant whose delay is measured next: it begins at Used + Released = sampleMark, was waited for, and is used by the request that ends at Used = sampleEnd.
	waited     bool
	sampling   bool
	sampleMark uint32
	sampleEnd  uint32
	sampleFrom int64
}

// after compares serial numbers (RFC 1982), see wire.After.
func after(a, b uint32) bool { return int32(a-b) > 0 }

// over is a - b, and 0 below that.
func over(a, b uint32) uint32 {
	if a <= b {
		return 0
	}
	return a - b
}

// Granted is the counter as it has to be announced. It is read without a lock.
func (s *Share) Granted() uint32 { return s.granted.Load() }

// Floor is what the share held when it was opened, in units.
func (s *Share) Floor() uint32 { return s.own }

// Standing is the cost for which the share stands in the queue, 0 where it does not: what [Share.Answer] returned last, unless things have changed since.
func (s *Share) Standing() uint32 {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.stands()
}

func (s *Share) spent() uint32       { return s.used + s.released }
func (s *Share) unspent() uint32     { return s.granted.Load() - s.released - s.used }
func (s *Share) inService() uint32   { return s.used - s.completed }
func (s *Share) outstanding() uint32 { return s.granted.Load() - s.released - s.completed }

// Request accounts for a request that has come whole: what its header says, and what it costs. An error means that it was not covered, or that the header gives back
// what was never had; it says by how much, nothing has changed, and the connection has to be closed.
func (s *Share) Request(now int64, released, cost, queued, next uint32) error {
	p := s.pool
	var told notices
	p.mu.Lock()
	back, err := s.giveBack(released)
	if err == nil && cost > s.unspent()-back {
		err = fmt.Errorf("a request of %d units with %d left of what was granted: %d too many", cost, s.unspent()-back, cost-(s.unspent()-back))
	}
	if err == nil {
		err = s.demand(queued, next)
	}
	if err != nil {
		p.totals.violations++
		p.unlock()
		return err
	}
	if s.lent+s.hoarded > 0 {
		p.uses++
	}
	s.released += back
	s.used += cost
	s.prompt = now-s.grantedAt <= p.patience()
	if s.waited && after(s.spent(), s.sampleMark) {
		s.waited = false
		if !s.sampling && (s.demanded || s.prompt) {
			s.sampling, s.sampleEnd, s.sampleFrom = true, s.used, s.grantedAt
		}
	}
	p.settle(s)
	p.controller.largest(cost, p.ceiling())
	p.restore(s, s, &told)
	p.serve(now, s, &told)
	p.unlock()
	told.deliver()
	return nil
}

// Demand accounts for a DEMAND: what the client gives back, the cost of everything it has queued, and of the first message of that; 0 and 0 = it has no demand.
// The error is as of Request.
func (s *Share) Demand(now int64, released, queued, next uint32) error {
	p := s.pool
	var told notices
	p.mu.Lock()
	back, err := s.giveBack(released)
	if err == nil {
		err = s.demand(queued, next)
	}
	if err != nil {
		p.totals.violations++
		p.unlock()
		return err
	}
	s.released += back
	p.settle(s)
	p.restore(s, s, &told)
	p.serve(now, s, &told)
	p.unlock()
	told.deliver()
	return nil
}

// giveBack says by how much Released has risen. A counter that was announced before is no news.
func (s *Share) giveBack(released uint32) (uint32, error) {
	if !after(released, s.released) {
		return 0, nil
	}
	if back := released - s.released; back > s.unspent() {
		return 0, fmt.Errorf("%d units given back of %d unspent: %d too many", back, s.unspent(), back-s.unspent())
	}
	return released - s.released, nil
}

// demand takes over what the client has queued. What was known before is forgotten, but for the standing: the client may rely on that until it is used up.
func (s *Share) demand(queued, next uint32) error {
	if next > s.pool.config.Largest {
		return fmt.Errorf("a demand of %d units for one message: at most %d will ever be covered", next, s.pool.config.Largest)
	}
	if next == 0 {
		queued = 0
	}
	s.next, s.queued = next, max(queued, next)
	return nil
}

// Urgent accounts for a request of the urgent class, which is paid from the reserve and from nothing else. An error means that the reserve does not cover it; the
// connection has to be closed.
func (s *Share) Urgent(cost uint32) error {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := p.config.Reserve - s.urgent; cost > left {
		p.totals.violations++
		return fmt.Errorf("an urgent request of %d units with %d left of the reserve of %d: %d too many", cost, left, p.config.Reserve, cost-left)
	}
	s.urgent += cost
	return nil
}

// UrgentDone gives the reserve back when the answer to an urgent request has reached the kernel.
func (s *Share) UrgentDone(cost uint32) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.urgent -= cost
}

// Answer accounts for an answer that is being made, to a request of this cost, and returns what it announces: Granted, and the cost for which the share stands in the
// queue, 0 where it does not. While the pool is not short, the client's next message is covered by that.
func (s *Share) Answer(now int64, cost uint32) (granted, standing uint32) {
	p := s.pool
	var told notices
	p.mu.Lock()
	if want := max(cost, s.own); s.served() && want > s.unspent() {
		need := want - s.unspent()
		switch {
		case p.turns.empty() && p.fits(s, need):
			p.grant(now, s, need)
			fallthrough
		case cost <= s.own && p.extend(s, need):
			s.riding, s.standing = true, 0
			p.totals.renewals++
		default:
			p.totals.refusals++
			if cost > s.own && s.prompt && s.queued <= s.unspent() {
				s.standing = cost
			}
		}
	}
	p.settle(s)
	p.serve(now, s, &told)
	granted, standing = s.granted.Load(), s.stands()
	p.unlock()
	told.deliver()
	return granted, standing
}

// Completed accounts for an answer that has reached the kernel, or that never will: its request's cost, and how long it was in work. It is called for every request,
// also after Close.
func (s *Share) Completed(now int64, cost uint32, service time.Duration) {
	p := s.pool
	var told notices
	p.mu.Lock()
	s.completed += cost
	if s.riding {
		s.riding, s.grantedAt = false, now
		if s.hoard.in() {
			p.unspent.last(&s.hoard)
		}
	}
	if s.sampling && !after(s.sampleEnd, s.completed) {
		s.sampling = false
		p.controller.sample(now, s.sampleFrom, now-s.sampleFrom-int64(service))
	}
	p.controller.completed(now, cost, p.unmet > 0, p.ceiling())
	p.contract(s, cost)
	p.settle(s)
	p.restore(s, nil, &told)
	p.serve(now, nil, &told)
	p.unlock()
	told.deliver()
}

// Hold keeps the share out of its turns and its answers without further credit while its client does not take what it was sent.
func (s *Share) Hold(now int64, held bool) {
	p := s.pool
	var told notices
	p.mu.Lock()
	s.held = held
	p.settle(s)
	p.restore(s, nil, &told)
	p.serve(now, nil, &told)
	p.unlock()
	told.deliver()
}

// Close ends the share: what is unspent returns at once, and what is in service when it is completed. Calls but those of Completed and UrgentDone mean nothing
// afterwards. A second one is not wrong.
func (s *Share) Close(now int64) {
	p := s.pool
	var told notices
	p.mu.Lock()
	if !s.closed {
		s.closed = true
		s.granted.Store(s.spent())
		p.floors -= s.reserve
		s.reserve = 0
		p.leave(s.account)
		p.settle(s)
		p.serve(now, nil, &told)
	}
	p.unlock()
	told.deliver()
}

// served reports whether the share may be granted anything. One that has half of the float has to wait until it has less, so that whoever comes next finds some, even if
// this client takes no answers. It may have one message more than that, so the float, which holds several, is never all in one hand.
func (s *Share) served() bool {
	if s.closed || s.held || s.broken != nil {
		return false
	}
	// Something is about to happen to it: a completion, or a request.
	moves := s.inService() > 0 || s.unspent() >= max(s.next, s.standing)
	return !moves || s.lent+s.hoarded <= s.pool.controller.float/2
}

// stands is the cost for which the share is in the queue.
func (s *Share) stands() uint32 {
	if !s.turn.in() {
		return 0
	}
	return max(s.standing, s.next)
}
