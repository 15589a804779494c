package matching

import "strconv"

// Engine holds the books of all instruments. It is not safe for concurrent use;
// see the package comment for what its one caller must do.
type Engine struct {
	options Options
	books   []book // by instrument number
	orders  pool[order]
	store   levelStore
	ids     idTable
}

// NewEngine reserves and touches all the memory that the engine will ever use
// (tens of milliseconds for a million orders). It fails only for options out of
// their bounds, with an error that wraps ErrOptions.
func NewEngine(options Options) (*Engine, error) {
	options, err := options.Resolve()
	if err != nil {
		return nil, err
	}
	orders := newPool[order](options.MaxOrders)
	return &Engine{
		options: options,
		books:   make([]book, options.MaxInstruments),
		orders:  orders,
		store:   newLevelStore(options.MaxLevels),
		ids:     newIDTable(orders.items),
	}, nil
}

// Options returns the engine's options with the defaults filled in.
func (e *Engine) Options() Options { return e.options }

// AddInstrument opens an empty book for an instrument number. It fails for a
// number at or above Options.MaxInstruments and for one that has a book, with an
// error that wraps ErrInstrument.
func (e *Engine) AddInstrument(instrument uint32) error {
	name := "number " + strconv.FormatUint(uint64(instrument), 10)
	if uint64(instrument) >= uint64(len(e.books)) {
		return &fault{ErrInstrument, name + " is not below Options.MaxInstruments, " +
			strconv.Itoa(len(e.books)) + "; raise it or number instruments from 0"}
	}
	if e.books[instrument].known {
		return &fault{ErrInstrument, name + " has a book already; add each instrument once"}
	}
	e.books[instrument].known = true
	return nil
}

// Apply carries out one command and appends what happened to events, which the
// caller owns, in the order it happened: at least one event, the answer, and at
// most one more, plus two for each order that rests on the opposite side, plus one
// for each further part that an iceberg there shows, of which each has fewer than
// MaxDisplayParts. It allocates only when events has too little capacity. It accepts any bytes as a command: what makes
// no sense is refused with an event.
func (e *Engine) Apply(cmd *Command, events []Event) []Event {
	b, index, reason := e.check(cmd)
	switch {
	case reason != ReasonNone:
		return e.reject(cmd, index, reason, events)
	case cmd.Kind == Submit:
		return e.submit(b, cmd, events)
	case cmd.Kind == Cancel:
		return e.cancel(b, index, cmd, events)
	}
	return e.replace(b, index, cmd, events)
}

func (e *Engine) submit(b *book, cmd *Command, events []Event) []Event {
	events, ev := extend(events)
	ev.Kind, ev.Side, ev.Instrument, ev.Sequence = Accepted, cmd.Side, cmd.Instrument, cmd.Sequence
	ev.OrderID, ev.Price, ev.Quantity, ev.Leaves = cmd.OrderID, cmd.Price, cmd.Quantity, cmd.Quantity
	in := incoming{
		leaves: cmd.Quantity, group: groupOf(cmd.Group, cmd.SelfTradePrevention),
		side: cmd.Side, prevention: cmd.SelfTradePrevention,
	}
	if e.reaches(b, cmd.Side, cmd.Price) {
		events = e.match(b, cmd, &in, events)
		if in.leaves == 0 {
			return events
		}
	}
	if neverRests(cmd) {
		events, ev = extend(events)
		ev.Kind, ev.Reason, ev.Side = Canceled, ReasonImmediateOrCancel, cmd.Side
		ev.Instrument, ev.Sequence = cmd.Instrument, cmd.Sequence
		ev.OrderID, ev.Price, ev.Quantity = cmd.OrderID, cmd.Price, in.leaves
		return events
	}
	index := e.orders.take()
	o := e.orders.at(index) // every field is written, in place as in extend
	o.id, o.quantity, o.leaves = cmd.OrderID, cmd.Quantity-in.canceled, in.leaves
	o.display, o.instrument, o.group = cmd.DisplayQuantity, cmd.Instrument, cmd.Group
	o.side, o.timeInForce = cmd.Side, cmd.TimeInForce
	o.prevention, o.postOnly = cmd.SelfTradePrevention, cmd.PostOnly
	o.shown = o.part()
	e.ids.insert(index)
	e.rest(b, index, cmd.Price)
	return events
}

func (e *Engine) cancel(b *book, index uint32, cmd *Command, events []Event) []Event {
	o := e.orders.at(index)
	events, ev := extend(events)
	ev.Kind, ev.Side, ev.Instrument, ev.Sequence = Canceled, o.side, cmd.Instrument, cmd.Sequence
	ev.OrderID, ev.Price, ev.Quantity = o.id, e.price(o), o.leaves
	e.unrest(b, o)
	e.forget(index)
	return events
}

func (e *Engine) replace(b *book, index uint32, cmd *Command, events []Event) []Event {
	o := e.orders.at(index)
	filled, total := o.quantity-o.leaves, e.newTotal(o, cmd)
	leaves := total - filled
	keepsPlace := !e.options.ModifyIsCancelNew && cmd.Price == e.price(o) && leaves <= o.leaves
	events, ev := extend(events)
	ev.Kind, ev.Side, ev.LostPriority = Replaced, o.side, !keepsPlace
	ev.Instrument, ev.Sequence = cmd.Instrument, cmd.Sequence
	ev.OrderID, ev.Price, ev.Quantity, ev.Leaves = o.id, cmd.Price, total, leaves
	if keepsPlace {
		e.shrink(e.store.levels.at(o.level), o, o.leaves-leaves)
		return events
	}
	e.unrest(b, o)
	in := incoming{leaves: leaves, group: groupOf(o.group, o.prevention), side: o.side, prevention: o.prevention}
	events = e.match(b, cmd, &in, events)
	if in.leaves == 0 {
		e.forget(index)
		return events
	}
	o.quantity, o.leaves = total-in.canceled, in.leaves
	o.shown = o.part()
	e.rest(b, index, cmd.Price)
	return events
}

// reject appends the refusal of a command; index is the order it is about, or
// none.
func (e *Engine) reject(cmd *Command, index uint32, reason Reason, events []Event) []Event {
	side, leaves := cmd.Side, uint64(0)
	if index != none {
		side, leaves = e.orders.at(index).side, e.orders.at(index).leaves
	}
	events, ev := extend(events)
	ev.Kind, ev.Reason, ev.Side, ev.Instrument, ev.Sequence = Rejected, reason, side, cmd.Instrument, cmd.Sequence
	ev.OrderID, ev.Price, ev.Quantity, ev.Leaves = cmd.OrderID, cmd.Price, cmd.Quantity, leaves
	return events
}

// extend appends an empty event, to be filled in place. A literal would be made on
// the stack by narrow stores and copied by wide loads, which have to wait for these
// stores; that was a sixth of a message's time.
func extend(events []Event) ([]Event, *Event) {
	events = append(events, Event{})
	return events, &events[len(events)-1]
}

// book returns an instrument's book, or nil.
func (e *Engine) book(instrument uint32) *book {
	if uint64(instrument) >= uint64(len(e.books)) || !e.books[instrument].known {
		return nil
	}
	return &e.books[instrument]
}

// price of a resting order.
func (e *Engine) price(o *order) int64 {
	return priceOf(o.side, e.store.levels.at(o.level).key)
}
