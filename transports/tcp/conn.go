package tcp

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp/internal/credit"
	"tailgate/transports/tcp/internal/outbox"
	"tailgate/transports/tcp/internal/wire"
)

// Sizes of the read path, in bytes.
const (
	headroom   = 256               // before the first frame of an in-buffer, see answerInPlace
	readSize   = 16<<10 - headroom // what one read asks for while frames are small
	batchSize  = 16 << 10          // answers that end a batch
	maxControl = wire.MaxHandshake
)

// conn is the protocol of one connection of the server, whoever reads it: bytes in, frames, answers and credit, one commit for a batch. An engine owns everything
// but the box, the share and what is atomic: a goroutine of its own ("net", see serve), or the event loop that it is one of many in ("spin", "park", see loop).
type conn struct {
	server *server
	socket net.Conn // as accepted, or the loop's; it changes under the server's lock
	nc     net.Conn // what the handshake, and the goroutine, read from: the socket, or TLS on it
	log    *slog.Logger
	looped atomic.Pointer[looped]           // the connection's place in a loop, nil while it has a goroutine
	ended  atomic.Bool                      // no further request: the journal failed, or the out-buffer is dead
	over   atomic.Pointer[transports.Fault] // no further request: the gateway ended the session, or its events, or the credit

	// Set by the handshake.
	session    transports.Session
	box        *outbox.Box
	share      *credit.Share // nil: the client is held to nothing
	maxPayload uint64        // largest payload that the client takes

	// In-buffer: in.B[r:w] is read and not handled. nil while there is nothing, so that an idle connection holds no buffer.
	in           *outbox.Buffer
	r, w         int
	borrow       int   // how much to borrow for the next read
	partialSince int64 // when the first byte of the frame in r came
	lastFrame    int64
	reader       reader // of the goroutine

	// Protocol state.
	last      uint32        // correlation id of the last request accepted
	used      uint32        // cost of the normal requests accepted, a serial number
	released  uint32        // what the client has given back, likewise
	announced atomic.Uint32 // the latest Granted that was appended
	urgent    atomic.Uint32 // cost of the urgent requests accepted and not flushed
	wants     bool          // the client's latest word is that it has more to send
	held      bool          // the share is kept out of turns, since its client does not read

	stream   *stream // the connection's subscription, nil while it has none
	lastWord []byte  // the frame that tells the peer why, when a request has ended the connection

	// The batch.
	exchange transports.Exchange
	deadline requestContext
	request  pb.SubmitOrderRequest
	response pb.SubmitOrderResponse
	answers  int // answers appended and not committed
	bytes    int // their size
	control  bool
	owed     outbox.Debt // for them
	price    uint32      // of the request at hand, until its answer has been accounted for
}

func newConn(s *server, nc net.Conn) *conn {
	return &conn{server: s, socket: nc, nc: nc, log: s.log.With("remote", nc.RemoteAddr().String())}
}

// kick makes whoever reads look around, from any goroutine.
func (c *conn) kick() {
	if l := c.looped.Load(); l != nil {
		l.wake()
		return
	}
	_ = c.socket.SetReadDeadline(aLongTimeAgo)
}

// kill closes the connection at once, from any goroutine that has the server's lock.
func (c *conn) kill() { _ = c.socket.Close() }

// stopping reports whether the reader must not take another request.
func (c *conn) stopping() bool {
	return c.ended.Load() || c.over.Load() != nil || c.server.draining.Load()
}

// start makes the out-buffer, when the handshake is over and the engine known. raw is nil where writes block; polled says that a loop polls the socket.
func (c *conn) start(raw syscall.RawConn, polled bool) {
	c.borrow, c.lastFrame = readSize, transports.Now()
	box := outbox.New(outbox.Config{
		Pool: &c.server.pool, Conn: c.nc, Raw: raw, Polled: polled, Limit: 2*c.server.largestAnswer + batchSize, EventRoom: eventRoom,
		WriteTimeout: c.server.limits.WriteTimeout, OnFlushed: c.flushed, OnReady: c.ready, OnDeath: c.died,
	})
	c.server.mu.Lock() // for those who look at all connections
	c.box = box
	c.server.mu.Unlock()
}

// died logs why the connection was given up.
func (c *conn) died(reason error) {
	c.ended.Store(true)
	c.ready()
	switch {
	case errors.Is(reason, outbox.ErrClosed):
	case errors.Is(reason, outbox.ErrSlowReader):
		c.log.Warn("tcp: connection closed", "reason", fmt.Sprintf("%v: %v", pb.Reason_REASON_SLOW_READER, reason))
	default:
		c.log.Warn("tcp: connection closed", "reason", reason)
	}
}

// ready tells a loop that there is room to go on.
func (c *conn) ready() {
	if l := c.looped.Load(); l != nil {
		l.wake()
	}
}

// room reports whether the next read may be made. It may not while more than one largest answer waits to leave, whether for the peer or for the journal: TCP's
// window then holds the peer back. The next read brings at most another one, so that a peer that reads is never cut for what the journal kept. Meanwhile its
// share gets no turn. Where room is false, ready is called when it has come.
func (c *conn) room() bool {
	room := c.box.Room(c.server.largestAnswer)
	if c.share != nil && c.held == room {
		c.held = !room
		c.share.Hold(transports.Now(), c.held)
	}
	return room
}

// due is when the peer is late: with the rest of a frame, or with any frame.
func (c *conn) due() int64 {
	if c.w > c.r {
		return c.partialSince + int64(c.server.limits.RequestTimeout)
	}
	return c.lastFrame + int64(c.server.limits.IdleTimeout)
}

// received takes n bytes that were read behind in.B[w].
func (c *conn) received(n int, now int64) {
	if c.w == c.r {
		c.partialSince = now
	}
	c.w += n
	c.exchange.ReceivedNs = now
}

// errStopped ends a read that has no reason of its own.
var errStopped = errors.New("stopping")

// why turns the end of reading into the last frame.
func (c *conn) why(err error) []byte {
	partial := c.w - c.r
	switch {
	case c.ended.Load() || c.box.Err() != nil:
		return nil // Release has said it, or nothing can be said
	case c.over.Load() != nil:
		return c.farewell(c.over.Load(), 0)
	case errors.Is(err, errStopped):
		return c.goAway(transports.Refuse(pb.Reason_REASON_DRAINING, "the gateway is stopping; connect again later"))
	case errors.Is(err, os.ErrDeadlineExceeded) && partial > 0:
		fault := transports.Refuse(pb.Reason_REASON_DEADLINE_EXCEEDED, "%d bytes of a frame and no more for %v", partial, c.server.limits.RequestTimeout)
		c.log.Warn("tcp: connection closed", "reason", fault.Message)
		return errorFrame(fault, 0)
	case errors.Is(err, os.ErrDeadlineExceeded):
		fault := transports.Refuse(pb.Reason_REASON_DEADLINE_EXCEEDED, "no frame for %v", c.server.limits.IdleTimeout)
		c.log.Info("tcp: connection closed", "reason", fault.Message)
		return c.goAway(fault)
	case errors.Is(err, io.EOF) && partial == 0:
		return nil
	case errors.Is(err, io.EOF):
		fault := transports.Malformed("", "the connection ended within a frame, after %d bytes of it", partial)
		c.log.Warn("tcp: connection closed", "reason", fault.Message)
		return errorFrame(fault, 0) // its client may have closed only its own direction
	default:
		c.log.Warn("tcp: connection closed", "reason", err, "bytes", partial)
		return nil
	}
}

// goAway makes a GOAWAY frame: every request after the last accepted one is not processed and never will be.
func (c *conn) goAway(fault *transports.Fault) []byte {
	frame := faultFrame(wire.GoAway, fault, c.last)
	h := wire.Parse(frame)
	h.Aux = c.server.grace.Load()
	h.Put(frame)
	return frame
}

// conclude says the last word behind the answers and waits until everything has left. It waits for the journal, and for a peer as long as WriteTimeout. The
// connection is then to be half-closed for its peer to read, where the box is not dead. The session is closed.
func (c *conn) conclude(last []byte) {
	c.commit()
	if c.share != nil {
		c.share.Close(transports.Now())
	}
	c.endStream()
	if last != nil {
		if room := c.box.Begin(len(last)); room != nil {
			c.box.EndControl(copy(room, last))
		}
	}
	c.box.Finish()
	<-c.box.Done() // every mark gets its release, and a peer that does not read is closed after WriteTimeout
	if c.in != nil {
		c.server.pool.Put(c.in)
		c.in = nil
	}
	c.session.Close()
}

// Release implements transports.Releaser.
func (c *conn) Release(mark uint64, err error) {
	if err == nil {
		c.box.Release(mark, transports.Now())
		return
	}
	fault := transports.InDoubt(pb.Reason_REASON_JOURNAL_UNAVAILABLE, err,
		"the journal failed before the answers were committed; the same ids again, on a new connection, tell what became of them")
	c.log.Error("tcp: connection closed", "reason", fault.Message, "error", err)
	c.ended.Store(true)
	c.box.Abort(errorFrame(fault, 0))
	c.kick()
}

func (c *conn) lend() {
	if c.in == nil {
		c.in = c.server.pool.Get(headroom + c.borrow)
		c.r, c.w = headroom, headroom
	}
}

func (c *conn) unlend() {
	if c.r == c.w {
		c.server.pool.Put(c.in)
		c.in = nil
	}
}

// next is what follows process.
type next int

const (
	nextRead next = iota // more bytes
	nextRoom             // again, without a read, when there is room: frames are left
	nextEnd              // the connection has to end
)

// process handles the whole frames in the in-buffer and makes room for the rest of the next one. With nextEnd, last is the frame that says why, nil where there
// is nobody to tell.
func (c *conn) process() (last []byte, next next) {
	largest := readSize
	var need int
	for {
		var have []byte
		if c.in != nil { // an answer may have taken it
			have = c.in.B[c.r:c.w]
		}
		if len(have) < wire.HeaderSize {
			need = wire.HeaderSize
			break
		}
		h := wire.Parse(have)
		size := wire.HeaderSize + int(h.Length)
		fault := c.check(h, len(have) >= size)
		if fault != nil {
			c.log.Warn("tcp: connection closed", "reason", fault.Message, "frame", h.Type.String())
			return errorFrame(fault, h.Correlation), nextEnd
		}
		if len(have) < size {
			need = size
			break
		}
		largest = max(largest, size)
		c.r += size
		c.lastFrame, c.partialSince = c.exchange.ReceivedNs, c.exchange.ReceivedNs
		if !c.frame(h, have[wire.HeaderSize:size:size]) {
			return c.lastWord, nextEnd
		}
		if c.bytes >= batchSize {
			c.commit()
			if c.stopping() {
				return c.why(errStopped), nextEnd
			}
			if !c.room() {
				return nil, nextRoom
			}
		}
	}
	c.commit()
	c.borrow = max(largest, need)
	c.keep(need)
	return nil, nextRead
}

// keep keeps what is left of the in-buffer where the whole of its frame fits.
func (c *conn) keep(need int) {
	if c.in == nil {
		return
	}
	rest := c.in.B[c.r:c.w]
	switch {
	case len(rest) == 0:
		c.server.pool.Put(c.in)
		c.in = nil
		c.r, c.w = 0, 0
		return
	case headroom+need > len(c.in.B):
		larger := c.server.pool.Get(headroom + need)
		copy(larger.B[headroom:], rest)
		c.server.pool.Put(c.in)
		c.in = larger
	case c.r > headroom:
		copy(c.in.B[headroom:], rest)
	}
	c.r, c.w = headroom, headroom+len(rest)
}

// give lets the in-buffer go, except for what is behind the frames handled, and returns it.
func (c *conn) give() *outbox.Buffer {
	given, rest := c.in, c.in.B[c.r:c.w]
	c.in = nil
	c.r, c.w = 0, 0
	if len(rest) > 0 {
		c.in = c.server.pool.Get(headroom + max(c.borrow, len(rest)))
		c.r, c.w = headroom, headroom+copy(c.in.B[headroom:], rest)
	}
	return given
}

// commit ends the batch: the session promises a Release, which writes.
func (c *conn) commit() {
	if c.owed.Cost|c.owed.Urgent != 0 {
		c.owed.Service = time.Duration(transports.Now() - c.exchange.ReceivedNs)
		c.box.Owe(c.owed)
		c.owed = outbox.Debt{}
	}
	switch {
	case c.answers > 0:
		c.answers, c.bytes, c.control = 0, 0, false
		c.session.Commit(c, c.box.Mark())
	case c.control:
		c.bytes, c.control = 0, false
		c.box.Flush()
	}
	if c.share == nil {
		return
	}
	if c.announce(); c.wants && c.box.Held() { // what the answers bring would wait for the journal with them
		c.wants = false
		c.box.Express(wire.Header{Type: wire.Credit, Credit: c.announced.Load()})
	}
	c.server.tick()
}
