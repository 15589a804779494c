//go:build race

package outbox

import "syscall"

// The race detector takes what comes out of a descriptor for ordered behind what went into any, where package syscall tells it.

func read(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }

func write(fd uintptr, p []byte) (int, error) { return syscall.Write(int(fd), p) }
