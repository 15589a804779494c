package matching

import "fmt"

// CheckInvariants looks at everything the engine holds and reports the first
// thing that cannot be: a crossed or locked book, a level that is empty or does
// not add up, a link, an id or a tree node that leads astray, a record lost.
// It is the tests' door into the engine and no part of the product.
func (e *Engine) CheckInvariants() error {
	c := checker{Engine: e}
	for i := range e.books {
		b := &e.books[i]
		if err := c.book(uint32(i), b); err != nil {
			return fmt.Errorf("instrument %d: %w", i, err)
		}
	}
	hidden := uint64(0)
	for _, quantity := range e.store.hidden {
		hidden += quantity
	}
	if hidden != c.hidden {
		return fmt.Errorf("%d lots are hidden, the books reach %d", hidden, c.hidden)
	}
	ids := 0
	for _, slot := range e.ids.slots {
		if slot.index != none {
			ids++
		}
	}
	for _, total := range []struct {
		what      string
		used, got int
	}{
		{"order records", e.orders.used(), c.orders},
		{"ids", ids, c.orders},
		{"level records", e.store.levels.used(), c.levels},
		{"tree nodes", e.store.nodes.used(), c.nodes},
	} {
		if total.used != total.got {
			return fmt.Errorf("%d %s in use, the books reach %d", total.used, total.what, total.got)
		}
	}
	return nil
}

type checker struct {
	*Engine
	orders, levels, nodes int    // what was reached
	hidden                uint64 // lots, in all levels that were reached
}

func (c *checker) book(instrument uint32, b *book) error {
	for _, side := range []Side{Buy, Sell} {
		if err := c.half(instrument, side, b.half(side)); err != nil {
			return fmt.Errorf("%v: %w", side, err)
		}
	}
	bid, bids := c.Best(instrument, Buy)
	ask, asks := c.Best(instrument, Sell)
	if bids && asks && bid.Price >= ask.Price {
		return fmt.Errorf("best bid %d against best ask %d: crossed or locked", bid.Price, ask.Price)
	}
	return nil
}

func (c *checker) half(instrument uint32, side Side, h *half) error {
	var found []uint32
	if h.root != none {
		var err error
		if found, err = c.tree(h.root, nil); err != nil {
			return err
		}
	}
	walked := h.best
	for i, index := range found {
		if walked != index {
			return fmt.Errorf("the walk reaches level record %d as number %d, the tree has %d", walked, i, index)
		}
		lv := c.store.levels.at(index)
		if got := c.store.find(h.root, lv.key); got != index {
			return fmt.Errorf("price %d: a search finds level record %d, not %d", priceOf(side, lv.key), got, index)
		}
		if err := c.queue(instrument, side, index, lv); err != nil {
			return fmt.Errorf("price %d: %w", priceOf(side, lv.key), err)
		}
		walked = c.store.after(h.root, lv.key)
	}
	if walked != none {
		return fmt.Errorf("the walk reaches level record %d after the tree's last", walked)
	}
	return nil
}

// tree appends the levels below ref in the order of their keys.
func (c *checker) tree(ref uint32, found []uint32) ([]uint32, error) {
	if ref&levelBit != 0 {
		c.levels++
		return append(found, ref&^levelBit), nil
	}
	c.nodes++
	n := c.store.nodes.at(ref)
	children := 0
	for digit := range uint64(64) {
		if n.occupied>>digit&1 == 0 {
			continue
		}
		children++
		from := len(found)
		var err error
		if found, err = c.tree(n.child[digit], found); err != nil {
			return nil, err
		}
		for _, index := range found[from:] {
			if key := c.store.levels.at(index).key; !n.holds(key) || n.digit(key) != digit {
				return nil, fmt.Errorf("key %#x stands below digit %d of a node with prefix %#x, shift %d", key, digit, n.prefix, n.shift)
			}
		}
	}
	if children < 2 {
		return nil, fmt.Errorf("a node with prefix %#x, shift %d has %d children", n.prefix, n.shift, children)
	}
	return found, nil
}

func (c *checker) queue(instrument uint32, side Side, levelIndex uint32, lv *level) error {
	var shown, hidden uint64
	var count uint32
	prev := none
	for index := lv.head; index != none; index = c.Engine.orders.at(index).next {
		o := c.Engine.orders.at(index)
		switch {
		case o.prev != prev:
			return fmt.Errorf("order %d: the one before it is record %d, it says %d", o.id, prev, o.prev)
		case o.level != levelIndex || o.side != side || o.instrument != instrument:
			return fmt.Errorf("order %d believes to rest elsewhere", o.id)
		case o.leaves == 0 || o.leaves > o.quantity || o.quantity > MaxQuantity:
			return fmt.Errorf("order %d has %d open of %d", o.id, o.leaves, o.quantity)
		case o.shown == 0 || o.shown > o.leaves:
			return fmt.Errorf("order %d shows %d of %d", o.id, o.shown, o.leaves)
		case o.display == 0 && o.shown != o.leaves, o.display > 0 && o.shown > o.display:
			return fmt.Errorf("order %d shows %d of %d, its display quantity is %d", o.id, o.shown, o.leaves, o.display)
		case o.timeInForce != Day && o.timeInForce != GoodTillCancel:
			return fmt.Errorf("order %d rests with time in force %v", o.id, o.timeInForce)
		case c.ids.find(o.id) != index:
			return fmt.Errorf("order %d: its id leads to record %d, not %d", o.id, c.ids.find(o.id), index)
		}
		shown += o.shown
		hidden += o.leaves - o.shown
		count++
		prev = index
	}
	if lv.tail != prev || count == 0 || lv.count != count || lv.shown != shown || c.store.hidden[levelIndex] != hidden {
		return fmt.Errorf("level says %d lots shown and %d hidden in %d orders, its queue has %d and %d in %d",
			lv.shown, c.store.hidden[levelIndex], lv.count, shown, hidden, count)
	}
	c.hidden += hidden
	c.orders += int(count)
	return nil
}
