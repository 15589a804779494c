package sockets_test

import (
	"net"
	"net/netip"
	"testing"

	"tailgate/loadtest/sockets"
)

// BenchmarkLook is one look at 500 connections, both ends on this machine.
func BenchmarkLook(b *testing.B) {
	var config net.ListenConfig
	listener, err := config.Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	remote := listener.Addr().(*net.TCPAddr).AddrPort()
	for range 500 {
		var dialer net.Dialer
		c, err := dialer.DialContext(b.Context(), "tcp", remote.String())
		if err != nil {
			b.Fatal(err)
		}
		s, err := listener.Accept()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _, _ = c.Close(), s.Close() })
	}
	w := sockets.NewWatch([]netip.AddrPort{remote})
	b.ReportAllocs()
	var look sockets.Look
	for b.Loop() {
		look = w.Look()
	}
	if client, server := w.Between(look, w.Look()); client.Connections != 500 || server.Connections != 500 {
		b.Fatalf("client %+v, server %+v", client, server)
	}
}
