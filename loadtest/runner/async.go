package runner

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"tailgate/transports"
)

// Clients without goroutines. Where the transport has an engine of its own that reads for all connections ([transports.AsyncClient]), a client
// is no goroutine but a state: its next request is drawn and sent by whoever brings the answer to the one before, usually the transport's
// own loop. What would have to wait, and is rare, gets a goroutine for that time: opening a lost connection, a pause that a refusal asked for.
// Accounts and stamps are those of a client that waits in Do.

// isAsync tells whether the cell's clients are driven by answers: by every engine but the transport's first, which has goroutines anyway.
func isAsync(cell Cell, client transports.Client) bool {
	engines := cell.Transport.Engines
	if cell.Dial.Engine == "" || len(engines) == 0 || cell.Dial.Engine == engines[0] {
		return false
	}
	_, ok := client.(transports.AsyncClient)
	return ok
}

// async is what an asynchronous client has in addition.
type async struct {
	open   *open        // nil in a closed loop
	begun  bool         // its first request has ended
	placed bool         // it holds a place in flight of the closed loop
	next   *client      // behind it in the line for a place
	phase  atomic.Int32 // of the request under way
	answer func(error)  // the client's answered method, made once
}

// Phases of a request. Its answer may come before Go has returned, from within Go or from another thread; then it is whoever called Go that goes
// on with it, so that no client is ever in two hands, and a transport that refuses at once makes no stack grow.
const (
	calling  = iota // Go has not returned
	waiting         // it has, and no answer has come
	answered        // the answer came first
)

// makeAsync makes an asynchronous client of one that is new.
func (c *client) makeAsync(o *open) *client {
	c.async.open, c.async.answer = o, c.onAnswer
	return c
}

// driveAll lets the clients of a closed loop go.
func (r *run) driveAll(clients []*client, running *sync.WaitGroup) {
	running.Add(len(clients))
	over := make(chan struct{})
	r.left.Store(int64(len(clients)))
	r.gone = func() {
		if r.left.Add(-1) == 0 {
			close(over)
		}
		running.Done()
	}
	if r.cell.InFlight > 0 {
		r.places = &places{free: r.cell.InFlight}
		running.Go(func() { r.expire(over) })
	}
	running.Go(func() {
		<-r.barrier
		for _, c := range clients {
			c.drive(r.start)
		}
	})
}

// drive makes requests from the moment when the client was free until one has to be waited for.
func (c *client) drive(free time.Duration) {
	r, f := c.run, &c.flight
	for {
		measured, more := c.begin(free)
		if !more {
			c.record.Flush()
			r.gone()
			return
		}
		c.source.Next(&c.call)
		called := r.now()
		c.renew(called)
		*f = flight{stamps: stamps{intended: free, lag: called - free, sent: called}, measured: measured}
		if r.places != nil && !r.places.take(c) {
			return // whoever frees a place goes on
		}
		if !c.transmit() {
			return // whoever brings the answer goes on
		}
		if free, more = c.settle(); !more {
			return
		}
	}
}

// renew gives the request that begins now its time.
func (c *client) renew(now time.Duration) { c.ctx = c.run.deadlines.at(now) }

// transmit gives the request to the connection. It reports whether it has ended already, and then the caller goes on with it.
func (c *client) transmit() (ended bool) {
	h := c.link.client.Load()
	if h == nil {
		go c.reconnect()
		return false
	}
	return c.give(h)
}

func (c *client) give(h *holder) (ended bool) {
	c.flight.holder = h
	c.async.phase.Store(calling)
	h.async.Go(c.ctx, &c.call, c.async.answer)
	return !c.async.phase.CompareAndSwap(calling, waiting)
}

// onAnswer is what the transport calls, exactly once for a request.
func (c *client) onAnswer(err error) {
	c.flight.err, c.flight.done = err, c.run.now()
	if c.async.phase.CompareAndSwap(calling, answered) {
		return
	}
	c.goOn()
}

// reconnect waits for the connection to be opened again, and goes on.
func (c *client) reconnect() {
	h, err := c.link.get(c.ctx)
	if err != nil {
		c.flight.err, c.flight.done = err, c.run.now()
	} else if !c.give(h) {
		return
	}
	c.goOn()
}

// goOn is the rest of a request that has ended, and what comes after it.
func (c *client) goOn() {
	if c.async.open != nil {
		c.settleOpen()
		return
	}
	if free, more := c.settle(); more {
		c.drive(free)
	}
}

// settle frees the request's place in flight and records it. Without more, the client goes on by itself, after a pause.
func (c *client) settle() (free time.Duration, more bool) {
	r, f := c.run, &c.flight
	if c.async.placed {
		c.async.placed = false
		r.places.leave()
	}
	c.close()
	if !c.async.begun {
		c.async.begun = true
		if r.begun.Add(1) == int64(r.cell.Clients) {
			close(r.warm)
		}
	}
	if pause := retryAfter(f.err); pause > 0 {
		go func() {
			c.pause(pause)
			c.drive(r.now())
		}()
		return 0, false
	}
	return f.done, true
}

// close records the request. A broken connection is closed beside: the transport's own loop may be the one that is here, and Close may wait for it.
func (c *client) close() {
	if !c.finish() {
		return
	}
	h := c.flight.holder
	c.run.closing.Go(func() { _ = h.Close() }) // it is broken already
}

// places are the places in flight of a closed loop. Who waits stands in line, first come, first served.
type places struct {
	mu          sync.Mutex
	free        int
	first, last *client
}

// take takes a place for c, or puts it in line: then c belongs to whoever frees one.
func (p *places) take(c *client) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free > 0 {
		p.free--
		c.async.placed = true
		return true
	}
	if c.async.next = nil; p.first == nil {
		p.first = c
	} else {
		p.last.async.next = c
	}
	p.last = c
	return false
}

// leave gives a place back, or on to the first in line, whose request is then sent.
func (p *places) leave() {
	p.mu.Lock()
	c := p.first
	if c == nil {
		p.free++
		p.mu.Unlock()
		return
	}
	p.first = c.async.next
	p.mu.Unlock()

	f := &c.flight
	now := c.run.now()
	f.wait, f.sent = now-f.sent, now
	c.async.placed = true
	if c.transmit() {
		go c.goOn() // not here: the place would be handed on from within, deeper and deeper
	}
}

// late takes out the first in line when its time has passed. Deadlines come in the order of the line.
func (p *places) late() *client {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.first
	if c == nil || c.ctx.Err() == nil {
		return nil
	}
	p.first = c.async.next
	return c
}

// expire ends the wait of those whose time passes in line.
func (r *run) expire(over <-chan struct{}) {
	ticker := time.NewTicker(max(r.cell.Timeout/deadlineShare/deadlineShare, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-over:
			return
		}
		for c := r.places.late(); c != nil; c = r.places.late() {
			f := &c.flight
			f.err, f.done = errNoSlot, r.now()
			f.wait = f.done - f.sent
			c.goOn()
		}
	}
}

// deadlines gives every request its time by contexts that all share which begin about the same time: a request has at least Timeout and at most a tenth
// more, without a timer of its own. Clients with goroutines have a context each instead: their transports derive others from it, and would all meet at the
// lock of one that is shared. Safe for concurrent use.
type deadlines struct {
	run     *run
	current atomic.Pointer[deadline]

	mu  sync.Mutex
	all []*deadline // that may be in use, the oldest first
}

type deadline struct {
	ctx    context.Context
	cancel context.CancelFunc
	ends   time.Duration // by the run's clock
}

// at returns a context for a request that begins now.
func (d *deadlines) at(now time.Duration) context.Context {
	timeout := d.run.cell.Timeout
	if current := d.current.Load(); current != nil && current.ends-now >= timeout {
		return current.ctx
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if current := d.current.Load(); current != nil && current.ends-now >= timeout {
		return current.ctx
	}
	for len(d.all) > 0 && d.all[0].ends <= now {
		d.all[0].cancel() // it has ended by itself
		d.all = d.all[1:]
	}
	next := &deadline{ends: now + timeout + timeout/deadlineShare}
	next.ctx, next.cancel = context.WithDeadline(d.run.requests, d.run.epoch.Add(next.ends))
	d.all = append(d.all, next)
	d.current.Store(next)
	return next.ctx
}

// end releases them all, when no request is under way.
func (d *deadlines) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.all {
		one.cancel()
	}
}
