package matching_test

import (
	"cmp"
	"fmt"
	"slices"

	"tailgate/matching"
)

// ledger is a caller that sees nothing but events. It keeps the account of every
// order and the queue of every level, and reports the first event that does not
// follow from those before it. What it believes to rest must be what rests.
type ledger struct {
	accounts map[uint64]*account
	arrivals int
}

type account struct {
	matching.Order
	canceled uint64
	arrival  int
	filled   uint64 // added up from trades
}

func newLedger() *ledger { return &ledger{accounts: map[uint64]*account{}} }

// record takes in the events of one command. It reads the command only to know
// which answer it is owed and what it allowed.
func (l *ledger) record(cmd *matching.Command, events []matching.Event) error {
	if len(events) == 0 {
		return fmt.Errorf("%v %d was not answered", cmd.Kind, cmd.OrderID)
	}
	for i, ev := range events {
		if err := l.event(cmd, i, &ev); err != nil {
			return fmt.Errorf("%v %d, event %d, %v: %w", cmd.Kind, cmd.OrderID, i, ev.Kind, err)
		}
	}
	if a := l.accounts[cmd.OrderID]; a != nil && cmd.Kind == matching.Submit && events[0].Kind == matching.Accepted {
		if a.Leaves > 0 && (cmd.Type == matching.Market || cmd.TimeInForce == matching.ImmediateOrCancel) {
			return fmt.Errorf("order %d must not rest and has %d open", a.ID, a.Leaves)
		}
	}
	for _, a := range l.accounts {
		if a.filled+a.canceled+a.Leaves != a.Quantity {
			return fmt.Errorf("order %d: filled %d + canceled %d + leaves %d is not %d",
				a.ID, a.filled, a.canceled, a.Leaves, a.Quantity)
		}
		if a.Leaves == 0 {
			delete(l.accounts, a.ID) // gone, the id is free
		}
	}
	return nil
}

func (l *ledger) event(cmd *matching.Command, i int, ev *matching.Event) error {
	if ev.Sequence != cmd.Sequence || ev.Instrument != cmd.Instrument || ev.OrderID != cmd.OrderID {
		return fmt.Errorf("it is about order %d, instrument %d, sequence %d", ev.OrderID, ev.Instrument, ev.Sequence)
	}
	if answer := ev.Kind == matching.Accepted || ev.Kind == matching.Replaced || ev.Kind == matching.Rejected ||
		ev.Kind == matching.Canceled && cmd.Kind == matching.Cancel; answer != (i == 0) {
		return fmt.Errorf("answers come first and once")
	}
	a := l.accounts[ev.OrderID]
	if ev.Kind == matching.Rejected {
		if ev.Reason == matching.ReasonNone {
			return fmt.Errorf("refused without a reason")
		}
		if ev.Leaves != 0 && (a == nil || cmd.Kind != matching.Replace || ev.Leaves != a.Leaves) {
			return fmt.Errorf("it says %d are open", ev.Leaves)
		}
		return nil
	}
	if ev.Kind == matching.Accepted {
		if a != nil {
			return fmt.Errorf("the id rests")
		}
		if ev.Quantity != ev.Leaves {
			return fmt.Errorf("leaves %d of %d", ev.Leaves, ev.Quantity)
		}
		l.arrivals++
		l.accounts[ev.OrderID] = &account{arrival: l.arrivals, Order: matching.Order{
			ID: ev.OrderID, Instrument: ev.Instrument, Side: ev.Side,
			Price: ev.Price, Quantity: ev.Quantity, Leaves: ev.Leaves,
		}}
		return nil
	}
	if a == nil {
		return fmt.Errorf("the id is unknown")
	}
	if ev.Side != a.Side {
		return fmt.Errorf("%v, the order is a %v", ev.Side, a.Side)
	}
	switch ev.Kind {
	case matching.Trade:
		return l.trade(a, ev)
	case matching.Canceled:
		if ev.Price != a.Price || ev.Quantity != a.Leaves || ev.Leaves != 0 {
			return fmt.Errorf("%d@%d, open are %d@%d", ev.Quantity, ev.Price, a.Leaves, a.Price)
		}
		a.canceled, a.Leaves = ev.Quantity, 0
	case matching.Replaced:
		if ev.Quantity != a.filled+ev.Leaves || ev.Leaves == 0 {
			return fmt.Errorf("new total %d, filled %d, leaves %d", ev.Quantity, a.filled, ev.Leaves)
		}
		if !ev.LostPriority && (ev.Price != a.Price || ev.Leaves > a.Leaves) {
			return fmt.Errorf("%d@%d became %d@%d and kept its priority", a.Leaves, a.Price, ev.Leaves, ev.Price)
		}
		if ev.LostPriority {
			l.arrivals++
			a.arrival = l.arrivals
		}
		a.Price, a.Quantity, a.Leaves = ev.Price, ev.Quantity, ev.Leaves
	default:
		return fmt.Errorf("no such kind of event")
	}
	return nil
}

func (l *ledger) trade(taker *account, ev *matching.Event) error {
	maker := l.accounts[ev.MakerID]
	switch {
	case maker == nil || maker.Instrument != taker.Instrument || maker.Side == taker.Side:
		return fmt.Errorf("order %d is no maker for it", ev.MakerID)
	case ev.Price != maker.Price:
		return fmt.Errorf("at %d, the maker's price is %d", ev.Price, maker.Price)
	case taker.Side == matching.Buy && ev.Price > taker.Price, taker.Side == matching.Sell && ev.Price < taker.Price:
		return fmt.Errorf("at %d, the taker's limit is %d", ev.Price, taker.Price)
	case ev.Quantity == 0 || ev.Quantity+ev.Leaves != taker.Leaves || ev.Quantity+ev.MakerLeaves != maker.Leaves:
		return fmt.Errorf("%d of %d and %d leaves %d and %d", ev.Quantity, taker.Leaves, maker.Leaves, ev.Leaves, ev.MakerLeaves)
	}
	for _, other := range l.accounts {
		if other != taker && other.Instrument == maker.Instrument && other.Side == maker.Side && other.Leaves > 0 && before(other, maker) {
			return fmt.Errorf("order %d traded before order %d, whose turn it was", maker.ID, other.ID)
		}
	}
	taker.filled, taker.Leaves = taker.filled+ev.Quantity, ev.Leaves
	maker.filled, maker.Leaves = maker.filled+ev.Quantity, ev.MakerLeaves
	return nil
}

// before reports whether a trades before b; both are on one side of one book.
func before(a, b *account) bool {
	if a.Price != b.Price {
		return (a.Price > b.Price) == (a.Side == matching.Buy)
	}
	return a.arrival < b.arrival
}

// orders returns what must rest, in the order of Engine.Orders, but for the time
// in force, which events do not carry.
func (l *ledger) orders() []matching.Order {
	var accounts []*account
	for _, a := range l.accounts {
		accounts = append(accounts, a)
	}
	slices.SortFunc(accounts, func(a, b *account) int {
		byBook := cmp.Or(cmp.Compare(a.Instrument, b.Instrument), cmp.Compare(a.Side, b.Side))
		switch {
		case byBook != 0:
			return byBook
		case before(a, b):
			return -1
		}
		return 1
	})
	orders := make([]matching.Order, len(accounts))
	for i, a := range accounts {
		orders[i] = a.Order
		orders[i].Shown = a.Leaves
	}
	return orders
}
