package grpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/cursor"
	"tailgate/transports/internal/envelope"
	"tailgate/transports/internal/outcome"
)

// trader implements transports.Trader: one Trade stream on a connection of its own. Two goroutines serve it until it is done: one sends
// what callers hand over, so that a caller whose context ends is not held by HTTP/2's flow control, and one receives.
type trader struct {
	client *client
	stream grpc.ClientStream
	cancel context.CancelFunc // ends the stream
	ack    *pb.LogonAck

	places chan struct{} // holds one element for each request in flight, and for each that is left in the queue
	queue  chan *flight  // to be sent; as many as places
	done   chan struct{}

	closed atomic.Bool // by Close, or by a Logout that came back

	mu       sync.Mutex
	last     uint64             // correlation id
	inFlight map[uint64]*flight // sent or about to be; nil once the session is over
	err      *transports.Fault  // why it is over, nil where this side ended it; set before done is closed
}

// flight is one request on its way. Its state goes queued -> sent by the sender, or queued -> abandoned by a caller that gives up:
// exactly one wins, so that "nothing was sent" is a fact.
type flight struct {
	correlation uint64
	message     mem.Buffer
	state       atomic.Uint32
	answer      chan reply // closed without one when the session is over
}

// reply is an answer as it came. Its payload lies in data, which whoever decodes it frees.
type reply struct {
	envelope.Parts
	data mem.Buffer
}

const (
	queued uint32 = iota
	sent
	abandoned
)

func trade(ctx context.Context, config transports.DialConfig, logon *pb.Logon, receive func(*pb.ExecutionReport)) (transports.Trader, error) {
	t, err := newTrader(ctx, config, logon)
	if err != nil {
		return nil, fmt.Errorf("grpc: trade at %s: %w", config.Address, err)
	}
	go t.send()
	go t.receive(receive)
	return t, nil
}

// newTrader connects and logs on.
func newTrader(ctx context.Context, config transports.DialConfig, logon *pb.Logon) (*trader, error) {
	c, err := newClient(config)
	if err != nil {
		return nil, err
	}
	limits := config.Limits.WithDefaults()
	ctx, release := context.WithTimeout(ctx, limits.HandshakeTimeout)
	defer release()
	over, cancel := context.WithCancel(context.Background()) // the stream outlives the caller's context
	t := &trader{
		client: c, cancel: cancel, places: make(chan struct{}, limits.MaxStreams), queue: make(chan *flight, limits.MaxStreams),
		done: make(chan struct{}), inFlight: make(map[uint64]*flight),
	}
	undo := context.AfterFunc(ctx, cancel)
	err = t.logon(over, logon)
	if !undo() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		if _, ok := errors.AsType[*transports.Fault](err); !ok {
			err = faultOf(ctx, err, t.stream != nil)
		}
		return nil, errors.Join(err, c.Close())
	}
	return t, nil
}

func (t *trader) logon(ctx context.Context, logon *pb.Logon) error {
	var err error
	if t.stream, err = t.client.stream(ctx, 0, pb.OrderEntryService_Trade_FullMethodName); err != nil {
		return err
	}
	message, err := request(0, transports.Logon, logon)
	if err != nil {
		return err
	}
	if err := t.stream.SendMsg(&outgoing{data: message}); err != nil && !errors.Is(err, io.EOF) { // with EOF, RecvMsg has the cause
		return err
	}
	var f frame
	if err := t.stream.RecvMsg(&f); err != nil {
		return err
	}
	defer f.data.Free()
	parts, err := envelope.SplitResponse(f.data.ReadOnlyData())
	if err == nil && parts.Member != envelope.Answer(transports.Logon) {
		err = fmt.Errorf("the first answer is member %d and not a LogonAck", parts.Member)
	}
	t.ack = new(pb.LogonAck)
	if err == nil {
		err = proto.Unmarshal(parts.Payload, t.ack)
	}
	return err
}

// stream opens a stream of a method of OrderEntryService; index is the method's place among the service's streams.
func (c *client) stream(ctx context.Context, index int, method string) (grpc.ClientStream, error) {
	return c.conn.NewStream(c.outgoing(ctx), &pb.OrderEntryService_ServiceDesc.Streams[index], method, grpc.ForceCodecV2(newCodec(0)))
}

// request encodes a TradeRequest.
func request(correlation uint64, op transports.Operation, message proto.Message) (mem.Buffer, error) {
	size := proto.Size(message)
	b := room(envelope.HeadSize(correlation, size) + size)
	whole, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(envelope.AppendHead((*b)[:0], correlation, envelope.Request(op), size), message)
	if err != nil {
		return nil, transports.Malformed("", "the request cannot be encoded: %v", err)
	}
	*b = whole
	return mem.NewBuffer(b, mem.DefaultBufferPool()), nil
}

// Ack implements transports.Trader.
func (t *trader) Ack() *pb.LogonAck { return t.ack }

// Done implements transports.Trader.
func (t *trader) Done() <-chan struct{} { return t.done }

// Err implements transports.Trader.
func (t *trader) Err() error {
	select {
	case <-t.done:
		if t.err != nil {
			return t.err
		}
	default:
	}
	return nil
}

// Do implements transports.Client for what a session carries; another request of the contract goes beside the session, on a stream of
// its own. Requests beyond MaxStreams in flight wait for a place.
func (t *trader) Do(ctx context.Context, call *transports.Call) error {
	if call.Operation.OfSession() {
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "%v is a step of the session, not a call", call.Operation)
	}
	if envelope.Request(call.Operation) == 0 {
		return t.client.Do(ctx, call)
	}
	if t.closed.Load() {
		return t.afterwards()
	}
	if err := ctx.Err(); err != nil {
		return outcome.NotSent(ctx, err)
	}
	if size := proto.Size(call.Request); size > t.client.maxRequest {
		return outcome.TooLarge(size, t.client.maxRequest)
	}
	return t.exchange(ctx, call.Operation, call.Request, call.Response)
}

func (t *trader) exchange(ctx context.Context, op transports.Operation, message, response proto.Message) error {
	select {
	case t.places <- struct{}{}:
	case <-t.done:
		return t.ended(false)
	case <-ctx.Done():
		return outcome.NotSent(ctx, ctx.Err())
	}
	f := &flight{answer: make(chan reply, 1)}
	if err := t.enqueue(f, op, message); err != nil {
		<-t.places
		return err
	}
	select {
	case answer, ok := <-f.answer:
		<-t.places
		if !ok {
			return t.ended(!f.state.CompareAndSwap(queued, abandoned))
		}
		defer answer.data.Free()
		return decode(answer.Parts, op, response)
	case <-ctx.Done():
		t.mu.Lock()
		delete(t.inFlight, f.correlation)
		t.mu.Unlock()
		if f.state.CompareAndSwap(queued, abandoned) {
			return outcome.NotSent(ctx, ctx.Err()) // and it keeps its place until it leaves the queue
		}
		<-t.places
		return outcome.Unanswered(ctx, ctx.Err())
	}
}

// enqueue encodes a request and hands it to the sender.
func (t *trader) enqueue(f *flight, op transports.Operation, message proto.Message) error {
	t.mu.Lock()
	t.last++
	f.correlation = t.last
	t.mu.Unlock()
	var err error
	if f.message, err = request(f.correlation, op, message); err != nil {
		return err
	}
	t.mu.Lock()
	over := t.inFlight == nil
	if !over {
		t.inFlight[f.correlation] = f
		t.queue <- f // which has room for it
	}
	t.mu.Unlock()
	if over {
		f.message.Free()
		return t.ended(false)
	}
	return nil
}

// decode reads an answer.
func decode(parts envelope.Parts, op transports.Operation, response proto.Message) error {
	if parts.Member == envelope.Error {
		var detail pb.ErrorDetail
		if err := proto.Unmarshal(parts.Payload, &detail); err != nil {
			return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "the answer is not an ErrorDetail")
		}
		return transports.FaultFromDetail(&detail)
	}
	if parts.Member != envelope.Answer(op) {
		return transports.InDoubt(pb.Reason_REASON_INTERNAL, nil, "%v is answered with member %d", op, parts.Member)
	}
	if err := proto.Unmarshal(parts.Payload, response); err != nil {
		return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "the answer is not a %s", response.ProtoReflect().Descriptor().FullName())
	}
	return nil
}

// ended is the fault of a request without an answer on a session that is over. A gateway that ends a session answers what it has accepted
// and says NOT_PROCESSED of the rest, so that its word counts for a request that was sent, too.
func (t *trader) ended(wasSent bool) error {
	<-t.done
	switch {
	case t.err != nil && wasSent:
		return t.err
	case t.err != nil:
		return outcome.Over(t.err)
	case wasSent:
		return outcome.Unanswered(context.Background(), nil)
	default:
		return outcome.Closed()
	}
}

// afterwards is the fault of a call to a session that was closed from this side: what ended it before, if anything did.
func (t *trader) afterwards() error {
	select {
	case <-t.done:
		return t.ended(false)
	default:
		return outcome.Closed()
	}
}

// send hands the queue to the stream.
func (t *trader) send() {
	for {
		select {
		case f := <-t.queue:
			if !f.state.CompareAndSwap(queued, sent) {
				f.message.Free()
				<-t.places
				continue
			}
			if t.stream.SendMsg(&outgoing{data: f.message}) != nil {
				return // the stream is over, and receive has the cause
			}
		case <-t.done:
			return
		}
	}
}

// receive reads the stream to its end, and is the one goroutine that hands events over.
func (t *trader) receive(event func(*pb.ExecutionReport)) {
	err := t.read(event)
	var why *transports.Fault
	if !t.closed.Load() {
		why = endOf(err)
	}
	t.cancel()
	t.client.Close() //nolint:errcheck // it is over
	t.mu.Lock()
	t.err = why
	left := t.inFlight
	t.inFlight = nil
	t.mu.Unlock()
	close(t.done)
	for _, f := range left {
		close(f.answer)
	}
}

// read returns why the stream ended, which is always an error.
func (t *trader) read(event func(*pb.ExecutionReport)) error {
	at := cursor.At(t.ack.GetEpoch(), t.ack.GetNextSequence())
	for {
		var f frame
		if err := t.stream.RecvMsg(&f); err != nil {
			return err
		}
		parts, err := envelope.SplitResponse(f.data.ReadOnlyData())
		if err != nil {
			return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "what came is not a TradeResponse")
		}
		if parts.Member == envelope.Execution {
			report := new(pb.ExecutionReport)
			if err := proto.Unmarshal(parts.Payload, report); err != nil {
				return transports.InDoubt(pb.Reason_REASON_INTERNAL, err, "what came is not an ExecutionReport")
			}
			f.data.Free()
			if err := at.Take(report); err != nil {
				return err
			}
			event(report)
			continue
		}
		if parts.Member == envelope.Goodbye && parts.Correlation != 0 {
			t.closed.Store(true) // our own Logout came back
		}
		t.mu.Lock()
		waiting := t.inFlight[parts.Correlation]
		delete(t.inFlight, parts.Correlation)
		t.mu.Unlock()
		if waiting != nil {
			waiting.answer <- reply{parts, f.data} // a caller that leaves now leaves it to the garbage collector
		}
	}
}

// endOf is the fault with which a stream ended.
func endOf(err error) *transports.Fault {
	if fault, ok := errors.AsType[*transports.Fault](err); ok {
		return fault
	}
	if errors.Is(err, io.EOF) { // OK, which says nothing of requests under way
		return transports.InDoubt(pb.Reason_REASON_CONNECTION_LOST, err, "the gateway ended the stream without a word")
	}
	s := status.Convert(err)
	if detail := detailOf(s); detail != nil {
		return transports.FaultFromDetail(detail)
	}
	return transports.InDoubt(pb.Reason_REASON_CONNECTION_LOST, err, "the stream ended with %s and no ErrorDetail", s.Code())
}

// Logout implements transports.Trader.
func (t *trader) Logout(ctx context.Context, text string) error {
	if t.closed.Load() {
		return t.afterwards()
	}
	if err := t.exchange(ctx, transports.Logout, &pb.Logout{Text: text}, &pb.Logout{}); err != nil {
		return err
	}
	select {
	case <-t.done:
	case <-ctx.Done(): // the session is logged out; the stream's last word is not worth more waiting
		t.cancel()
	}
	return nil
}

// Close implements transports.Client.
func (t *trader) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	t.cancel()
	return t.client.Close()
}

// executions implements transports.Transport.Executions.
func executions(ctx context.Context, config transports.DialConfig, message *pb.StreamExecutionsRequest, receive func(*pb.ExecutionReport)) error {
	c, err := newClient(config)
	if err != nil {
		return fmt.Errorf("grpc: executions of %s: %w", config.Address, err)
	}
	defer c.Close() //nolint:errcheck // it was read to its end
	outer := ctx
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	late := time.AfterFunc(config.Limits.WithDefaults().HandshakeTimeout, cancel)
	err = c.follow(ctx, late, message, receive)
	if outer.Err() != nil {
		return outer.Err()
	}
	return fmt.Errorf("grpc: executions of %s: %w", config.Address, endOf(err))
}

// follow returns why the stream ended, which is always an error. late is stopped when the server has answered.
func (c *client) follow(ctx context.Context, late *time.Timer, message *pb.StreamExecutionsRequest, receive func(*pb.ExecutionReport)) error {
	stream, err := c.stream(ctx, 1, pb.OrderEntryService_StreamExecutions_FullMethodName)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(message); err != nil && !errors.Is(err, io.EOF) { // with EOF, RecvMsg has the cause
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if _, err := stream.Header(); err != nil {
		return err
	}
	late.Stop()
	var at cursor.Cursor
	for {
		response := new(pb.StreamExecutionsResponse)
		if err := stream.RecvMsg(response); err != nil {
			return err
		}
		if err := at.Take(response.GetExecution()); err != nil {
			return err
		}
		receive(response.GetExecution())
	}
}
