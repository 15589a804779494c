package tcp

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// loopSocket is a socket that an event loop reads and the runtime's poller does not know: with both, each byte would wake the poller's threads beside the loop. Its
// methods never wait.
type loopSocket struct {
	local, remote net.Addr

	mu       sync.Mutex // for those who use the descriptor on other threads than the loop's, and are no writer of the box
	fd       int
	released bool
}

// newLoopSocket takes the socket of an accepted connection over, and closes what the runtime has of it. With an error, nothing has changed.
func newLoopSocket(conn net.Conn) (*loopSocket, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a %T has no socket", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &loopSocket{local: conn.LocalAddr(), remote: conn.RemoteAddr()}
	if failed := raw.Control(func(fd uintptr) { s.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, fmt.Errorf("a second descriptor: %w", err)
	}
	_ = conn.Close() // the socket stays open, by the other descriptor
	return s, nil
}

// release gives the descriptor back. Only the loop does, when nobody writes any more.
func (s *loopSocket) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = true
	_ = unix.Close(s.fd)
}

// Close implements net.Conn: the connection ends, and the loop hears of it as of any other end.
func (s *loopSocket) Close() error {
	return s.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
}

// SyscallConn implements syscall.Conn.
func (s *loopSocket) SyscallConn() (syscall.RawConn, error) { return (*rawLoopSocket)(s), nil }

// Control is as that of syscall.RawConn.
func (s *loopSocket) Control(do func(fd uintptr)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released {
		return net.ErrClosed
	}
	do(uintptr(s.fd))
	return nil
}

// LocalAddr implements net.Conn.
func (s *loopSocket) LocalAddr() net.Addr { return s.local }

// RemoteAddr implements net.Conn.
func (s *loopSocket) RemoteAddr() net.Addr { return s.remote }

// Read implements net.Conn. Like the methods below it is for nobody: the loop and the box make the system calls, and the loop has the clocks.
func (s *loopSocket) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Write implements net.Conn.
func (s *loopSocket) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }

// SetDeadline implements net.Conn.
func (s *loopSocket) SetDeadline(time.Time) error { return errors.ErrUnsupported }

// SetReadDeadline implements net.Conn.
func (s *loopSocket) SetReadDeadline(time.Time) error { return errors.ErrUnsupported }

// SetWriteDeadline implements net.Conn.
func (s *loopSocket) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

// rawLoopSocket is the socket for calls that do not wait: each calls its function once, whatever that returns.
type rawLoopSocket loopSocket

// Control implements syscall.RawConn.
func (s *rawLoopSocket) Control(do func(fd uintptr)) error { return (*loopSocket)(s).Control(do) }

// Read implements syscall.RawConn.
func (s *rawLoopSocket) Read(do func(fd uintptr) bool) error {
	return s.Control(func(fd uintptr) { do(fd) })
}

// Write implements syscall.RawConn. It is for the box, whose writes the loop awaits before it releases the descriptor.
func (s *rawLoopSocket) Write(do func(fd uintptr) bool) error {
	do(uintptr(s.fd))
	return nil
}
