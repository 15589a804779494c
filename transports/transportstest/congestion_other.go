//go:build !linux

package transportstest

import "testing"

// congestionControls: TCP_CONGESTION is Linux's.
func congestionControls() []string { return nil }

func congestionOf(testing.TB, int) (accepted, dialed []string) { return nil, nil }
