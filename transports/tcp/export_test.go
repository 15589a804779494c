package tcp

import (
	"context"
	"syscall"

	"tailgate/transports"
	"tailgate/transports/internal/sockopt"
	"tailgate/transports/tcp/internal/credit"
)

// ListenWith starts a server with a pool of credit of its own.
func ListenWith(gateway transports.Gateway, config transports.ListenConfig, pool credit.Config) (transports.Server, error) {
	return listenWith(context.Background(), gateway, config, pool)
}

// SetWriteBuffers gives the sockets of a server's open connections a send buffer of so many bytes, or of the least that the system has.
func SetWriteBuffers(of transports.Server, bytes int) error {
	s := of.(*server)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		raw, err := c.socket.(syscall.Conn).SyscallConn()
		if err != nil {
			return err
		}
		if failed := raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, bytes) }); failed != nil {
			return failed
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Unflushed is how many bytes wait in the out-buffers of a server's open connections, which have shaken hands.
func Unflushed(of transports.Server) (bytes uint64) {
	s := of.(*server)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.box != nil {
			bytes += c.box.Unflushed()
		}
	}
	return bytes
}

// NotSent is what the kernel holds of a server's open connections and has not sent once, in bytes.
func NotSent(of transports.Server) (bytes int, err error) {
	s := of.(*server)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		n, err := sockopt.NotSent(c.socket)
		if err != nil {
			return 0, err
		}
		bytes += n
	}
	return bytes, nil
}

// MostNotSent is the bound on what the kernel takes of one connection before it can send it.
const MostNotSent = notSent

// EventRoom is the bound on the events that wait in one out-buffer, in bytes.
const EventRoom = eventRoom
