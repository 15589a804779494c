package fake

import (
	"context"

	"tailgate/transports"
)

// Null is a gateway for benchmarks: it answers as [Gateway] does and remembers nothing.
type Null struct{ transports.NoEvents }

var nullAnswers Gateway

// Open implements transports.Gateway.
func (Null) Open(context.Context, transports.Peer) (transports.Session, error) { return Null{}, nil }

// Handle implements transports.Session.
func (Null) Handle(_ context.Context, x *transports.Exchange) error {
	nullAnswers.Answer(x)
	return nil
}

// Commit implements transports.Session.
func (Null) Commit(r transports.Releaser, mark uint64) { r.Release(mark, nil) }

// Close implements transports.Session.
func (Null) Close() {}
