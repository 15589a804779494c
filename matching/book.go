package matching

// order is a resting order: a link in its level's queue. Its price is its
// level's, its side picks the book's half.
type order struct {
	id          uint64
	quantity    uint64 // total: filled and open
	leaves      uint64 // open, at least 1
	next        uint32 // later in the queue
	prev        uint32
	level       uint32
	instrument  uint32
	side        Side
	timeInForce TimeInForce
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

// match trades an incoming order of this side against the other side, down to
// price, and returns what it still has open.
func (e *Engine) match(b *book, cmd *Command, side Side, leaves uint64, events []Event) (uint64, []Event) {
	makers := b.half(side.Opposite())
	worst := keyOf(side.Opposite(), cmd.Price)
	for leaves > 0 && makers.best != none {
		lv := e.store.levels.at(makers.best)
		if lv.key > worst {
			break
		}
		price := priceOf(side.Opposite(), lv.key)
		for leaves > 0 && lv.head != none {
			index := lv.head
			maker := e.orders.at(index)
			traded := min(leaves, maker.leaves)
			leaves -= traded
			maker.leaves -= traded
			lv.quantity -= traded
			events = append(events, Event{
				Kind: Trade, Side: side, Instrument: cmd.Instrument, Sequence: cmd.Sequence,
				OrderID: cmd.OrderID, MakerID: maker.id, Price: price,
				Quantity: traded, Leaves: leaves, MakerLeaves: maker.leaves,
			})
			if maker.leaves == 0 {
				e.dequeue(lv, maker)
				e.forget(index)
			}
		}
		if lv.head == none {
			e.removeLevel(makers, lv.key)
		}
	}
	return leaves, events
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
	o.prev, o.next = lv.tail, none
	if lv.tail == none {
		lv.head = index
	} else {
		e.orders.at(lv.tail).next = index
	}
	lv.tail = index
	lv.count++
	lv.quantity += o.leaves
}

// unrest takes a resting order out of its book, with its level when it was the
// last there. The record and the id stay.
func (e *Engine) unrest(b *book, o *order) {
	lv := e.store.levels.at(o.level)
	lv.quantity -= o.leaves
	e.dequeue(lv, o)
	if lv.head == none {
		e.removeLevel(b.half(o.side), lv.key)
	}
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
