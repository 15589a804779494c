package restclient

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a client's socket that knows whether any byte of the request it carries was handed to the kernel, and when the first was.
// One request at a time is on it, as HTTP/1.1 has it.
type conn struct {
	net.Conn
	onClose func()
	plain   bool // no TLS: what is read here is what the peer said
	closed  atomic.Bool
	spoken  atomic.Bool // whether this side has written anything yet
	begun   atomic.Bool // whether anything was read since the last request was armed

	// state goes armed -> written by the first write, or armed -> barred by a caller that gives up. Exactly one wins, so
	// that "nothing was sent" is a fact and not a reading of two clocks. Before the first request, during the TLS handshake, it is
	// written: nothing hangs on it.
	state      atomic.Uint32
	firstWrite atomic.Int64 // nanoseconds since base, of the write that moved armed to written
	base       time.Time
}

const (
	written uint32 = iota
	armed
	barred
)

var errBarred = errors.New("the caller gave up before the request was written")

// arm says that a new request will be written from here on.
func (c *conn) arm() {
	c.begun.Store(false)
	c.state.Store(armed)
}

// bar keeps the request from being written, and reports whether that was in time: then no byte of it left, nor will.
func (c *conn) bar() bool { return c.state.CompareAndSwap(armed, barred) }

// statusLine is how every answer begins, interim ones too (RFC 9112, section 4); of HTTP/1.0 as well, which is near enough to be told
// apart by its answer.
const statusLine = "HTTP/1."

// Read implements net.Conn. A peer that speaks before it is spoken to, or whose answer does not begin as one, is no HTTP/1.1 server;
// the error says who and what it said, where net/http would only find the connection unusable or some part of a line malformed. Under TLS
// the same is left to the peer's choice of protocol in the handshake and to net/http.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 {
		return n, err
	}
	if !c.spoken.Load() {
		return 0, fmt.Errorf("%s does not speak HTTP/1.1: it spoke first, with %q", c.RemoteAddr(), p[:min(n, 64)])
	}
	if c.plain && !c.begun.Load() {
		c.begun.Store(true)
		if start := p[:min(n, len(statusLine))]; string(start) != statusLine[:len(start)] {
			return 0, fmt.Errorf("%s does not speak HTTP/1.1: its answer begins with %q", c.RemoteAddr(), p[:min(n, 64)])
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if !c.spoken.Load() {
		c.spoken.Store(true)
	}
	switch c.state.Load() {
	case armed:
		c.firstWrite.Store(int64(time.Since(c.base)))
		if !c.state.CompareAndSwap(armed, written) {
			return 0, errBarred
		}
	case barred:
		return 0, errBarred
	}
	return c.Conn.Write(p)
}

// copyBuffers are for ReadFrom.
var copyBuffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// ReadFrom implements io.ReaderFrom. net/http sends what passes its own buffer of 4 KiB by io.Copy, which without this would
// allocate 32 KiB for each large request.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	buffer := copyBuffers.Get().(*[64 << 10]byte)
	defer copyBuffers.Put(buffer)
	return io.CopyBuffer(struct{ io.Writer }{c}, r, buffer[:])
}

// first is when the first byte of the request was handed to the kernel, zero where none was.
func (c *conn) first() time.Time {
	if c.state.Load() != written {
		return time.Time{}
	}
	return c.base.Add(time.Duration(c.firstWrite.Load()))
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) {
		c.onClose()
	}
	return err
}
