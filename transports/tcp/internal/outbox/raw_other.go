//go:build !linux

package outbox

import (
	"errors"
	"net"
	"syscall"
)

// Raw returns nil: on this system every connection is served as one under TLS is, with blocking reads and a writer goroutine.
func Raw(net.Conn) syscall.RawConn { return nil }

// TryRead is never called where Raw returns nil.
func TryRead(uintptr, []byte) (n int, again bool, err error) { return 0, false, errors.ErrUnsupported }

func tryWrite(uintptr, [][]byte) (int, error) { return 0, errors.ErrUnsupported }
