package runner

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"tailgate/loadtest/record"
	"tailgate/loadtest/workload"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// client sends one request after the other. It belongs to one goroutine at a time: its own, or where it is asynchronous, whoever has its
// answer or what it waits for (see async.go).
type client struct {
	run    *run
	link   *link
	at     int // number of the link; open loop
	source *workload.Source
	record *record.Client
	call   transports.Call
	flight flight
	async  async

	ctx      context.Context // carries the deadline of the requests of the moment
	cancel   context.CancelFunc
	deadline time.Duration // of ctx, by the run's clock

	answers [2]time.Duration // when its last two answers came, the latest first; never where there was none
	warmup  record.Counts    // its requests before the interval
	counted int64            // measured answers that came within the interval
	behind  int64            // measured requests that the tester itself had not sent by the end of the interval
	wake    chan job         // open loop with goroutines: the next request to send, and the lead with it
	lost    bool             // its last request ended with nothing: timed out, error or unsent; a refusal shows that somebody is there
}

// lastAnswer is when the client's last answer until then came. Two are enough to know: after the end of the interval a client finishes the request
// that it has under way, and begins no other.
func (c *client) lastAnswer(until time.Duration) (at time.Duration, ok bool) {
	for _, at := range c.answers {
		if at <= until {
			return at, true
		}
	}
	return 0, false
}

// loop is the life of a client: behind the barrier, then request after request until the interval has ended.
func (c *client) loop() {
	r := c.run
	<-r.barrier
	defer c.end()
	free := r.start
	for first := true; ; first = false {
		measured, more := c.begin(free)
		if !more {
			return
		}
		free = c.request(free, measured)
		if first && r.begun.Add(1) == int64(r.cell.Clients) {
			close(r.warm)
		}
	}
}

// end hands over what the client still holds.
func (c *client) end() {
	c.record.Flush()
	if c.cancel != nil {
		c.cancel()
	}
}

// begin decides on a request that is due at this time: whether it is measured, and whether there is to be one at all.
func (c *client) begin(intended time.Duration) (measured, more bool) {
	r := c.run
	if int64(intended) >= r.until.Load() {
		return false, false
	}
	measured = int64(intended) >= r.from.Load()
	return measured, !measured || r.cell.Requests == 0 || r.tickets.Add(1) <= r.cell.Requests
}

// request makes one request of a closed loop and returns when the client was free again.
func (c *client) request(intended time.Duration, measured bool) (free time.Duration) {
	r := c.run
	c.source.Next(&c.call)
	called := r.now()
	c.refreshDeadline(called)
	s := stamps{intended: intended, lag: called - intended}
	var err error
	if r.slots != nil {
		s.wait, err = c.takeSlot(called)
	}
	s.sent = called + s.wait
	free, err = c.exchange(s, err, measured)
	if pause := retryAfter(err); pause > 0 {
		c.pause(pause)
		return r.now()
	}
	return free
}

// stamps are the times of a request up to the call of the transport.
type stamps struct {
	intended time.Duration
	lag      time.Duration // by the tester's own fault
	wait     time.Duration // for a place in flight
	sent     time.Duration // when the call begins
}

// flight is a request from its call to its end.
type flight struct {
	stamps
	measured bool
	holder   *holder       // the connection it was given to; nil when there was none
	done     time.Duration // when it ended
	err      error
}

// exchange sends the request that was drawn, unless it has failed already, waits for its end, frees its place in flight, and records it. It
// returns when the end was.
func (c *client) exchange(s stamps, failed error, measured bool) (done time.Duration, err error) {
	r, f := c.run, &c.flight
	*f = flight{stamps: s, measured: measured, err: failed}
	if f.err == nil {
		if f.holder, f.err = c.link.get(c.ctx); f.err == nil {
			f.err = f.holder.Do(c.ctx, &c.call)
		}
		if r.slots != nil {
			<-r.slots
		}
	}
	f.done = r.now()
	if c.finish() {
		_ = f.holder.Close() // it is broken already
	}
	return f.done, f.err
}

// finish accounts for the request that has ended and records it. It reports whether its connection was found broken and is to be closed by the caller.
func (c *client) finish() (broken bool) {
	r, f := c.run, &c.flight
	if f.measured && r.cell.Requests > 0 && r.cell.Open == nil {
		raise(&r.last, int64(f.done))
	}
	inTime := int64(f.done) <= r.until.Load()
	if f.err == nil {
		f.holder.answered()
		if c.lost = false; inTime { // in an open loop a client may have many requests to finish after the end
			c.answers = [2]time.Duration{f.done, c.answers[0]}
		}
		if f.measured && inTime {
			c.counted++
		}
		c.answered(f.measured, record.Times{
			Due: f.intended - r.begins(), Response: f.done - f.intended, Service: f.done - f.sent - c.call.CreditWait, Lag: f.lag, CreditWait: f.wait + c.call.CreditWait,
		})
		return false
	}

	c.source.Forget()
	fate, note, lost := classify(f.err, f.holder != nil)
	c.lost = fate != record.Refused
	if f.measured {
		c.record.Lost(fate, f.intended-r.begins(), f.done-f.intended, note)
	} else {
		c.warmup[fate]++
	}
	return lost && f.holder != nil && c.link.drop(f.holder)
}

// answered checks the answer and records the request.
func (c *client) answered(measured bool, times record.Times) {
	answer, err := c.source.Check(&c.call)
	if !measured {
		fate := record.OK
		switch {
		case err != nil:
			fate = record.Errors
		case answer.Rejected:
			fate = record.Rejected
		}
		c.warmup[fate]++
		return
	}
	if err != nil {
		c.record.Wrong(times.Due, times.Response, err.Error())
		return
	}
	times.Server, times.HasServer = answer.Server, answer.HasServer
	if answer.Rejected {
		c.record.Answered(record.Rejected, times, answer.Reason.String())
		return
	}
	c.record.Answered(record.OK, times, "")
}

// refreshDeadline makes sure that ctx gives a request that begins now its whole time.
func (c *client) refreshDeadline(now time.Duration) {
	timeout := c.run.cell.Timeout
	if c.ctx != nil && c.deadline-now >= timeout && c.ctx.Err() == nil {
		return
	}
	if c.cancel != nil {
		c.cancel()
	}
	c.deadline = now + timeout + timeout/deadlineShare
	c.ctx, c.cancel = context.WithDeadline(c.run.requests, c.run.epoch.Add(c.deadline))
}

// errNoSlot: the request's time passed while it waited for a place in flight.
var errNoSlot = errors.New("no place in flight came free in the request's time")

// takeSlot waits for a place in flight, first come, first served: a channel hands a freed place to whoever waits longest, and while
// somebody waits it is never found free.
func (c *client) takeSlot(called time.Duration) (waited time.Duration, err error) {
	select {
	case c.run.slots <- struct{}{}:
		return 0, nil
	default:
	}
	select {
	case c.run.slots <- struct{}{}:
		return c.run.now() - called, nil
	case <-c.ctx.Done():
		return c.run.now() - called, errNoSlot
	}
}

// pause waits as a refusal asked, but not beyond the cell.
func (c *client) pause(d time.Duration) {
	timer := time.NewTimer(min(d, maxRetryAfter))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.run.stopped:
	}
}

// classify sorts the end of a request without an answer. The note is a reason of the contract, or says what else it was; lost tells that
// the connection is gone.
func classify(err error, sent bool) (fate record.Fate, note string, lost bool) {
	if errors.Is(err, errNoSlot) {
		return record.Unsent, "no place in flight", false
	}
	if !sent {
		return record.Unsent, "no connection", false
	}
	fault, ok := errors.AsType[*transports.Fault](err)
	if !ok {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return record.TimedOut, "context ended", false
		}
		return record.Errors, "no fault: " + err.Error(), false
	}
	// A gateway that is stopping takes nothing more on this connection, on tcp for good: to ask again would be to spin.
	lost = fault.Reason == pb.Reason_REASON_CONNECTION_LOST || fault.Reason == pb.Reason_REASON_DRAINING
	switch {
	case fault.Reason == pb.Reason_REASON_DEADLINE_EXCEEDED:
		fate = record.TimedOut
	case lost && fault.Outcome == pb.Outcome_OUTCOME_NOT_PROCESSED:
		fate = record.Unsent
	case fault.Outcome == pb.Outcome_OUTCOME_NOT_PROCESSED:
		fate = record.Refused
	default:
		fate = record.Errors
	}
	return fate, fault.Reason.String(), lost
}

// retryAfter is how long a refusal asks to wait.
func retryAfter(err error) time.Duration {
	if fault, ok := errors.AsType[*transports.Fault](err); ok {
		return fault.RetryAfter
	}
	return 0
}

// raise sets v to n where n is greater.
func raise(v *atomic.Int64, n int64) {
	for old := v.Load(); n > old; old = v.Load() {
		if v.CompareAndSwap(old, n) {
			return
		}
	}
}
