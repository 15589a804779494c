package matching_test

import (
	"cmp"
	"fmt"

	"tailgate/matching"
)

// ledger is a caller that sees nothing but its own commands and the events. It
// keeps the account of every order and the queue of every level, and reports the
// first event that does not follow from those before it, or that a rule forbids.
// What it believes to rest must be what rests.
type ledger struct {
	accounts map[uint64]*account
	arrivals int
}

// account is an order as its owner keeps it: Quantity is what was entered.
type account struct {
	matching.Order
	filled   uint64 // added up from trades
	canceled uint64
	arrival  int
}

func newLedger() *ledger { return &ledger{accounts: map[uint64]*account{}} }

// record takes in the events of one command.
func (l *ledger) record(cmd *matching.Command, events []matching.Event) error {
	if len(events) == 0 {
		return fmt.Errorf("%v %d was not answered", cmd.Kind, cmd.OrderID)
	}
	for i, ev := range events {
		if err := l.event(cmd, i, &ev); err != nil {
			return fmt.Errorf("%v %d, event %d, %v: %w", cmd.Kind, cmd.OrderID, i, ev.Kind, err)
		}
	}
	if err := l.entry(cmd, events); err != nil {
		return fmt.Errorf("%v %d: %w", cmd.Kind, cmd.OrderID, err)
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

// entry checks what an order's own terms say about its entry or its replace.
func (l *ledger) entry(cmd *matching.Command, events []matching.Event) error {
	a := l.accounts[cmd.OrderID]
	if a == nil || events[0].Kind != matching.Accepted && events[0].Kind != matching.Replaced {
		return nil
	}
	if events[0].Kind == matching.Accepted || events[0].LostPriority {
		a.Shown = a.Leaves
		if a.DisplayQuantity > 0 {
			a.Shown = min(a.DisplayQuantity, a.Leaves)
		}
	}
	taken := uint64(0)
	for _, ev := range events {
		if ev.Kind == matching.Trade {
			taken += ev.Quantity
		}
	}
	if a.PostOnly && taken > 0 {
		return fmt.Errorf("post-only took %d", taken)
	}
	if cmd.Kind != matching.Submit {
		return nil
	}
	switch {
	case (cmd.Type == matching.Market || cmd.TimeInForce >= matching.ImmediateOrCancel) && a.Leaves > 0:
		return fmt.Errorf("it must not rest and has %d open", a.Leaves)
	case cmd.TimeInForce == matching.FillOrKill && taken != cmd.Quantity:
		return fmt.Errorf("fill or kill traded %d of %d", taken, cmd.Quantity)
	case taken < cmd.MinimumQuantity:
		return fmt.Errorf("it traded %d, the minimum is %d", taken, cmd.MinimumQuantity)
	}
	return nil
}

func (l *ledger) event(cmd *matching.Command, i int, ev *matching.Event) error {
	ofMaker := ev.Kind == matching.Canceled && ev.Reason == matching.ReasonSelfTrade && ev.OrderID == ev.MakerID
	if ev.Sequence != cmd.Sequence || ev.Instrument != cmd.Instrument || (ev.OrderID != cmd.OrderID) != ofMaker {
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
		if ev.Quantity != ev.Leaves || ev.Quantity != cmd.Quantity {
			return fmt.Errorf("%d entered, %d asked for, leaves %d", ev.Quantity, cmd.Quantity, ev.Leaves)
		}
		l.arrivals++
		l.accounts[ev.OrderID] = &account{arrival: l.arrivals, Order: matching.Order{
			ID: ev.OrderID, Instrument: ev.Instrument, Group: cmd.Group, Side: ev.Side, TimeInForce: cmd.TimeInForce,
			PostOnly: cmd.PostOnly, SelfTradePrevention: cmd.SelfTradePrevention, DisplayQuantity: cmd.DisplayQuantity,
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
		return l.cancel(cmd, a, ev)
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
		a.Price, a.Quantity, a.Leaves, a.canceled = ev.Price, ev.Quantity, ev.Leaves, 0
		a.Shown = min(a.Shown, a.Leaves)
	default:
		return fmt.Errorf("no such kind of event")
	}
	return nil
}

func (l *ledger) trade(taker *account, ev *matching.Event) error {
	maker := l.accounts[ev.MakerID]
	if err := l.meets(taker, maker); err != nil {
		return fmt.Errorf("with order %d: %w", ev.MakerID, err)
	}
	switch {
	case taker.prevents(maker):
		return fmt.Errorf("with order %d, which is of its group; its word is %v", maker.ID, taker.SelfTradePrevention)
	case ev.Price != maker.Price:
		return fmt.Errorf("at %d, the maker's price is %d", ev.Price, maker.Price)
	case ev.Quantity != min(taker.Leaves, maker.Shown) || ev.Quantity+ev.Leaves != taker.Leaves || ev.Quantity+ev.MakerLeaves != maker.Leaves:
		return fmt.Errorf("%d of %d and of %d, %d of them shown, leaves %d and %d",
			ev.Quantity, taker.Leaves, maker.Leaves, maker.Shown, ev.Leaves, ev.MakerLeaves)
	}
	taker.filled, taker.Leaves = taker.filled+ev.Quantity, ev.Leaves
	maker.filled, maker.Leaves, maker.Shown = maker.filled+ev.Quantity, ev.MakerLeaves, maker.Shown-ev.Quantity
	if maker.Leaves > 0 && maker.Shown == 0 {
		l.arrivals++
		maker.arrival, maker.Shown = l.arrivals, min(maker.DisplayQuantity, maker.Leaves)
	}
	return nil
}

func (l *ledger) cancel(cmd *matching.Command, a *account, ev *matching.Event) error {
	if ev.Price != a.Price || ev.Quantity == 0 || ev.Quantity+ev.Leaves != a.Leaves {
		return fmt.Errorf("%d@%d, leaves %d; open are %d@%d", ev.Quantity, ev.Price, ev.Leaves, a.Leaves, a.Price)
	}
	if ev.Reason == matching.ReasonSelfTrade {
		taker, maker := l.accounts[cmd.OrderID], l.accounts[ev.MakerID]
		if a == maker {
			if err := l.meets(taker, maker); err != nil {
				return err
			}
		}
		// A maker that the event before this one ended stays known until the command's end.
		if maker == nil || !taker.prevents(maker) {
			return fmt.Errorf("its word does not prevent a trade with order %d", ev.MakerID)
		}
		if ev.Leaves > 0 && taker.SelfTradePrevention != matching.Decrement {
			return fmt.Errorf("%v leaves %d", taker.SelfTradePrevention, ev.Leaves)
		}
		if a == taker && maker.Leaves > 0 && ev.Leaves > 0 {
			return fmt.Errorf("both have something open: %d and %d", ev.Leaves, maker.Leaves)
		}
	} else if ev.Leaves != 0 || ev.MakerID != 0 {
		return fmt.Errorf("leaves %d, names order %d", ev.Leaves, ev.MakerID)
	}
	a.canceled, a.Leaves, a.Shown = a.canceled+ev.Quantity, ev.Leaves, min(a.Shown, ev.Leaves)
	return nil
}

// prevents reports whether the taker's word keeps it from trading with maker.
func (a *account) prevents(maker *account) bool {
	return a.Group != 0 && a.Group == maker.Group && a.SelfTradePrevention > matching.AllowSelfTrade
}

// meets says why the taker cannot meet maker now: another's turn comes first, or
// they are no match at all.
func (l *ledger) meets(taker, maker *account) error {
	switch {
	case maker == nil || maker == taker || maker.Leaves == 0 || maker.Instrument != taker.Instrument || maker.Side == taker.Side:
		return fmt.Errorf("it is no maker for it")
	case taker.Side == matching.Buy && maker.Price > taker.Price, taker.Side == matching.Sell && maker.Price < taker.Price:
		return fmt.Errorf("its price is %d, the taker's limit %d", maker.Price, taker.Price)
	}
	for _, other := range l.accounts {
		if other != taker && other.Instrument == maker.Instrument && other.Side == maker.Side && other.Leaves > 0 && before(other, maker) {
			return fmt.Errorf("it is the turn of order %d", other.ID)
		}
	}
	return nil
}

// before reports whether a trades before b; both are on one side of one book.
func before(a, b *account) bool {
	if a.Price != b.Price {
		return (a.Price > b.Price) == (a.Side == matching.Buy)
	}
	return a.arrival < b.arrival
}

// compare says where the resting orders, in the order of Engine.Orders, are not
// what must rest or do not stand where they must.
func (l *ledger) compare(resting []matching.Order) error {
	if len(resting) != len(l.accounts) {
		return fmt.Errorf("%d orders rest, the ledger has %d", len(resting), len(l.accounts))
	}
	var last *account
	for _, o := range resting {
		a := l.accounts[o.ID]
		if a == nil {
			return fmt.Errorf("%+v rests, the ledger does not know it", o)
		}
		want := a.Order
		want.Quantity = a.filled + a.Leaves // what was canceled is gone from it
		if o != want {
			return fmt.Errorf("\nbook   %+v\nledger %+v", o, want)
		}
		if last != nil && !follows(last, a) {
			return fmt.Errorf("order %d stands before order %d", last.ID, a.ID)
		}
		last = a
	}
	return nil
}

// follows reports whether b comes after a in the order of Engine.Orders.
func follows(a, b *account) bool {
	if byBook := cmp.Or(cmp.Compare(a.Instrument, b.Instrument), cmp.Compare(a.Side, b.Side)); byBook != 0 {
		return byBook < 0
	}
	return before(a, b)
}
