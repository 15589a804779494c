package sockets_test

import (
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"tailgate/loadtest/sockets"
)

func linuxOnly(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("TCP's figures of a connection are read on Linux only")
	}
}

// pair is a connection on loopback, and a watch on the listener's address.
func pair(t *testing.T, network, address string) (client, server *net.TCPConn, w *sockets.Watch) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), network, address)
	if err != nil {
		t.Skipf("%s: %v", address, err) // a machine without IPv6
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
	host := "127.0.0.1"
	if strings.HasPrefix(address, "[::1]") {
		host = "::1"
	}
	remote := netip.AddrPortFrom(netip.MustParseAddr(host), port)
	client, server = dial(t, remote, listener)
	return client, server, sockets.NewWatch([]netip.AddrPort{remote})
}

func dial(t *testing.T, remote netip.AddrPort, listener net.Listener) (client, server *net.TCPConn) {
	t.Helper()
	var dialer net.Dialer
	c, err := dialer.DialContext(t.Context(), "tcp", remote.String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// TestBytes: what was sent between two looks, and no more, is counted at both ends, whatever the families.
func TestBytes(t *testing.T) {
	linuxOnly(t)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		t.Run(address, func(t *testing.T) {
			client, server, w := pair(t, "tcp", address)
			exchange := func(n int) {
				t.Helper()
				if _, err := client.Write(make([]byte, n)); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(server, make([]byte, n)); err != nil {
					t.Fatal(err)
				}
			}
			exchange(1000)
			first := w.Look()
			exchange(5000)
			c, s := w.Between(first, w.Look())
			if c.NotAvailable != "" || s.NotAvailable != "" {
				t.Fatalf("client %q, server %q", c.NotAvailable, s.NotAvailable)
			}
			if c.Connections != 1 || s.Connections != 1 || c.BytesSent != 5000 || s.BytesReceived != 5000 || s.BytesSent != 0 || c.Retransmits != 0 || c.SegmentsSent == 0 || s.SegmentsReceived == 0 {
				t.Errorf("client %+v\nserver %+v", c, s)
			}
		})
	}
}

// TestStoppedReader: a peer that does not read holds the sender up, and that time is the sender's: receiver-limited at the end that sends, zero at the other.
func TestStoppedReader(t *testing.T) {
	linuxOnly(t)
	client, _, w := pair(t, "tcp", "127.0.0.1:0")
	if err := client.SetWriteBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	first := w.Look()
	// Fill what the kernel takes; the write ends by its deadline.
	if err := client.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := client.Write(make([]byte, 64<<20)); err == nil {
		t.Fatalf("%d bytes were written to a peer that does not read", n)
	}
	middle := w.Look()
	c, s := w.Between(first, middle)
	if c.ReceiverLimited <= 0 || c.ReceiverLimited > c.Busy || s.ReceiverLimited != 0 || s.Busy != 0 {
		t.Errorf("client %+v\nserver %+v\nwant time that the receiver's window cost the client", c, s)
	}
	// It goes on as long as nobody reads: the second stretch counts by itself.
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for range 500 {
		if c, _ = w.Between(middle, w.Look()); c.ReceiverLimited >= 20*time.Millisecond {
			break
		}
		<-poll.C
	}
	if c.ReceiverLimited < 20*time.Millisecond || c.BytesReceived != 0 {
		t.Errorf("later: %+v", c)
	}
}

// TestComeAndGone: a connection that was opened between the looks counts from zero, one that was closed is told as gone, and somebody else's with the
// same port is not counted.
func TestComeAndGone(t *testing.T) {
	linuxOnly(t)
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	remote := listener.Addr().(*net.TCPAddr).AddrPort()
	old, _ := dial(t, remote, listener)
	w := sockets.NewWatch([]netip.AddrPort{remote})
	first := w.Look()
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	fresh, peer := dial(t, remote, listener)
	if _, err := fresh.Write(make([]byte, 77)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(peer, make([]byte, 77)); err != nil {
		t.Fatal(err)
	}
	c, s := w.Between(first, w.Look())
	if c.Connections != 1 || c.Gone != 1 || c.BytesSent != 77 || s.BytesReceived != 77 {
		t.Errorf("client %+v\nserver %+v", c, s)
	}

	// To a watch on another address of the same port they are nobody's.
	other := sockets.NewWatch([]netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), remote.Port())})
	look := other.Look()
	if c, s := other.Between(look, look); c.NotAvailable == "" || s.NotAvailable == "" || c.Connections != 0 {
		t.Errorf("of another address: client %+v, server %+v", c, s)
	}
}

// TestNoAddress: a server without a TCP address has a reason and no zeros.
func TestNoAddress(t *testing.T) {
	w := sockets.NewWatch(nil)
	if c, s := w.Between(w.Look(), w.Look()); c.NotAvailable == "" || s.NotAvailable == "" {
		t.Errorf("client %+v, server %+v", c, s)
	}
}
