package rest

import (
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// conn is a client's socket that knows whether any byte of the request it carries was handed to the kernel, and when the first was.
// One request at a time is on it, as HTTP/1.1 has it.
type conn struct {
	net.Conn
	onClose func()
	closed  atomic.Bool

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
func (c *conn) arm() { c.state.Store(armed) }

// bar keeps the request from being written, and reports whether that was in time: then no byte of it left, nor will.
func (c *conn) bar() bool { return c.state.CompareAndSwap(armed, barred) }

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
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
