package floor

import (
	"io"
	"net"
	"runtime"
	"syscall"
)

// asksBeforeYield is how often a spinning reader asks in vain before it lets another goroutine run, where there is one: about a tenth of a
// millisecond.
const asksBeforeYield = 256

// spinning is a connection that never sleeps in a read: it asks the kernel again and again. What a read that sleeps costs more is the price of waking.
type spinning struct {
	net.Conn
	raw syscall.RawConn
}

// spin makes a connection spin, where its kind allows it.
func spin(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn
	}
	return &spinning{Conn: conn, raw: raw}
}

// Read implements net.Conn.
func (c *spinning) Read(b []byte) (n int, err error) {
	for asked := 1; ; asked++ {
		var failed error
		if err := c.raw.Read(func(fd uintptr) bool {
			n, failed = syscall.Read(int(fd), b)
			return true // whatever came of it: never wait
		}); err != nil {
			return 0, err // closed, or past its deadline
		}
		switch {
		case failed == syscall.EAGAIN || failed == syscall.EINTR:
			if asked%asksBeforeYield == 0 {
				runtime.Gosched()
			}
		case failed != nil:
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: failed}
		case n == 0 && len(b) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// CanSpin tells whether this system's connections can.
const CanSpin = true
