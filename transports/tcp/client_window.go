package tcp

import (
	"sync"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// flowSemaphore is the flow-control mode in which the clients of a process have at most DialConfig.Window requests in flight.
const flowSemaphore = "semaphore"

// window is the flow semaphore, the published repair of TCP's tail: at most so many requests of the process are in flight, whatever their connection, and the
// others wait in the order in which they came. A slot is held from the sending of a request until its answer.
//
// All clients of the process with the same size share one. Its lock is taken behind a client's and never before one.
type window struct {
	size int

	mu      sync.Mutex
	clients int
	taken   int
	queue   queue
}

var windows = struct {
	sync.Mutex
	bySize map[int]*window
}{bySize: map[int]*window{}}

// joinWindow returns the window of so many slots, for one client more.
func joinWindow(size int) *window {
	windows.Lock()
	defer windows.Unlock()
	w := windows.bySize[size]
	if w == nil {
		w = &window{size: size}
		windows.bySize[size] = w
	}
	w.clients++
	return w
}

// leave is the end of one of its clients.
func (w *window) leave() {
	windows.Lock()
	defer windows.Unlock()
	if w.clients--; w.clients == 0 {
		delete(windows.bySize, w.size)
	}
}

// enterWindow is enter with the flow semaphore.
func (c *client) enterWindow(e *exchange, try bool) *transports.Fault {
	w := c.window
	w.mu.Lock()
	if w.queue.first == nil && w.taken < w.size {
		w.taken++
		w.mu.Unlock()
		e.slot = true
		fault := c.send(e)
		if fault != nil {
			e.slot = false
			c.slots++
		}
		return fault
	}
	if try {
		waiting := w.queue.calls
		w.mu.Unlock()
		c.counts.refused++
		return transports.Refuse(pb.Reason_REASON_NO_CREDIT, "all %d slots of the window are taken and %d calls wait before it; nothing was sent", w.size, waiting)
	}
	e.since = time.Now()
	w.queue.push(e)
	w.mu.Unlock()
	return nil
}

// release takes a slot back and gives it to whoever waits longest, whose request it sends. Called without any client's lock.
func (w *window) release() {
	for {
		w.mu.Lock()
		e := w.queue.first
		if e == nil {
			w.taken--
			w.mu.Unlock()
			return
		}
		w.queue.remove(e)
		w.mu.Unlock()
		if e.client.take(e) {
			return
		}
	}
}

// take sends e, which has got a slot. It returns false where e needs none any more.
func (c *client) take(e *exchange) bool {
	c.mu.Lock()
	defer c.unlock()
	if e.state != queued {
		return false // it was given up between the two locks
	}
	fault := c.refusal
	if fault == nil {
		e.slot = true
		if fault = c.send(e); fault == nil {
			c.handOn()
			return true
		}
		e.slot = false
	}
	c.finish(e, fault)
	return false
}

// giveUp takes e out of the queue. Where it is no more there, somebody is about to bring it a slot, and must find it done. Called with the client's lock.
func (w *window) giveUp(e *exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.held != nil {
		w.queue.remove(e)
		return
	}
	e.state, e.unshared = done, true
}

// refuse ends every call of c that waits. Called with the client's lock.
func (w *window) refuse(c *client) {
	w.mu.Lock()
	var mine queue
	for e := w.queue.first; e != nil; {
		next := e.link
		if e.client == c {
			w.queue.remove(e)
			mine.push(e)
		}
		e = next
	}
	w.mu.Unlock()
	for e := mine.first; e != nil; e = mine.first {
		mine.remove(e)
		c.finish(e, c.refusal)
	}
}

// unqueue takes e out of the queue that it waits in. Called with the lock.
func (c *client) unqueue(e *exchange) {
	if c.window != nil {
		c.window.giveUp(e)
		return
	}
	e.held.remove(e)
}

// overWaiting is the fault of a call whose context ended with err while it waited for permission.
func (c *client) overWaiting(err error) *transports.Fault {
	what := "the gateway's credit"
	if c.window != nil {
		what = "a slot of the window"
	}
	return overBefore(pb.Reason_REASON_NO_CREDIT, err, "the request ended while it waited for "+what+"; nothing was sent")
}
