package orders_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"tailgate/gateway/orders"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// TestFillRacesCancelOnDisconnect: whichever of the two comes first in the journal decides; the other finds nothing left to do.
func TestFillRacesCancelOnDisconnect(t *testing.T) {
	const onDisconnect = uint8(pb.DisconnectMode_DISCONNECT_MODE_ON_DISCONNECT)
	fill := func(lots uint64) orders.Command {
		return submit(1, "taker", matching.Sell, lots, 0)
	}
	expire := orders.Command{Kind: orders.ExpireSession, Account: 0, Session: 1, Incarnation: 1}
	for _, race := range []struct {
		name   string
		second []orders.Command
		maker  string // the maker's events
		taker  string
		count  uint32 // what the expiry canceled
	}{
		{"the fill comes first", []orders.Command{fill(10), expire}, "NEW 10, TRADE 0", "NEW 10, TRADE 0", 0},
		{"a part is filled first", []orders.Command{fill(4), expire}, "NEW 10, TRADE 6, CANCELED 0", "NEW 4, TRADE 0", 1},
		{"the expiry comes first", []orders.Command{expire, fill(10)}, "NEW 10, CANCELED 0", "NEW 10", 1},
		{"the session came back", []orders.Command{{Kind: orders.Logon, SessionID: id("s"), DisconnectMode: onDisconnect}, expire, fill(4)}, "NEW 10, TRADE 6", "NEW 4, TRADE 0", 0},
	} {
		t.Run(race.name, func(t *testing.T) {
			w, err := newTwins(scenarios[0].options, unchanged)
			if err != nil {
				t.Fatal(err)
			}
			rests := submit(0, "maker", matching.Buy, 10, 1)
			all := append([]orders.Command{
				{Kind: orders.DefineInstrument, Instrument: &orders.Instrument{
					Symbol: rests.Symbol, TickNanos: 1, LotSize: 1, Currency: "USD", State: pb.InstrumentState_INSTRUMENT_STATE_OPEN, ReferencePrice: 100,
				}},
				{Kind: orders.DefineAccount, Name: "a"},
				{Kind: orders.DefineAccount, Name: "b"},
				{Kind: orders.Logon, SessionID: id("s"), DisconnectMode: onDisconnect},
				rests,
			}, race.second...)
			var canceled uint32
			for i, c := range all {
				if err := w.do(&operation{command: c}); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				if c.Kind == orders.ExpireSession {
					canceled = w.answer.Count
				}
			}
			if err := w.do(&operation{end: true}); err != nil {
				t.Fatal(err)
			}
			if got := story(w.state, 0); got != race.maker {
				t.Errorf("the maker's events are %q, want %q", got, race.maker)
			}
			if got := story(w.state, 1); got != race.taker {
				t.Errorf("the taker's events are %q, want %q", got, race.taker)
			}
			if canceled != race.count {
				t.Errorf("the expiry canceled %d orders, want %d", canceled, race.count)
			}
		})
	}
}

func submit(account uint32, name string, side matching.Side, lots uint64, session uint32) orders.Command {
	symbol, _ := orders.ParseSymbol("ACME")
	return orders.Command{
		Kind: orders.Submit, Account: account, ClientOrderID: id(name), Symbol: symbol, Side: side,
		Type: matching.Limit, TimeInForce: matching.Day, Quantity: lots, Price: 100, Session: session,
	}
}

func id(text string) orders.ID {
	id, _ := orders.ParseID(text)
	return id
}

// story is an account's events of the first epoch: what happened and what was open then.
func story(s *orders.State, account uint32) string {
	var parts []string
	for _, r := range s.Events(account, 1, 1, 100, nil) {
		parts = append(parts, fmt.Sprint(strings.TrimPrefix(r.Type.String(), "EXECUTION_TYPE_"), " ", r.Order.Leaves))
	}
	return strings.Join(parts, ", ")
}

// The mutants are states that are wrong in one thing each.

// deafToCancels goes on counting canceled orders as open.
type deafToCancels struct {
	*orders.State
	canceled map[uint32]uint32
}

func (m *deafToCancels) Apply(c *orders.Command, out *orders.Answer) error {
	if c.Kind == orders.Cancel && c.Verdict.Reason == pb.Reason_REASON_UNSPECIFIED {
		m.canceled[c.Account]++
	}
	return m.State.Apply(c, out)
}

func (m *deafToCancels) Exposure(scope orders.Scope) orders.Exposure {
	e := m.State.Exposure(scope)
	if !scope.Firm {
		e.OpenOrders += m.canceled[scope.Number]
	}
	return e
}

// skipsNumber leaves out the tenth number of each stream.
type skipsNumber struct{ *orders.State }

func (m skipsNumber) Events(account, epoch uint32, from uint64, n int, out []orders.Report) []orders.Report {
	start := len(out)
	out = m.State.Events(account, epoch, from, n, out)
	for i := start; i < len(out); i++ {
		if out[i].Sequence >= 10 {
			out[i].Sequence++
		}
	}
	return out
}

// oneTooMany lets one open order more rest than the limit says.
type oneTooMany struct{ *orders.State }

func (m oneTooMany) Decide(c *orders.Command, out *orders.Answer) (journal bool, err error) {
	journal, err = m.State.Decide(c, out)
	if v := &c.Verdict; v.Reason == pb.Reason_REASON_MAX_OPEN_ORDERS && c.Kind == orders.Submit && !v.Firm &&
		int64(m.Exposure(orders.Scope{Number: c.Account}).OpenOrders) == v.Limit {
		*v = orders.Verdict{}
	}
	return journal, err
}

// latestAnswer repeats what an order is now instead of its first answer.
type latestAnswer struct{ *orders.State }

func (m latestAnswer) Decide(c *orders.Command, out *orders.Answer) (journal bool, err error) {
	journal, err = m.State.Decide(c, out)
	if o, known := m.Order(c.Account, c.ClientOrderID); known && c.Kind == orders.Submit && out.Duplicate {
		out.Status, out.Filled, out.Leaves, out.Version = o.Status, o.Filled, o.Leaves, o.Version
	}
	return journal, err
}

// expiresAll cancels on a disconnect what other sessions of the account entered, too.
type expiresAll struct{ *orders.State }

func (m expiresAll) Apply(c *orders.Command, out *orders.Answer) error {
	err := m.State.Apply(c, out)
	if c.Kind == orders.ExpireSession && out.Count > 0 {
		all := orders.Command{Kind: orders.MassCancel, Account: c.Account, ReceivedNs: c.ReceivedNs}
		err = errors.Join(err, m.State.Apply(&all, nil))
	}
	return err
}

// TestComparisonNoticesMutants: states that are wrong in one thing differ from the model soon, in what they are wrong in.
func TestComparisonNoticesMutants(t *testing.T) {
	for _, mutant := range []struct {
		name   string
		mutate func(*orders.State) subject
		notice string
	}{
		{"exposure is not reduced by a cancel", func(s *orders.State) subject { return &deafToCancels{s, map[uint32]uint32{}} }, "open orders with notional"},
		{"an event number is skipped", func(s *orders.State) subject { return skipsNumber{s} }, "events of account"},
		{"one open order too many", func(s *orders.State) subject { return oneTooMany{s} }, "the verdict is"},
		{"the latest answer, not the first", func(s *orders.State) subject { return latestAnswer{s} }, "the answer has"},
		{"a disconnect cancels other sessions' orders", func(s *orders.State) subject { return expiresAll{s} }, "event"},
	} {
		t.Run(mutant.name, func(t *testing.T) {
			_, history, err := drive(&scenarios[0], 1, operationsOfSeed, mutant.mutate)
			if err == nil {
				t.Fatalf("%d operations showed no difference", len(history))
			}
			if !strings.Contains(err.Error(), mutant.notice) {
				t.Errorf("noticed as %q, want something about %q", err, mutant.notice)
			}
			t.Logf("noticed after %d operations: %.200s", len(history), err.Error())
		})
	}
}
