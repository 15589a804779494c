//go:build !linux

package sockopt

import (
	"errors"
	"fmt"
	"runtime"
)

func setCongestion(int, string) error {
	return fmt.Errorf("a socket's congestion control is a choice on Linux only, not on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func congestion(int) (string, error) {
	return "", fmt.Errorf("a socket's congestion control can be read on Linux only, not on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
