package sockets_test

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tailgate/loadtest/sockets"
)

// deaf makes the kernel throw away every segment that comes for the socket, before TCP sees it, until the returned function is called: to the
// peer they are lost on the way. It needs no privilege, unlike a lossy device.
func deaf(t *testing.T, conn *net.TCPConn) (hear func()) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	control := func(what string, change func(fd int) error) {
		t.Helper()
		var failed error
		if err := raw.Control(func(fd uintptr) { failed = change(int(fd)) }); err != nil || failed != nil {
			t.Fatalf("%s: %v, %v", what, err, failed)
		}
	}
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}} // takes no byte of any packet
	control("attach the filter", func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]})
	})
	return func() {
		t.Helper()
		control("detach the filter", func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) })
	}
}

// TestRetransmits: segments that are lost on the way are sent again, and counted at the end that sends alone.
func TestRetransmits(t *testing.T) {
	client, server, w := pair(t, "tcp", "127.0.0.1:0")
	first := w.Look()
	hear := deaf(t, server)
	if _, err := client.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	var c, s sockets.End
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for range 1000 {
		if c, s = w.Between(first, w.Look()); c.Retransmits > 0 || c.NotAvailable != "" {
			break
		}
		<-poll.C
	}
	if c.Retransmits == 0 || s.Retransmits != 0 || s.BytesReceived != 0 {
		t.Errorf("nothing arrives: client %+v\nserver %+v", c, s)
	}
	hear()
	if _, err := io.ReadFull(server, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if c, s = w.Between(first, w.Look()); c.Retransmits == 0 || c.BytesSent < 2000 || s.BytesReceived != 1000 {
		t.Errorf("it has arrived in the end: client %+v\nserver %+v", c, s)
	}
}
