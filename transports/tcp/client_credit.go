package tcp

import (
	"math/rand/v2"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp/internal/wire"
)

// account is the client's side of the credit, proto/SPEC.md section 7. The counters are serial numbers.
type account struct {
	on       bool
	floor    uint32 // what the connection started with
	reserve  uint32 // for urgent requests
	granted  uint32 // by the gateway
	used     uint32 // cost of every normal request sent
	released uint32 // given back unused
	urgent   uint32 // cost of the urgent requests sent and not answered

	// Where the connection stands in the gateway's queue, as far as this side knows.
	said       uint32 // cost of the next request as the last REQUEST or DEMAND put it, 0 = nothing is queued
	saidQueued uint64 // cost of all that is queued, likewise
	standing   uint32 // cost for which the gateway has put it there by itself
	latest     bool   // no REQUEST or DEMAND was sent behind the request with the highest id, so that its answer knows of all
	quick      bool   // the timer looks often, since what is hoarded may be asked back
}

// free is what may be spent.
func (a *account) free() uint32 { return uint32(max(int32(a.granted-a.used-a.released), 0)) }

// covers reports whether a normal request of the cost may be sent.
func (a *account) covers(cost uint32) bool { return a.free() >= cost }

// spares reports whether the reserve has the room for an urgent one.
func (a *account) spares(cost uint32) bool { return a.urgent+cost <= a.reserve }

// hoards reports whether the gateway may ask for something back.
func (a *account) hoards() bool { return a.on && (a.standing > 0 || a.free() > a.floor) }

// queue is a list of calls in their order, each in at most one.
type queue struct {
	first, last *exchange
	cost        uint64
	calls       int
}

func (q *queue) push(e *exchange) {
	e.held, e.back, e.link = q, q.last, nil
	if q.last == nil {
		q.first = e
	} else {
		q.last.link = e
	}
	q.last = e
	q.cost += uint64(e.cost)
	q.calls++
}

func (q *queue) remove(e *exchange) {
	if e.back == nil {
		q.first = e.link
	} else {
		e.back.link = e.link
	}
	if e.link == nil {
		q.last = e.back
	} else {
		e.link.back = e.back
	}
	e.held, e.back, e.link = nil, nil, nil
	q.cost -= uint64(e.cost)
	q.calls--
}

// front is the call whose turn it is, nil where none waits for credit.
func (c *client) front() *exchange {
	if c.urgent.first != nil {
		return c.urgent.first
	}
	return c.waiting.first
}

// enterCredit is enter with the flow credit.
func (c *client) enterCredit(e *exchange, try bool) *transports.Fault {
	if e.cost > c.ack.Largest {
		return transports.Refuse(pb.Reason_REASON_TOO_LARGE, "the request costs %d of credit, %s grants at most %d at a time", e.cost, c.remote, c.ack.Largest)
	}
	e.hurry = wire.MayBeUrgent(e.call.Operation) && e.cost <= c.credit.reserve
	to := &c.waiting
	if e.hurry {
		to = &c.urgent
	}
	if to.first == nil && (e.hurry || c.urgent.first == nil) && c.permits(e) {
		return c.send(e)
	}
	if try {
		c.counts.refused++
		return transports.Refuse(pb.Reason_REASON_NO_CREDIT, "the request costs %d of credit, %d are there and %d calls wait before it; nothing was sent",
			e.cost, c.credit.free(), c.urgent.calls+c.waiting.calls)
	}
	now := time.Now()
	if fault := c.tooLong(e, now); fault != nil {
		c.counts.refused++
		return fault
	}
	to.push(e)
	e.since, e.ahead = now, max(c.urgent.cost+c.waiting.cost, 1)
	c.announce()
	return nil
}

// permits reports whether e may be sent now if nothing is before it. An urgent request is paid from the reserve where that has the room, and otherwise like any other.
func (c *client) permits(e *exchange) bool {
	return e.hurry && c.credit.spares(e.cost) || c.credit.covers(e.cost)
}

// spend pays for e and says in its header what is given back and what waits behind it.
func (c *client) spend(e *exchange, h *wire.Header) {
	a := &c.credit
	if e.hurry && a.spares(e.cost) {
		e.reserve = true
		a.urgent += e.cost
		h.Flags |= wire.Urgent
	} else {
		a.used += e.cost
	}
	h.Credit = a.released
	a.said, a.saidQueued, a.standing, a.latest = 0, 0, 0, true
	if next := c.front(); next != nil && !c.permits(next) { // one that is permitted follows at once
		a.said, a.saidQueued = next.cost, c.urgent.cost+c.waiting.cost
		h.X, h.Y = capped(a.saidQueued), wire.Capped(a.said)
	}
}

func capped(cost uint64) uint16 { return uint16(min(cost, 1<<16-1)) }

// advance sends what is permitted of what waits, in order, and says what is left where the gateway does not know. Called with the lock.
func (c *client) advance() {
	for e := c.front(); e != nil && c.permits(e); e = c.front() {
		e.held.remove(e)
		if err := e.ctx.Err(); err != nil {
			c.finish(e, c.overWaiting(err))
		} else if fault := c.send(e); fault != nil {
			c.finish(e, fault)
		}
	}
	c.announce()
}

// announce sends DEMAND where the gateway does not know what waits: the next request is dearer than it thinks, or nothing waits any more, or less than half of
// what it was told.
func (c *client) announce() {
	a := &c.credit
	if !a.on || c.broken {
		return
	}
	next, queued := c.front(), c.urgent.cost+c.waiting.cost
	switch {
	case next == nil && a.said == 0:
	case next != nil && next.cost <= max(a.said, a.standing) && queued >= a.saidQueued/2:
	default:
		c.demand()
	}
}

// demand says what waits and what is given back.
func (c *client) demand() {
	a := &c.credit
	a.said, a.saidQueued, a.standing, a.latest = 0, 0, 0, false
	if next := c.front(); next != nil {
		a.said, a.saidQueued = next.cost, c.urgent.cost+c.waiting.cost
	}
	c.control(wire.Header{Type: wire.Demand, Credit: a.released, Aux: uint32(min(a.saidQueued, 1<<32-1)), Y: wire.Capped(a.said)})
	c.lastUse = time.Now()
	c.counts.demands++
}

// grant takes the gateway's counter. An older one changes nothing. Called with the lock; advance follows when all frames of a read are through.
func (c *client) grant(counter uint32) {
	a := &c.credit
	if !a.on || !wire.After(counter, a.granted) {
		return
	}
	a.granted = counter
	if !a.quick && c.engine == nil && c.events == nil && a.hoards() {
		a.quick = true
		c.timer.Reset(hoardAfter)
	}
}

// answerStands takes what an answer says of the connection's place in the gateway's queue. It is believed where the gateway had read all that this side has
// said: otherwise it may be about a moment before that, and a place that is there no more would never bring a turn.
func (c *client) answerStands(h wire.Header) {
	if a := &c.credit; a.on && a.latest && h.Correlation == c.next-1 {
		a.standing = uint32(h.Y)
		if h.Y == 0 {
			a.said, a.saidQueued = 0, 0
		}
	}
}

// reclaim gives back what the gateway asks for, as far as it is there. Called with the lock.
func (c *client) reclaim(units uint32) {
	a := &c.credit
	if !a.on {
		return
	}
	c.counts.reclaims++
	c.advance() // what came with it may be what somebody waits for
	a.released += min(units, a.free())
	c.demand()
}

// pace is how long a unit of credit has taken to come, for those who had to wait.
type pace struct {
	perUnit float64 // nanoseconds, a moving average over about eight requests; 0 = not known
}

// sent learns from a request that waited.
func (p *pace) sent(e *exchange, waited time.Duration) {
	if e.ahead == 0 {
		return // it waited for a slot of the window, which is nobody's credit
	}
	sample := float64(waited) / float64(e.ahead)
	if p.perUnit == 0 {
		p.perUnit = sample
	} else {
		p.perUnit += (sample - p.perUnit) / 8
	}
}

// tooLong refuses e where the wait that it can expect is past MaxWait or its deadline: what waits before it, at the pace at which credit has come or, where that
// is worse, at which the request in front does not get any. The first to wait is never refused, so that the pace is learned anew.
func (c *client) tooLong(e *exchange, now time.Time) *transports.Fault {
	first := c.front()
	if c.maxWait <= 0 || first == nil || e.hurry {
		return nil
	}
	perUnit := max(c.pace.perUnit, float64(now.Sub(first.since))/float64(first.ahead))
	expected := time.Duration(perUnit * float64(c.urgent.cost+c.waiting.cost+uint64(e.cost)))
	most := c.maxWait
	if deadline, ok := e.ctx.Deadline(); ok {
		most = min(most, deadline.Sub(now))
	}
	if expected <= most {
		return nil
	}
	fault := transports.Refuse(pb.Reason_REASON_OVERLOADED, "the request would wait about %v for the gateway's credit, at most %v is allowed; nothing was sent",
		expected.Round(time.Millisecond), most.Round(time.Millisecond))
	// Between half of the wait and one and a half times, so that those who are refused together do not come back together.
	fault.RetryAfter = max(expected/2+rand.N(expected), time.Millisecond)
	return fault
}
