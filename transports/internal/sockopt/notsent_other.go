//go:build !linux

package sockopt

import (
	"errors"
	"fmt"
	"runtime"
)

func setNotSent(int, int) error { return nil }

func notSent(int) (int, error) {
	return 0, fmt.Errorf("what a socket has not sent can be read on Linux only, not on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
