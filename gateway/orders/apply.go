package orders

import (
	"fmt"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// Apply carries out a decided command and writes the answer to out (nil where nobody waits for it, as in a replay). The only
// error is ErrReplay, and then the state must not be used any more.
func (s *State) Apply(c *Command, out *Answer) error {
	s.applied++
	s.touched = s.touched[:0]
	s.eventNs = c.ReceivedNs
	var err error
	switch c.Kind {
	case Submit:
		err = s.applySubmit(c, out)
	case Replace, Cancel:
		err = s.applyChange(c, out)
	default:
		var none Answer
		if out == nil {
			out = &none
		}
		*out = Answer{Epoch: s.epoch, ReceivedNs: c.ReceivedNs}
		err = s.applyOther(c, out)
	}
	if err == nil {
		err = s.failed
	}
	return err
}

// applyOther carries out what is not about one order. out is there, with epoch and time filled in.
func (s *State) applyOther(c *Command, out *Answer) error {
	switch c.Kind {
	case DefineInstrument:
		return s.applyInstrument(c.Instrument)
	case DefineAccount:
		return s.applyAccount(c)
	case DefineFirm:
		return s.applyFirm(c.Name)
	case SetLimits:
		return s.applyLimits(c)
	case SetKillSwitch:
		return s.applyKillSwitch(c, out)
	case EndDay:
		return s.applyEndDay(out)
	default:
	}
	if err := s.knows(c.Account); err != nil {
		return err
	}
	switch c.Kind {
	case MassCancel:
		return s.applyMassCancel(c, out)
	case CancelAllAfter:
		s.accounts[c.Account].triggerNs = c.TriggerNs
		out.TriggerNs = c.TriggerNs
		return nil
	case FireTimer:
		return s.applyTimer(c, out)
	case Logon:
		return s.applyLogon(c, out)
	case Logout, ExpireSession:
		return s.applySessionEnd(c, out)
	default:
		return fmt.Errorf("%w: unknown kind %d", ErrReplay, c.Kind)
	}
}

func (s *State) knows(account uint32) error {
	if uint64(account) >= uint64(len(s.accounts)) {
		return fmt.Errorf("%w: account %d was never defined", ErrReplay, account)
	}
	return nil
}

func (s *State) applySubmit(c *Command, out *Answer) error {
	if err := s.knows(c.Account); err != nil {
		return err
	}
	if int(s.today.orders.length) >= s.options.MaxIDs {
		return fmt.Errorf("%w: %w: it holds %d", ErrReplay, ErrIDsFull, s.options.MaxIDs)
	}
	if !s.sessions.isOf(c.Session, c.Account) {
		return fmt.Errorf("%w: account %d has no session %d", ErrReplay, c.Account, c.Session)
	}
	id := s.today.lastID() + 1
	o, number := s.today.orders.add()
	o.enteredAs(c, id)
	s.listOrder(o, number)
	o.first.sequence, o.first.epoch = s.accounts[c.Account].events.length+1, s.epoch
	if c.Verdict.Reason != pb.Reason_REASON_UNSPECIFIED {
		o.now.status = pb.OrderStatus_ORDER_STATUS_REJECTED
		s.reportOrder(o, number, pb.ExecutionType_EXECUTION_TYPE_REJECTED, c.Verdict.Reason)
	} else if err := s.enterBook(c, o, number); err != nil {
		return err
	}
	o.first.quantities = o.now
	if out != nil {
		answerOrder(out, o)
	}
	return nil
}

// enteredAs makes a record of a new order. Field by field: a literal would be built beside it and copied.
func (o *order) enteredAs(c *Command, id uint64) {
	*o = order{}
	o.id = id
	o.clientOrderID, o.symbol = c.ClientOrderID, c.Symbol
	o.side, o.orderType, o.timeInForce = c.Side, c.Type, c.TimeInForce
	o.selfTradePrevention, o.postOnly = c.SelfTradePrevention, c.PostOnly
	o.account, o.session = c.Account, c.Session
	o.enteredPrice, o.enteredLots = c.Price, c.Quantity
	o.displayQuantity, o.minimumQuantity = c.DisplayQuantity, c.MinimumQuantity
	o.price, o.receivedNs = c.Price, c.ReceivedNs
	o.now.quantity = c.Quantity
	o.first.limit, o.first.reason, o.first.firm = c.Verdict.Limit, c.Verdict.Reason, c.Verdict.Firm
}

// enterBook carries out a new order that was not refused.
func (s *State) enterBook(c *Command, o *order, number uint32) error {
	instrument, known := s.bySymbol[c.Symbol]
	if !known {
		return fmt.Errorf("%w: instrument %s was never defined", ErrReplay, c.Symbol)
	}
	o.instrument = instrument
	o.now.leaves = c.Quantity
	entry := s.entryOf(c, instrument, o.id)
	if err := s.match(&entry, pb.Reason_REASON_UNSPECIFIED); err != nil {
		return err
	}
	if o.now.leaves > 0 {
		s.enter(o)
		s.linkOpen(o, number)
	}
	return nil
}

// applyChange carries out a replace or a cancel.
func (s *State) applyChange(c *Command, out *Answer) error {
	if err := s.knows(c.Account); err != nil {
		return err
	}
	number, known := s.findOrder(c.Account, c.ClientOrderID)
	remembered := !c.RequestID.IsZero()
	if remembered && int(s.today.requests.length) >= s.options.MaxIDs {
		return fmt.Errorf("%w: %w: it holds %d", ErrReplay, ErrIDsFull, s.options.MaxIDs)
	}
	first := answer{
		sequence: s.accounts[c.Account].events.length + 1, epoch: s.epoch,
		limit: c.Verdict.Limit, reason: c.Verdict.Reason, firm: c.Verdict.Firm,
	}
	var o *order
	if known {
		o = s.today.orders.at(number)
	}
	switch {
	case c.Verdict.Reason == pb.Reason_REASON_UNSPECIFIED && known && o.rests:
		if err := s.change(c, o); err != nil {
			return err
		}
	case c.Verdict.Reason == pb.Reason_REASON_UNSPECIFIED:
		return fmt.Errorf("%w: order %s is not open", ErrReplay, c.ClientOrderID)
	case known:
		s.reportOrder(o, number, pb.ExecutionType_EXECUTION_TYPE_REJECTED, c.Verdict.Reason)
	case remembered:
		s.reportUnknown(c.Account, s.today.requests.length, c.Verdict.Reason)
	}
	if known {
		first.quantities = o.now
	}
	if c.Verdict.Reason != pb.Reason_REASON_UNSPECIFIED {
		first.status = pb.OrderStatus_ORDER_STATUS_REJECTED
	}
	if remembered {
		r := request{
			requestID: c.RequestID, clientOrderID: c.ClientOrderID, kind: c.Kind, account: c.Account,
			quantity: c.Quantity, price: c.Price, receivedNs: c.ReceivedNs, first: first,
		}
		if known {
			r.order = number + 1
		}
		s.addRequest(&r)
	}
	if out != nil {
		out.fill(&first, c.ReceivedNs)
		if known {
			out.OrderID = o.publicID()
		}
	}
	return nil
}

// change carries out a replace or cancel of an open order. While a replaced order trades it is out of the exposures, as a new one is.
func (s *State) change(c *Command, o *order) error {
	if c.Kind == Cancel {
		return s.cancelOrder(o, pb.Reason_REASON_UNSPECIFIED)
	}
	s.leave(o, o.now.leaves)
	if err := s.match(&matching.Command{
		Kind: matching.Replace, Instrument: o.instrument, OrderID: o.id, Price: c.Price, Quantity: c.Quantity,
	}, pb.Reason_REASON_UNSPECIFIED); err != nil {
		return err
	}
	if o.now.leaves > 0 {
		s.enter(o)
	}
	return nil
}

// cancelOrder cancels what is open of an order; reason is UNSPECIFIED where it was asked for.
func (s *State) cancelOrder(o *order, reason pb.Reason) error {
	return s.match(&matching.Command{Kind: matching.Cancel, Instrument: o.instrument, OrderID: o.id}, reason)
}

// match applies a command to the books and carries what happened into records, exposures and events. asked is the reason of a cancel.
func (s *State) match(command *matching.Command, asked pb.Reason) error {
	s.booked = s.engine.Apply(command, s.booked[:0])
	for i := range s.booked {
		e := &s.booked[i]
		number := s.today.record(e.OrderID)
		o := s.today.orders.at(number)
		switch e.Kind {
		case matching.Accepted:
			o.now.status = pb.OrderStatus_ORDER_STATUS_ACCEPTED
			o.now.version = 1
			s.reportOrder(o, number, pb.ExecutionType_EXECUTION_TYPE_NEW, 0)
		case matching.Replaced:
			o.price = e.Price
			o.now.quantity, o.now.leaves = e.Quantity, e.Leaves
			o.now.version++
			o.now.status = openStatus(o.now.filled)
			s.reportOrder(o, number, pb.ExecutionType_EXECUTION_TYPE_REPLACED, 0)
		case matching.Trade:
			s.matches++
			s.fill(o, number, e, pb.Liquidity_LIQUIDITY_TAKER)
			number = s.today.record(e.MakerID)
			s.fill(s.today.orders.at(number), number, e, pb.Liquidity_LIQUIDITY_MAKER)
			in := &s.instruments[e.Instrument]
			in.lastPrice, in.traded = e.Price, true
		case matching.Canceled:
			s.reduce(o, e.Quantity)
			s.reportOrder(o, number, pb.ExecutionType_EXECUTION_TYPE_CANCELED, cancelReason(e.Reason, asked))
		case matching.Rejected:
			return fmt.Errorf("%w: order %s is refused by the book: %s (at most %d orders, %d price levels)", ErrReplay,
				o.clientOrderID, e.Reason, s.engine.Options().MaxOrders, s.engine.Options().MaxLevels)
		}
	}
	return nil
}

func cancelReason(r matching.Reason, asked pb.Reason) pb.Reason {
	switch r {
	case matching.ReasonImmediateOrCancel:
		return pb.Reason_REASON_IMMEDIATE_OR_CANCEL
	case matching.ReasonSelfTrade:
		return pb.Reason_REASON_SELF_TRADE
	default:
		return asked
	}
}

// fill books one side of a trade.
func (s *State) fill(o *order, number uint32, trade *matching.Event, liquidity pb.Liquidity) {
	s.hold(o, trade.Quantity)
	o.now.filled += trade.Quantity
	o.now.lastPrice = trade.Price
	o.now.notional = addNotional(o.now.notional, trade.Price, trade.Quantity)
	s.reduce(o, trade.Quantity)
	e := s.reportOrder(o, number, pb.ExecutionType_EXECUTION_TYPE_TRADE, 0)
	e.matchID, e.lastQuantity, e.liquidity = s.matches, trade.Quantity, uint8(liquidity)
}

// reduce takes lots out of what is open of an order, filled ones or canceled ones.
func (s *State) reduce(o *order, lots uint64) {
	s.leave(o, lots)
	o.now.leaves -= lots
	o.now.version++
	switch {
	case o.now.leaves > 0:
		o.now.status = openStatus(o.now.filled)
		return
	case o.now.filled == o.now.quantity:
		o.now.status = pb.OrderStatus_ORDER_STATUS_FILLED
	default:
		o.now.status = pb.OrderStatus_ORDER_STATUS_CANCELED
	}
	s.unlinkOpen(o)
}

func openStatus(filled uint64) pb.OrderStatus {
	if filled > 0 {
		return pb.OrderStatus_ORDER_STATUS_PARTIALLY_FILLED
	}
	return pb.OrderStatus_ORDER_STATUS_ACCEPTED
}
