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
		rests := cmd.Type == matching.Limit && cmd.TimeInForce != matching.ImmediateOrCancel
		switch {
		case cmd.Side != matching.Buy && cmd.Side != matching.Sell:
			return refuse(matching.ReasonInvalidSide)
		case cmd.Type != matching.Limit && cmd.Type != matching.Market:
			return refuse(matching.ReasonInvalidOrderType)
		case cmd.TimeInForce != matching.Day && cmd.TimeInForce != matching.GoodTillCancel &&
			cmd.TimeInForce != matching.ImmediateOrCancel:
			return refuse(matching.ReasonInvalidTimeInForce)
		case cmd.Price < matching.MinPrice:
			return refuse(matching.ReasonInvalidPrice)
		case cmd.Quantity < 1 || cmd.Quantity > matching.MaxQuantity:
			return refuse(matching.ReasonInvalidQuantity)
		case at >= 0:
			return refuse(matching.ReasonDuplicateOrderID)
		case rests && len(e.orders)+1 > e.options.MaxOrders:
			return refuse(matching.ReasonBookFull)
		case rests && e.levelsWith(-1, cmd.Instrument, cmd.Side, cmd.Price) > e.options.MaxLevels:
			return refuse(matching.ReasonBookFull)
		}
		event.Kind, event.Leaves = matching.Accepted, cmd.Quantity
		events = append(events, event)
		return e.enter(matching.Order{
			ID: cmd.OrderID, Instrument: cmd.Instrument, Side: cmd.Side, TimeInForce: cmd.TimeInForce,
			Price: cmd.Price, Quantity: cmd.Quantity, Leaves: cmd.Quantity,
		}, rests, cmd.Sequence, events)
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
	case e.levelsWith(at, cmd.Instrument, o.Side, cmd.Price) > e.options.MaxLevels:
		return refuse(matching.ReasonBookFull)
	}
	keepsPlace := !e.options.ModifyIsCancelNew && cmd.Price == o.Price && total <= o.Quantity
	event.Kind, event.LostPriority = matching.Replaced, !keepsPlace
	event.Quantity, event.Leaves = total, total-filled
	events = append(events, event)
	o.Price, o.Quantity, o.Leaves = cmd.Price, total, total-filled
	if keepsPlace {
		e.orders[at].Order = o
		return events
	}
	e.orders = slices.Delete(e.orders, at, at+1)
	return e.enter(o, true, cmd.Sequence, events)
}

// enter trades an order against the book, then rests or cancels what is left.
func (e *Engine) enter(o matching.Order, rests bool, sequence uint64, events []matching.Event) []matching.Event {
	for o.Leaves > 0 {
		at := e.nextMaker(o)
		if at < 0 {
			break
		}
		maker := &e.orders[at]
		quantity := min(o.Leaves, maker.Leaves)
		o.Leaves -= quantity
		maker.Leaves -= quantity
		events = append(events, matching.Event{
			Kind: matching.Trade, Side: o.Side, Instrument: o.Instrument, Sequence: sequence,
			OrderID: o.ID, MakerID: maker.ID, Price: maker.Price,
			Quantity: quantity, Leaves: o.Leaves, MakerLeaves: maker.Leaves,
		})
		if maker.Leaves == 0 {
			e.orders = slices.Delete(e.orders, at, at+1)
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
	e.arrivals++
	e.orders = append(e.orders, resting{Order: o, arrival: e.arrivals})
	return events
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
		orders[i].Shown = o.Leaves
	}
	return orders
}
