package tcp

import (
	"context"
	"crypto/tls"
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

// conn is one connection of the server. Everything but the box, ended, over and the socket belongs to its reader goroutine.
type conn struct {
	server *server
	socket net.Conn // as accepted
	nc     net.Conn // what frames are read from: the socket, or TLS on it
	log    *slog.Logger
	ended  atomic.Bool                      // the reader has to stop: the journal failed
	over   atomic.Pointer[transports.Fault] // the reader has to stop: the gateway ended the session, or its events

	// Set by the handshake.
	session    transports.Session
	box        *outbox.Box
	raw        syscall.RawConn // nil where reads block
	credit     bool            // flow: the client is held to its credit
	maxPayload uint64          // largest payload that the client takes

	// In-buffer: in.B[r:w] is read and not handled. nil while there is nothing, so that an idle connection holds no buffer.
	in           *outbox.Buffer
	r, w         int
	borrow       int   // how much to borrow for the next read
	armed        int64 // when the read deadline fires, by transports.Now; 0 = not set
	partialSince int64 // when the first byte of the frame in r came
	lastFrame    int64
	readN        int
	readErr      error
	readReady    func(fd uintptr) bool

	// Protocol state.
	last uint32 // correlation id of the last request accepted
	used uint32 // credit spent, a serial number like granted

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
}

func newConn(s *server, nc net.Conn) *conn {
	return &conn{server: s, socket: nc, nc: nc, log: s.log.With("remote", nc.RemoteAddr().String())}
}

// kick makes a blocked read return, so that the reader looks around.
func (c *conn) kick() { _ = c.socket.SetReadDeadline(aLongTimeAgo) }

// kill closes the connection at once, from any goroutine.
func (c *conn) kill() { _ = c.socket.Close() }

// stopping reports whether the reader must not take another request.
func (c *conn) stopping() bool {
	return c.ended.Load() || c.over.Load() != nil || c.server.draining.Load()
}

// run is the connection's goroutine.
func (c *conn) run() {
	defer c.server.leave(c)
	defer c.socket.Close()
	if err := c.handshake(); err != nil {
		c.log.Warn("tcp: handshake failed", "error", err)
		return
	}
	defer c.session.Close()
	// When Shutdown gives up, a reader that waits for the journal has to hear of it.
	defer context.AfterFunc(c.server.ctx, func() { c.box.Die(outbox.ErrClosed) })()
	last := c.serve()
	c.finish(last)
}

// handshake admits the peer. Its error is for the log; the peer has been told already.
func (c *conn) handshake() error {
	limit := c.server.limits.HandshakeTimeout
	_ = c.socket.SetDeadline(time.Now().Add(limit))
	if c.server.draining.Load() { // the kick may have come before the deadline
		c.kick()
	}
	peer := transports.Peer{Transport: "tcp", Remote: c.socket.RemoteAddr()}
	if c.server.tls != nil {
		secure := tls.Server(c.socket, c.server.tls)
		if err := secure.HandshakeContext(c.server.ctx); err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
		c.nc = secure
		state := secure.ConnectionState()
		peer.TLS = &state
	}
	hello, first, fault := c.readHello()
	if fault == nil {
		peer.Key = hello.Key
		ctx, cancel := context.WithTimeout(c.server.ctx, limit)
		session, err := c.server.gateway.Open(ctx, peer)
		cancel()
		if err != nil {
			fault = transports.AsFault(err)
		}
		c.session = session
	}
	if fault != nil {
		_ = c.socket.SetWriteDeadline(time.Now().Add(limit)) // the first one may be over, and that may be what has to be said
		if _, err := c.nc.Write(errorFrame(fault, 0)); err == nil {
			linger(c.nc, make([]byte, 512))
		}
		return fault
	}
	c.last, c.used = first-1, firstCounter
	c.credit = hello.Features&wire.FeatureCredit != 0
	c.maxPayload = uint64(hello.MaxPayload)
	ack := wire.AckMessage{
		Version: wire.Version, Features: hello.Features & wire.FeatureCredit,
		MaxRequest: uint32(c.server.limits.MaxRequestBytes), Floor: c.server.floor, Largest: c.server.floor,
		IdleTimeout: c.server.limits.IdleTimeout, RequestTimeout: c.server.limits.RequestTimeout, Model: c.server.model,
	}
	header := wire.Header{Type: wire.HelloAck}
	if c.credit {
		header.Credit, header.Aux = c.granted(), c.used
	}
	if _, err := c.nc.Write(wire.Frame(header, ack.Encode())); err != nil {
		c.session.Close()
		return err
	}
	// No deadline for writes: the box sets its own while it needs one.
	_ = c.socket.SetDeadline(time.Time{})
	c.raw = outbox.Raw(c.nc)
	c.box = outbox.New(outbox.Config{
		Pool: &c.server.pool, Conn: c.nc, Raw: c.raw, Limit: 2 * c.server.largestAnswer, EventRoom: eventRoom,
		WriteTimeout: c.server.limits.WriteTimeout, Granted: c.used + c.server.floor,
		OnDeath: func(reason error) {
			switch {
			case errors.Is(reason, outbox.ErrClosed):
			case errors.Is(reason, outbox.ErrSlowReader):
				c.log.Warn("tcp: connection closed", "reason", fmt.Sprintf("%v: %v", pb.Reason_REASON_SLOW_READER, reason))
			default:
				c.log.Warn("tcp: connection closed", "reason", reason)
			}
		},
	})
	c.readReady = c.readNow
	c.borrow, c.lastFrame = readSize, transports.Now()
	return nil
}

// readHello reads the first frame and checks it.
func (c *conn) readHello() (hello wire.HelloMessage, first uint32, fault *transports.Fault) {
	var head [wire.HeaderSize]byte
	n, err := io.ReadFull(c.nc, head[:])
	if err != nil {
		return hello, 0, c.noHello(err, head[:n])
	}
	h := wire.Parse(head[:])
	if h.Type != wire.Hello {
		return hello, 0, transports.Refuse(pb.Reason_REASON_MALFORMED, "the first frame must be HELLO; received %q, which is another protocol or %v", head, h.Type)
	}
	if h.Length > wire.MaxHandshake {
		return hello, 0, transports.Refuse(pb.Reason_REASON_TOO_LARGE, "HELLO announces %d bytes, at most %d are taken", h.Length, wire.MaxHandshake)
	}
	payload := make([]byte, h.Length)
	if n, err = io.ReadFull(c.nc, payload); err != nil {
		return hello, 0, c.noHello(err, payload[:n])
	}
	if hello, err = wire.DecodeHello(payload); err != nil {
		return hello, 0, transports.Refuse(pb.Reason_REASON_MALFORMED, "%v", err)
	}
	if hello.Lowest > wire.Version || hello.Highest < wire.Version {
		return hello, 0, transports.Refuse(pb.Reason_REASON_UNIMPLEMENTED, "this gateway speaks version %d of the protocol, the client %d to %d", wire.Version, hello.Lowest, hello.Highest)
	}
	return hello, h.Correlation, nil
}

// noHello says why there is no first frame.
func (c *conn) noHello(err error, received []byte) *transports.Fault {
	switch {
	case c.server.draining.Load():
		return transports.Refuse(pb.Reason_REASON_DRAINING, "the gateway is stopping; connect again later")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return transports.Refuse(pb.Reason_REASON_DEADLINE_EXCEEDED, "no whole HELLO within %v; received %d bytes: %q", c.server.limits.HandshakeTimeout, len(received), received)
	default:
		return transports.Refuse(pb.Reason_REASON_MALFORMED, "the connection ended within HELLO (%v); received %d bytes: %q", err, len(received), received)
	}
}

// serve reads until the end and returns the frame that tells the peer why, nil where there is nobody to tell.
func (c *conn) serve() (last []byte) {
	for {
		c.awaitRoom()
		if err := c.fill(); err != nil {
			return c.why(err)
		}
		if last, ok := c.process(); !ok {
			return last
		}
	}
}

// awaitRoom stops reading while too much waits to leave, whether for the peer or for the journal: then TCP's window is the only grant that the
// peer has. Without credit nobody told the client to stop before. With it the answers of a client that keeps to it are always less
// than that (the floor is one largest answer and a little), so it waits only for what costs none: PINGs without end. What one more read of those brings is
// left below the box's limit, so that a peer that reads is not cut when the journal was slow.
func (c *conn) awaitRoom() {
	most := c.server.largestAnswer
	if c.credit {
		most = 2*most - 2*batchSize
	}
	c.box.WaitBelow(most)
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
	frame := faultFrame(wire.GoAway, fault, c.last, 0)
	h := wire.Parse(frame)
	h.Aux = c.server.grace.Load()
	h.Put(frame)
	return frame
}

// finish sends the last frame behind the answers, waits until everything has left, and lets the peer read it.
func (c *conn) finish(last []byte) {
	c.commit()
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
	if c.box.Err() == nil {
		scratch := c.server.pool.Get(512)
		linger(c.nc, scratch.B)
		c.server.pool.Put(scratch)
	}
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

// fill reads once into the in-buffer. The error is os.ErrDeadlineExceeded when RequestTimeout or IdleTimeout is over, errStopped when the
// reader has to stop, io.EOF, or the socket's.
func (c *conn) fill() error {
	due := c.lastFrame + int64(c.server.limits.IdleTimeout)
	if c.in != nil {
		due = c.partialSince + int64(c.server.limits.RequestTimeout)
	}
	for {
		// The deadline is moved only when it would fire too late. One that fires early is found below to be early, and set again: so a busy
		// connection does not touch the timer for every frame.
		if c.armed == 0 || due < c.armed {
			_ = c.socket.SetReadDeadline(time.Now().Add(time.Duration(due - transports.Now())))
			c.armed = due
		}
		if c.stopping() { // looked at after the deadline was set, since a kick is a deadline too
			return errStopped
		}
		n, err := c.read()
		if n > 0 {
			now := transports.Now()
			if c.w == c.r {
				c.partialSince = now
			}
			c.w += n
			c.exchange.ReceivedNs = now
			if c.stopping() { // a kick and bytes that come together may look like bytes alone
				return errStopped
			}
			return nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if c.stopping() {
			return errStopped
		}
		if transports.Now() >= due {
			return err
		}
		c.armed = 0
	}
}

// read reads once, waiting for the first byte. n > 0 or an error.
func (c *conn) read() (n int, err error) {
	if c.raw != nil {
		if err = c.raw.Read(c.readReady); err == nil {
			n, err = c.readN, c.readErr
		}
	} else {
		c.lend()
		n, err = c.nc.Read(c.in.B[c.w:])
		if n == 0 {
			c.unlend()
		}
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// readNow is called when the socket may be readable. A buffer is borrowed here and not before, so that whoever waits holds none.
func (c *conn) readNow(fd uintptr) bool {
	c.lend()
	var again bool
	if c.readN, again, c.readErr = outbox.TryRead(fd, c.in.B[c.w:]); c.readN == 0 {
		c.unlend()
	}
	return !again
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

// process handles every whole frame in the in-buffer and makes room for the rest of the next one. ok is false when the connection has to end,
// with the frame that says why.
func (c *conn) process() (last []byte, ok bool) {
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
		if fault := c.check(h); fault != nil {
			c.log.Warn("tcp: connection closed", "reason", fault.Message, "frame", h.Type.String())
			return errorFrame(fault, h.Correlation), false
		}
		size := wire.HeaderSize + int(h.Length)
		if len(have) < size {
			need = size
			break
		}
		largest = max(largest, size)
		c.r += size
		c.lastFrame, c.partialSince = c.exchange.ReceivedNs, c.exchange.ReceivedNs
		if !c.frame(h, have[wire.HeaderSize:size:size]) {
			return c.lastWord, false
		}
		if c.bytes >= batchSize {
			c.commit()
			if c.stopping() {
				return c.why(errStopped), false
			}
			c.awaitRoom()
		}
	}
	c.commit()
	c.borrow = max(largest, need)
	c.room(need)
	return nil, true
}

// room keeps what is left of the in-buffer where the whole of its frame fits.
func (c *conn) room(need int) {
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
	switch {
	case c.answers > 0:
		c.answers, c.bytes, c.control = 0, 0, false
		c.session.Commit(c, c.box.Mark())
	case c.control:
		c.control = false
		c.box.Flush()
	}
}
