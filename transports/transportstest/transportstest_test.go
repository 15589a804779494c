package transportstest_test

import (
	"slices"
	"strings"
	"testing"

	pb "tailgate/proto/gen/orderentry/v1"
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

// TestMissingReasons: a reason that no compared case has reached is named, and so is a case that did not reach what it is there for.
func TestMissingReasons(t *testing.T) {
	var all []pb.Reason
	for number := range pb.Reason_name {
		if number != 0 {
			all = append(all, pb.Reason(number))
		}
	}
	if got := transportstest.MissingReasons(nil); len(got) != len(all) {
		t.Errorf("nothing is seen of %d reasons, but missing are %d: %q", len(all), len(got), got)
	}
	if got := transportstest.MissingReasons(all); len(got) != 0 {
		t.Errorf("all are seen, but missing are %q", got)
	}
	got := transportstest.MissingReasons(all, "takeover")
	if len(got) != 1 || !strings.Contains(got[0], "REASON_SESSION_REPLACED") {
		t.Errorf("the takeover replaced no session, but missing are %q", got)
	}
	slices.Sort(all)
	got = transportstest.MissingReasons(all[1:])
	if len(got) != 1 || !strings.Contains(got[0], all[0].String()) {
		t.Errorf("%v is not seen, but missing are %q", all[0], got)
	}
}

// TestTogether runs two networks side by side over one gateway.
func TestTogether(t *testing.T) {
	transportstest.RunTogether(t, []transports.Transport{memory.Transport(), memory.Transport()}, newGateway)
}
