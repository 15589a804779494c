package tcp

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/internal/hotcodec"
	"tailgate/transports/internal/outcome"
	"tailgate/transports/tcp/internal/outbox"
	"tailgate/transports/tcp/internal/wire"
)

// client is one connection. It has no goroutine of its own while calls are answered in time: the first of those that wait reads for all of them,
// and hands the role on when its own answer has come, so that a caller alone writes, reads and returns without a switch to another goroutine. One with a
// stream of events has a goroutine that always reads, see events.
//
// Its lock is taken before the box's. Whoever holds the reader's role owns the in-buffer.
type client struct {
	socket    net.Conn
	nc        net.Conn
	remote    string
	ack       wire.AckMessage
	credit    bool
	box       *outbox.Box
	timer     *time.Timer
	interrupt func() // ends a blocked read

	mu       sync.Mutex
	refusal  *transports.Fault // of calls that come from now on; nil while the connection takes some
	ending   bool              // why says why the connection ends
	why      *transports.Fault // nil: it was this side's wish
	broken   bool              // nothing will be read any more
	granted  uint32            // by the gateway, a serial number
	used     uint32            // cost of everything sent, likewise
	promised uint32            // cost of the calls that have their credit and are not sent yet
	next     uint32            // correlation id
	lastUse  time.Time         // of the sending side
	inFlight map[uint32]*exchange
	first    *exchange // waiting for credit, in order
	final    *exchange
	reading  bool      // somebody has the reader's role
	answered bool      // the last read brought an answer
	waiting  *exchange // who waits for somebody else's reading, the latest first
	events   *events   // nil for a connection without a stream

	in   []byte // in[r:w] is read and not handled
	r, w int
}

// state is how far a call has come.
type state int

const (
	queued  state = iota // waits for credit
	granted              // may send
	sent                 // waits for its answer
	done
)

// exchange is a call under way. Its fields belong to the client's lock.
type exchange struct {
	call  *transports.Call // nil when its caller has left
	state state
	fault *transports.Fault
	id    uint32
	cost  uint32
	limit uint64 // largest payload of its answer
	end   uint64 // position in the box behind its request
	wake  chan struct{}

	behind     *exchange // next in the queue for credit
	prev, succ *exchange // in the list of those who wait
	listed     bool
}

var exchanges = sync.Pool{New: func() any { return &exchange{wake: make(chan struct{}, 1)} }}

func newExchange() *exchange {
	e, _ := exchanges.Get().(*exchange)
	select {
	case <-e.wake: // left over from a wake-up that was not needed
	default:
	}
	return e
}

// recycle gives e back. Nobody may know it any more.
func recycle(e *exchange) {
	*e = exchange{wake: e.wake}
	exchanges.Put(e)
}

func (e *exchange) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Do implements transports.Client. The bytes of a SubmitOrderResponse's client_tag are written over those that the response held before, where
// they fit: who keeps a tag beyond the next call with the same Response copies it.
func (c *client) Do(ctx context.Context, call *transports.Call) error {
	call.CreditWait, call.FirstWrite = 0, time.Time{}
	if call.Operation.OfSession() {
		proto.Reset(call.Response)
		return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "%v is no call: Transport.Trade and Transport.Executions open streams, Trader.Logout ends one", call.Operation)
	}
	if err := c.do(ctx, call); err != nil {
		proto.Reset(call.Response)
		return err
	}
	return nil
}

func (c *client) do(ctx context.Context, call *transports.Call) error {
	if err := ctx.Err(); err != nil {
		return overBefore(pb.Reason_REASON_DEADLINE_EXCEEDED, err, "the request was over before it was sent")
	}
	order, hot := call.Request.(*pb.SubmitOrderRequest)
	var encoded []byte
	var size int
	if hot {
		size = hotcodec.SizeSubmitOrderRequest(order)
	} else {
		var err error
		if encoded, err = proto.Marshal(call.Request); err != nil {
			return transports.Malformed("", "the request cannot be encoded: %v", err)
		}
		size = len(encoded)
	}
	if uint64(size) > uint64(c.ack.MaxRequest) {
		return transports.Refuse(pb.Reason_REASON_TOO_LARGE, "the request has %d bytes, %s takes at most %d", size, c.remote, c.ack.MaxRequest)
	}
	e := newExchange()
	e.call = call
	e.cost = c.ack.Model.Cost(call.Operation, uint32(size))
	e.limit = c.ack.Model.LargestAnswer(call.Operation, uint32(size))

	c.mu.Lock()
	if err := c.acquire(ctx, e); err != nil {
		c.mu.Unlock()
		recycle(e)
		return err
	}
	if err := c.send(ctx, e, order, encoded, size); err != nil {
		c.mu.Unlock()
		recycle(e)
		return err
	}
	c.mu.Unlock()
	c.box.Flush()
	c.mu.Lock()
	err := c.wait(ctx, e, done)
	if e.state != done {
		// The credit stays held until the answer comes; whoever reads it then forgets it.
		e.call = nil
		c.watch()
		c.mu.Unlock()
		return transports.InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, err, "the request ended before its answer came; the same id again tells what became of it")
	}
	fault := e.fault
	c.mu.Unlock()
	recycle(e)
	if fault != nil {
		return fault
	}
	return nil
}

// overBefore is a call that ended without being sent.
func overBefore(reason pb.Reason, cause error, message string) *transports.Fault {
	return &transports.Fault{Reason: reason, Outcome: pb.Outcome_OUTCOME_NOT_PROCESSED, Message: message, Err: cause}
}

// acquire waits in turn until e's cost is covered. Called with the lock.
func (c *client) acquire(ctx context.Context, e *exchange) error {
	if c.refusal != nil {
		return c.refusal
	}
	if !c.credit {
		return nil
	}
	if e.cost > c.ack.Floor {
		return transports.Refuse(pb.Reason_REASON_TOO_LARGE, "the request costs %d of credit, %s grants at most %d at a time", e.cost, c.remote, c.ack.Floor)
	}
	if c.first == nil && c.covered(e.cost) {
		c.promised += e.cost
		return nil
	}
	if c.first == nil {
		c.first = e
	} else {
		c.final.behind = e
	}
	c.final = e
	begin := time.Now()
	err := c.wait(ctx, e, granted)
	e.call.CreditWait = time.Since(begin)
	switch {
	case e.fault != nil:
		return e.fault
	case err == nil:
		err = ctx.Err()
	}
	if err == nil {
		return nil
	}
	if e.state == granted {
		c.promised -= e.cost
	} else {
		c.unqueue(e)
	}
	c.handOut()
	return overBefore(pb.Reason_REASON_NO_CREDIT, err, "the request ended while it waited for the gateway's credit; nothing was sent")
}

// covered reports whether cost may be spent now.
func (c *client) covered(cost uint32) bool {
	return int32(c.granted-c.used)-int32(c.promised) >= int32(cost)
}

// handOut gives credit to those who wait for it, in order.
func (c *client) handOut() {
	for c.first != nil && c.covered(c.first.cost) {
		e := c.first
		c.unqueue(e)
		c.promised += e.cost
		e.state = granted
		e.signal()
	}
}

// unqueue takes e out of the queue for credit.
func (c *client) unqueue(e *exchange) {
	var before *exchange
	for at := c.first; at != e; at = at.behind {
		before = at
	}
	if before == nil {
		c.first = e.behind
	} else {
		before.behind = e.behind
	}
	if c.final == e {
		c.final = before
	}
	e.behind = nil
}

// send appends the request. Called with the lock and with the credit for it.
func (c *client) send(ctx context.Context, e *exchange, order *pb.SubmitOrderRequest, encoded []byte, size int) error {
	if c.credit {
		c.promised -= e.cost
	}
	if c.refusal != nil {
		return c.refusal
	}
	room := c.box.Begin(wire.HeaderSize + size)
	if room == nil {
		return overBefore(pb.Reason_REASON_CONNECTION_LOST, c.box.Err(), "the connection to "+c.remote+" is lost; nothing was sent")
	}
	if order != nil {
		encoded, err := hotcodec.AppendSubmitOrderRequest(room[:wire.HeaderSize], order)
		if err == nil && len(encoded) != len(room) {
			err = fmt.Errorf("it changed from %d to %d bytes while it was encoded", size, len(encoded)-wire.HeaderSize)
		}
		if err != nil {
			c.box.Cancel()
			c.handOut()
			return transports.Malformed("", "the request cannot be encoded: %v", err)
		}
	} else {
		copy(room[wire.HeaderSize:], encoded)
	}
	now := time.Now()
	wire.Header{
		Length: uint32(size), Type: wire.Request, Code: uint16(e.call.Operation), Correlation: c.next, Aux: relative(ctx, now),
	}.Put(room)
	e.call.FirstWrite, c.lastUse = now, now
	e.end = c.box.EndControl(len(room))
	e.id, e.state = c.next, sent
	c.inFlight[e.id] = e
	c.next++
	c.used += e.cost
	if e.call.Operation == transports.Logout {
		c.refuseFrom(overBefore(pb.Reason_REASON_CONNECTION_LOST, nil, "the session is logged out; nothing was sent"))
		c.refuseQueue()
	}
	return nil
}

// refuseFrom makes fault the answer to every call from now on, unless there is one already.
func (c *client) refuseFrom(fault *transports.Fault) {
	if c.refusal == nil {
		c.refusal = fault
	}
}

// because remembers why the connection ends, nil where this side wished it. The first reason stays.
func (c *client) because(why *transports.Fault) {
	if !c.ending {
		c.ending, c.why = true, why
	}
}

// relative is a context's deadline in microseconds from now, rounded up; 0 = none, or further away than 32 bits say (71 minutes).
func relative(ctx context.Context, now time.Time) uint32 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	us := (deadline.Sub(now) + time.Microsecond - 1) / time.Microsecond
	if us > 1<<32-1 {
		return 0
	}
	return uint32(max(us, 1))
}

// Close implements transports.Client.
func (c *client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.because(nil)
	c.failLocked(transports.Refuse(pb.Reason_REASON_CONNECTION_LOST, "this client is closed"))
	return nil
}

// fail ends the connection: calls that were sent are in doubt, those that were not are not processed.
func (c *client) fail(why *transports.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(why)
}

func (c *client) failLocked(why *transports.Fault) {
	if c.broken {
		return
	}
	c.broken = true
	c.because(why)
	c.refuseFrom(outcome.Over(why))
	c.timer.Stop()
	c.box.Die(outbox.ErrClosed)
	_ = c.socket.Close() // may be open still, see StayOpen; there is nothing left to lose on it
	offered := c.box.Offered()
	for id, e := range c.inFlight {
		delete(c.inFlight, id)
		if e.call == nil {
			recycle(e)
			continue
		}
		f := *why
		f.Outcome = pb.Outcome_OUTCOME_UNKNOWN
		if e.end > offered {
			f.Outcome = pb.Outcome_OUTCOME_NOT_PROCESSED
		}
		e.finish(&f)
	}
	c.refuseQueue()
}

// refuseQueue ends every call that waits for credit.
func (c *client) refuseQueue() {
	for c.first != nil {
		e := c.first
		c.unqueue(e)
		e.finish(c.refusal)
	}
}

// finish ends a call and wakes its caller.
func (e *exchange) finish(fault *transports.Fault) {
	e.fault, e.state = fault, done
	e.signal()
}

// watchAfter is how long a client is silent before somebody reads for it all the same.
const watchAfter = time.Second

// pingAfter is how long the sending side may be silent before it shows that it is there: a third of the time after which the gateway closes.
func (c *client) pingAfter() time.Duration { return max(c.ack.IdleTimeout/3, 10*time.Millisecond) }

// tick is how long until the timer has to look again. Called with the lock.
func (c *client) tick() time.Duration {
	if c.reading {
		return max(c.pingAfter()-time.Since(c.lastUse), 10*time.Millisecond)
	}
	return min(watchAfter, c.pingAfter())
}

// look runs on the timer's goroutine: it starts the watcher of an idle connection and keeps it alive.
func (c *client) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusal != nil {
		return
	}
	silent := time.Since(c.lastUse)
	if silent >= min(watchAfter, c.pingAfter()) && len(c.inFlight) == 0 {
		c.watch()
	}
	if silent >= c.pingAfter() {
		if room := c.box.Begin(wire.HeaderSize); room != nil {
			wire.Header{Type: wire.Ping, Aux: c.used}.Put(room)
			c.box.EndControl(wire.HeaderSize)
			c.box.Flush()
		}
		c.lastUse = time.Now()
	}
	c.timer.Reset(c.tick())
}
