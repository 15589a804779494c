package server

import (
	"context"
	"testing"
	"time"

	"tailgate/transports"
	"tailgate/transports/all"
	"tailgate/transports/memory"
	"tailgate/transports/transportstest"
)

// quiet is a configuration of a gateway that listens nowhere and keeps its journal in a folder of the test's.
func quiet(t testing.TB) Config {
	t.Helper()
	c := DefaultConfig()
	c.Journal.Dir = t.TempDir()
	c.Journal.SegmentBytes = 1 << 20
	c.Admin.Disabled = true
	for name := range c.Listeners {
		c.Listeners[name] = Listener{Disabled: true}
	}
	c.IDs.Max, c.IDs.Reserve = 1<<16, 0
	c.Book.MaxOrders, c.Book.MaxLevels = 1<<14, 1<<12
	return c
}

// start opens a gateway without listeners and stops it at the end of the test.
func start(t testing.TB, c Config) *Server {
	t.Helper()
	s, err := Open(context.Background(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return s
}

// TestTransports holds every transport to the one suite, over real sockets and the real order path, and then to one another.
func TestTransports(t *testing.T) {
	tables := []transportstest.Table{transportstest.Run(t, memory.Transport(), newGateway)}
	for _, transport := range all.All() {
		tables = append(tables, transportstest.Run(t, transport, newGateway))
	}
	transportstest.Compare(t, tables...)
}

// TestTogether runs all transports over one gateway: an order entered through one is repeated, filled and canceled through another.
func TestTogether(t *testing.T) {
	transportstest.RunTogether(t, append([]transports.Transport{memory.Transport()}, all.All()...), newGateway)
}
