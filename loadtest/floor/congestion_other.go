//go:build !linux

package floor

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

func control(congestion string) func(network, address string, raw syscall.RawConn) error {
	if congestion == "" {
		return nil
	}
	return func(string, string, syscall.RawConn) error {
		return fmt.Errorf("a socket's congestion control is a choice on Linux only, not on %s: %w", runtime.GOOS, errors.ErrUnsupported)
	}
}
