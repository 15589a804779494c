//go:build race

package outbox

import "syscall"

// The race detector takes what comes out of a descriptor for ordered behind what went into any, where package syscall tells it.

func read(fd uintptr, p []byte) (int, syscall.Errno) {
	n, err := syscall.Read(int(fd), p)
	return max(n, 0), number(err)
}

func write(fd uintptr, p []byte) (int, syscall.Errno) {
	n, err := syscall.Write(int(fd), p)
	return max(n, 0), number(err)
}
