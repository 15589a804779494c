package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/cursor"
	"tailgate/transports/internal/outcome"
)

// stream carries the events of one reader from the gateway to a callback. Two goroutines serve it: one of the server's half, which waits for
// the gateway, and one of the client's, which may be held by its callback; between them lies one batch.
type stream struct {
	cancel  context.CancelFunc
	batches chan []*pb.ExecutionReport
	ended   chan error    // of the server's half: why the events ended, nil where they did not
	idle    chan struct{} // closed when the client's half has handed over everything
	broken  error         // of the client's half, set before idle is closed
}

// follow starts to carry events, which belong to the stream from then on.
func follow(events transports.Events, patience time.Duration, receive func(*pb.ExecutionReport)) *stream {
	ctx, cancel := context.WithCancel(context.Background())
	s := &stream{
		cancel: cancel, batches: make(chan []*pb.ExecutionReport, 1), ended: make(chan error, 1), idle: make(chan struct{}),
	}
	at := cursor.At(events.Place())
	go func() {
		defer close(s.batches)
		s.ended <- s.pump(ctx, events, patience)
	}()
	go func() {
		defer close(s.idle)
		for batch := range s.batches {
			for _, report := range batch {
				if s.broken = at.Take(report); s.broken != nil {
					cancel()
					return
				}
				receive(report)
			}
		}
	}()
	return s
}

// pump is the server's half. A client that takes nothing for so long is cut.
func (s *stream) pump(ctx context.Context, events transports.Events, patience time.Duration) error {
	defer events.Close()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		encoded, err := events.Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		batch := make([]*pb.ExecutionReport, len(encoded))
		for i := range encoded {
			batch[i] = new(pb.ExecutionReport)
			if err := proto.Unmarshal(encoded[i].Report, batch[i]); err != nil {
				return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "event %d is not an ExecutionReport", encoded[i].Sequence)
			}
		}
		timer.Reset(patience)
		select {
		case s.batches <- batch:
		case <-timer.C:
			return transports.InDoubt(pb.Reason_REASON_SLOW_READER, nil, "nothing of this stream was taken for %v; go on from the last event that you have", patience)
		case <-ctx.Done():
			return nil
		}
	}
}

// trader implements transports.Trader: a client whose session has a name and events.
type trader struct {
	client *client
	ack    *pb.LogonAck
	stream *stream
	stop   chan error // asks for the end: nil after a Logout, else the fault that ended the session
	done   chan struct{}

	mu       sync.Mutex
	ending   bool
	inFlight sync.WaitGroup // grows only while not ending
	err      error          // why it ended; set before ending
}

func (n *network) trade(ctx context.Context, config transports.DialConfig, logon *pb.Logon, receive func(*pb.ExecutionReport)) (transports.Trader, error) {
	c, err := n.connect(ctx, config)
	if err != nil {
		return nil, err
	}
	t := &trader{client: c, ack: new(pb.LogonAck), stop: make(chan error, 1), done: make(chan struct{})}
	if err := t.begin(ctx, logon, receive); err != nil {
		return nil, fmt.Errorf("memory: trade at %s: %w", config.Address, errors.Join(err, c.Close()))
	}
	return t, nil
}

func (t *trader) begin(ctx context.Context, logon *pb.Logon, receive func(*pb.ExecutionReport)) error {
	if err := t.client.server.enter(); err != nil { // a session counts as in flight, so that a shutdown waits for its end
		return err
	}
	call := transports.Call{Operation: transports.Logon, Request: logon, Response: t.ack}
	if err := t.client.exchange(ctx, &call); err != nil {
		t.client.server.leave()
		return err
	}
	place := &pb.StreamExecutionsRequest{Epoch: t.ack.GetEpoch(), FromSequence: t.ack.GetNextSequence()}
	events, err := t.client.session.Subscribe(ctx, place)
	if err != nil {
		t.client.server.leave()
		return outcome.NoEvents(err)
	}
	t.stream = follow(events, t.client.server.limits.WriteTimeout, receive)
	go t.watch()
	return nil
}

// watch waits for the end of the session, whichever it is, and sees it through.
func (t *trader) watch() {
	var err error
	select {
	case err = <-t.stop:
	case err = <-t.stream.ended:
		if err == nil {
			<-t.stream.idle // only a broken stream ends without a reason
			err = t.stream.broken
		}
	case <-t.client.server.drain:
		err = drained()
	case <-t.client.server.stopped:
		err = transports.InDoubt(pb.Reason_REASON_CONNECTION_LOST, nil, "the server stopped")
	case <-t.client.closed:
	}
	t.mu.Lock()
	t.ending, t.err = true, err
	t.mu.Unlock()
	t.inFlight.Wait() // what was accepted is answered
	t.stream.cancel()
	t.client.Close() //nolint:errcheck // has none
	t.client.server.leave()
	<-t.stream.idle
	close(t.done)
}

// Do implements transports.Client.
func (t *trader) Do(ctx context.Context, call *transports.Call) error {
	if call.Operation.OfSession() {
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "%v is a step of the session, not a call", call.Operation)
	}
	return t.exchange(ctx, call)
}

func (t *trader) exchange(ctx context.Context, call *transports.Call) error {
	t.mu.Lock()
	if t.ending {
		defer t.mu.Unlock()
		if t.err != nil {
			return outcome.Over(transports.AsFault(t.err))
		}
		return outcome.Closed()
	}
	t.inFlight.Add(1)
	t.mu.Unlock()
	defer t.inFlight.Done()
	err := t.client.exchange(ctx, call)
	if fault, ok := errors.AsType[*transports.Fault](err); ok && fault.Final {
		t.end(fault)
	}
	return err
}

// end asks for the end of the session; the first one counts.
func (t *trader) end(err error) {
	select {
	case t.stop <- err:
	default:
	}
}

// Ack implements transports.Trader.
func (t *trader) Ack() *pb.LogonAck { return t.ack }

// Done implements transports.Trader.
func (t *trader) Done() <-chan struct{} { return t.done }

// Err implements transports.Trader.
func (t *trader) Err() error {
	select {
	case <-t.done:
		return t.err
	default:
		return nil
	}
}

// Logout implements transports.Trader.
func (t *trader) Logout(ctx context.Context, text string) error {
	call := transports.Call{Operation: transports.Logout, Request: &pb.Logout{Text: text}, Response: &pb.Logout{}}
	if err := t.exchange(ctx, &call); err != nil {
		return err
	}
	t.end(nil)
	select {
	case <-t.done:
	case <-ctx.Done(): // the session is logged out, which is what counts
	}
	return nil
}

// Close implements transports.Client.
func (t *trader) Close() error { return t.client.Close() }

func (n *network) executions(ctx context.Context, config transports.DialConfig, request *pb.StreamExecutionsRequest, receive func(*pb.ExecutionReport)) error {
	c, err := n.connect(ctx, config)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // has none
	s := c.server
	if err := s.enter(); err != nil {
		return err
	}
	events, err := c.session.Subscribe(ctx, request)
	if err != nil {
		s.leave()
		return err
	}
	stream := follow(events, s.limits.WriteTimeout, receive)
	defer func() { <-stream.idle }()
	defer s.leave()
	defer stream.cancel()
	select {
	case err := <-stream.ended:
		if err == nil {
			<-stream.idle
			err = stream.broken
		}
		return err
	case <-s.drain:
		return drained()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func drained() *transports.Fault {
	return transports.Refuse(pb.Reason_REASON_DRAINING, "the gateway is stopping; connect again later")
}
