package matching

// groupOf returns the group that an incoming order must not trade with: its own
// when its word is a prevention, else 0 for none.
func groupOf(group uint32, prevention SelfTradePrevention) uint32 {
	if prevention <= AllowSelfTrade {
		return 0
	}
	return group
}

// prevent does what the incoming order's word says when it meets the order index,
// which is of its own group and first in lv's queue. At least one of the two has
// nothing open afterwards, so nothing that is left of them can rest crossed.
func (e *Engine) prevent(lv *level, index uint32, cmd *Command, in *incoming, events []Event) []Event {
	maker := e.orders.at(index)
	var fromMaker, fromTaker uint64
	switch in.prevention {
	case AllowSelfTrade:
		// Not here: groupOf gave match no group to look for.
	case CancelTaker:
		fromTaker = in.leaves
	case CancelMaker:
		fromMaker = maker.leaves
	case CancelBoth:
		fromMaker, fromTaker = maker.leaves, in.leaves
	case Decrement:
		fromMaker = min(maker.leaves, in.leaves)
		fromTaker = fromMaker
	}
	event := Event{Kind: Canceled, Reason: ReasonSelfTrade, Instrument: cmd.Instrument, Sequence: cmd.Sequence, MakerID: maker.id}
	if fromMaker > 0 {
		e.shrink(lv, maker, fromMaker)
		event.OrderID, event.Side, event.Price = maker.id, maker.side, priceOf(maker.side, lv.key)
		event.Quantity, event.Leaves = fromMaker, maker.leaves
		events = append(events, event)
		if maker.leaves == 0 {
			e.dequeue(lv, maker)
			e.forget(index)
		}
	}
	if fromTaker > 0 {
		in.leaves -= fromTaker
		in.canceled += fromTaker
		event.OrderID, event.Side, event.Price = cmd.OrderID, in.side, cmd.Price
		event.Quantity, event.Leaves = fromTaker, in.leaves
		events = append(events, event)
	}
	return events
}
