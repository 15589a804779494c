//go:build !race

package outbox

import (
	"syscall"
	"unsafe"
)

// The scheduler is not told of system calls that do not wait: it would take the thread's place away from one that copies a large message, and who has the place
// back then was woken twice.

func read(fd uintptr, p []byte) (int, error) { return call(syscall.SYS_READ, fd, p) }

func write(fd uintptr, p []byte) (int, error) { return call(syscall.SYS_WRITE, fd, p) }

func call(number, fd uintptr, p []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	switch errno {
	case 0:
		return int(n), nil
	case syscall.EAGAIN:
		return 0, syscall.EAGAIN // a constant, which allocates nothing
	default:
		return 0, errno
	}
}
