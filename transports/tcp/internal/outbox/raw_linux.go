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

// TryRead reads once without waiting. again means that there is nothing to read now. n = 0 without again and error is the end. A loop that polls calls it a million times
// a second, hence numbers and not errors.
func TryRead(fd uintptr, p []byte) (n int, again bool, err error) {
	for {
		n, errno := read(fd, p)
		switch errno {
		case 0:
			return n, false, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, true, nil
		default:
			return 0, false, errno
		}
	}
}

// tryWrite writes once without waiting; n is 0 where the socket is full.
func tryWrite(fd uintptr, pieces [][]byte) (n int, err error) {
	for {
		var errno syscall.Errno
		if len(pieces) == 1 {
			n, errno = write(fd, pieces[0])
		} else {
			n, err = unix.Writev(int(fd), pieces)
			errno = number(err)
		}
		switch errno {
		case 0:
			return n, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, nil
		default:
			return 0, errno
		}
	}
}

// number is that of a system call's error.
func number(err error) syscall.Errno {
	errno, _ := errors.AsType[syscall.Errno](err)
	return errno
}
