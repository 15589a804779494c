package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/hotcodec"
	"tailgate/transports/internal/outcome"
	"tailgate/transports/tcp/internal/wire"
)

// wait blocks until e is done or the context ends, whose error it returns then. It reads for everybody when nobody does. Called with the lock, returns
// with it.
func (c *client) wait(ctx context.Context, e *exchange) (err error) {
	for e.state != done {
		if c.mayRead() {
			c.reading = true
			c.mu.Unlock()
			c.read(ctx, e)
			c.mu.Lock()
			c.reading = false
		} else {
			c.join(e)
			c.mu.Unlock()
			select {
			case <-e.wake:
			case <-ctx.Done():
			}
			c.mu.Lock()
			c.part(e)
		}
		if e.state != done {
			if err = ctx.Err(); err != nil {
				break
			}
		}
	}
	c.handOn()
	return err
}

// mayRead reports whether a caller that waits is to read. Called with the lock.
func (c *client) mayRead() bool { return !c.reading && c.engine == nil }

// handOn offers the reader's role, where it is free, to the latest of those who wait: its answer is the furthest away, so that it reads for the most. Where
// nobody waits and something is under way, somebody is found. Called with the lock.
func (c *client) handOn() {
	switch e := c.idlers; {
	case c.reading || c.engine != nil:
	case e != nil:
		c.part(e)
		e.signal()
	case len(c.inFlight) > 0 || c.front() != nil:
		c.watch()
	}
}

// join puts e in the list of those who may become the reader.
func (c *client) join(e *exchange) {
	e.listed, e.prev, e.succ = true, nil, c.idlers
	if c.idlers != nil {
		c.idlers.prev = e
	}
	c.idlers = e
}

// part takes e out of it.
func (c *client) part(e *exchange) {
	if !e.listed {
		return
	}
	if e.prev != nil {
		e.prev.succ = e.succ
	} else {
		c.idlers = e.succ
	}
	if e.succ != nil {
		e.succ.prev = e.prev
	}
	e.listed, e.prev, e.succ = false, nil, nil
}

// watch starts a goroutine that reads while no caller does: it reads for calls of Go; it takes the answers whose callers have left, since they hold credit and
// the gateway must not take this client for one that does not read; and it notices what the gateway says to an idle client, above all that it goes away, so
// that the next request is provably not processed. It ends with an answer behind which a caller can go on, so that a caller alone reads for itself again,
// or nothing is under way; but not with the last answer to a call of Go, which is often followed by the next. Called with the lock.
func (c *client) watch() {
	if c.reading || c.idlers != nil || c.broken || c.engine != nil {
		return
	}
	c.reading = true
	go func() {
		c.read(context.Background(), nil)
		c.mu.Lock()
		c.reading = false
		c.handOn()
		if c.refusal == nil {
			c.timer.Reset(c.tick())
		}
		c.unlock()
	}()
}

// read handles frames until e is done, the context ends or the connection does; with nil, which is the watcher, as watch says. The caller has the reader's
// role and not the lock.
func (c *client) read(ctx context.Context, e *exchange) {
	if ctx.Done() != nil {
		// A late call of interrupt, when this reader has left, only makes the next one look around.
		defer context.AfterFunc(ctx, c.interrupt)()
	}
	for {
		n, err := c.nc.Read(c.in.B[c.w:])
		if n > 0 {
			c.mu.Lock()
			c.took(n, e)
			c.unlock()
			c.mu.Lock() // those who were told may have sent more
			over := c.broken
			if e != nil {
				over = over || e.state == done
			} else {
				over = over || c.answered && (c.idlers != nil || !c.async && len(c.inFlight) == 0 && c.front() == nil)
			}
			c.mu.Unlock()
			if over {
				return
			}
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = c.socket.SetReadDeadline(time.Time{})
			if ctx.Err() != nil { // looked at after the deadline is gone, since the context ends before it sets one
				return
			}
			continue
		}
		c.fail(c.lost(err))
		return
	}
}

// took handles n bytes that were read behind w. self is the reader's own call. Called with the lock.
func (c *client) took(n int, self *exchange) {
	c.w += n
	c.answered, c.self = false, self
	if fault := c.frames(); fault != nil {
		c.failLocked(fault)
	}
	c.self = nil
	c.advance()
}

// lost is the end of the connection that the gateway did not announce.
func (c *client) lost(err error) *transports.Fault {
	if died := c.box.Err(); died != nil {
		err = died
	} else if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the gateway closed it: %w", io.ErrUnexpectedEOF)
	}
	return transports.InDoubt(pb.Reason_REASON_CONNECTION_LOST, err, "the connection to %s is lost; the same id again, on a new connection, tells what became of a request", c.remote)
}

// violation is a peer that does not keep the protocol.
func (c *client) violation(format string, args ...any) *transports.Fault {
	return transports.InDoubt(pb.Reason_REASON_CONNECTION_LOST, nil, "%s does not keep the protocol: %s", c.remote, fmt.Sprintf(format, args...))
}

// frames handles every whole frame that is read. A fault is fatal. Called with the lock.
func (c *client) frames() *transports.Fault {
	for {
		have := c.in.B[c.r:c.w]
		if len(have) < wire.HeaderSize {
			c.room(wire.HeaderSize)
			return nil
		}
		h := wire.Parse(have)
		if fault := c.check(h); fault != nil {
			return fault
		}
		size := wire.HeaderSize + int(h.Length)
		if len(have) < size {
			c.room(size)
			return nil
		}
		c.r += size
		if fault := c.frame(h, have[wire.HeaderSize:size]); fault != nil {
			return fault
		}
	}
}

// room makes the in-buffer hold a frame of the given size from in.B[r] on.
func (c *client) room(size int) {
	rest := c.in.B[c.r:c.w]
	if size > len(c.in.B) {
		larger := clientBuffers.Get(size)
		copy(larger.B, rest)
		clientBuffers.Put(c.in)
		c.in = larger
	} else if c.r > 0 {
		copy(c.in.B, rest)
	}
	c.r, c.w = 0, len(rest)
}

// check judges a frame by its header, before room is made for its payload.
func (c *client) check(h wire.Header) *transports.Fault {
	limit := uint64(wire.MaxHandshake)
	switch h.Type {
	case wire.Response, wire.Reject:
		e := c.inFlight[h.Correlation]
		if e == nil {
			return c.violation("it answers request %d, which is not in flight", h.Correlation)
		}
		if h.Type == wire.Response {
			limit = e.limit
		}
	case wire.Credit, wire.Reclaim, wire.Pong, wire.GoAway, wire.Error:
	case wire.Event:
		if c.events == nil || !c.events.begun {
			return c.violation("it sends an event that nobody asked for")
		}
	default:
		if h.Type < wire.Ignorable {
			return c.violation("a gateway may not send %v", h.Type)
		}
	}
	if uint64(h.Length) > limit {
		return c.violation("%v has %d bytes of payload, at most %d are possible", h.Type, h.Length, limit)
	}
	return nil
}

// frame takes one whole frame that check let pass.
func (c *client) frame(h wire.Header, payload []byte) *transports.Fault {
	switch h.Type {
	case wire.Response, wire.Reject:
		e := c.inFlight[h.Correlation]
		delete(c.inFlight, h.Correlation)
		c.answered, c.async = true, e.tell != nil
		c.grant(h.Credit)
		c.answerStands(h)
		var fault *transports.Fault
		if e.call != nil {
			if h.Type == wire.Reject {
				fault = decodeFault(payload)
			} else {
				fault = decodeAnswer(e.call, payload)
			}
			if c.events != nil && fault == nil {
				c.turn(e)
			}
		}
		c.finish(e, fault)
		if c.refusal != nil && len(c.inFlight) == 0 && (c.events == nil || !c.events.loggedOut) {
			c.failLocked(c.refusal) // the last answer after GOAWAY
		}
	case wire.Credit, wire.Pong:
		c.grant(h.Credit)
	case wire.Reclaim:
		c.grant(h.Credit)
		c.reclaim(h.Aux)
	case wire.Event:
		return c.event(h, payload)
	case wire.GoAway:
		c.goneAway(h, decodeFault(payload))
	case wire.Error:
		c.closedBy(decodeFault(payload))
	default: // what a later version may say
	}
	return nil
}

// decodeAnswer fills the caller's response.
func decodeAnswer(call *transports.Call, payload []byte) *transports.Fault {
	var err error
	if response, ok := call.Response.(*pb.SubmitOrderResponse); ok {
		id := ""
		if order, ok := call.Request.(*pb.SubmitOrderRequest); ok {
			id = order.ClientOrderId
		}
		err = hotcodec.DecodeSubmitOrderResponse(payload, response, id)
	} else {
		err = proto.Unmarshal(payload, call.Response)
	}
	if err != nil {
		return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "the answer of %v cannot be read; the request may have been entered", call.Operation)
	}
	return nil
}

// goneAway ends every call that the gateway will not process, and closes when the others have their answers.
func (c *client) goneAway(h wire.Header, why *transports.Fault) {
	c.because(why)
	c.refuseFrom(outcome.Over(why))
	for id, e := range c.inFlight {
		if wire.After(id, h.Correlation) {
			delete(c.inFlight, id)
			c.finish(e, c.refusal)
		}
	}
	c.refuseQueue()
	if len(c.inFlight) == 0 {
		c.failLocked(c.refusal)
	}
}

// closedBy takes the gateway's last word: its outcome is that of every request without an answer.
func (c *client) closedBy(why *transports.Fault) {
	for id, e := range c.inFlight {
		delete(c.inFlight, id)
		c.finish(e, why)
	}
	c.failLocked(why)
}
