package grpc

import (
	"net"

	"tailgate/transports"
)

// ServeOn starts a server on a listener of the caller's, so that benchmarks need no sockets.
func ServeOn(listener net.Listener, gateway transports.Gateway) transports.Server {
	s := newServer(gateway, transports.ListenConfig{})
	s.serve(listener)
	return s
}
