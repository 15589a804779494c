package orders

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// firmRig has the accounts alpha and beta of the firm one, and gamma of none.
func firmRig(t testing.TB) *rig {
	r := newRig(t, Options{MaxIDs: 10_000})
	r.do(&Command{Kind: DefineFirm, Name: "one"})
	for _, name := range []string{"alpha", "beta"} {
		r.do(&Command{Kind: DefineAccount, Name: name, Firm: "one"})
	}
	r.do(&Command{Kind: DefineAccount, Name: "gamma"})
	return r
}

func setLimits(scope Scope, limits Limits) *Command {
	return &Command{Kind: SetLimits, Scope: scope, Limits: &limits}
}

func killSwitch(scope Scope, engaged bool) *Command {
	return &Command{Kind: SetKillSwitch, Scope: scope, Engaged: engaged, Text: "because"}
}

var (
	account0 = Scope{Number: 0}
	firm0    = Scope{Firm: true, Number: 0}
)

// TestLimits is a script: each line does one thing and says status, reason and, where it was refused, the text.
func TestLimits(t *testing.T) {
	const buy, sell = matching.Buy, matching.Sell
	ioc := limit(0, "ioc", buy, 5, 100)
	ioc.TimeInForce = matching.ImmediateOrCancel
	for _, script := range []struct {
		name  string
		steps []step
	}{
		{"the account's limit of open orders", []step{
			{setLimits(account0, Limits{MaxOpenOrders: 2}), ""},
			{limit(0, "a", buy, 5, 90), "ACCEPTED"},
			{limit(0, "b", buy, 5, 90), "ACCEPTED"},
			{limit(0, "c", buy, 5, 90), "REJECTED MAX_OPEN_ORDERS: with this order the account's open orders would be more than its limit of 2"},
			{limit(1, "c", buy, 5, 90), "ACCEPTED"},
			{ioc, "CANCELED"},
			{replace(0, "", "a", 6, 91), "ACCEPTED"},
			{cancel(0, "", "a"), "CANCELED"},
			{limit(0, "d", buy, 5, 90), "ACCEPTED"},
		}},
		{"the firm's is over all its accounts", []step{
			{setLimits(firm0, Limits{MaxOpenOrders: 2}), ""},
			{limit(0, "a", buy, 5, 90), "ACCEPTED"},
			{limit(1, "b", buy, 5, 90), "ACCEPTED"},
			{limit(0, "c", buy, 5, 90), "REJECTED MAX_OPEN_ORDERS: with this order the firm's open orders would be more than its limit of 2"},
			{limit(2, "c", sell, 5, 90), "FILLED"},
			{limit(0, "d", buy, 5, 90), "ACCEPTED"},
		}},
		{"open notional, to the tick", []step{
			{setLimits(account0, Limits{MaxOpenNotional: 1000}), ""},
			{limit(0, "a", buy, 6, 100), "ACCEPTED"},
			{limit(0, "b", sell, 4, 101), "REJECTED MAX_OPEN_NOTIONAL: with this order the account's open notional would be above its limit of 1000"},
			{limit(0, "c", buy, 4, 100), "ACCEPTED"},
			{replace(0, "", "c", 4, 101), "REJECTED MAX_OPEN_NOTIONAL: with this order the account's open notional would be above its limit of 1000"},
			{replace(0, "", "c", 2, 101), "ACCEPTED"},
			{limit(2, "t", sell, 3, 101), "PARTIALLY_FILLED"},
			{limit(2, "u", sell, 2, 100), "FILLED"},
			{limit(0, "d", buy, 7, 100), "REJECTED MAX_OPEN_NOTIONAL: with this order the account's open notional would be above its limit of 1000"},
			{limit(0, "e", buy, 6, 100), "ACCEPTED"},
		}},
		{"position, either way, open orders counted as filled", []step{
			{setLimits(account0, Limits{MaxPosition: 10}), ""},
			{limit(0, "a", buy, 10, 100), "ACCEPTED"},
			{limit(0, "b", buy, 1, 90), "REJECTED MAX_POSITION: with this order, and everything open on its side filled, the account's position would pass its limit of 10 lots"},
			{limit(2, "t", sell, 10, 100), "FILLED"},
			{limit(0, "c", buy, 1, 90), "REJECTED MAX_POSITION: with this order, and everything open on its side filled, the account's position would pass its limit of 10 lots"},
			{limit(0, "d", sell, 21, 110), "REJECTED MAX_POSITION: with this order, and everything open on its side filled, the account's position would pass its limit of 10 lots"},
			{limit(0, "e", sell, 20, 110), "ACCEPTED"},
			{replace(0, "", "e", 21, 110), "REJECTED MAX_POSITION: with this order, and everything open on its side filled, the account's position would pass its limit of 10 lots"},
			{replace(0, "", "e", 19, 110), "ACCEPTED"},
			{setLimits(account0, Limits{MaxPosition: 5}), ""},
			{limit(0, "f", sell, 1, 111), "REJECTED MAX_POSITION: with this order, and everything open on its side filled, the account's position would pass its limit of 5 lots"},
			{cancel(0, "", "e"), "CANCELED"},
			{limit(0, "g", sell, 15, 111), "ACCEPTED"},
		}},
		{"the firm's position is the sum of its accounts'", []step{
			{setLimits(firm0, Limits{MaxPosition: 10}), ""},
			{limit(0, "a", buy, 10, 100), "ACCEPTED"},
			{limit(1, "b", sell, 4, 100), "FILLED"},
			{limit(1, "c", buy, 5, 90), "REJECTED MAX_POSITION: with this order, and everything open on its side filled, the firm's position would pass its limit of 10 lots"},
			{limit(1, "d", buy, 4, 90), "ACCEPTED"},
		}},
		{"restricted symbols", []step{
			{setLimits(account0, Limits{Restricted: []Symbol{symbol("BOLT")}}), ""},
			{limit(0, "a", buy, 1, 100), "ACCEPTED"},
			{of("BOLT", limit(0, "b", buy, 1, 100)), "REJECTED RESTRICTED_SYMBOL: the account's limits do not allow this instrument"},
			{of("BOLT", limit(1, "c", buy, 1, 100)), "ACCEPTED"},
			{setLimits(firm0, Limits{Restricted: []Symbol{symbol("BOLT")}}), ""},
			{replace(1, "", "c", 2, 100), "REJECTED RESTRICTED_SYMBOL: the firm's limits do not allow this instrument"},
			{cancel(1, "", "c"), "CANCELED"},
			{setLimits(account0, Limits{}), ""},
			{setLimits(firm0, Limits{}), ""},
			{of("BOLT", limit(0, "d", buy, 1, 100)), "ACCEPTED"},
		}},
		{"one order: the firm's limits bind besides the account's", []step{
			{setLimits(account0, Limits{MaxQuantity: 100, MaxNotional: 9000, PriceCollarBps: 2000}), ""},
			{setLimits(firm0, Limits{MaxQuantity: 90, MaxNotional: 8000, PriceCollarBps: 1000}), ""},
			{limit(0, "a", buy, 101, 100), "REJECTED MAX_QUANTITY: quantity 101 is above the account's limit of 100 lots"},
			{limit(0, "b", buy, 91, 100), "REJECTED MAX_QUANTITY: quantity 91 is above the firm's limit of 90 lots"},
			{limit(0, "c", buy, 1, 79), "REJECTED PRICE_COLLAR: price 79 is outside the account's price collar, which ends at 80"},
			{limit(0, "d", buy, 1, 111), "REJECTED PRICE_COLLAR: price 111 is outside the firm's price collar, which ends at 110"},
			{limit(0, "e", buy, 90, 101), "REJECTED MAX_NOTIONAL: price 101 x quantity 90 is above the account's notional limit of 9000"},
			{limit(0, "f", buy, 90, 100), "REJECTED MAX_NOTIONAL: price 100 x quantity 90 is above the firm's notional limit of 8000"},
			{limit(0, "g", buy, 80, 100), "ACCEPTED"},
			{market(2, "m", sell, 10), "FILLED"},
			{limit(2, "far", sell, 5, 111), "ACCEPTED"},
			{market(0, "n", buy, 5), "CANCELED"},
		}},
		{"kill switch", []step{
			{limit(0, "a", buy, 1, 90), "ACCEPTED"},
			{limit(0, "b", buy, 1, 91), "ACCEPTED"},
			{limit(1, "c", buy, 1, 92), "ACCEPTED"},
			{killSwitch(account0, true), "2 orders"},
			{limit(0, "d", buy, 1, 90), "REJECTED KILL_SWITCH: the account's kill switch is engaged: nothing new is entered until it is lifted"},
			{limit(1, "e", buy, 1, 93), "ACCEPTED"},
			{killSwitch(firm0, true), "2 orders"},
			{limit(1, "f", buy, 1, 93), "REJECTED KILL_SWITCH: the firm's kill switch is engaged: nothing new is entered until it is lifted"},
			{limit(2, "g", buy, 1, 93), "ACCEPTED"},
			{killSwitch(account0, false), ""},
			{limit(0, "h", buy, 1, 90), "REJECTED KILL_SWITCH: the firm's kill switch is engaged: nothing new is entered until it is lifted"},
			{killSwitch(firm0, false), ""},
			{limit(0, "i", buy, 1, 90), "ACCEPTED"},
		}},
	} {
		t.Run(script.name, func(t *testing.T) { firmRig(t).play(t, script.steps) })
	}
}

// step is one line of a script: a command, and its answer in short.
type step struct {
	command *Command
	want    string
}

// play does what the steps say and compares each answer: status, reason and text, how many orders a command about many has canceled,
// or nothing.
func (r *rig) play(t *testing.T, steps []step) {
	t.Helper()
	for i, s := range steps {
		a := r.do(s.command)
		got := strings.TrimPrefix(a.Status.String(), "ORDER_STATUS_")
		switch {
		case a.Reason != pb.Reason_REASON_UNSPECIFIED:
			got += " " + strings.TrimPrefix(a.Reason.String(), "REASON_") + ": " + a.Text(s.command)
		case a.Count > 0:
			got = fmt.Sprint(a.Count, " orders")
		case a.Status == pb.OrderStatus_ORDER_STATUS_UNSPECIFIED:
			got = ""
		}
		if got != s.want {
			t.Errorf("step %d, %s %s:\n got %s\nwant %s", i+1, s.command.Kind, s.command.ClientOrderID, got, s.want)
		}
	}
	if r.state.Digest() != r.replayed(r.options).Digest() {
		t.Error("the replay differs")
	}
}

func of(name string, c *Command) *Command {
	c.Symbol = symbol(name)
	return c
}

// TestSumsBeyond63BitsAreRefused: without any limit set, too.
func TestSumsBeyond63BitsAreRefused(t *testing.T) {
	const half = 1 << 62
	r := firmRig(t)
	r.do(limit(0, "a", matching.Buy, 1, half))
	r.do(limit(0, "b", matching.Buy, 1, half-1))
	if a := r.do(limit(0, "c", matching.Buy, 1, 1)); a.Reason != pb.Reason_REASON_MAX_OPEN_NOTIONAL {
		t.Errorf("2^63-1 and one more: %s", brief(a))
	}
	if a := r.do(limit(1, "c", matching.Buy, 1, 1)); a.Reason != pb.Reason_REASON_MAX_OPEN_NOTIONAL {
		t.Errorf("the firm's 2^63-1 and one more: %s", brief(a))
	}
	r.do(&Command{Kind: DefineAccount, Name: "delta"})
	r.do(limit(3, "d", matching.Buy, 1, 1))
	var out Answer
	if _, err := r.state.Decide(&Command{Kind: DefineAccount, Name: "delta", Firm: "one"}, &out); !errors.Is(err, ErrDefinition) {
		t.Errorf("an account whose notional the firm cannot hold moves to it: %v", err)
	}
	r.do(cancel(0, "", "a"))
	if a := r.do(&Command{Kind: DefineAccount, Name: "delta", Firm: "one"}); a.Status != 0 {
		t.Errorf("moved: %s", brief(a))
	}
	if e := r.state.Exposure(firm0); e.OpenNotional != half || e.OpenOrders != 2 {
		t.Errorf("the firm's exposure is %+v", e)
	}
}

// TestLimitsAreCheckedWhenTheyAreSet names what SetLimits refuses.
func TestLimitsAreCheckedWhenTheyAreSet(t *testing.T) {
	r := firmRig(t)
	many := make([]Symbol, MaxRestricted+1)
	for i := range many {
		many[i] = symbol(fmt.Sprintf("S%04d", i))
	}
	for name, c := range map[string]*Command{
		"unknown account":         setLimits(Scope{Number: 3}, Limits{}),
		"unknown firm":            setLimits(Scope{Firm: true, Number: 1}, Limits{}),
		"no limits":               {Kind: SetLimits},
		"negative notional":       setLimits(account0, Limits{MaxNotional: -1}),
		"negative open notional":  setLimits(account0, Limits{MaxOpenNotional: -1}),
		"position beyond 63 bits": setLimits(account0, Limits{MaxPosition: 1 << 63}),
		"quantity of no order":    setLimits(account0, Limits{MaxQuantity: matching.MaxQuantity + 1}),
		"too wide a collar":       setLimits(account0, Limits{PriceCollarBps: MaxPriceCollarBps + 1}),
		"symbols out of order":    setLimits(account0, Limits{Restricted: []Symbol{symbol("B"), symbol("A")}}),
		"a symbol twice":          setLimits(account0, Limits{Restricted: []Symbol{symbol("A"), symbol("A")}}),
		"too many symbols":        setLimits(account0, Limits{Restricted: many}),
		"a kill switch of nobody": killSwitch(Scope{Number: 3}, true),
		"a firm twice":            {Kind: DefineFirm, Name: "one"},
		"a firm without a name":   {Kind: DefineFirm},
		"an account again":        {Kind: DefineAccount, Name: "alpha", Firm: "one"},
		"an account of no firm":   {Kind: DefineAccount, Name: "new", Firm: "none"},
		"an account's name":       {Kind: DefineAccount, Name: strings.Repeat("x", 33)},
		"a text that is too long": {Kind: SetKillSwitch, Text: strings.Repeat("x", MaxTextBytes+1)},
	} {
		before := r.state.Digest()
		var out Answer
		if journal, err := r.state.Decide(c, &out); journal || !errors.Is(err, ErrDefinition) {
			t.Errorf("%s: journal %v, %v, want ErrDefinition", name, journal, err)
		}
		if r.state.Digest() != before {
			t.Errorf("%s changed something", name)
		}
	}
}

// TestLimitsNameWhatIsWrong: every field and what is allowed, all at once.
func TestLimitsNameWhatIsWrong(t *testing.T) {
	l := Limits{
		MaxQuantity: 2_000_000_000_000, MaxNotional: -1, PriceCollarBps: 2_000_000, MaxOpenNotional: math.MinInt64, MaxPosition: math.MaxUint64,
	}
	problems := append(l.Restrict([]string{"ZINC", "lower", "ACME", "ZINC", ""}), l.Problems()...)
	var got []string
	for _, p := range problems {
		got = append(got, p.Field+" "+p.Problem)
		if !errors.Is(p, ErrDefinition) {
			t.Errorf("%v is not ErrDefinition", p)
		}
	}
	wantLines(t, "problems", got, []string{
		`restricted_symbols[1] is "lower", needed are 1 to 16 of [A-Z0-9._-]`,
		`restricted_symbols[4] is "", needed are 1 to 16 of [A-Z0-9._-]`,
		"max_quantity is 2000000000000, allowed are 0 (no bound) to 1099511627775",
		"max_notional is -1, allowed are 0 (no bound) to 9223372036854775807",
		"price_collar_bps is 2000000, allowed are 0 (no collar) to 1000000",
		"max_open_notional is -9223372036854775808, allowed are 0 (no bound) to 9223372036854775807",
		"max_position is 18446744073709551615, allowed are 0 (no bound) to 9223372036854775807",
	})
	if want := []Symbol{symbol("ACME"), symbol("ZINC")}; !slices.Equal(l.Restricted, want) {
		t.Errorf("restricted are %v, want %v", l.Restricted, want)
	}
	highest := Limits{
		MaxQuantity: matching.MaxQuantity, MaxNotional: math.MaxInt64, PriceCollarBps: MaxPriceCollarBps, MaxOpenOrders: math.MaxUint32,
		MaxOpenNotional: math.MaxInt64, MaxPosition: math.MaxInt64, MaxOrderRate: math.MaxUint32,
	}
	if err := highest.Validate(); err != nil {
		t.Errorf("the highest of each: %v", err)
	}
}

// TestInvalidCommandsAreNoAnswers: what the contract does not allow uses up no id.
func TestInvalidCommandsAreNoAnswers(t *testing.T) {
	r := firmRig(t)
	invalid := func(change func(c *Command)) *Command {
		c := limit(0, "x", matching.Buy, 10, 100)
		change(c)
		return c
	}
	for name, c := range map[string]*Command{
		"an account that was never defined": invalid(func(c *Command) { c.Account = 3 }),
		"a session that nobody has":         invalid(func(c *Command) { c.Session = 1 }),
		"no side":                           invalid(func(c *Command) { c.Side = 0 }),
		"no lots":                           invalid(func(c *Command) { c.Quantity = 0 }),
		"shows all of itself":               invalid(func(c *Command) { c.DisplayQuantity = 10 }),
		"a minimum above the quantity":      invalid(func(c *Command) { c.MinimumQuantity = 11 }),
		"post-only that may not rest":       invalid(func(c *Command) { c.PostOnly, c.TimeInForce = true, matching.FillOrKill }),
		"a self-trade prevention of nobody": invalid(func(c *Command) { c.SelfTradePrevention = 6 }),
		"a mass cancel of a third side":     {Kind: MassCancel, Side: 3},
		"a logon without an id":             {Kind: Logon},
		"a kind of the future":              {Kind: 200},
	} {
		var out Answer
		if journal, err := r.state.Decide(c, &out); journal || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: journal %v, %v, want ErrInvalid", name, journal, err)
		}
	}
	if a := r.do(limit(0, "x", matching.Buy, 10, 100)); a.Status != pb.OrderStatus_ORDER_STATUS_ACCEPTED || a.Duplicate {
		t.Errorf("the id afterwards: %s", brief(a))
	}
}

// TestConfiguredLimitsOutliveThoseOfTheRunTime: only what comes from the configuration counts as configured.
func TestConfiguredLimitsOutliveThoseOfTheRunTime(t *testing.T) {
	r := firmRig(t)
	configured := Limits{MaxQuantity: 5, Restricted: []Symbol{symbol("BOLT")}}
	r.do(&Command{Kind: SetLimits, Scope: account0, Limits: &configured, Configured: true})
	r.do(setLimits(account0, Limits{MaxQuantity: 7}))
	now, was := r.state.Limits(account0), r.state.ConfiguredLimits(account0)
	if !was.Equal(&configured) || now.MaxQuantity != 7 || now.Restricted != nil {
		t.Errorf("limits %+v, configured %+v", now, was)
	}
	configured.Restricted[0] = symbol("ACME") // the caller's again
	if was := r.state.ConfiguredLimits(account0); was.Restricted[0] != symbol("BOLT") {
		t.Error("the state kept the caller's slice")
	}
	// A symbol may be restricted before it is defined.
	r.do(setLimits(account0, Limits{Restricted: []Symbol{symbol("LATER")}}))
	r.do(&Command{Kind: DefineInstrument, Instrument: &Instrument{Symbol: symbol("LATER"), TickNanos: 1, LotSize: 1, Currency: "USD", State: 1}})
	if a := r.do(of("LATER", limit(0, "a", matching.Buy, 1, 1))); a.Reason != pb.Reason_REASON_RESTRICTED_SYMBOL {
		t.Errorf("an order in it: %s", brief(a))
	}
}

// sums are a scope's figures, reckoned from what a client can see: pages of open orders and reports of trades.
type sums struct {
	orders   uint32
	notional int64
	net      map[Symbol]int64
	open     [3]map[Symbol]uint64
}

func (f *flow) sums(accounts []uint32) sums {
	s := sums{net: map[Symbol]int64{}, open: [3]map[Symbol]uint64{1: {}, 2: {}}}
	for _, account := range accounts {
		page, _, _ := f.rig.state.List(account, true, 0, 1<<20, nil)
		for _, o := range page {
			s.orders++
			s.notional += int64(magnitude(o.Price)) * int64(o.Leaves)
			s.open[o.Side][o.Symbol] += o.Leaves
		}
		for _, r := range f.rig.state.Events(account, f.rig.state.Epoch(), 1, 1<<20, nil) {
			lots := int64(r.LastQuantity)
			if r.Order.Side == matching.Sell {
				lots = -lots
			}
			s.net[r.Order.Symbol] += lots
		}
	}
	return s
}

// TestNoLimitIsEverPassed: limits are drawn once; whatever comes then, what is open and held stays within them, and the
// exposure is the sum over open orders and trades.
func TestNoLimitIsEverPassed(t *testing.T) {
	members := map[Scope][]uint32{
		{Number: 0}: {0}, {Number: 1}: {1}, {Number: 2}: {2}, {Number: 3}: {3},
		{Firm: true, Number: 0}: {0, 1}, {Firm: true, Number: 1}: {2},
	}
	rapid.Check(t, func(rt *rapid.T) {
		f := newFlow(t, rapid.Uint64().Draw(rt, "seed"), Options{MaxIDs: 1000, MaxOpenOrders: 500, MaxLevels: 200})
		f.lasting = true
		for scope := range members {
			f.rig.do(setLimits(scope, Limits{
				MaxOpenOrders:   rapid.Uint32Range(0, 10).Draw(rt, "open orders"),
				MaxOpenNotional: rapid.Int64Range(0, 40_000).Draw(rt, "open notional"),
				MaxPosition:     rapid.Uint64Range(0, 300).Draw(rt, "position"),
			}))
		}
		for range 100 {
			c := f.next()
			if c.Kind == SetLimits || c.Kind == DefineAccount {
				continue
			}
			f.try(c)
			for scope, accounts := range members {
				got, want, limits := f.rig.state.Exposure(scope), f.sums(accounts), f.rig.state.Limits(scope)
				if got.OpenOrders != want.orders || got.OpenNotional != want.notional {
					rt.Fatalf("after %+v %+v has %+v, its orders say %+v", c, scope, got, want)
				}
				if limits.MaxOpenOrders > 0 && want.orders > limits.MaxOpenOrders || limits.MaxOpenNotional > 0 && want.notional > limits.MaxOpenNotional {
					rt.Fatalf("after %+v %+v has %+v, its limits are %+v", c, scope, want, limits)
				}
				seen := 0
				for _, p := range got.Positions {
					if p.Net != want.net[p.Symbol] || p.OpenBuy != want.open[1][p.Symbol] || p.OpenSell != want.open[2][p.Symbol] {
						rt.Fatalf("after %+v %+v has %+v, its orders and trades say %+v", c, scope, got, want)
					}
					long, short := p.Net+int64(p.OpenBuy), -p.Net+int64(p.OpenSell)
					if most := int64(limits.MaxPosition); most > 0 && (long > most || short > most) {
						rt.Fatalf("after %+v %+v could come to %d or -%d, its limit is %d", c, scope, long, short, most)
					}
					seen++
				}
				for _, name := range []string{"ACME", "BOLT"} {
					v := symbol(name)
					if want.net[v] != 0 || want.open[1][v] != 0 || want.open[2][v] != 0 {
						seen--
					}
				}
				if seen != 0 {
					rt.Fatalf("after %+v %+v has the positions %+v, its orders and trades say %+v", c, scope, got.Positions, want)
				}
			}
		}
	})
}
