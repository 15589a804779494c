package orders

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// line is a report as one line: number, type and reason, the order with status, filled/leaves/quantity and version, and what a trade has.
func line(r Report) string {
	s := fmt.Sprintf("#%d %s", r.Sequence, strings.TrimPrefix(r.Type.String(), "EXECUTION_TYPE_"))
	if r.Reason != 0 {
		s += " " + strings.TrimPrefix(r.Reason.String(), "REASON_")
	}
	o := r.Order
	s += fmt.Sprintf(" %s %s %d/%d/%d v%d", o.ClientOrderID, strings.TrimPrefix(o.Status.String(), "ORDER_STATUS_"), o.Filled, o.Leaves, o.Quantity, o.Version)
	if r.MatchID != 0 || r.LastQuantity != 0 || r.Liquidity != 0 {
		s += fmt.Sprintf(" %s %d@%d match %d", strings.TrimPrefix(r.Liquidity.String(), "LIQUIDITY_"), r.LastQuantity, r.LastPrice, r.MatchID)
	}
	return s
}

// story lists an account's events of an epoch.
func (r *rig) story(account, epoch uint32) []string {
	var lines []string
	for _, report := range r.state.Events(account, epoch, 1, 1<<20, nil) {
		lines = append(lines, line(report))
	}
	return lines
}

func wantLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// TestEventsOfOrders: what two accounts are told of orders that rest, trade, are replaced, refused and canceled.
func TestEventsOfOrders(t *testing.T) {
	const buy, sell = matching.Buy, matching.Sell
	r := newRig(t, Options{MaxIDs: 100}, "alpha", "beta")
	ioc := limit(1, "i", sell, 9, 99)
	ioc.TimeInForce = matching.ImmediateOrCancel
	for _, c := range []*Command{
		limit(0, "a", buy, 5, 100), limit(0, "b", buy, 5, 99),
		ioc,
		limit(1, "s", sell, 4, 101),
		replace(0, "r1", "b", 3, 101),
		of("NOPE", limit(0, "x", buy, 1, 1)),
		replace(0, "r2", "a", 1, 100), cancel(0, "r3", "nobody"), cancel(0, "", "nobody"),
		cancel(1, "r4", "s"),
	} {
		r.do(c)
	}
	wantLines(t, "alpha", r.story(0, 1), []string{
		"#1 NEW a ACCEPTED 0/5/5 v1",
		"#2 NEW b ACCEPTED 0/5/5 v1",
		"#3 TRADE a FILLED 5/0/5 v2 MAKER 5@100 match 1",
		"#4 TRADE b PARTIALLY_FILLED 4/1/5 v2 MAKER 4@99 match 2",
		"#5 REJECTED QUANTITY_FILLED b PARTIALLY_FILLED 4/1/5 v2",
		"#6 REJECTED UNKNOWN_SYMBOL x REJECTED 0/0/1 v0",
		"#7 REJECTED TOO_LATE a FILLED 5/0/5 v2",
		"#8 REJECTED UNKNOWN_ORDER nobody UNSPECIFIED 0/0/0 v0",
	})
	wantLines(t, "beta", r.story(1, 1), []string{
		"#1 NEW i ACCEPTED 0/9/9 v1",
		"#2 TRADE i PARTIALLY_FILLED 5/4/9 v2 TAKER 5@100 match 1",
		"#3 TRADE i FILLED 9/0/9 v3 TAKER 4@99 match 2",
		"#4 NEW s ACCEPTED 0/4/4 v1",
		"#5 CANCELED s CANCELED 0/0/4 v2",
	})
	if next, ok := r.state.EventRange(1, 1); next != 6 || !ok {
		t.Errorf("beta's next number is %d (%v), want 6", next, ok)
	}
}

// TestExecutionIDsAreGapFree: over all accounts and over the end of a day, in the order in which things happened.
func TestExecutionIDsAreGapFree(t *testing.T) {
	f := newFlow(t, 5, Options{MaxIDs: 1000})
	var last uint64
	for range 1500 {
		if _, journaled := f.try(f.next()); !journaled {
			continue
		}
		var ids []uint64
		for _, account := range f.rig.state.Touched() {
			var sequence uint64
			for _, r := range f.rig.state.Events(account, f.rig.state.Epoch(), 1, 1<<20, nil) {
				if sequence++; r.Sequence != sequence {
					t.Fatalf("account %d: event %d stands at place %d", account, r.Sequence, sequence)
				}
				if r.ExecutionID > last {
					ids = append(ids, r.ExecutionID)
				}
			}
		}
		slices.Sort(ids)
		for _, id := range ids {
			if id != last+1 {
				t.Fatalf("execution id %d comes after %d", id, last)
			}
			last = id
		}
	}
	if last < 1000 {
		t.Errorf("the flow gave %d events only", last)
	}
}

// TestPagesOfEvents: from any number on, at most so many.
func TestPagesOfEvents(t *testing.T) {
	r := newRig(t, Options{MaxIDs: 1000}, "alpha", "beta")
	const n = 300 // more than two chunks
	for i := range n {
		r.do(limit(0, fmt.Sprint("o", i), matching.Buy, 1, 100))
	}
	for _, ask := range []struct {
		account, epoch uint32
		from           uint64
		n              int
		first, last    uint64
	}{
		{0, 1, 0, 10, 1, 10}, {0, 1, 1, 10, 1, 10}, {0, 1, 120, 20, 120, 139}, {0, 1, 291, 100, 291, 300}, {0, 1, 300, 1, 300, 300},
		{0, 1, 301, 10, 0, 0}, {0, 1, 1, 0, 0, 0}, {0, 2, 1, 10, 0, 0}, {0, 0, 1, 10, 0, 0}, {1, 1, 1, 10, 0, 0}, {2, 1, 1, 10, 0, 0},
	} {
		got := r.state.Events(ask.account, ask.epoch, ask.from, ask.n, nil)
		var first, last uint64
		if len(got) > 0 {
			first, last = got[0].Sequence, got[len(got)-1].Sequence
		}
		if first != ask.first || last != ask.last || len(got) > ask.n {
			t.Errorf("%+v: got %d reports, %d to %d", ask, len(got), first, last)
		}
	}
	for _, ask := range []struct {
		account, epoch uint32
		next           uint64
		ok             bool
	}{{0, 1, n + 1, true}, {1, 1, 1, true}, {0, 0, 0, false}, {0, 2, 0, false}, {7, 1, 0, false}} {
		if next, ok := r.state.EventRange(ask.account, ask.epoch); next != ask.next || ok != ask.ok {
			t.Errorf("%+v: got %d, %v", ask, next, ok)
		}
	}
}

func TestTouchedNamesEachAccountOnce(t *testing.T) {
	r := newRig(t, Options{MaxIDs: 100}, "alpha", "beta", "gamma")
	touched := func(want ...uint32) {
		t.Helper()
		if got := r.state.Touched(); !slices.Equal(got, want) {
			t.Errorf("touched %v, want %v", got, want)
		}
	}
	r.do(limit(0, "a", matching.Buy, 1, 100))
	touched(0)
	r.do(limit(0, "b", matching.Buy, 1, 100))
	r.do(limit(2, "c", matching.Buy, 1, 100))
	r.do(limit(1, "d", matching.Sell, 3, 100))
	touched(1, 0, 2)
	r.do(setLimits(account0, Limits{}))
	touched()
}

// TestSelfTradeEvents: what prevention cancels is reported, and an order that is only shrunk stays open.
func TestSelfTradeEvents(t *testing.T) {
	const buy, sell = matching.Buy, matching.Sell
	for _, script := range []struct {
		prevention  matching.SelfTradePrevention
		desk, other []string // events of the taker's account, and of the maker's of the same group
	}{
		{matching.AllowSelfTrade,
			[]string{"#1 NEW t ACCEPTED 0/8/8 v1", "#2 TRADE t PARTIALLY_FILLED 5/3/8 v2 TAKER 5@100 match 1", "#3 TRADE t FILLED 8/0/8 v3 TAKER 3@99 match 2"},
			[]string{"#1 NEW m ACCEPTED 0/5/5 v1", "#2 TRADE m FILLED 5/0/5 v2 MAKER 5@100 match 1"}},
		{matching.CancelTaker,
			[]string{"#1 NEW t ACCEPTED 0/8/8 v1", "#2 CANCELED SELF_TRADE t CANCELED 0/0/8 v2"},
			[]string{"#1 NEW m ACCEPTED 0/5/5 v1"}},
		{matching.CancelMaker,
			[]string{"#1 NEW t ACCEPTED 0/8/8 v1", "#2 TRADE t PARTIALLY_FILLED 6/2/8 v2 TAKER 6@99 match 1"},
			[]string{"#1 NEW m ACCEPTED 0/5/5 v1", "#2 CANCELED SELF_TRADE m CANCELED 0/0/5 v2"}},
		{matching.CancelBoth,
			[]string{"#1 NEW t ACCEPTED 0/8/8 v1", "#2 CANCELED SELF_TRADE t CANCELED 0/0/8 v2"},
			[]string{"#1 NEW m ACCEPTED 0/5/5 v1", "#2 CANCELED SELF_TRADE m CANCELED 0/0/5 v2"}},
		{matching.Decrement,
			[]string{"#1 NEW t ACCEPTED 0/8/8 v1", "#2 CANCELED SELF_TRADE t ACCEPTED 0/3/8 v2", "#3 TRADE t CANCELED 3/0/8 v3 TAKER 3@99 match 1"},
			[]string{"#1 NEW m ACCEPTED 0/5/5 v1", "#2 CANCELED SELF_TRADE m CANCELED 0/0/5 v2"}},
	} {
		t.Run(script.prevention.String(), func(t *testing.T) {
			r := newRig(t, Options{MaxIDs: 100})
			for _, name := range []string{"alpha", "beta"} {
				r.do(&Command{Kind: DefineAccount, Name: name, Group: "desk"})
			}
			r.do(&Command{Kind: DefineAccount, Name: "gamma"})
			r.do(limit(1, "m", buy, 5, 100))
			r.do(limit(2, "g", buy, 6, 99))
			taker := limit(0, "t", sell, 8, 99)
			taker.SelfTradePrevention = script.prevention
			r.do(taker)
			wantLines(t, "taker", r.story(0, 1), script.desk)
			wantLines(t, "maker", r.story(1, 1), script.other)
			for account := range uint32(3) {
				page, _, _ := r.state.List(account, true, 0, 10, nil)
				var open uint64
				for _, o := range page {
					open += o.Leaves
				}
				var lots uint64
				for _, p := range r.state.Exposure(Scope{Number: account}).Positions {
					lots += p.OpenBuy + p.OpenSell
				}
				if lots != open {
					t.Errorf("account %d has %d lots open, its exposure says %d", account, open, lots)
				}
			}
		})
	}
}

// TestNewFieldsReachBookAndView: each changes the answer, and stands in what is read back and reported.
func TestNewFieldsReachBookAndView(t *testing.T) {
	const buy, sell = matching.Buy, matching.Sell
	r := newRig(t, Options{MaxIDs: 100}, "alpha", "beta")
	with := func(c *Command, change func(c *Command)) *Command { change(c); return c }
	r.play(t, []step{
		{with(limit(0, "ice", sell, 10, 100), func(c *Command) { c.DisplayQuantity = 3; c.SelfTradePrevention = matching.CancelBoth }), "ACCEPTED"},
		{with(limit(1, "post", buy, 1, 100), func(c *Command) { c.PostOnly = true }), "REJECTED POST_ONLY_WOULD_TAKE: the order is post-only, and at its price it would take what rests"},
		{with(limit(1, "fok", buy, 11, 100), func(c *Command) { c.TimeInForce = matching.FillOrKill }), "REJECTED FILL_OR_KILL: not all of 11 lots can be filled at once"},
		{with(limit(1, "min", buy, 20, 100), func(c *Command) { c.MinimumQuantity = 11 }), "REJECTED MINIMUM_QUANTITY: the minimum quantity of 11 lots cannot be filled at once"},
		{with(limit(1, "min2", buy, 20, 100), func(c *Command) { c.MinimumQuantity = 4 }), "PARTIALLY_FILLED"},
		{with(limit(1, "post2", buy, 1, 99), func(c *Command) { c.PostOnly = true }), "ACCEPTED"},
	})
	if bids, asks, _, _ := r.state.Book(symbol("ACME"), 10, nil, nil); len(asks) != 0 || len(bids) != 2 {
		t.Errorf("the book is %v %v", bids, asks)
	}
	for name, want := range map[string]Order{
		"ice":   {DisplayQuantity: 3, SelfTradePrevention: matching.CancelBoth},
		"min2":  {MinimumQuantity: 4},
		"post2": {PostOnly: true},
	} {
		account := uint32(1)
		if name == "ice" {
			account = 0
		}
		o, _ := r.state.Order(account, id(name))
		got := Order{
			PostOnly: o.PostOnly, DisplayQuantity: o.DisplayQuantity, MinimumQuantity: o.MinimumQuantity, SelfTradePrevention: o.SelfTradePrevention,
		}
		if got != want {
			t.Errorf("%s reads back as %+v, want %+v", name, got, want)
		}
		reports := r.state.Events(account, 1, 1, 100, nil)
		last := reports[slices.IndexFunc(reports, func(r Report) bool { return r.Order.ClientOrderID == o.ClientOrderID })].Order
		if last.PostOnly != want.PostOnly || last.DisplayQuantity != want.DisplayQuantity || last.MinimumQuantity != want.MinimumQuantity {
			t.Errorf("%s is reported as %+v", name, last)
		}
	}
	// Each of them is content: with another one the id was used for something else.
	for _, change := range []func(c *Command){
		func(c *Command) { c.DisplayQuantity = 4 }, func(c *Command) { c.SelfTradePrevention = matching.CancelMaker }, func(c *Command) { c.PostOnly = true },
	} {
		c := limit(0, "ice", sell, 10, 100)
		c.DisplayQuantity, c.SelfTradePrevention = 3, matching.CancelBoth
		if a := r.do(c); !a.Duplicate {
			t.Errorf("the same again: %s", brief(a))
		}
		if change(c); r.do(c).Reason != pb.Reason_REASON_DUPLICATE_ID {
			t.Errorf("with %+v the same id was no duplicate", c)
		}
	}
}

// TestEventStoreNeverPassesItsBound: orders are refused in time, cancels and ends never, and the bound holds whatever comes.
func TestEventStoreNeverPassesItsBound(t *testing.T) {
	const most = 150
	full := 0
	for seed := range uint64(20) {
		f := newFlow(t, seed, Options{MaxIDs: 1000, MaxEvents: most, MaxOpenOrders: 40})
		for step := range 400 {
			c := f.next()
			var out Answer
			probe := *c
			if _, err := f.rig.state.Decide(&probe, &out); errors.Is(err, ErrEventsFull) {
				full++
				remembered := (c.Kind == Cancel) && !c.RequestID.IsZero()
				if o, open := f.rig.state.Order(c.Account, c.ClientOrderID); c.Kind != Submit && c.Kind != Replace && (!remembered || open && o.Leaves > 0) {
					t.Fatalf("seed %d, step %d: %+v was refused: %v", seed, step, c, err)
				}
				continue
			}
			f.try(c) // fails the test when Apply finds no room
			usage := f.rig.state.Usage()
			if usage.Events+usage.OpenOrders > most {
				t.Fatalf("seed %d, step %d: %d events and %d open orders, the bound is %d", seed, step, usage.Events, usage.OpenOrders, most)
			}
		}
		for account := range uint32(flowAccounts) {
			f.rig.do(&Command{Kind: MassCancel, Account: account})
		}
	}
	if full < 100 {
		t.Errorf("the store was full %d times only", full)
	}
}

// TestIcebergsInTheEventBound: an iceberg can trade once for each part that it shows; the bound reckons with that.
func TestIcebergsInTheEventBound(t *testing.T) {
	r := newRig(t, Options{MaxIDs: 100, MaxEvents: 40}, "alpha", "beta")
	for _, name := range []string{"i1", "i2"} {
		ice := limit(0, name, matching.Sell, 10, 100)
		ice.DisplayQuantity = 1
		r.do(ice)
	}
	var out Answer
	if _, err := r.state.Decide(limit(1, "t", matching.Buy, 20, 100), &out); !errors.Is(err, ErrEventsFull) {
		t.Errorf("20 trades and 41 events where 38 fit: %v", err)
	}
	if a := r.do(limit(1, "t", matching.Buy, 16, 100)); a.Status != pb.OrderStatus_ORDER_STATUS_FILLED {
		t.Errorf("16 trades: %s", brief(a))
	}
	if usage := r.state.Usage(); usage.Events != 2+1+32 {
		t.Errorf("%d events, want 35", usage.Events)
	}
}
