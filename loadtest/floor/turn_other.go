//go:build !linux

package floor

import (
	"context"
	"errors"
	"net"

	"tailgate/transports"
)

var errInTurn = errors.New("floor: taking turns needs epoll, which this system does not have")

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
