package sockopt

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

func setCongestion(fd int, name string) error {
	err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("this kernel does not have it, see /proc/sys/net/ipv4/tcp_available_congestion_control: %w", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("this user may not choose it, see /proc/sys/net/ipv4/tcp_allowed_congestion_control: %w", err)
	}
	return err
}

func congestion(fd int) (string, error) {
	return unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
}
