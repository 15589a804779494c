package floor

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// control is the hook that package net calls between the creation of a socket and its use: it sets TCP_CONGESTION, nothing where the name is
// empty. An accepted socket inherits its listener's.
func control(congestion string) func(network, address string, raw syscall.RawConn) error {
	if congestion == "" {
		return nil
	}
	return func(_, _ string, raw syscall.RawConn) error {
		var err error
		if failed := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion)
		}); failed != nil {
			return failed
		}
		if err != nil {
			return fmt.Errorf("congestion control %q cannot be set, see /proc/sys/net/ipv4/tcp_allowed_congestion_control: %w", congestion, err)
		}
		return nil
	}
}
