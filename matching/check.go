package matching

// Check returns the reason for which Apply would refuse the command now, or
// ReasonNone. It changes nothing. A caller that journals commands asks before
// the append and writes the answer into the record, so that a replay under larger
// Options never takes what was refused.
func (e *Engine) Check(cmd *Command) Reason {
	_, _, reason := e.check(cmd)
	return reason
}

// check is the one place that refuses. It returns the book, and for Cancel and
// Replace the order's record where that is known, or none.
func (e *Engine) check(cmd *Command) (b *book, index uint32, reason Reason) {
	if cmd.Kind < Submit || cmd.Kind > Replace {
		return nil, none, ReasonInvalidCommand
	}
	if b = e.book(cmd.Instrument); b == nil {
		return nil, none, ReasonUnknownInstrument
	}
	if cmd.Kind == Submit {
		return b, none, e.checkSubmit(b, cmd)
	}
	index = e.ids.find(cmd.OrderID)
	if index == none || e.orders.at(index).instrument != cmd.Instrument {
		return b, none, ReasonUnknownOrder
	}
	if cmd.Kind == Replace {
		reason = e.checkReplace(b, e.orders.at(index), cmd)
	}
	return b, index, reason
}

func (e *Engine) checkSubmit(b *book, cmd *Command) Reason {
	if reason := checkTerms(cmd); reason != ReasonNone {
		return reason
	}
	switch {
	case e.ids.find(cmd.OrderID) != none:
		return ReasonDuplicateOrderID
	case neverRests(cmd):
	case e.orders.full():
		return ReasonBookFull
	case e.store.levels.full() && !e.hasLevel(b, cmd.Side, cmd.Price):
		return ReasonBookFull
	}
	if cmd.PostOnly || cmd.TimeInForce == FillOrKill || cmd.MinimumQuantity > 0 {
		return e.checkConditions(b, cmd)
	}
	return ReasonNone
}

// checkTerms looks at the command of a new order alone.
func checkTerms(cmd *Command) Reason {
	switch {
	case cmd.Side != Buy && cmd.Side != Sell:
		return ReasonInvalidSide
	case cmd.Type != Limit && cmd.Type != Market:
		return ReasonInvalidOrderType
	case cmd.TimeInForce < Day || cmd.TimeInForce > FillOrKill:
		return ReasonInvalidTimeInForce
	case cmd.Price < MinPrice:
		return ReasonInvalidPrice
	case cmd.Quantity == 0 || cmd.Quantity > MaxQuantity:
		return ReasonInvalidQuantity
	case cmd.SelfTradePrevention > Decrement:
		return ReasonInvalidSelfTradePrevention
	case cmd.DisplayQuantity > 0 &&
		(cmd.DisplayQuantity >= cmd.Quantity || tooManyParts(cmd.Quantity, cmd.DisplayQuantity)):
		return ReasonInvalidDisplayQuantity
	case cmd.MinimumQuantity > cmd.Quantity:
		return ReasonInvalidMinimumQuantity
	case (cmd.PostOnly || cmd.DisplayQuantity > 0) && neverRests(cmd),
		cmd.PostOnly && cmd.MinimumQuantity > 0:
		return ReasonInvalidCombination
	}
	return ReasonNone
}

// tooManyParts tells the orders that MaxDisplayParts forbids; both arguments are
// at most MaxQuantity.
func tooManyParts(leaves, display uint64) bool { return leaves > MaxDisplayParts*display }

func (e *Engine) checkReplace(b *book, o *order, cmd *Command) Reason {
	if cmd.Price < MinPrice {
		return ReasonInvalidPrice
	}
	if cmd.Quantity == 0 || cmd.Quantity > MaxQuantity || e.newTotal(o, cmd) > MaxQuantity {
		return ReasonInvalidQuantity
	}
	filled, total := o.quantity-o.leaves, e.newTotal(o, cmd)
	switch {
	case total <= filled:
		return ReasonAlreadyFilled
	case o.display > 0 && tooManyParts(total-filled, o.display):
		return ReasonInvalidDisplayQuantity
	case e.store.levels.full() && e.store.levels.at(o.level).count > 1 && !e.hasLevel(b, o.side, cmd.Price):
		return ReasonBookFull // its own level would not become free
	case o.postOnly && e.reaches(b, o.side, cmd.Price):
		return ReasonPostOnlyWouldTake
	}
	return ReasonNone
}

// newTotal is the total that a replace gives the order; Command.Quantity is
// within its bounds.
func (e *Engine) newTotal(o *order, cmd *Command) uint64 {
	if e.options.ModifyIsCancelNew {
		return o.quantity - o.leaves + cmd.Quantity
	}
	return cmd.Quantity
}

// neverRests tells the orders whose remainder is canceled.
func neverRests(cmd *Command) bool {
	return cmd.Type == Market || cmd.TimeInForce >= ImmediateOrCancel
}

// hasLevel reports whether an order at price would find a level there.
func (e *Engine) hasLevel(b *book, side Side, price int64) bool {
	return e.store.find(b.half(side).root, keyOf(side, price)) != none
}
