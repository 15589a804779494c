package transportstest

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// congestionControls are those of reno and cubic that this process may ask for.
func congestionControls() []string {
	allowed, err := os.ReadFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
	if err != nil {
		return nil
	}
	names := strings.Fields(string(allowed))
	return slices.DeleteFunc([]string{"reno", "cubic"}, func(name string) bool { return !slices.Contains(names, name) })
}

// congestionOf asks the kernel for the congestion control of every connected socket of this process that has the port at its
// own end (accepted) or at the other (dialed).
func congestionOf(t testing.TB, port int) (accepted, dialed []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		peer, err := unix.Getpeername(fd)
		if err != nil {
			continue // no socket, or not connected
		}
		own, err := unix.Getsockname(fd)
		if err != nil {
			continue
		}
		name, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		if err != nil {
			continue
		}
		name = strings.TrimRight(name, "\x00")
		switch port {
		case portOf(own):
			accepted = append(accepted, name)
		case portOf(peer):
			dialed = append(dialed, name)
		}
	}
	return accepted, dialed
}

func portOf(address unix.Sockaddr) int {
	switch a := address.(type) {
	case *unix.SockaddrInet4:
		return a.Port
	case *unix.SockaddrInet6:
		return a.Port
	default:
		return -1
	}
}
