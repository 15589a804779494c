//go:build !linux

package pacer

// NewSleeper returns the finest that the system has.
func NewSleeper() (Sleeper, error) { return Coarse{}, nil }
