package floor

import (
	"context"
	"fmt"

	"tailgate/transports"
)

// The floor in turn: the same echo by many connections at a time, with an event loop of its own on either side and every message in its turn, so that
// what its tail varies by is the machine's own speed. What a transport with turns adds to that is the transport's.

// Engines of the floor in turn.
const (
	EnginePark = "park"                // either loop sleeps in the kernel until there is something to do
	EngineSpin = transports.EngineSpin // either loop polls and never sleeps
)

// Messages under way over all connections: so many that a loop which sleeps need not be woken for each, so few that one which does not has all of
// them in its caches.
const (
	parkWindow = 50
	spinWindow = 4
)

// InTurn returns the floor whose connections take turns; the engine is to be named. ServeInTurn is its server. A connection has one request at a time.
func InTurn() transports.Transport {
	t := Transport()
	t.Engines = []string{"net", EnginePark, EngineSpin} // clients of the first wait in Do, here as with every transport; there is none here
	park, spin := &turns{window: parkWindow}, &turns{window: spinWindow, spin: true}
	t.Dial = func(ctx context.Context, config transports.DialConfig) (transports.Client, error) {
		switch config.Engine {
		case EnginePark:
			return park.dial(ctx, config)
		case EngineSpin:
			return spin.dial(ctx, config)
		}
		return nil, fmt.Errorf("floor: in turn there are the engines %s and %s, not %q", EnginePark, EngineSpin, config.Engine)
	}
	return t
}
