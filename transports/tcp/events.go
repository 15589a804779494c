package tcp

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/cursor"
	"tailgate/transports/tcp/internal/wire"
)

// events is what a client with a stream has beside any other: a goroutine that always reads, since events come while nobody calls. Its callers wait for
// their answers and never read. The goroutine gives the events to receive, in order and without the lock: a receive that blocks stops the reading, so the
// answers behind it wait, and the gateway closes a connection that takes nothing for its write timeout.
type events struct {
	receive func(*pb.ExecutionReport)
	done    chan struct{} // closed when the goroutine has ended

	// Under the client's lock.
	begun     bool   // the gateway's LogonAck has come
	request   uint32 // correlation id of the request that it answered
	at        cursor.Cursor
	loggedOut bool // the gateway has answered a Logout; what is left is to read to the end

	// Of the reading goroutine.
	pending []*pb.ExecutionReport // read and not given yet: what one read into the in-buffer held
}

// trade implements transports.Transport.
func trade(ctx context.Context, config transports.DialConfig, logon *pb.Logon, receive func(*pb.ExecutionReport)) (transports.Trader, error) {
	c, ack, err := open(ctx, config, transports.Logon, logon, receive)
	if err != nil {
		return nil, err
	}
	return &trader{client: c, ack: ack}, nil
}

// executions implements transports.Transport.
func executions(ctx context.Context, config transports.DialConfig, request *pb.StreamExecutionsRequest, receive func(*pb.ExecutionReport)) error {
	c, _, err := open(ctx, config, transports.StreamExecutions, request, receive)
	if err != nil {
		return err
	}
	select {
	case <-c.events.done:
	case <-ctx.Done():
	}
	_ = c.Close()
	<-c.events.done // no call of receive after the return
	if why := c.reason(); why != nil {
		return fmt.Errorf("tcp: executions from %s: %w", config.Address, why)
	}
	return ctx.Err()
}

// open dials a connection and asks for a stream with a Logon or a StreamExecutionsRequest. The context bounds the dialing and the answer.
func open(ctx context.Context, config transports.DialConfig, op transports.Operation, request proto.Message, receive func(*pb.ExecutionReport)) (*client, *pb.LogonAck, error) {
	c, err := connect(ctx, config, &events{receive: receive, done: make(chan struct{})})
	if err != nil {
		return nil, nil, err
	}
	ack := &pb.LogonAck{}
	if err := c.do(ctx, &transports.Call{Operation: op, Request: request, Response: ack}, false); err != nil {
		_ = c.Close()
		return nil, nil, fmt.Errorf("tcp: %v at %s: %w", op, config.Address, err)
	}
	return c, ack, nil
}

// trader is a client with a session.
type trader struct {
	*client
	ack *pb.LogonAck
}

// Ack implements transports.Trader.
func (t *trader) Ack() *pb.LogonAck { return t.ack }

// Logout implements transports.Trader. Calls sent before it are answered, and none is sent behind it. It returns when the gateway has closed the connection,
// or when the context has ended; the connection is closed in any case, so that with an error the gateway takes the session for lost. It must not be
// called by receive, which reads the answer.
func (t *trader) Logout(ctx context.Context, text string) error {
	err := t.do(ctx, &transports.Call{Operation: transports.Logout, Request: &pb.Logout{Text: text}, Response: &pb.Logout{}}, false)
	if err == nil {
		select {
		case <-t.events.done:
		case <-ctx.Done():
		}
	}
	_ = t.Close()
	return err
}

// Done implements transports.Trader.
func (t *trader) Done() <-chan struct{} { return t.events.done }

// Err implements transports.Trader.
func (t *trader) Err() error {
	select {
	case <-t.events.done:
	default:
		return nil
	}
	if why := t.reason(); why != nil {
		return why
	}
	return nil
}

// reason is why the connection ended, nil while it has not and where this side wished it.
func (c *client) reason() *transports.Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

// pump is the reading goroutine.
func (c *client) pump() {
	defer close(c.events.done)
	for {
		n, err := c.nc.Read(c.in.B[c.w:])
		if n == 0 {
			c.fail(c.lost(err))
			return
		}
		c.mu.Lock()
		c.took(n, nil)
		over := c.broken
		c.unlock()
		for i, report := range c.events.pending {
			c.events.pending[i] = nil // it is the receiver's now
			c.events.receive(report)
		}
		c.events.pending = c.events.pending[:0]
		if over {
			return
		}
	}
}

// turn looks at an answer that changes what may follow. Called with the lock.
func (c *client) turn(e *exchange) {
	switch e.call.Operation {
	case transports.Logon, transports.StreamExecutions:
		ack, _ := e.call.Response.(*pb.LogonAck)
		c.events.begun, c.events.request = true, e.id
		c.events.at = cursor.At(ack.GetEpoch(), ack.GetNextSequence())
	case transports.Logout:
		c.events.loggedOut = true
		c.because(nil)
	default:
	}
}

// event takes one event. It must be the one that follows, or the first of a later epoch: a gap is never passed on. Called with the lock.
func (c *client) event(h wire.Header, payload []byte) *transports.Fault {
	e := c.events
	report := &pb.ExecutionReport{}
	if err := proto.Unmarshal(payload, report); err != nil {
		return c.violation("an event cannot be read: %v", err)
	}
	epoch, sequence := report.GetEpoch(), report.GetSequence()
	if low := (wire.Header{Aux: uint32(sequence), X: uint16(epoch)}); h.Correlation != e.request || h.Aux != low.Aux || h.X != low.X {
		return c.violation("the header of event %d of epoch %d, for request %d, says %d of %d, for request %d", sequence, epoch, e.request, h.Aux, h.X, h.Correlation)
	}
	if err := e.at.Take(report); err != nil {
		return transports.AsFault(err)
	}
	e.pending = append(e.pending, report)
	return nil
}
