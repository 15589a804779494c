// Package naive is the slow, obvious matching engine that the fast one is
// compared with. It keeps every resting order of every instrument in one slice
// and finds what it needs by looking at all of them. It shares no code with the
// fast engine beyond the types that go in and come out, and it is written to be
// checked by eye against the rules in package matching's comment.
//
// It must never become fast: whatever makes it clever makes it a worse judge.
package naive

import (
	"slices"

	"tailgate/matching"
)

// Engine does what matching.Engine does, for options that were resolved.
type Engine struct {
	options     matching.Options
	instruments []uint32
	orders      []resting
	arrivals    int
}

// resting is an order in the book. Of two at one price, the one that arrived
// first trades first.
type resting struct {
	matching.Order
	arrival int
}

// New returns an engine without instruments. The options have gone through
// matching.Options.Resolve.
func New(options matching.Options) *Engine { return &Engine{options: options} }

// AddInstrument opens a book.
func (e *Engine) AddInstrument(instrument uint32) {
	e.instruments = append(e.instruments, instrument)
}

// Apply carries out one command and appends what happened to events.
func (e *Engine) Apply(cmd *matching.Command, events []matching.Event) []matching.Event {
	event := matching.Event{
		Side: cmd.Side, Instrument: cmd.Instrument, Sequence: cmd.Sequence,
		OrderID: cmd.OrderID, Price: cmd.Price, Quantity: cmd.Quantity,
	}
	refuse := func(reason matching.Reason) []matching.Event {
		event.Kind, event.Reason = matching.Rejected, reason
		return append(events, event)
	}
	if cmd.Kind != matching.Submit && cmd.Kind != matching.Cancel && cmd.Kind != matching.Replace {
		return refuse(matching.ReasonInvalidCommand)
	}
	if !slices.Contains(e.instruments, cmd.Instrument) {
		return refuse(matching.ReasonUnknownInstrument)
	}
	at := slices.IndexFunc(e.orders, func(o resting) bool { return o.ID == cmd.OrderID })

	if cmd.Kind == matching.Submit {
		rests := cmd.Type == matching.Limit &&
			(cmd.TimeInForce == matching.Day || cmd.TimeInForce == matching.GoodTillCancel)
		if reason := wrongTerms(cmd, rests); reason != matching.ReasonNone {
			return refuse(reason)
		}
		o := matching.Order{
			ID: cmd.OrderID, Instrument: cmd.Instrument, Group: cmd.Group, Side: cmd.Side, TimeInForce: cmd.TimeInForce,
			PostOnly: cmd.PostOnly, SelfTradePrevention: cmd.SelfTradePrevention, Price: cmd.Price,
			Quantity: cmd.Quantity, Leaves: cmd.Quantity, DisplayQuantity: cmd.DisplayQuantity,
		}
		switch {
		case at >= 0:
			return refuse(matching.ReasonDuplicateOrderID)
		case rests && len(e.orders)+1 > e.options.MaxOrders:
			return refuse(matching.ReasonBookFull)
		case rests && e.levelsWith(-1, cmd.Instrument, cmd.Side, cmd.Price) > e.options.MaxLevels:
			return refuse(matching.ReasonBookFull)
		case cmd.PostOnly && e.nextMaker(o) >= 0:
			return refuse(matching.ReasonPostOnlyWouldTake)
		case cmd.TimeInForce == matching.FillOrKill && e.wouldTrade(o) < cmd.Quantity:
			return refuse(matching.ReasonFillOrKill)
		case cmd.MinimumQuantity > 0 && e.wouldTrade(o) < cmd.MinimumQuantity:
			return refuse(matching.ReasonMinimumQuantity)
		}
		event.Kind, event.Leaves = matching.Accepted, cmd.Quantity
		return e.enter(o, rests, cmd.Sequence, append(events, event))
	}

	if at < 0 || e.orders[at].Instrument != cmd.Instrument {
		return refuse(matching.ReasonUnknownOrder)
	}
	o := e.orders[at].Order
	event.Side = o.Side

	if cmd.Kind == matching.Cancel {
		e.orders = slices.Delete(e.orders, at, at+1)
		event.Kind, event.Price, event.Quantity = matching.Canceled, o.Price, o.Leaves
		return append(events, event)
	}

	event.Leaves = o.Leaves
	filled := o.Quantity - o.Leaves
	total := cmd.Quantity
	if e.options.ModifyIsCancelNew {
		total = filled + cmd.Quantity
	}
	switch {
	case cmd.Price < matching.MinPrice:
		return refuse(matching.ReasonInvalidPrice)
	case cmd.Quantity < 1 || cmd.Quantity > matching.MaxQuantity || total > matching.MaxQuantity:
		return refuse(matching.ReasonInvalidQuantity)
	case total <= filled:
		return refuse(matching.ReasonAlreadyFilled)
	case o.DisplayQuantity > 0 && total-filled > o.DisplayQuantity*matching.MaxDisplayParts:
		return refuse(matching.ReasonInvalidDisplayQuantity)
	case e.levelsWith(at, cmd.Instrument, o.Side, cmd.Price) > e.options.MaxLevels:
		return refuse(matching.ReasonBookFull)
	}
	replaced := o
	replaced.Price, replaced.Quantity, replaced.Leaves = cmd.Price, total, total-filled
	if o.PostOnly && e.nextMaker(replaced) >= 0 {
		return refuse(matching.ReasonPostOnlyWouldTake)
	}
	keepsPlace := !e.options.ModifyIsCancelNew && replaced.Price == o.Price && replaced.Leaves <= o.Leaves
	event.Kind, event.LostPriority = matching.Replaced, !keepsPlace
	event.Quantity, event.Leaves = total, total-filled
	events = append(events, event)
	if keepsPlace {
		replaced.Shown = min(o.Shown, replaced.Leaves)
		e.orders[at].Order = replaced
		return events
	}
	e.orders = slices.Delete(e.orders, at, at+1)
	return e.enter(replaced, true, cmd.Sequence, events)
}

// wrongTerms checks a new order by itself.
func wrongTerms(cmd *matching.Command, rests bool) matching.Reason {
	if cmd.Side != matching.Buy && cmd.Side != matching.Sell {
		return matching.ReasonInvalidSide
	}
	if cmd.Type != matching.Limit && cmd.Type != matching.Market {
		return matching.ReasonInvalidOrderType
	}
	switch cmd.TimeInForce {
	case matching.Day, matching.GoodTillCancel, matching.ImmediateOrCancel, matching.FillOrKill:
	default:
		return matching.ReasonInvalidTimeInForce
	}
	if cmd.Price < matching.MinPrice {
		return matching.ReasonInvalidPrice
	}
	if cmd.Quantity < 1 || cmd.Quantity > matching.MaxQuantity {
		return matching.ReasonInvalidQuantity
	}
	switch cmd.SelfTradePrevention {
	case 0, matching.AllowSelfTrade, matching.CancelTaker, matching.CancelMaker, matching.CancelBoth, matching.Decrement:
	default:
		return matching.ReasonInvalidSelfTradePrevention
	}
	if cmd.DisplayQuantity != 0 {
		parts := (cmd.Quantity-1)/cmd.DisplayQuantity + 1
		if parts < 2 || parts > matching.MaxDisplayParts {
			return matching.ReasonInvalidDisplayQuantity
		}
	}
	if cmd.MinimumQuantity > cmd.Quantity {
		return matching.ReasonInvalidMinimumQuantity
	}
	// Post-only and a display quantity are about resting, a minimum about taking.
	if cmd.PostOnly && !rests || cmd.DisplayQuantity != 0 && !rests || cmd.PostOnly && cmd.MinimumQuantity != 0 {
		return matching.ReasonInvalidCombination
	}
	return matching.ReasonNone
}

// wouldTrade lets the order trade in a copy of the books and adds up its trades.
func (e *Engine) wouldTrade(o matching.Order) (quantity uint64) {
	rehearsal := &Engine{options: e.options, instruments: e.instruments, orders: slices.Clone(e.orders), arrivals: e.arrivals}
	for _, event := range rehearsal.enter(o, false, 0, nil) {
		if event.Kind == matching.Trade {
			quantity += event.Quantity
		}
	}
	return quantity
}

// enter trades an order against the book, then rests or cancels what is left.
func (e *Engine) enter(o matching.Order, rests bool, sequence uint64, events []matching.Event) []matching.Event {
	for o.Leaves > 0 {
		at := e.nextMaker(o)
		if at < 0 {
			break
		}
		maker := &e.orders[at]
		if o.Group != 0 && o.Group == maker.Group && o.SelfTradePrevention > matching.AllowSelfTrade {
			fromMaker, fromTaker := prevented(o, maker.Order)
			makerID := maker.ID
			if fromMaker > 0 {
				events = append(events, takeOff(&maker.Order, fromMaker, makerID, sequence))
				maker.Shown = min(maker.Shown, maker.Leaves)
				if maker.Leaves == 0 {
					e.orders = slices.Delete(e.orders, at, at+1)
				}
			}
			if fromTaker > 0 {
				events = append(events, takeOff(&o, fromTaker, makerID, sequence))
			}
			continue
		}
		quantity := min(o.Leaves, maker.Shown)
		o.Leaves -= quantity
		maker.Leaves -= quantity
		maker.Shown -= quantity
		events = append(events, matching.Event{
			Kind: matching.Trade, Side: o.Side, Instrument: o.Instrument, Sequence: sequence,
			OrderID: o.ID, MakerID: maker.ID, Price: maker.Price,
			Quantity: quantity, Leaves: o.Leaves, MakerLeaves: maker.Leaves,
		})
		if maker.Leaves == 0 {
			e.orders = slices.Delete(e.orders, at, at+1)
		} else if maker.Shown == 0 {
			maker.Shown = min(maker.Leaves, maker.DisplayQuantity)
			e.arrivals++
			maker.arrival = e.arrivals
		}
	}
	if o.Leaves == 0 {
		return events
	}
	if !rests {
		return append(events, matching.Event{
			Kind: matching.Canceled, Reason: matching.ReasonImmediateOrCancel, Side: o.Side,
			Instrument: o.Instrument, Sequence: sequence, OrderID: o.ID, Price: o.Price, Quantity: o.Leaves,
		})
	}
	o.Shown = o.Leaves
	if o.DisplayQuantity != 0 {
		o.Shown = min(o.Leaves, o.DisplayQuantity)
	}
	e.arrivals++
	e.orders = append(e.orders, resting{Order: o, arrival: e.arrivals})
	return events
}

// prevented says how much self-trade prevention cancels of each of two orders.
func prevented(taker, maker matching.Order) (fromMaker, fromTaker uint64) {
	switch taker.SelfTradePrevention {
	case matching.CancelTaker:
		return 0, taker.Leaves
	case matching.CancelMaker:
		return maker.Leaves, 0
	case matching.CancelBoth:
		return maker.Leaves, taker.Leaves
	case matching.Decrement:
		smaller := min(maker.Leaves, taker.Leaves)
		return smaller, smaller
	case matching.AllowSelfTrade:
	}
	panic("asked about two orders that may trade")
}

// takeOff cancels part or all of an order for self-trade prevention.
func takeOff(o *matching.Order, quantity, makerID, sequence uint64) matching.Event {
	o.Leaves -= quantity
	o.Quantity -= quantity
	return matching.Event{
		Kind: matching.Canceled, Reason: matching.ReasonSelfTrade, Side: o.Side, Instrument: o.Instrument, Sequence: sequence,
		OrderID: o.ID, MakerID: makerID, Price: o.Price, Quantity: quantity, Leaves: o.Leaves,
	}
}

// nextMaker returns where the order is that o trades with next, or -1.
func (e *Engine) nextMaker(o matching.Order) int {
	found := -1
	for i, maker := range e.orders {
		if maker.Instrument != o.Instrument || maker.Side == o.Side {
			continue
		}
		if o.Side == matching.Buy && maker.Price > o.Price || o.Side == matching.Sell && maker.Price < o.Price {
			continue
		}
		if found < 0 || before(maker, e.orders[found]) {
			found = i
		}
	}
	return found
}

// before reports whether a trades before b; both are on one side of one book.
func before(a, b resting) bool {
	if a.Price == b.Price {
		return a.arrival < b.arrival
	}
	if a.Side == matching.Buy {
		return a.Price > b.Price
	}
	return a.Price < b.Price
}

// levelsWith counts the price levels there would be if the order at without
// (none when negative) went and one at this price came.
func (e *Engine) levelsWith(without int, instrument uint32, side matching.Side, price int64) int {
	type place struct {
		instrument uint32
		side       matching.Side
		price      int64
	}
	places := []place{{instrument, side, price}}
	for i, o := range e.orders {
		p := place{o.Instrument, o.Side, o.Price}
		if i != without && !slices.Contains(places, p) {
			places = append(places, p)
		}
	}
	return len(places)
}

// Orders returns every resting order in the order of matching.Engine.Orders.
func (e *Engine) Orders() []matching.Order {
	sorted := slices.Clone(e.orders)
	slices.SortFunc(sorted, func(a, b resting) int {
		if a.Instrument != b.Instrument {
			return int(a.Instrument) - int(b.Instrument)
		}
		if a.Side != b.Side {
			return int(a.Side) - int(b.Side)
		}
		if before(a, b) {
			return -1
		}
		return 1
	})
	orders := make([]matching.Order, len(sorted))
	for i, o := range sorted {
		orders[i] = o.Order
	}
	return orders
}
