package orders

import (
	"fmt"
	"testing"
	"unsafe"

	"tailgate/matching"
)

// TestHotPathAllocatesNothing: but for chunks, which are reserved here, and what grows at an account's first order.
func TestHotPathAllocatesNothing(t *testing.T) {
	const n = 3000
	r := newRig(t, Options{MaxIDs: 20_000, ReserveIDs: 20_000})
	r.do(&Command{Kind: DefineFirm, Name: "one"})
	r.do(&Command{Kind: DefineAccount, Name: "alpha", Firm: "one", Group: "desk"})
	r.do(&Command{Kind: DefineAccount, Name: "beta", Firm: "one"})
	for _, scope := range []Scope{account0, firm0} {
		r.do(setLimits(scope, Limits{MaxOpenNotional: 1 << 40, MaxPosition: 1 << 40, MaxOpenOrders: 1 << 20, PriceCollarBps: 9000}))
	}
	commands := make([]*Command, 0, 4*n)
	for i := range n {
		rest := limit(0, fmt.Sprint("rest-", i), matching.Sell, 10, 100)
		rest.DisplayQuantity, rest.SelfTradePrevention = 4, matching.CancelMaker
		taker := limit(1, fmt.Sprint("take-", i), matching.Buy, 7, 101)
		taker.TimeInForce, taker.MinimumQuantity = matching.ImmediateOrCancel, 5
		commands = append(commands, rest, taker, replace(0, "", rest.ClientOrderID.String(), 9, 100), cancel(0, "", rest.ClientOrderID.String()))
	}
	buffer := make([]byte, 0, 256)
	var out Answer
	// The first ones grow what an account has: its positions, its list of chunks, the engine's events.
	warm := len(commands) / 2
	one := func(c *Command) {
		if journal, err := r.state.Decide(c, &out); !journal || err != nil {
			t.Fatalf("%+v: %v, %+v", c, err, out)
		}
		buffer = c.Append(buffer[:0])
		if err := r.state.Apply(c, &out); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range commands[:warm] {
		one(c)
	}
	next := warm
	if allocations := testing.AllocsPerRun(len(commands)-warm-1, func() { one(commands[next]); next++ }); allocations != 0 {
		t.Errorf("%v allocations a command", allocations)
	}
}

// TestRecordsAreAsSmallAsTheDocumentationSays keeps the package comment true.
func TestRecordsAreAsSmallAsTheDocumentationSays(t *testing.T) {
	if order, request, event := unsafe.Sizeof(order{}), unsafe.Sizeof(request{}), unsafe.Sizeof(event{}); order != 272 || request != 216 || event != 96 {
		t.Errorf("an order has %d bytes, a request %d, an event %d", order, request, event)
	}
}
