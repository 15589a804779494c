package restfasthttp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"tailgate/transports"
	"tailgate/transports/internal/guard"
)

// conn is an accepted connection as fasthttp reads it. It keeps the times of a request, which fasthttp counts from other moments, sees when the peer
// hangs up in the middle of one, and lingers where the answer would be lost otherwise. One goroutine serves it; others call only what
// says so.
type conn struct {
	net.Conn // under TLS its plain side
	below    *guard.Conn
	tls      *tls.ConnectionState // nil without TLS
	server   *Server

	idleSince atomic.Int64 // transports.Now of the last answer; 0 = before the first, or within a request
	expired   atomic.Bool  // no further request is waited for

	// Of the serving goroutine.
	waiting  bool      // for the first byte of a request
	used     bool      // whether a request came before
	headers  bool      // of the present request have come
	begun    time.Time // the first byte of the present request came; before the first, the connection was ready
	armed    time.Time // the deadline for reading that is set below
	linger   bool      // the peer may still be writing what nobody reads
	request  *requestContext
	headerOf struct{ authorization, accept, lastEventID [1]string } // where the values of the present request stand
	date     date

	mu       sync.Mutex
	reading  bool          // the serving goroutine is in Read
	watching chan struct{} // closed when the watch has ended; nil = none
	stopping bool          // the watch is told to end
	ahead    []byte        // what the watch has read: nothing, or one byte that belongs to the next read
	aheadOne [1]byte
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

func newConn(plain net.Conn, below *guard.Conn, state *tls.ConnectionState, server *Server) *conn {
	c := &conn{Conn: plain, below: below, tls: state, server: server, waiting: true, begun: time.Now()}
	c.request = &requestContext{conn: c}
	return c
}

// changed is the server's ConnState: fasthttp says active with the first byte of a request, and idle behind its answer.
func changed(nc net.Conn, state fasthttp.ConnState) {
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	switch state {
	case fasthttp.StateActive:
		c.idleSince.Store(0)
		c.waiting, c.used, c.headers, c.begun = false, true, false, time.Now()
	case fasthttp.StateIdle:
		c.waiting = true
		c.idleSince.Store(transports.Now())
		if c.server.ending.Load() { // stored before or after: one of us sees the other
			c.expired.Store(true)
		}
	}
}

// expire ends the wait for a further request. Where one has just come, the serving goroutine overrules the deadline and answers. Safe
// for concurrent use.
func (c *conn) expire() {
	c.expired.Store(true)
	c.below.SetReadDeadline(longAgo) //nolint:errcheck // fails only on a closed connection
}

// SetReadDeadline is what fasthttp calls when the headers of a request have come, and at no other time, since its own timeouts are off: see
// HeaderReceived in [server]. From then on the time of the whole request counts.
func (c *conn) SetReadDeadline(time.Time) error {
	c.headers = true
	return nil
}

// arm sets the deadline for the read that comes.
func (c *conn) arm() error {
	var deadline time.Time
	switch {
	case c.waiting && c.used:
		deadline = time.Now().Add(c.server.limits.IdleTimeout)
	case c.waiting || !c.headers:
		deadline = c.begun.Add(c.server.limits.HandshakeTimeout)
	default:
		deadline = c.begun.Add(c.server.limits.RequestTimeout)
	}
	if deadline.Equal(c.armed) && !c.waiting {
		return nil
	}
	c.armed = deadline
	err := c.Conn.SetReadDeadline(deadline)
	if c.waiting && c.expired.Load() { // set before or after: one of us sees the other
		c.armed = longAgo
		err = c.Conn.SetReadDeadline(longAgo)
	}
	return err
}

// Read implements net.Conn for the serving goroutine. Silence in the place of a request ends the connection without a word.
func (c *conn) Read(p []byte) (int, error) {
	defer c.readDone()
	if n := c.takeAhead(p); n > 0 {
		return n, nil
	}
	if err := c.arm(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if n == 0 && c.waiting && errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, io.EOF
	}
	return n, err
}

// takeAhead begins a read: it ends the watch, and returns how much of what that has read it has put into p.
func (c *conn) takeAhead(p []byte) int {
	c.mu.Lock()
	c.reading = true // first, so that no other watch begins
	c.mu.Unlock()
	c.stopWatch()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := copy(p, c.ahead)
	c.ahead = c.ahead[n:]
	return n
}

func (c *conn) readDone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = false
}

// watch sees the peer hang up from now on, until the next read or the end of the request: in HTTP/1.1 a peer that waits for its answer has nothing to
// say, so that one read can be out for it. The lock is held.
func (c *conn) watch(r *requestContext) {
	if c.watching != nil || c.reading || len(c.ahead) > 0 {
		return
	}
	ended := make(chan struct{})
	c.watching, c.stopping = ended, false
	go func() {
		defer close(ended)
		for {
			err := c.Conn.SetReadDeadline(time.Time{})
			n := 0
			if err == nil && !c.isStopping() {
				n, err = c.Conn.Read(c.aheadOne[:])
			}
			if !c.saw(r, n, err) {
				return
			}
		}
	}()
}

func (c *conn) isStopping() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopping
}

// saw takes in what the watch has read, and reports whether it goes on.
func (c *conn) saw(r *requestContext, n int, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case n > 0:
		c.ahead = c.aheadOne[:n] // the next request, which was not waited for
	case c.stopping:
	case errors.Is(err, os.ErrDeadlineExceeded): // of an expire that was meant for the wait before this request
		return true
	case err != nil:
		r.end(context.Canceled)
	}
	return false
}

// stopWatch returns when no watch reads any more.
func (c *conn) stopWatch() {
	c.mu.Lock()
	ended := c.watching
	c.stopping = true
	c.mu.Unlock()
	if ended == nil {
		return
	}
	// The watch looks at stopping behind the deadline that it lifts: either it finds this one, or it does not read.
	c.Conn.SetReadDeadline(longAgo) //nolint:errcheck // fails only on a closed connection, whose read ends
	<-ended
	c.armed = longAgo
	c.mu.Lock()
	c.watching = nil
	c.mu.Unlock()
}

// finish ends the context of a request that is over. Whoever asked for its end keeps it; otherwise it serves the next.
func (c *conn) finish() {
	c.mu.Lock()
	if r := c.request; r.done != nil {
		r.end(context.Canceled) // before the watch ends, so that no other begins
		c.request = &requestContext{conn: c}
	}
	c.mu.Unlock()
	c.stopWatch()
}

const (
	// lingerTime is how long a peer that is still writing has to read its answer, before the close resets the connection.
	lingerTime = 500 * time.Millisecond
	// lingerBytes bounds what is read and dropped meanwhile.
	lingerBytes = 8 << 20
)

// Close implements net.Conn for the serving goroutine.
func (c *conn) Close() error {
	c.stopWatch()
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.linger {
		if half.CloseWrite() == nil && c.Conn.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
			io.CopyN(io.Discard, c.Conn, lingerBytes) //nolint:errcheck // until its end, or ours
		}
	}
	return c.Conn.Close()
}

// requestContext is the context of one request: it ends when the peer hangs up, and with the request. What it costs is paid by who asks for its
// end: only then is the peer watched. Nothing comes with it, since HTTP/1.1 carries no deadline of the caller's.
type requestContext struct {
	conn *conn
	done chan struct{} // guarded by the connection's lock, as err is; nil = nobody has asked
	err  error
}

// end is called with the lock held.
func (r *requestContext) end(err error) {
	if r.err != nil {
		return
	}
	r.err = err
	if r.done != nil {
		close(r.done)
	}
}

// Deadline implements context.Context.
func (*requestContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (*requestContext) Value(any) any { return nil }

// Err implements context.Context.
func (r *requestContext) Err() error {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	return r.err
}

// Done implements context.Context.
func (r *requestContext) Done() <-chan struct{} {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	if r.done == nil {
		r.done = make(chan struct{})
	}
	if r.err == nil {
		r.conn.watch(r)
	}
	return r.done
}
