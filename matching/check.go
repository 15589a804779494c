package matching

// Check returns the reason for which Apply would refuse the command now, or ReasonNone. It changes nothing. A caller that
// journals commands asks before the append and writes the answer into the record, so that a replay under larger
// Options never takes what was refused.
func (e *Engine) Check(cmd *Command) Reason {
	if cmd.Kind < Submit || cmd.Kind > Replace {
		return ReasonInvalidCommand
	}
	b := e.book(cmd.Instrument)
	if b == nil {
		return ReasonUnknownInstrument
	}
	if cmd.Kind == Submit {
		return e.checkSubmit(b, cmd)
	}
	index := e.ids.find(cmd.OrderID)
	if index == none || e.orders.at(index).instrument != cmd.Instrument {
		return ReasonUnknownOrder
	}
	if cmd.Kind == Cancel {
		return ReasonNone
	}
	o := e.orders.at(index)
	filled := o.quantity - o.leaves
	total := cmd.Quantity
	if e.options.ModifyIsCancelNew && total <= MaxQuantity {
		total += filled
	}
	return e.checkReplace(b, o, cmd, filled, total)
}
