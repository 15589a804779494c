package matching

// order is a resting order: a link in its level's queue. Its price is its
// level's, its side picks the book's half. One cache line long.
type order struct {
	id          uint64
	quantity    uint64 // total: filled and open
	leaves      uint64 // open, at least 1
	shown       uint64 // of leaves, what its place in the queue is for; at least 1
	display     uint64 // lots shown at a time; 0 = all
	next        uint32 // later in the queue
	prev        uint32
	level       uint32
	instrument  uint32
	group       uint32 // account group; 0 = none
	side        Side
	timeInForce TimeInForce
	prevention  SelfTradePrevention
	postOnly    bool
}

// part is what an order with this much open shows afresh.
func (o *order) part() uint64 {
	if o.display == 0 {
		return o.leaves
	}
	return min(o.display, o.leaves)
}

// book is one instrument's two halves.
type book struct {
	halves [2]half // buys, sells
	known  bool    // AddInstrument was called
}

// half is one side of a book: a tree of levels and the one that trades first.
type half struct {
	root uint32
	best uint32
}

func (b *book) half(side Side) *half { return &b.halves[side-1] }

// incoming is an order while it trades against the other side.
type incoming struct {
	leaves     uint64
	canceled   uint64 // by self-trade prevention
	group      uint32 // the group it must not trade with; 0 = it may trade with all
	side       Side
	prevention SelfTradePrevention
}

// match trades an incoming order against the other side, down to the command's
// price. In's leaves and canceled tell how it came out of it.
func (e *Engine) match(b *book, cmd *Command, in *incoming, events []Event) []Event {
	makers := b.half(in.side.Opposite())
	worst := keyOf(in.side.Opposite(), cmd.Price)
	leaves := in.leaves
	for leaves > 0 && makers.best != none {
		lv := e.store.levels.at(makers.best)
		if lv.key > worst {
			break
		}
		price := priceOf(in.side.Opposite(), lv.key)
		for leaves > 0 && lv.head != none {
			index := lv.head
			maker := e.orders.at(index)
			if in.group != 0 && maker.group == in.group {
				in.leaves = leaves
				events = e.prevent(lv, index, cmd, in, events)
				leaves = in.leaves
				continue
			}
			traded := min(leaves, maker.shown)
			leaves -= traded
			maker.leaves -= traded
			maker.shown -= traded
			lv.shown -= traded
			var ev *Event
			events, ev = extend(events)
			ev.Kind, ev.Side, ev.Instrument, ev.Sequence = Trade, in.side, cmd.Instrument, cmd.Sequence
			ev.OrderID, ev.MakerID, ev.Price = cmd.OrderID, maker.id, price
			ev.Quantity, ev.Leaves, ev.MakerLeaves = traded, leaves, maker.leaves
			if maker.leaves == 0 {
				e.dequeue(lv, maker)
				e.forget(index)
			} else if maker.shown == 0 {
				e.refresh(lv, index)
			}
		}
		if lv.head == none {
			e.removeLevel(makers, lv.key)
		}
	}
	in.leaves = leaves
	return events
}

// refresh shows the next part of an order whose shown part has traded, at the
// back of its queue.
func (e *Engine) refresh(lv *level, index uint32) {
	o := e.orders.at(index)
	o.shown = o.part()
	lv.shown += o.shown
	e.store.hidden[o.level] -= o.shown
	e.dequeue(lv, o)
	e.enqueue(lv, index)
}

// rest puts a record that the caller has filled, but for its links, at the back
// of the queue at price.
func (e *Engine) rest(b *book, index uint32, price int64) {
	o := e.orders.at(index)
	h := b.half(o.side)
	key := keyOf(o.side, price)
	o.level = e.store.place(&h.root, key)
	if h.best == none || key < e.store.levels.at(h.best).key {
		h.best = o.level
	}
	lv := e.store.levels.at(o.level)
	e.enqueue(lv, index)
	lv.shown += o.shown
	if hidden := o.leaves - o.shown; hidden > 0 {
		e.store.hidden[o.level] += hidden
	}
}

// unrest takes a resting order out of its book, with its level when it was the
// last there. The record and the id stay.
func (e *Engine) unrest(b *book, o *order) {
	lv := e.store.levels.at(o.level)
	lv.shown -= o.shown
	if hidden := o.leaves - o.shown; hidden > 0 {
		e.store.hidden[o.level] -= hidden
	}
	e.dequeue(lv, o)
	if lv.head == none {
		e.removeLevel(b.half(o.side), lv.key)
	}
}

// shrink takes lots off a resting order, which keeps its place: first off what
// it hides. The caller takes an order out that has nothing left.
func (e *Engine) shrink(lv *level, o *order, by uint64) {
	hidden := o.leaves - o.shown
	if fromHidden := min(by, hidden); fromHidden > 0 {
		e.store.hidden[o.level] -= fromHidden
	}
	if by > hidden {
		o.shown -= by - hidden
		lv.shown -= by - hidden
	}
	o.leaves -= by
	o.quantity -= by
}

// enqueue links an order in at the back of a level's queue.
func (e *Engine) enqueue(lv *level, index uint32) {
	o := e.orders.at(index)
	o.prev, o.next = lv.tail, none
	if lv.tail == none {
		lv.head = index
	} else {
		e.orders.at(lv.tail).next = index
	}
	lv.tail = index
	lv.count++
}

// dequeue unlinks an order from its level's queue.
func (e *Engine) dequeue(lv *level, o *order) {
	if o.prev == none {
		lv.head = o.next
	} else {
		e.orders.at(o.prev).next = o.next
	}
	if o.next == none {
		lv.tail = o.prev
	} else {
		e.orders.at(o.next).prev = o.prev
	}
	lv.count--
}

// removeLevel takes an empty level out and finds the next best if it was that.
func (e *Engine) removeLevel(h *half, key uint64) {
	wasBest := e.store.levels.at(h.best).key == key
	e.store.remove(&h.root, key)
	if wasBest {
		h.best = e.store.first(h.root)
	}
}

// forget frees an order's record and its id.
func (e *Engine) forget(index uint32) {
	e.ids.remove(index)
	e.orders.put(index)
}
