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

// client is one connection. Its calls wait in one queue until they may be sent, and whoever brings the permission sends them: the encoding goes straight into
// the out-buffer, and all that is permitted at a moment leaves in one write.
//
// On the engine net it has no goroutine of its own while calls of Do are answered in time: the first of those that wait reads for all of them, and hands the
// role on when its own answer has come, so that a caller alone writes, reads and returns without a switch to another goroutine. Calls of Go have nobody who waits,
// so a goroutine reads for them (watch). On the other engines a loop of the process reads for all its clients. One with a stream of events has a
// goroutine that always reads, see events.
//
// Its lock is taken before the box's, the window's and the loop's, and no two clients' locks are held at once. Whoever holds the reader's role owns the in-buffer.
// The lock is let go with unlock by whoever may have ended calls or appended frames.
type client struct {
	socket    net.Conn
	nc        net.Conn
	remote    string
	ack       wire.AckMessage
	box       *outbox.Box
	timer     *time.Timer
	interrupt func()  // ends a blocked read
	window    *window // flow semaphore, nil with any other
	engine    *poller // that reads, nil on the engine net
	maxWait   time.Duration

	mu       sync.Mutex
	refusal  *transports.Fault // of calls that come from now on; nil while the connection takes some
	ending   bool              // why says why the connection ends
	why      *transports.Fault // nil: it was this side's wish
	broken   bool              // nothing will be read any more
	credit   account
	urgent   queue     // cancels that wait for permission, before the others
	waiting  queue     // all others that do
	pace     pace      // how fast permission comes
	next     uint32    // correlation id
	lastUse  time.Time // of the sending side
	inFlight map[uint32]*exchange

	reading  bool      // somebody has the reader's role
	answered bool      // the last read brought an answer
	async    bool      // and the last of them was a call of Go
	self     *exchange // the reader's own call, which need not be woken
	idlers   *exchange // who waits for somebody else's reading, the latest first
	events   *events   // nil for a connection without a stream

	// For unlock.
	ended   *exchange // calls of Go that have ended and are to be told, in order
	endedAt *exchange // the last of them
	slots   int       // of the window, to be given back
	unsent  bool      // frames are appended and not flushed
	telling int       // goroutines that tell of ended calls

	counts counts

	raw      *ownSocket // on a loop, whose lock guards isPoked, and whose own the other two are
	isPoked  bool
	isReady  bool
	isEnding bool // the gateway sends nothing more

	in     *outbox.Buffer // in.B[r:w] is read and not handled; nil while there is nothing, on a loop
	r, w   int
	borrow int // size of the in-buffer for the next read, on a loop
}

// state is how far a call has come.
type state int

const (
	queued state = iota // waits for permission to be sent
	sent                // waits for its answer
	done
)

// exchange is a call under way. Its fields belong to the client's lock; while it waits in a window's queue, link and slot belong to that one's.
type exchange struct {
	client *client
	ctx    context.Context
	call   *transports.Call // nil when its caller has left
	tell   func(error)      // of Go; nil for one who waits
	unhook func() bool      // ends the look-out for the end of its context; nil where there is none

	order   *pb.SubmitOrderRequest // encoded when it is sent
	encoded []byte                 // any other request
	size    int
	cost    uint32
	limit   uint64 // largest payload of its answer

	state    state
	fault    *transports.Fault
	id       uint32
	end      uint64    // position in the box behind its request
	hurry    bool      // may be paid from the urgent reserve
	reserve  bool      // is paid from it
	slot     bool      // holds a slot of the window
	since    time.Time // when it began to wait for permission
	ahead    uint64    // cost of all that waited then, its own included
	wake     chan struct{}
	held     *queue    // that it waits in
	link     *exchange // next in that queue, or of those who have ended
	back     *exchange // the one before it in that queue
	prev     *exchange // in the list of those who wait for somebody else's reading
	succ     *exchange
	listed   bool
	unshared bool // somebody may know it still: it is left to the garbage collector
}

var exchanges = sync.Pool{New: func() any { return &exchange{wake: make(chan struct{}, 1)} }}

// recycle gives e back. Nobody may know it any more.
func recycle(e *exchange) {
	if e.unshared {
		return
	}
	select {
	case <-e.wake: // left over from a wake-up that was not needed
	default:
	}
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
//
// Calls are sent in the order in which they came, with one exception: CancelOrder, MassCancel and CancelAllAfter do not wait behind others for credit, so a
// cancel overtakes an order that still waits in this client. To take such an order back, cancel its context.
func (c *client) Do(ctx context.Context, call *transports.Call) error {
	return c.checked(ctx, call, false)
}

// TryDo implements transports.AsyncClient.
func (c *client) TryDo(ctx context.Context, call *transports.Call) error {
	return c.checked(ctx, call, true)
}

func (c *client) checked(ctx context.Context, call *transports.Call, try bool) error {
	var err error
	if call.Operation.OfSession() {
		err = ofSession(call)
	} else {
		err = c.do(ctx, call, try)
	}
	if err != nil {
		proto.Reset(call.Response)
	}
	return err
}

func ofSession(call *transports.Call) error {
	return transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "%v is no call: Transport.Trade and Transport.Executions open streams, Trader.Logout ends one", call.Operation)
}

// Go implements transports.AsyncClient. Requests are sent in the order of the calls, as with Do. On the engines spin and park, done runs on the loop that
// reads for all clients of the engine: while it does, none of them gets an answer. It does not allocate for a SubmitOrder where ctx cannot be canceled.
func (c *client) Go(ctx context.Context, call *transports.Call, done func(error)) {
	var e *exchange
	var err error
	if call.Operation.OfSession() {
		err = ofSession(call)
	} else {
		e, err = c.prepare(ctx, call)
	}
	if err == nil {
		e.tell = done
		c.mu.Lock()
		if fault := c.enter(e, false); fault != nil {
			recycle(e)
			err = fault
		} else {
			if ctx.Done() != nil {
				e.unhook = context.AfterFunc(ctx, func() { c.abandon(e) })
			}
			c.handOn()
		}
		c.unlock()
	}
	if err != nil {
		proto.Reset(call.Response)
		done(err)
	}
}

func (c *client) do(ctx context.Context, call *transports.Call, try bool) error {
	e, err := c.prepare(ctx, call)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if fault := c.enter(e, try); fault != nil {
		c.unlock()
		recycle(e)
		return fault
	}
	c.unlock() // and send
	c.mu.Lock()
	err = c.wait(ctx, e)
	if e.state != done {
		fault := c.leaveBehind(e, err)
		c.handOn()
		c.unlock()
		return fault
	}
	fault := e.fault
	c.unlock()
	recycle(e)
	if fault != nil {
		return fault
	}
	return nil
}

// prepare makes the exchange of a call, or says why it is not sent.
func (c *client) prepare(ctx context.Context, call *transports.Call) (*exchange, error) {
	call.CreditWait, call.FirstWrite = 0, time.Time{}
	if err := ctx.Err(); err != nil {
		return nil, overBefore(pb.Reason_REASON_DEADLINE_EXCEEDED, err, "the request was over before it was sent")
	}
	order, hot := call.Request.(*pb.SubmitOrderRequest)
	var encoded []byte
	var size int
	if hot {
		size = hotcodec.SizeSubmitOrderRequest(order)
	} else {
		var err error
		if encoded, err = proto.Marshal(call.Request); err != nil {
			return nil, transports.Malformed("", "the request cannot be encoded: %v", err)
		}
		size = len(encoded)
	}
	if uint64(size) > uint64(c.ack.MaxRequest) {
		return nil, transports.Refuse(pb.Reason_REASON_TOO_LARGE, "the request has %d bytes, %s takes at most %d", size, c.remote, c.ack.MaxRequest)
	}
	e, _ := exchanges.Get().(*exchange)
	e.client, e.ctx, e.call = c, ctx, call
	e.order, e.encoded, e.size = order, encoded, size
	e.cost = c.ack.Model.Cost(call.Operation, uint32(size))
	e.limit = c.ack.Model.LargestAnswer(call.Operation, uint32(size))
	return e, nil
}

// overBefore is a call that ended without being sent.
func overBefore(reason pb.Reason, cause error, message string) *transports.Fault {
	return &transports.Fault{Reason: reason, Outcome: pb.Outcome_OUTCOME_NOT_PROCESSED, Message: message, Err: cause}
}

// enter sends e, or puts it where it waits for permission. A fault refuses it; the caller owns e again then. Called with the lock.
func (c *client) enter(e *exchange, try bool) *transports.Fault {
	switch {
	case c.refusal != nil:
		return c.refusal
	case c.window != nil:
		return c.enterWindow(e, try)
	case c.credit.on:
		return c.enterCredit(e, try)
	default:
		return c.send(e)
	}
}

// leaveBehind ends a call whose context ended with err before it did. Called with the lock; the exchange is not the caller's any more.
func (c *client) leaveBehind(e *exchange, err error) *transports.Fault {
	if e.state == queued {
		e.call.CreditWait = time.Since(e.since)
		c.unqueue(e)
		recycle(e)
		c.advance() // who waits behind it may be cheaper
		return c.overWaiting(err)
	}
	// Its credit stays held until the answer comes; whoever reads it then forgets it.
	e.call, e.tell = nil, nil
	return transports.InDoubt(pb.Reason_REASON_DEADLINE_EXCEEDED, err, "the request ended before its answer came; the same id again tells what became of it")
}

// abandon ends a call of Go whose context has ended.
func (c *client) abandon(e *exchange) {
	c.mu.Lock()
	if e.state != done {
		told, _ := exchanges.Get().(*exchange)
		told.call, told.tell = e.call, e.tell
		e.unhook, e.unshared = nil, true
		c.end(told, c.leaveBehind(e, e.ctx.Err()))
		c.handOn()
	}
	c.unlock()
}

// send appends the request. Called with the lock and with the permission for it. A fault means that nothing was sent.
func (c *client) send(e *exchange) *transports.Fault {
	room := c.box.Begin(wire.HeaderSize + e.size)
	if room == nil {
		return overBefore(pb.Reason_REASON_CONNECTION_LOST, c.box.Err(), "the connection to "+c.remote+" is lost; nothing was sent")
	}
	if e.order != nil {
		encoded, err := hotcodec.AppendSubmitOrderRequest(room[:wire.HeaderSize], e.order)
		if err == nil && len(encoded) != len(room) {
			err = fmt.Errorf("it changed from %d to %d bytes while it was under way", e.size, len(encoded)-wire.HeaderSize)
		}
		if err != nil {
			c.box.Cancel()
			return transports.Malformed("", "the request cannot be encoded: %v", err)
		}
	} else {
		copy(room[wire.HeaderSize:], e.encoded)
	}
	now := time.Now()
	h := wire.Header{
		Length: uint32(e.size), Type: wire.Request, Code: uint16(e.call.Operation), Correlation: c.next, Aux: relative(e.ctx, now),
	}
	if c.credit.on {
		c.spend(e, &h)
	}
	h.Put(room)
	if !e.since.IsZero() {
		e.call.CreditWait = now.Sub(e.since)
		c.counts.waits++
		c.counts.waited += e.call.CreditWait
		c.pace.sent(e, e.call.CreditWait)
	}
	e.call.FirstWrite, c.lastUse = now, now
	e.end = c.box.EndControl(len(room))
	c.unsent = true
	e.id, e.state = c.next, sent
	c.inFlight[e.id] = e
	c.next++
	if e.call.Operation == transports.Logout {
		c.refuseFrom(overBefore(pb.Reason_REASON_CONNECTION_LOST, nil, "the session is logged out; nothing was sent"))
		c.refuseQueue()
	}
	return nil
}

// finish ends a call: who waits for it is woken, and who does not is told by unlock. Called with the lock; the exchange may be recycled.
func (c *client) finish(e *exchange, fault *transports.Fault) {
	if e.reserve {
		c.credit.urgent -= e.cost
		e.reserve = false
	}
	if e.slot {
		c.slots++
		e.slot = false
	}
	e.state = done
	switch {
	case e.call == nil: // its caller has left; its messages are not ours any more
		recycle(e)
	case e.tell != nil:
		if e.unhook != nil && !e.unhook() {
			e.unshared = true // abandon is on its way, and will find it done
		}
		c.end(e, fault)
	default:
		e.fault = fault
		if e != c.self {
			e.signal()
			c.engine.tells()
		}
	}
}

// end leaves a call of Go to unlock. Called with the lock.
func (c *client) end(e *exchange, fault *transports.Fault) {
	e.fault, e.state, e.link = fault, done, nil
	if c.ended == nil {
		c.ended = e
	} else {
		c.endedAt.link = e
	}
	c.endedAt = e
}

// unlock lets go of the lock, and then does what must not be done under it: it tells of the calls of Go that have ended, gives slots of the window back, and
// sends. What is sent meanwhile by those who are told leaves in the same write.
func (c *client) unlock() {
	if c.ended == nil && c.slots == 0 {
		flush := c.unsent && c.telling == 0
		if flush {
			c.unsent = false
		}
		c.mu.Unlock()
		if flush {
			c.box.Flush()
		}
		return
	}
	e, slots := c.ended, c.slots
	c.ended, c.endedAt, c.slots = nil, nil, 0
	c.telling++
	c.mu.Unlock()
	for e != nil {
		next, tell, fault, call := e.link, e.tell, e.fault, e.call
		recycle(e)
		if fault == nil {
			tell(nil)
		} else {
			proto.Reset(call.Response)
			tell(fault)
		}
		e = next
	}
	for range slots {
		c.window.release()
	}
	c.mu.Lock()
	c.telling--
	flush := c.unsent && c.telling == 0
	if flush {
		c.unsent = false
	}
	c.mu.Unlock()
	if flush {
		c.box.Flush()
	}
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

// Close implements transports.Client. Calls of Go under way are told before it returns, unless their answers are being told of at the time.
func (c *client) Close() error {
	c.mu.Lock()
	c.because(nil)
	c.failLocked(outcome.Closed())
	c.unlock()
	return nil
}

// fail ends the connection: calls that were sent are in doubt, those that were not are not processed.
func (c *client) fail(why *transports.Fault) {
	c.mu.Lock()
	c.failLocked(why)
	c.unlock()
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
		f := *why
		f.Outcome = pb.Outcome_OUTCOME_UNKNOWN
		if e.end > offered {
			f.Outcome = pb.Outcome_OUTCOME_NOT_PROCESSED
		}
		c.finish(e, &f)
	}
	c.refuseQueue()
	if c.window != nil {
		c.window.leave()
	}
	if c.engine != nil {
		c.engine.leave(c)
	}
}

// refuseQueue ends every call that waits for permission.
func (c *client) refuseQueue() {
	for e := c.front(); e != nil; e = c.front() {
		e.held.remove(e)
		c.finish(e, c.refusal)
	}
	if c.window != nil {
		c.window.refuse(c)
	}
}

// watchAfter is how long a client is silent before somebody reads for it all the same; hoardAfter where it holds credit that others may want, which must be
// given back within the second that the protocol allows.
const (
	watchAfter = time.Second
	hoardAfter = 250 * time.Millisecond
)

// pingAfter is how long the sending side may be silent before it shows that it is there: a third of the time after which the gateway closes.
func (c *client) pingAfter() time.Duration { return max(c.ack.IdleTimeout/3, 10*time.Millisecond) }

// idleAfter is how long the client may be silent before somebody reads for it. Called with the lock.
func (c *client) idleAfter() time.Duration {
	if c.credit.quick {
		return min(hoardAfter, c.pingAfter())
	}
	return min(watchAfter, c.pingAfter())
}

// tick is how long until the timer has to look again. Called with the lock.
func (c *client) tick() time.Duration {
	if c.reading || c.engine != nil {
		return max(c.pingAfter()-time.Since(c.lastUse), 10*time.Millisecond)
	}
	return c.idleAfter()
}

// look runs on the timer's goroutine: it starts the watcher of an idle connection and keeps it alive.
func (c *client) look() {
	c.mu.Lock()
	defer c.unlock()
	if c.refusal != nil {
		return
	}
	silent := time.Since(c.lastUse)
	if silent >= c.idleAfter() && len(c.inFlight) == 0 {
		c.watch()
	}
	if silent >= c.pingAfter() {
		c.control(wire.Header{Type: wire.Ping, Credit: c.credit.released, Aux: c.credit.used})
		c.lastUse = time.Now()
	}
	c.credit.quick = c.credit.hoards()
	c.timer.Reset(c.tick())
}

// control appends a frame without payload. Called with the lock.
func (c *client) control(h wire.Header) {
	if room := c.box.Begin(wire.HeaderSize); room != nil {
		h.Put(room)
		c.box.EndControl(wire.HeaderSize)
		c.unsent = true
	}
}
