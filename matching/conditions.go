package matching

// checkConditions asks what an order makes its entry depend on: that it takes
// nothing, all of its quantity, or a minimum of it.
func (e *Engine) checkConditions(b *book, cmd *Command) Reason {
	switch {
	case cmd.PostOnly && e.reaches(b, cmd.Side, cmd.Price):
		return ReasonPostOnlyWouldTake
	case cmd.TimeInForce == FillOrKill && !e.canTake(b, cmd, cmd.Quantity):
		return ReasonFillOrKill
	case cmd.MinimumQuantity > 0 && !e.canTake(b, cmd, cmd.MinimumQuantity):
		return ReasonMinimumQuantity
	}
	return ReasonNone
}

// reaches reports whether an order at price would meet one on the other side.
func (e *Engine) reaches(b *book, side Side, price int64) bool {
	best := b.half(side.Opposite()).best
	return best != none && e.store.levels.at(best).key <= keyOf(side.Opposite(), price)
}

// canTake reports whether a new order would trade at least need lots at once,
// hidden ones included. It reads the book in the order in which match would trade
// and stops when it knows; need is 1 to the order's quantity.
func (e *Engine) canTake(b *book, cmd *Command, need uint64) bool {
	makers := b.half(cmd.Side.Opposite())
	worst := keyOf(cmd.Side.Opposite(), cmd.Price)
	group := groupOf(cmd.Group, cmd.SelfTradePrevention)
	spare := cmd.Quantity - need // what Decrement may take off the order
	for index := makers.best; index != none; {
		lv := e.store.levels.at(index)
		if lv.key > worst {
			return false
		}
		open := lv.shown + e.store.hidden[index]
		if group != 0 {
			var stopped bool
			if open, stopped = e.openToOthers(lv, cmd, need, &spare); stopped {
				return false
			}
		}
		if open >= need {
			return true
		}
		need -= open
		index = e.store.after(makers.root, lv.key)
	}
	return false
}

// openToOthers counts what a new order may take at a level on which orders of its
// own group may rest, until it has need. Stopped tells that it has less and that
// prevention ends it there.
func (e *Engine) openToOthers(lv *level, cmd *Command, need uint64, spare *uint64) (open uint64, stopped bool) {
	hidden := uint64(0) // what is hidden trades after everything that was shown
	for index := lv.head; index != none && open < need; {
		o := e.orders.at(index)
		switch {
		case o.group != cmd.Group:
			open += o.shown
			hidden += o.leaves - o.shown
		case cmd.SelfTradePrevention == CancelMaker:
			// It will be gone.
		case cmd.SelfTradePrevention == Decrement && o.leaves <= *spare:
			*spare -= o.leaves
		default:
			return 0, true
		}
		index = o.next
	}
	return open + hidden, false
}
