// Package sockopt opens the TCP sockets of every transport in the same way: no delay for small segments, and the congestion control that
// the caller names.
//
// The kernel's congestion control shapes the tail even on loopback, so that a comparison of transports is fair only when all
// of them set it alike. The package knows sockets only; it must never know a protocol, a message or a gateway.
package sockopt

import (
	"context"
	"fmt"
	"net"
	"syscall"
)

// Listen opens a TCP listener at address (host:port, port 0 for a free one). With congestion, e.g. "cubic", every socket that it accepts
// uses that congestion control; an empty string leaves the system's. TCP_NODELAY is set on accepted sockets (by package net).
// The context bounds the look-up of the host only.
//
// The error names the address and wraps the kernel's, e.g. syscall.EADDRINUSE; a congestion control that the kernel does not have, or
// does not let this user choose, is an error that names it.
func Listen(ctx context.Context, address, congestion string) (net.Listener, error) {
	// On Linux an accepted socket inherits the listener's congestion control, so it is set once, before the bind.
	config := net.ListenConfig{Control: control(congestion)}
	return config.Listen(ctx, "tcp", address)
}

// Dialer returns a dialer for TCP whose sockets use the named congestion control, the system's where the string is empty.
// TCP_NODELAY is set on its sockets (by package net). Errors are as with [Listen].
func Dialer(congestion string) *net.Dialer {
	return &net.Dialer{Control: control(congestion)}
}

// control is the hook that package net calls between the creation of a socket and its use.
func control(congestion string) func(network, address string, raw syscall.RawConn) error {
	if congestion == "" {
		return nil
	}
	return func(_, _ string, raw syscall.RawConn) error {
		var err error
		if failed := raw.Control(func(fd uintptr) { err = setCongestion(int(fd), congestion) }); failed != nil {
			return failed
		}
		if err != nil {
			return fmt.Errorf("congestion control %q cannot be set: %w", congestion, err)
		}
		return nil
	}
}

// Congestion returns the name of the congestion control that conn uses, for reports. It fails for a connection that is not TCP and on
// a system other than Linux.
func Congestion(conn net.Conn) (string, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return "", fmt.Errorf("the congestion control of a %T cannot be read: it has no socket", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return "", err
	}
	var name string
	if failed := raw.Control(func(fd uintptr) { name, err = congestion(int(fd)) }); failed != nil {
		return "", failed
	}
	if err != nil {
		return "", fmt.Errorf("the congestion control of %s cannot be read: %w", conn.RemoteAddr(), err)
	}
	return name, nil
}
