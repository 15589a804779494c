package floor

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
)

// congestionOf reads a socket's congestion control back from the kernel.
func congestionOf(t *testing.T, conn net.Conn) string {
	t.Helper()
	socket, ok := conn.(syscall.Conn)
	if !ok {
		t.Fatalf("a %T has no socket", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var name string
	if failed := raw.Control(func(fd uintptr) { name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION) }); failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	return name
}

// TestCongestion: each congestion control that this user may choose is in use on both sides of an echo; one that the kernel does not have
// is an error that names it.
func TestCongestion(t *testing.T) {
	allowed, err := os.ReadFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(allowed)) {
		listener, err := Listen(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		server := Serve(listener)
		dialed, err := dial(t.Context(), transports.DialConfig{Address: listener.Addr().String(), CongestionControl: name})
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := dialed.(*client); !ok || congestionOf(t, c.conn) != name {
			t.Errorf("%s: the client's socket uses another", name)
		}
		call := transports.Call{Operation: transports.SubmitOrder, Request: &pb.SubmitOrderRequest{ClientOrderId: "0123456789ab"}, Response: &pb.SubmitOrderResponse{}}
		if err := dialed.Do(t.Context(), &call); err != nil { // so that the server has it
			t.Fatal(err)
		}
		server.mu.Lock()
		for conn := range server.conns {
			if got := congestionOf(t, conn); got != name {
				t.Errorf("the server's socket uses %s, want %s", got, name)
			}
		}
		if len(server.conns) != 1 {
			t.Errorf("%d connections, want one to look at", len(server.conns))
		}
		server.mu.Unlock()
		if err := dialed.Close(); err != nil {
			t.Error(err)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := Listen(t.Context(), "nonesuch"); err == nil || !strings.Contains(err.Error(), `"nonesuch"`) {
		t.Errorf("listen: got %v, want an error that names it", err)
	}
	if _, err := dial(t.Context(), transports.DialConfig{Address: "127.0.0.1:1", CongestionControl: "nonesuch"}); err == nil || !strings.Contains(err.Error(), `"nonesuch"`) {
		t.Errorf("dial: got %v, want an error that names it", err)
	}
}
