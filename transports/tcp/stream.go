package tcp

import (
	"context"
	"fmt"
	"runtime/debug"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/outcome"
	"tailgate/transports/internal/sockopt"
	"tailgate/transports/tcp/internal/wire"
)

// eventRoom bounds the events of a connection that the kernel has not taken, in bytes: some hundred of them, so that one write carries many and an answer
// never has more than these in front of it here.
const eventRoom = 64 << 10

// notSent bounds, on a connection with events, what the kernel takes before it can send it, in bytes: an answer waits behind that too, and the kernel would
// take megabytes of them from a reader that is behind. So much keeps a link of 10 Gbit/s busy for 50 µs, in which the writer has come back.
const notSent = 64 << 10

// stream is the subscription of a connection: one goroutine that takes events from the session and appends them to the out-buffer, at the pace at which
// the peer takes them. A connection without one has no such goroutine.
type stream struct {
	conn        *conn
	events      transports.Events
	correlation uint32 // of the request that opened it
	ctx         context.Context
	cancel      context.CancelFunc
	done        chan struct{} // closed when the goroutine has ended
}

// step answers a request that opens or ends a session. It returns false when the connection has to end.
func (c *conn) step(h wire.Header) bool {
	take := c.openStream
	if c.exchange.Operation == transports.Logout {
		take = c.logout
	}
	fault, open := take(h)
	if fault != nil {
		return c.reject(fault, h.Correlation)
	}
	return open
}

// logout answers a Logout, the last request of its connection.
func (c *conn) logout(h wire.Header) (fault *transports.Fault, open bool) {
	if fault := c.handle(h); fault != nil {
		return fault, true
	}
	if fault, _ := c.answer(h); fault != nil {
		return final(fault), true
	}
	return nil, false
}

// openStream answers a Logon or a StreamExecutions and starts the events behind the answer.
func (c *conn) openStream(h wire.Header) (fault *transports.Fault, open bool) {
	x := &c.exchange
	if c.stream != nil {
		return transports.Refuse(pb.Reason_REASON_MALFORMED, "this connection has its stream of events already, by request %d; another one needs a connection of its own",
			c.stream.correlation), true
	}
	request, _ := x.Request.(*pb.StreamExecutionsRequest)
	ack, _ := x.Response.(*pb.LogonAck)
	if x.Operation == transports.Logon {
		if fault := c.handle(h); fault != nil {
			return fault, true
		}
		request = &pb.StreamExecutionsRequest{Epoch: ack.GetEpoch(), FromSequence: ack.GetNextSequence()}
	}
	s := &stream{conn: c, correlation: h.Correlation, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(c.server.ctx)
	if fault = s.subscribe(request); fault == nil {
		if x.Operation == transports.StreamExecutions {
			ack.Epoch, ack.NextSequence = s.events.Place()
		}
		if fault, open = c.answer(h); fault == nil && open {
			if err := sockopt.LimitNotSent(c.socket, notSent); err != nil {
				c.log.Warn("tcp: answers may wait behind what the kernel holds of events", "error", err)
			}
			c.stream = s
			go s.run()
			return nil, true
		}
		s.events.Close()
	}
	s.cancel()
	if fault != nil && x.Operation == transports.Logon {
		fault = outcome.NoEvents(fault)
	}
	return fault, open || fault != nil
}

// final is a copy of a fault that ends the connection.
func final(fault *transports.Fault) *transports.Fault {
	f := *fault
	f.Final = true
	return &f
}

// subscribe asks the session for the events. A panic costs the request and not the process.
func (s *stream) subscribe(request *pb.StreamExecutionsRequest) (fault *transports.Fault) {
	defer s.conn.caught("Subscribe", &fault)
	events, err := s.conn.session.Subscribe(s.ctx, request)
	if err != nil {
		return transports.AsFault(err)
	}
	s.events = events
	return nil
}

// run is the stream's goroutine.
func (s *stream) run() {
	defer close(s.done)
	if fault := s.pump(); fault != nil && s.ctx.Err() == nil {
		s.conn.over.CompareAndSwap(nil, fault)
		s.conn.kick()
	}
}

// pump takes events until there are no more, and says why; nil where the out-buffer takes none.
func (s *stream) pump() (fault *transports.Fault) {
	c := s.conn
	defer c.caught("Next", &fault)
	for {
		events, err := s.events.Next(s.ctx)
		if err != nil {
			return transports.AsFault(err)
		}
		for i := range events {
			e := &events[i]
			if len(e.Report) > transports.MaxEventBytes {
				c.log.Error("tcp: an event is larger than it may be", "epoch", e.Epoch, "sequence", e.Sequence, "bytes", len(e.Report), "most", transports.MaxEventBytes)
				return transports.InDoubt(pb.Reason_REASON_INTERNAL, nil, "event %d of epoch %d has %d bytes, at most %d are possible",
					e.Sequence, e.Epoch, len(e.Report), transports.MaxEventBytes)
			}
			h := wire.Header{Type: wire.Event, Correlation: s.correlation, Aux: uint32(e.Sequence), X: uint16(e.Epoch)}
			if !c.box.Event(h, e.Report) {
				return nil
			}
		}
		c.box.Flush()
	}
}

// caught turns a panic into a fault; it is deferred.
func (c *conn) caught(during string, fault **transports.Fault) {
	if p := recover(); p != nil {
		c.log.Error("tcp: panic in the gateway", "during", during, "panic", p, "stack", string(debug.Stack()))
		*fault = transports.AsFault(fmt.Errorf("panic: %v", p))
	}
}

// endStream ends the events when the last answer owed has been let go, and not before, so that a client that is sent away misses little of what its last
// requests did: what is not appended by then it reads on its next connection. It waits for the journal, and for nobody else.
func (c *conn) endStream() {
	s := c.stream
	if s == nil {
		return
	}
	c.box.WaitReleased()
	s.cancel()
	c.box.EndEvents()
	<-s.done
	s.events.Close()
}

// farewell is the last frame to a peer whose session the gateway has ended. Every request taken is answered before it, so those without an answer were
// not processed, whatever the fault says of the one that it ended.
func (c *conn) farewell(fault *transports.Fault, correlation uint32) []byte {
	c.log.Info("tcp: connection closed", "reason", fault.Error())
	if fault.Reason == pb.Reason_REASON_DRAINING {
		return c.goAway(fault)
	}
	f := *fault
	f.Outcome = pb.Outcome_OUTCOME_NOT_PROCESSED
	return errorFrame(&f, correlation)
}
