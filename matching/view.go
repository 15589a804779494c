package matching

import (
	"iter"
	"strconv"
)

// Level is the sum of all orders at one price of one side: what they show. What
// icebergs hide is in no level, which is what they are for.
type Level struct {
	Price    int64  // ticks
	Quantity uint64 // lots shown
	Orders   uint32
}

// Order is a resting order as seen from outside, with everything that decides
// how it goes on.
type Order struct {
	ID                  uint64
	Instrument          uint32
	Group               uint32
	Side                Side
	TimeInForce         TimeInForce
	PostOnly            bool
	SelfTradePrevention SelfTradePrevention // its word when a replace makes it trade
	Price               int64               // ticks
	Quantity            uint64              // lots in total, filled and open; what Decrement took is gone from it
	Leaves              uint64              // lots open, at least 1
	Shown               uint64              // lots of Leaves that are shown now, at least 1
	DisplayQuantity     uint64              // lots shown at a time; 0 = all
}

// Filled returns the lots that have traded.
func (o Order) Filled() uint64 { return o.Quantity - o.Leaves }

// Best returns the level that trades first; ok is false when the side is empty
// or the instrument unknown.
func (e *Engine) Best(instrument uint32, side Side) (best Level, ok bool) {
	b := e.book(instrument)
	if b == nil || side != Buy && side != Sell || b.half(side).best == none {
		return Level{}, false
	}
	return e.levelView(side, b.half(side).best), true
}

// Depth appends at most n levels of one side to levels, best first. It appends
// nothing for an unknown instrument or side.
func (e *Engine) Depth(instrument uint32, side Side, n int, levels []Level) []Level {
	b := e.book(instrument)
	if b == nil || side != Buy && side != Sell {
		return levels
	}
	h := b.half(side)
	for index := h.best; index != none && n > 0; n-- {
		levels = append(levels, e.levelView(side, index))
		index = e.store.after(h.root, e.store.levels.at(index).key)
	}
	return levels
}

// Order returns the resting order with this id.
func (e *Engine) Order(id uint64) (o Order, ok bool) {
	index := e.ids.find(id)
	if index == none {
		return Order{}, false
	}
	return e.orderView(index), true
}

// Resting returns how many orders rest, over all instruments.
func (e *Engine) Resting() int { return e.orders.used() }

// Orders walks over every resting order: instruments by number, buys before
// sells, best price first, and at one price in the order they would trade.
// Restoring the orders in this order rebuilds the books. The engine must not be
// changed during the walk.
func (e *Engine) Orders() iter.Seq[Order] {
	return func(yield func(Order) bool) {
		for i := range e.books {
			for _, h := range e.books[i].halves {
				for index := h.best; index != none; {
					lv := e.store.levels.at(index)
					for o := lv.head; o != none; o = e.orders.at(o).next {
						if !yield(e.orderView(o)) {
							return
						}
					}
					index = e.store.after(h.root, lv.key)
				}
			}
		}
	}
}

// Restore puts an order from a snapshot at the back of the queue at its price,
// without matching. It fails, with an error that wraps ErrRestore, for an order
// that Orders cannot have given: out of bounds, a duplicate, one that would trade.
func (e *Engine) Restore(o Order) error {
	cmd := Command{
		Kind: Submit, Side: o.Side, Type: Limit, TimeInForce: o.TimeInForce, SelfTradePrevention: o.SelfTradePrevention,
		Instrument: o.Instrument, OrderID: o.ID, Price: o.Price, Quantity: o.Quantity,
	}
	what := "order " + strconv.FormatUint(o.ID, 10)
	b := e.book(o.Instrument)
	if b == nil {
		return &fault{ErrRestore, what + ": " + ReasonUnknownInstrument.String() + "; add the instruments first"}
	}
	if reason := e.checkSubmit(b, &cmd); reason != ReasonNone {
		return &fault{ErrRestore, what + ": " + reason.String() + "; the snapshot and the options do not fit"}
	}
	record := order{
		id: o.ID, quantity: o.Quantity, leaves: o.Leaves, shown: o.Shown, display: o.DisplayQuantity,
		instrument: o.Instrument, group: o.Group, side: o.Side, timeInForce: o.TimeInForce,
		prevention: o.SelfTradePrevention, postOnly: o.PostOnly,
	}
	if neverRests(&cmd) || o.Leaves == 0 || o.Leaves > o.Quantity {
		return &fault{ErrRestore, what + ": cannot rest; the snapshot is damaged"}
	}
	if o.Shown == 0 || o.Shown > record.part() || o.DisplayQuantity == 0 && o.Shown < o.Leaves ||
		o.DisplayQuantity > MaxQuantity || o.DisplayQuantity > 0 && tooManyParts(o.Leaves, o.DisplayQuantity) {
		return &fault{ErrRestore, what + ": cannot show this quantity; the snapshot is damaged"}
	}
	if e.reaches(b, o.Side, o.Price) {
		return &fault{ErrRestore, what + ": would trade; the snapshot is damaged"}
	}
	index := e.orders.take()
	*e.orders.at(index) = record
	e.ids.insert(index)
	e.rest(b, index, o.Price)
	return nil
}

func (e *Engine) levelView(side Side, index uint32) Level {
	lv := e.store.levels.at(index)
	return Level{Price: priceOf(side, lv.key), Quantity: lv.shown, Orders: lv.count}
}

func (e *Engine) orderView(index uint32) Order {
	o := e.orders.at(index)
	return Order{
		ID: o.id, Instrument: o.instrument, Group: o.group, Side: o.side, TimeInForce: o.timeInForce,
		PostOnly: o.postOnly, SelfTradePrevention: o.prevention, Price: e.price(o),
		Quantity: o.quantity, Leaves: o.leaves, Shown: o.shown, DisplayQuantity: o.display,
	}
}
