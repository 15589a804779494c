// Package guard stands between a listener and a protocol library that brings its own server loop (net/http, grpc): it bounds how
// many connections are open, cuts peers that take no byte of their answers, and knows which connections carried a request.
//
// It must never know a protocol: to it, bytes are bytes. It does not read, so that deadlines for reading stay with the library.
package guard

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// MaxSurplus is how many connections beyond MaxConnections are let in only to be told so in their own protocol. Whatever comes
// on top is closed without a word, so that a flood costs a bounded number of places.
const MaxSurplus = 64

// Options bound the connections of one listener.
type Options struct {
	MaxConnections int           // open at once, surplus ones apart; must be positive
	SurplusTime    time.Duration // after which a surplus connection is closed, come what may; must be positive
	WriteTimeout   time.Duration // a write that moves no byte for this long fails; 0 = none
}

// Listener counts the connections it accepts. Safe for concurrent use.
type Listener struct {
	net.Listener
	options Options

	closing  sync.Once
	closeErr error

	mu       sync.Mutex
	draining bool
	open     map[*Conn]struct{} // at most MaxConnections + MaxSurplus
	surplus  int                // those of open that are surplus
}

// Listen wraps inner, which belongs to the returned listener from then on.
func Listen(inner net.Listener, options Options) *Listener {
	return &Listener{Listener: inner, options: options, open: make(map[*Conn]struct{})}
}

// Accept waits for the next connection that finds a place. It is always a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(inner); c != nil {
			return c, nil
		}
		inner.Close()
	}
}

func (l *Listener) admit(inner net.Conn) *Conn {
	c := &Conn{Conn: inner, listener: l}
	c.address = &Addr{Addr: inner.RemoteAddr(), conn: c}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.draining {
		return nil
	}
	if len(l.open)-l.surplus >= l.options.MaxConnections {
		if l.surplus >= MaxSurplus {
			return nil
		}
		l.surplus++
		c.surplus = true
		c.expiry = time.AfterFunc(l.options.SurplusTime, func() { c.Close() }) //nolint:errcheck // the peer sees it
	}
	l.open[c] = struct{}{}
	return c
}

func (l *Listener) forget(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	if c.surplus {
		l.surplus--
		c.expiry.Stop()
	}
}

// Close implements net.Listener. It may be called more than once, as server loops do.
func (l *Listener) Close() error {
	l.closing.Do(func() { l.closeErr = l.Listener.Close() })
	return l.closeErr
}

// Drain closes the listener and every connection on which [Conn.Use] was not called yet: nothing was accepted there, and a peer
// that stays silent must not hold up a shutdown. The used ones stay open.
func (l *Listener) Drain() {
	l.Close() //nolint:errcheck // whoever accepts sees it
	l.mu.Lock()
	l.draining = true
	unused := make([]*Conn, 0, len(l.open))
	for c := range l.open {
		if !c.used.Load() {
			unused = append(unused, c)
		}
	}
	l.mu.Unlock()
	for _, c := range unused { // not under the lock, which Close takes
		c.Close() //nolint:errcheck // nothing was promised to this peer
	}
}

// CloseCondemned closes the connections on which [Conn.Condemn] was called.
func (l *Listener) CloseCondemned() {
	l.mu.Lock()
	condemned := make([]*Conn, 0, len(l.open))
	for c := range l.open {
		if c.condemned.Load() {
			condemned = append(condemned, c)
		}
	}
	l.mu.Unlock()
	for _, c := range condemned { // not under the lock, which Close takes
		c.Close() //nolint:errcheck // it was given up
	}
}

// Conn is an accepted connection. Its RemoteAddr is an *[Addr], by which a handler that sees only addresses finds it again.
type Conn struct {
	net.Conn
	listener *Listener
	address  *Addr
	surplus  bool
	expiry   *time.Timer // only of a surplus connection; guarded by the listener's lock, since it may fire at once
	used     atomic.Bool
	closed   sync.Once

	condemned atomic.Bool
}

// Addr is the remote address of a Conn.
type Addr struct {
	net.Addr
	conn *Conn
}

// Of returns the connection whose RemoteAddr this is, or nil where the address came from no Listener.
func Of(address net.Addr) *Conn {
	if a, ok := address.(*Addr); ok {
		return a.conn
	}
	return nil
}

// RemoteAddr implements net.Conn with an *Addr.
func (c *Conn) RemoteAddr() net.Addr { return c.address }

// Remote is the peer's address as the network gave it.
func (c *Conn) Remote() net.Addr { return c.address.Addr }

// Surplus reports whether this connection was let in only to be refused.
func (c *Conn) Surplus() bool { return c.surplus }

// Use says that a request came in here, see [Listener.Drain].
func (c *Conn) Use() {
	if !c.used.Load() { // a load first: the line stays shared between the cores that serve one connection
		c.used.Store(true)
	}
}

// Condemn says that the peer leaves something unread of what it was sent, in a part of the connection that this package does not see. The
// connection goes on until [Listener.CloseCondemned].
func (c *Conn) Condemn() { c.condemned.Store(true) }

// Write implements net.Conn. It goes on for as long as the peer takes bytes, and fails with os.ErrDeadlineExceeded when it takes
// none for WriteTimeout. It replaces a write deadline set before.
func (c *Conn) Write(p []byte) (int, error) {
	timeout := c.listener.options.WriteTimeout
	if timeout == 0 {
		return c.Conn.Write(p)
	}
	written := 0
	for {
		if err := c.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(p[written:])
		written += n
		if err == nil || n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return written, err
		}
	}
}

// CloseWrite ends our direction and leaves the peer's open, so that a server which stops reading in mid-request can still be heard
// (net/http asks for it). It does nothing where the connection below cannot.
func (c *Conn) CloseWrite() error {
	if below, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return below.CloseWrite()
	}
	return nil
}

// Close implements net.Conn and gives the place free.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.closed.Do(func() { c.listener.forget(c) })
	return err
}
