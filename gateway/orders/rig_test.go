package orders

import (
	"testing"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// rig drives a state as the sequencer does and keeps the journal.
type rig struct {
	t       testing.TB
	options Options
	state   *State
	journal [][]byte
	clock   int64
}

func newRig(t testing.TB, options Options, accounts ...string) *rig {
	t.Helper()
	state, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, options: options, state: state}
	for i, symbol := range []string{"ACME", "BOLT"} {
		s, _ := ParseSymbol(symbol)
		r.do(&Command{Kind: DefineInstrument, Instrument: &Instrument{
			Symbol: s, TickNanos: 1, LotSize: 1, Currency: "USD", State: pb.InstrumentState_INSTRUMENT_STATE_OPEN,
			ReferencePrice: int64(100 * (i + 1)),
		}})
	}
	for _, name := range accounts {
		r.do(&Command{Kind: DefineAccount, Name: name})
	}
	return r
}

// limits sets an account's limits.
func (r *rig) limits(account uint32, limits Limits) {
	r.t.Helper()
	r.do(&Command{Kind: SetLimits, Scope: Scope{Number: account}, Limits: &limits})
}

// do decides, journals and applies.
func (r *rig) do(c *Command) Answer {
	r.t.Helper()
	r.clock++
	c.ReceivedNs = r.clock
	var out Answer
	journal, err := r.state.Decide(c, &out)
	if err != nil {
		r.t.Fatal(err)
	}
	if journal {
		r.journal = append(r.journal, c.Append(nil))
		if err := r.state.Apply(c, &out); err != nil {
			r.t.Fatal(err)
		}
	}
	return out
}

// replayed folds the journal into a new state, whose limits and sizes may be others.
func (r *rig) replayed(options Options) *State {
	r.t.Helper()
	state, err := New(options)
	if err != nil {
		r.t.Fatal(err)
	}
	for i, record := range r.journal {
		var c Command
		if err := c.Decode(record); err != nil {
			r.t.Fatalf("record %d: %v", i, err)
		}
		if err := state.Apply(&c, nil); err != nil {
			r.t.Fatalf("record %d: %v", i, err)
		}
	}
	return state
}

func id(s string) ID {
	if s == "" {
		return ID{}
	}
	v, ok := ParseID(s)
	if !ok {
		panic("not an id: " + s)
	}
	return v
}

func symbol(s string) Symbol {
	v, ok := ParseSymbol(s)
	if !ok {
		panic("not a symbol: " + s)
	}
	return v
}

func limit(account uint32, clientOrderID string, side matching.Side, quantity uint64, price int64) *Command {
	return &Command{
		Kind: Submit, Account: account, ClientOrderID: id(clientOrderID), Symbol: symbol("ACME"), Side: side,
		Type: matching.Limit, TimeInForce: matching.Day, Quantity: quantity, Price: price,
	}
}

func market(account uint32, clientOrderID string, side matching.Side, quantity uint64) *Command {
	c := limit(account, clientOrderID, side, quantity, 0)
	c.Type, c.TimeInForce = matching.Market, matching.ImmediateOrCancel
	return c
}

func replace(account uint32, requestID, clientOrderID string, quantity uint64, price int64) *Command {
	return &Command{
		Kind: Replace, Account: account, RequestID: id(requestID), ClientOrderID: id(clientOrderID), Quantity: quantity, Price: price,
	}
}

func cancel(account uint32, requestID, clientOrderID string) *Command {
	return &Command{Kind: Cancel, Account: account, RequestID: id(requestID), ClientOrderID: id(clientOrderID)}
}
