package tcp

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"tailgate/transports"
	"tailgate/transports/tcp/internal/outbox"
)

// reader is what the goroutine of the engine "net" reads with.
type reader struct {
	raw   syscall.RawConn // nil where reads block
	armed int64           // when the read deadline fires, by transports.Now; 0 = not set
	n     int
	err   error
	ready func(fd uintptr) bool
}

// run is the connection's goroutine: to its end, or until a loop takes it over.
func (c *conn) run() {
	if err := c.handshake(); err != nil {
		c.log.Warn("tcp: handshake failed", "error", err)
		_ = c.socket.Close()
		c.server.leave(c)
		return
	}
	if c.server.loop != nil && c.server.loop.take(c) {
		return
	}
	c.reader = reader{raw: outbox.Raw(c.nc), ready: c.readNow}
	c.start(c.reader.raw, false)
	// When Shutdown gives up, a reader that waits for the journal has to hear of it.
	stop := context.AfterFunc(c.server.ctx, func() { c.box.Die(outbox.ErrClosed) })
	c.conclude(c.serve())
	if c.box.Err() == nil {
		scratch := c.server.pool.Get(512)
		linger(c.nc, scratch.B)
		c.server.pool.Put(scratch)
	}
	stop()
	_ = c.socket.Close()
	c.server.leave(c)
}

// serve reads until the end and returns the frame that tells the peer why, nil where there is nobody to tell.
func (c *conn) serve() (last []byte) {
	for next := nextRead; ; {
		for !c.room() {
			c.box.WaitBelow(c.server.largestAnswer)
		}
		if next == nextRead {
			if err := c.fill(); err != nil {
				return c.why(err)
			}
		}
		if last, next = c.process(); next == nextEnd {
			return last
		}
	}
}

// fill reads once into the in-buffer. The error is os.ErrDeadlineExceeded when RequestTimeout or IdleTimeout is over, errStopped when the
// reader has to stop, io.EOF, or the socket's.
func (c *conn) fill() error {
	due := c.due()
	for {
		// The deadline is moved only when it would fire too late. One that fires early is found below to be early, and set again: so a busy
		// connection does not touch the timer for every frame.
		if c.reader.armed == 0 || due < c.reader.armed {
			_ = c.socket.SetReadDeadline(time.Now().Add(time.Duration(due - transports.Now())))
			c.reader.armed = due
		}
		if c.stopping() { // looked at after the deadline was set, since a kick is a deadline too
			return errStopped
		}
		n, err := c.read()
		if n > 0 {
			c.received(n, transports.Now())
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
		c.reader.armed = 0
	}
}

// read reads once, waiting for the first byte. n > 0 or an error.
func (c *conn) read() (n int, err error) {
	if c.reader.raw != nil {
		if err = c.reader.raw.Read(c.reader.ready); err == nil {
			n, err = c.reader.n, c.reader.err
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
	if c.reader.n, again, c.reader.err = outbox.TryRead(fd, c.in.B[c.w:]); c.reader.n == 0 {
		c.unlend()
	}
	return !again
}
