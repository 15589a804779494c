package grpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/envelope"
	"tailgate/transports/internal/hotcodec"
	"tailgate/transports/internal/outcome"
)

// trading is one Trade stream: a session. Four goroutines serve it, none for a single request:
//
//	receive  reads requests, as long as there is room for their answers
//	run      (grpc's, the handler) hands them to the session in order, commits what was there at once as one batch, and sees the end
//	answer   sends what was released
//	pump     sends events
//
// Only run may end the stream, by returning, and it never waits for the peer without looking at everything else; that is why it
// neither receives nor sends (but for the very first answer, for which there is always room).
type trading struct {
	server  *server
	from    peering
	stream  grpc.ServerStream
	ctx     context.Context // of the stream, and ended with run
	in      chan frame      // read and not handled; closed when nothing more will come
	readErr error           // why, set before in is closed
	answers *answers
	out     *sender
	ended   chan error // what pump ended with

	// Used again by every order. The rest of a request's memory is its own.
	order pb.SubmitOrderRequest
	ack   pb.SubmitOrderResponse
}

// maxBatch is how many requests at most are committed at once, and read ahead.
const maxBatch = 64

// trade serves Trade.
func (s *server) trade(from peering, stream grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	t := &trading{
		server: s, from: from, stream: stream, ctx: ctx, in: make(chan frame, min(maxBatch, s.limits.MaxStreams)),
		// At least two of the largest requests, so that one does not hold up the next.
		answers: newAnswers(s.limits.MaxStreams, 2*s.limits.MaxRequestBytes),
		out:     newSender(stream, s.limits.WriteTimeout), ended: make(chan error, 1),
	}
	defer t.out.timer.Stop()
	go t.receive()
	return t.run()
}

// receive ends with the stream, a moment after run has returned.
func (t *trading) receive() {
	defer close(t.in)
	for t.answers.admit(t.ctx) {
		var f frame
		if t.readErr = t.stream.RecvMsg(&f); t.readErr != nil {
			return
		}
		t.answers.arrived(f.data.Len())
		select {
		case t.in <- f:
		case <-t.ctx.Done():
			f.data.Free()
			return
		}
	}
}

func (t *trading) run() error {
	events, err := t.logon()
	if err != nil {
		return err
	}
	go t.answer()
	go func() { t.ended <- t.out.pump(t.ctx, events, envelope.Execution) }()
	for {
		select { // first, so that a flood of requests does not hold up the end
		case <-t.server.drain:
			return t.dismiss(draining())
		default:
		}
		select {
		case <-t.server.drain:
			return t.dismiss(draining())
		case <-t.out.cut:
			return t.slow()
		case err := <-t.ended:
			if err == nil {
				return t.server.broken(t.ctx, t.out, t.from, "Trade")
			}
			return t.dismiss(transports.AsFault(err))
		case f, ok := <-t.in:
			if !ok {
				return t.farewell(t.readErr)
			}
			if over, err := t.batch(f); over {
				return err
			}
		}
	}
}

// logon takes the first message, which must be a Logon, and sends the answer.
func (t *trading) logon() (transports.Events, error) {
	wait := time.NewTimer(t.server.limits.HandshakeTimeout)
	defer wait.Stop()
	var f frame
	select {
	case first, ok := <-t.in:
		if !ok {
			return nil, transports.Malformed("logon", "the stream ended before its first message, which has to be a Logon")
		}
		f = first
	case <-t.server.drain:
		return nil, draining()
	case <-wait.C:
		return nil, transports.Malformed("logon", "no Logon came within %v", t.server.limits.HandshakeTimeout)
	}
	bytes := f.data.Len()
	parts, err := envelope.SplitRequest(f.data.ReadOnlyData())
	logon := new(pb.Logon)
	switch {
	case err != nil:
		err = outcome.NotDecoded(&pb.TradeRequest{}, err)
	case parts.Member.Operation() != transports.Logon:
		err = transports.Malformed("logon", "the first message of a session has to be a Logon")
	default:
		if wrong := proto.Unmarshal(parts.Payload, logon); wrong != nil {
			err = outcome.NotDecoded(logon, wrong)
		}
	}
	f.data.Free()
	if err != nil {
		return nil, err
	}
	ack := new(pb.LogonAck)
	x := transports.Exchange{Operation: transports.Logon, ReceivedNs: f.receivedNs, Request: logon, Response: ack}
	if err := transports.Do(t.ctx, t.from.session, &x); err != nil {
		return nil, err
	}
	events, err := t.from.session.Subscribe(t.ctx, &pb.StreamExecutionsRequest{Epoch: ack.GetEpoch(), FromSequence: ack.GetNextSequence()})
	if err != nil {
		return nil, outcome.NoEvents(err)
	}
	one := answer{correlation: parts.Correlation, operation: transports.Logon, response: ack}
	message, err := one.message()
	if err == nil {
		err = t.out.send(message)
	}
	if err != nil {
		events.Close()
		return nil, err
	}
	t.answers.answered(bytes)
	return events, nil
}

// batch handles one request and those that came meanwhile, and commits them. It is true when the session is over, with how it ends.
func (t *trading) batch(f frame) (bool, error) {
	over, final := t.take(f)
	for n := 1; n < maxBatch && !over; n++ {
		select {
		case f, ok := <-t.in:
			if ok {
				over, final = t.take(f)
				continue
			}
		default:
		}
		break // nothing is there now, or nothing will be, which run sees
	}
	t.from.session.Commit(t.answers, t.answers.mark())
	switch {
	case !over:
		return false, nil
	case final != nil:
		return true, t.dismiss(final)
	default: // the client's Logout, whose answer is the last thing that is owed
		return true, t.settle()
	}
}

// take handles one request. over says that it was the last one of the session, by a Logout or with the fault that ends it.
func (t *trading) take(f frame) (over bool, final *transports.Fault) {
	bytes := f.data.Len()
	defer f.data.Free()
	parts, err := envelope.SplitRequest(f.data.ReadOnlyData())
	if err != nil {
		t.answers.answered(bytes)
		return true, outcome.NotDecoded(&pb.TradeRequest{}, err) // nobody knows which request this was
	}
	x := transports.Exchange{Operation: parts.Member.Operation(), ReceivedNs: f.receivedNs}
	fault := t.decode(&x, parts.Payload)
	if fault == nil {
		fault = t.handle(&x)
	}
	if fault == nil {
		one, err := encode(parts.Correlation, &x, bytes)
		if err == nil {
			t.answers.commit(one)
			return x.Operation == transports.Logout, nil
		}
		fault = transports.AsFault(err)
	}
	t.answers.refuse(answer{correlation: parts.Correlation, operation: x.Operation, bytes: bytes, fault: fault})
	if fault.Final {
		return true, fault
	}
	return false, nil
}

// decode makes the exchange of a request, or says why it is not looked at.
func (t *trading) decode(x *transports.Exchange, payload []byte) *transports.Fault {
	switch x.Operation {
	case 0:
		return transports.Malformed("request", "the message asks for nothing that a session of this version knows")
	case transports.Logon:
		return transports.Malformed("logon", "the session is logged on already; another one takes a stream of its own")
	case transports.SubmitOrder:
		if len(payload) > t.server.limits.MaxRequestBytes {
			return outcome.TooLarge(len(payload), t.server.limits.MaxRequestBytes)
		}
		t.ack.Reset()
		x.Request, x.Response = &t.order, &t.ack
		if err := hotcodec.DecodeSubmitOrderRequest(payload, &t.order); err != nil { // points into the frame
			return outcome.NotDecoded(&t.order, err)
		}
	default:
		x.Request, x.Response = x.Operation.NewRequest(), x.Operation.NewResponse()
		if err := proto.Unmarshal(payload, x.Request); err != nil {
			return outcome.NotDecoded(x.Request, err)
		}
	}
	return nil
}

// handle calls the session. A panic costs the request and not the session.
func (t *trading) handle(x *transports.Exchange) (fault *transports.Fault) {
	defer func() {
		if cause := recover(); cause != nil {
			t.server.logger.Error("a request panicked", "operation", x.Operation.String(), "panic", cause, "stack", string(debug.Stack()))
			fault = transports.AsFault(fmt.Errorf("panic: %v", cause))
		}
	}()
	if err := t.from.session.Handle(t.ctx, x); err != nil {
		return transports.AsFault(err)
	}
	return nil
}

// answer sends what was released, until the stream is over.
func (t *trading) answer() {
	var batch []answer
	for {
		if batch = t.answers.take(batch[:0]); len(batch) == 0 {
			select {
			case <-t.answers.ready:
				continue
			case <-t.ctx.Done():
				return
			}
		}
		if !t.out.begin(t.ctx) {
			return
		}
		for i := range batch {
			message, err := batch[i].message()
			if err != nil { // it was executed
				batch[i].fail(transports.AsFault(fmt.Errorf("encoding the answer: %w", err)))
				if message, err = batch[i].message(); err != nil {
					panic(err) // a fault's texts are made fit before
				}
			}
			if t.out.send(message) != nil {
				t.out.end()
				return // the stream is over, and run hears of it by its context
			}
			t.out.last = t.out.last || batch[i].operation == transports.Logout && batch[i].fault == nil
		}
		t.out.end()
		t.answers.sent(batch)
		clear(batch)
	}
}

// dismiss ends the session from this side. What was accepted is answered, then a Logout says why, then the status does. What was
// read and not handled is not processed, which is what the status says of everything without an answer.
func (t *trading) dismiss(fault *transports.Fault) error {
	if err := t.settle(); err != nil {
		return err
	}
	done := make(chan bool, 1)
	go func() { done <- t.goodbye(fault) }()
	select {
	case <-done:
	case <-t.out.cut:
		return t.slow()
	}
	return fault
}

// goodbye sends the Logout that nobody asked for, behind everything else.
func (t *trading) goodbye(fault *transports.Fault) bool {
	if !t.out.begin(t.ctx) {
		return false
	}
	defer t.out.end()
	t.out.last = true
	text := fault.Detail().GetMessage()
	text = text[:min(len(text), maxLogoutText)]
	one := answer{operation: transports.Logout, response: &pb.Logout{Text: text}}
	message, err := one.message()
	if err != nil { // a text that is not UTF-8, or was cut within a character
		one.response = &pb.Logout{Text: fault.Reason.String()}
		if message, err = one.message(); err != nil {
			return false
		}
	}
	return t.out.send(message) == nil
}

// maxLogoutText is the contract's bound, in bytes.
const maxLogoutText = 256

// settle waits until everything accepted was answered.
func (t *trading) settle() error {
	if t.answers.settle(t.ctx, t.out.cut) {
		return nil
	}
	return t.server.broken(t.ctx, t.out, t.from, "Trade")
}

// farewell ends a session whose client sends nothing more and did not log out. Without a word it has closed its direction (io.EOF): what
// was accepted is answered. To the gateway such a session is lost, as with a connection that breaks.
func (t *trading) farewell(err error) error {
	if errors.Is(err, io.EOF) {
		return t.settle()
	}
	return err
}

func (t *trading) slow() error { return t.server.slow(t.from.peer, t.from.conn, "Trade") }
