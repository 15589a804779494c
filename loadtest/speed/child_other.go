//go:build !linux

package speed

import (
	"errors"
	"io"
)

// ErrUnsupported: threads are bound to cores on Linux alone.
var ErrUnsupported = errors.New("speed: cores are watched on Linux alone")

// Child returns ErrUnsupported.
func Child([]string, io.Reader, io.Writer) error { return ErrUnsupported }

func monotonic() int64 { return 0 }
