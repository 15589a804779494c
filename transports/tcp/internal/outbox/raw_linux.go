package outbox

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Raw returns the socket of a plain TCP connection for non-blocking calls, nil for one that has none of its own (TLS).
func Raw(conn net.Conn) syscall.RawConn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// TryRead reads once without waiting. again means that there is nothing to read now. n = 0 without again and error is the end.
func TryRead(fd uintptr, p []byte) (n int, again bool, err error) {
	for {
		n, err = read(fd, p)
		switch {
		case err == nil:
			return n, false, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return 0, true, nil
		default:
			return 0, false, err
		}
	}
}

// tryWrite writes once without waiting; n is 0 where the socket is full.
func tryWrite(fd uintptr, pieces [][]byte) (n int, err error) {
	for {
		if len(pieces) == 1 {
			n, err = write(fd, pieces[0])
		} else {
			n, err = unix.Writev(int(fd), pieces)
		}
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return 0, nil
		default:
			return 0, err
		}
	}
}
