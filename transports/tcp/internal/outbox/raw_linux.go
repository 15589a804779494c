package outbox

import (
	"errors"
	"net"
	"syscall"
	"unsafe"

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
		read, errno := call(syscall.SYS_READ, fd, p)
		switch errno {
		case 0:
			return read, false, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, true, nil
		default:
			return 0, false, errno
		}
	}
}

// call is a system call that does not wait. The scheduler is not told of it: it would take the thread's place away from one that copies a large message, and
// whoever has the place back then was woken twice.
func call(number, fd uintptr, p []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return int(n), errno
}

// tryWrite writes once without waiting; n is 0 where the socket is full.
func tryWrite(fd uintptr, pieces [][]byte) (n int, err error) {
	for {
		if len(pieces) == 1 {
			var errno syscall.Errno
			if n, errno = call(syscall.SYS_WRITE, fd, pieces[0]); errno == 0 {
				return n, nil
			}
			err = errno
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
