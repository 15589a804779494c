package transportstest_test

import (
	"testing"

	"tailgate/transports"
	"tailgate/transports/memory"
	"tailgate/transports/transportstest"
)

func newGateway(_ *testing.T, o transportstest.GatewayOptions) transports.Gateway {
	return newNaive(o.Keys, o.Limits)
}

// TestMemory runs the suite on the transport without a network.
func TestMemory(t *testing.T) {
	if table := transportstest.Run(t, memory.Transport(), newGateway); len(table.Rows) < 300 {
		t.Errorf("the table has %d rows, want those of every compared case", len(table.Rows))
	}
}

// TestTogether runs two networks side by side over one gateway.
func TestTogether(t *testing.T) {
	transportstest.RunTogether(t, []transports.Transport{memory.Transport(), memory.Transport()}, newGateway)
}
