package sockopt_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"tailgate/transports/internal/sockopt"
)

// pair returns both ends of a connection between a listener and a dialer with the given congestion controls.
func pair(t *testing.T, server, client string) (accepted, dialed net.Conn) {
	t.Helper()
	listener, err := sockopt.Listen(t.Context(), "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	dialed, err = sockopt.Dialer(client).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dialed.Close() })
	accepted, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accepted.Close() })
	return accepted, dialed
}

func TestCongestionControlIsTheNamedOne(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a choice on Linux only")
	}
	accepted, dialed := pair(t, "reno", "reno") // reno is always built in
	for name, conn := range map[string]net.Conn{"accepted": accepted, "dialed": dialed} {
		got, err := sockopt.Congestion(conn)
		if err != nil {
			t.Fatal(err)
		}
		if got != "reno" {
			t.Errorf("%s socket: congestion control %q, want reno", name, got)
		}
	}
}

func TestEmptyNameLeavesTheSystems(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("readable on Linux only")
	}
	accepted, dialed := pair(t, "", "")
	a, err := sockopt.Congestion(accepted)
	if err != nil {
		t.Fatal(err)
	}
	d, err := sockopt.Congestion(dialed)
	if err != nil {
		t.Fatal(err)
	}
	if a == "" || a != d {
		t.Errorf("accepted socket has %q, dialed one %q: want the system's on both", a, d)
	}
}

func TestUnknownCongestionControlIsNamed(t *testing.T) {
	_, err := sockopt.Listen(t.Context(), "127.0.0.1:0", "no-such-thing")
	if err == nil || !strings.Contains(err.Error(), `"no-such-thing"`) {
		t.Errorf("Listen: %v, want an error that names the congestion control", err)
	}
	listener, err := sockopt.Listen(t.Context(), "127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, err = sockopt.Dialer("no-such-thing").DialContext(t.Context(), "tcp", listener.Addr().String())
	if err == nil || !strings.Contains(err.Error(), `"no-such-thing"`) {
		t.Errorf("Dial: %v, want an error that names the congestion control", err)
	}
}

func TestBusyPortIsNamed(t *testing.T) {
	first, err := sockopt.Listen(t.Context(), "127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	_, err = sockopt.Listen(context.Background(), first.Addr().String(), "")
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), first.Addr().String()) {
		t.Errorf("second listener: %v, want EADDRINUSE with the address", err)
	}
}
