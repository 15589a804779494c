package orders

import (
	"fmt"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// Decide makes every check of a command and writes its verdict. journal says what comes next: true, the command must be
// appended to the journal and then applied (refused ones too: they use up their id); false, out holds the whole answer: a
// repetition of the first one, a refusal that is not remembered because it has no id of its own, or a timer or session that
// is no longer what the command took it for (status UNSPECIFIED). The error wraps ErrIDsFull, ErrEventsFull, ErrSessionsFull,
// ErrAccountSessionsFull, ErrDefinition or ErrInvalid; nothing is changed and no id used up then.
func (s *State) Decide(c *Command, out *Answer) (journal bool, err error) {
	c.Verdict = Verdict{}
	switch c.Kind {
	case DefineInstrument:
		return s.decideInstrument(c.Instrument)
	case DefineAccount:
		return s.decideAccount(c)
	case DefineFirm:
		return s.decideFirm(c.Name)
	case SetLimits:
		return s.decideLimits(c)
	case SetKillSwitch:
		return s.decideKillSwitch(c)
	case EndDay:
		return s.decideEndDay()
	default:
	}
	if int(c.Account) >= len(s.accounts) {
		return false, fmt.Errorf("%w: account number %d was never defined", ErrInvalid, c.Account)
	}
	switch c.Kind {
	case Submit:
		return s.decideSubmit(c, out)
	case Replace, Cancel:
		return s.decideChange(c, out)
	case MassCancel:
		return s.decideMassCancel(c, out)
	case CancelAllAfter:
		return true, nil
	case FireTimer:
		return s.decideTimer(c, out)
	case Logon:
		return s.decideLogon(c)
	case Logout, ExpireSession:
		return s.decideSessionEnd(c, out)
	default:
		return false, fmt.Errorf("%w: unknown kind %d", ErrInvalid, c.Kind)
	}
}

func (s *State) decideSubmit(c *Command, out *Answer) (journal bool, err error) {
	if number, known := s.findOrder(c.Account, c.ClientOrderID); known {
		o := s.today.orders.at(number)
		if o.sameContent(c) {
			answerOrder(out, o)
			out.Duplicate = true
			return false, nil
		}
		s.refuse(out, c, pb.Reason_REASON_DUPLICATE_ID)
		return false, nil
	}
	entry := s.entryOf(c, 0, s.today.lastID()+1)
	if _, err := reasonOf(matching.CheckTerms(&entry)); err != nil {
		return false, err
	}
	if !s.sessions.isOf(c.Session, c.Account) {
		return false, fmt.Errorf("%w: account number %d has no session %d", ErrInvalid, c.Account, c.Session)
	}
	if int(s.today.orders.length) >= s.options.MaxIDs {
		return false, fmt.Errorf("%w: it holds max_ids = %d orders until the end of the day", ErrIDsFull, s.options.MaxIDs)
	}
	number, known := s.bySymbol[c.Symbol]
	var trades uint64
	if known {
		trades = min(c.Quantity, s.instruments[number].parts[c.Side.Opposite()-1])
	}
	if !s.roomForEvents(trades) {
		return false, s.eventsFull()
	}
	if !known {
		c.Verdict.Reason = pb.Reason_REASON_UNKNOWN_SYMBOL
		return true, nil
	}
	t := terms{
		instrument: number, side: c.Side, market: c.Type == matching.Market, price: c.Price, quantity: c.Quantity, lots: c.Quantity,
		rests: c.Type == matching.Limit && (c.TimeInForce == matching.Day || c.TimeInForce == matching.GoodTillCancel),
	}
	if !s.check(&c.Verdict, &s.accounts[c.Account], &t) {
		return true, nil
	}
	entry.Instrument = number
	if c.Type == matching.Market {
		entry.Price = c.Verdict.Bound
	}
	c.Verdict.Reason, err = reasonOf(s.engine.Check(&entry))
	return err == nil, err
}

// entryOf is a new order as the engine takes it.
func (s *State) entryOf(c *Command, instrument uint32, id uint64) matching.Command {
	price := c.Price
	if c.Type == matching.Market {
		price = c.Verdict.Bound
	}
	return matching.Command{
		Kind: matching.Submit, Side: c.Side, Type: c.Type, TimeInForce: c.TimeInForce, PostOnly: c.PostOnly,
		SelfTradePrevention: c.SelfTradePrevention, Instrument: instrument, Group: s.groupOf(c.Account), OrderID: id,
		Price: price, Quantity: c.Quantity, DisplayQuantity: c.DisplayQuantity, MinimumQuantity: c.MinimumQuantity,
	}
}

func (s *State) decideChange(c *Command, out *Answer) (journal bool, err error) {
	if done, err := s.repeated(c, out); done || err != nil {
		return false, err
	}
	number, known := s.findOrder(c.Account, c.ClientOrderID)
	var o *order
	if known {
		o = s.today.orders.at(number)
	}
	if c.Kind == Replace {
		var trades uint64
		if known && o.now.leaves > 0 {
			trades = min(c.Quantity, s.instruments[o.instrument].parts[o.side.Opposite()-1])
		}
		if !s.roomForEvents(trades) {
			return false, s.eventsFull()
		}
	}
	switch {
	case !known:
		c.Verdict.Reason = pb.Reason_REASON_UNKNOWN_ORDER
	case o.now.leaves == 0:
		c.Verdict.Reason = pb.Reason_REASON_TOO_LATE
	case c.Kind == Replace:
		if err := s.decideReplace(c, o); err != nil {
			return false, err
		}
	}
	if c.Verdict.Reason == pb.Reason_REASON_UNSPECIFIED {
		return true, nil
	}
	if !c.RequestID.IsZero() {
		if !s.roomForRefusal() {
			return false, s.eventsFull()
		}
		return true, nil
	}
	s.refuse(out, c, c.Verdict.Reason)
	if known {
		out.setQuantities(&o.now)
		out.Status = pb.OrderStatus_ORDER_STATUS_REJECTED
		out.OrderID = o.publicID()
	}
	return false, nil
}

// repeated answers a request whose id was used before, and makes sure that there is room for a new one.
func (s *State) repeated(c *Command, out *Answer) (done bool, err error) {
	if c.RequestID.IsZero() {
		return false, nil
	}
	number, known := s.findRequest(c.Account, c.RequestID)
	if !known {
		if int(s.today.requests.length) >= s.options.MaxIDs {
			err = fmt.Errorf("%w: it holds max_ids = %d requests until the end of the day; without a request id this would go through",
				ErrIDsFull, s.options.MaxIDs)
		}
		return false, err
	}
	r := s.today.requests.at(number)
	if !r.sameContent(c) {
		s.refuse(out, c, pb.Reason_REASON_DUPLICATE_ID)
		return true, nil
	}
	out.fill(&r.first, r.receivedNs)
	if r.order > 0 {
		out.OrderID = s.today.orders.at(r.order - 1).publicID()
	}
	out.Count = r.count
	out.Duplicate = true
	return true, nil
}

// decideReplace checks a replace of an open order as a new order of the new quantity and price would be.
func (s *State) decideReplace(c *Command, o *order) error {
	if c.Quantity <= o.now.filled {
		c.Verdict.refuse(pb.Reason_REASON_QUANTITY_FILLED, int64(o.now.filled), false)
		return nil
	}
	t := terms{
		instrument: o.instrument, side: o.side, rests: true, price: c.Price, quantity: c.Quantity, lots: c.Quantity - o.now.filled,
		counted: true, notional: openNotional(o.price, o.now.leaves), counts: o.now.leaves,
	}
	if !s.check(&c.Verdict, &s.accounts[c.Account], &t) {
		return nil
	}
	var err error
	c.Verdict.Reason, err = reasonOf(s.engine.Check(&matching.Command{
		Kind: matching.Replace, Instrument: o.instrument, OrderID: o.id, Price: c.Price, Quantity: c.Quantity,
	}))
	return err
}

// reasonOf maps what the engine can still refuse after the checks before it. What no order may be is no answer but an error.
func reasonOf(r matching.Reason) (pb.Reason, error) {
	switch r {
	case matching.ReasonNone:
		return pb.Reason_REASON_UNSPECIFIED, nil
	case matching.ReasonBookFull:
		return pb.Reason_REASON_BOOK_FULL, nil
	case matching.ReasonPostOnlyWouldTake:
		return pb.Reason_REASON_POST_ONLY_WOULD_TAKE, nil
	case matching.ReasonFillOrKill:
		return pb.Reason_REASON_FILL_OR_KILL, nil
	case matching.ReasonMinimumQuantity:
		return pb.Reason_REASON_MINIMUM_QUANTITY, nil
	case matching.ReasonInvalidDisplayQuantity:
		return pb.Reason_REASON_UNSPECIFIED, fmt.Errorf("%w: what is open may be at most %d times the display quantity", ErrInvalid, matching.MaxDisplayParts)
	default:
		return pb.Reason_REASON_UNSPECIFIED, fmt.Errorf("%w: the book says: %s", ErrInvalid, r)
	}
}
