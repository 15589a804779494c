//go:build !linux

package floor

import (
	"context"
	"net"

	"tailgate/transports"
)

type turns struct {
	window int
	spin   bool
}

func (*turns) dial(context.Context, transports.DialConfig) (transports.Client, error) {
	return nil, errInTurn
}

// TurnServer is a running echo in turn.
type TurnServer struct{}

// ServeInTurn is for Linux.
func ServeInTurn(listener net.Listener, _ bool) (*TurnServer, error) {
	_ = listener.Close()
	return nil, errInTurn
}

// Close is for Linux.
func (*TurnServer) Close() error { return nil }
