package orders

import (
	"fmt"
	"math"
	"math/bits"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// Decide makes every check of a command and writes its verdict. journal says what comes next: true, the command must be
// appended to the journal and then applied (refused ones too: they use up their id); false, out holds the whole answer: a
// repetition of the first one, or a refusal that is not remembered because it has no id of its own. The error wraps
// ErrIDsFull or ErrDefinition and uses up nothing. The account must be defined.
func (s *State) Decide(c *Command, out *Answer) (journal bool, err error) {
	c.Verdict = Verdict{}
	if c.Firm != "" || c.Group != "" || c.PostOnly || c.SelfTradePrevention > matching.AllowSelfTrade || c.DisplayQuantity > 0 || c.MinimumQuantity > 0 || c.Session > 0 {
		return false, errNotYet
	}
	switch c.Kind {
	case Submit:
		return s.decideSubmit(c, out)
	case Replace, Cancel:
		return s.decideChange(c, out)
	case DefineInstrument:
		return s.decideInstrument(c.Instrument)
	case DefineAccount:
		return s.decideAccount(c.Name)
	case DefineFirm, SetLimits, SetKillSwitch, MassCancel, CancelAllAfter, FireTimer, Logon, Logout, ExpireSession, EndDay:
		return false, errNotYet
	default:
		return false, fmt.Errorf("%w: unknown kind %d", ErrDefinition, c.Kind)
	}
}

func (s *State) decideInstrument(definition *Instrument) (journal bool, err error) {
	if _, known := s.bySymbol[definition.Symbol]; !known && len(s.instruments) == MaxInstruments {
		return false, fmt.Errorf("%w: %d instruments are defined already, those that are no longer configured included", ErrDefinition, MaxInstruments)
	}
	return true, nil
}

func (s *State) decideAccount(name string) (journal bool, err error) {
	if _, known := s.accountNumber[name]; known || name == "" {
		return false, fmt.Errorf("%w: account %q is defined already, or has no name", ErrDefinition, name)
	}
	if len(s.accounts) == MaxAccounts {
		return false, fmt.Errorf("%w: %d accounts are defined already, those that are no longer configured included", ErrDefinition, MaxAccounts)
	}
	return true, nil
}

func (s *State) decideSubmit(c *Command, out *Answer) (journal bool, err error) {
	if number, known := s.findOrder(c.Account, c.ClientOrderID); known {
		o := s.orders.at(number)
		if o.sameContent(c) {
			s.answerOrder(out, o, number)
			out.Duplicate = true
			return false, nil
		}
		s.refuse(out, c, pb.Reason_REASON_DUPLICATE_ID)
		return false, nil
	}
	if int(s.orders.length) >= s.options.MaxIDs {
		return false, fmt.Errorf("%w: it holds max_ids = %d orders until the end of the day", ErrIDsFull, s.options.MaxIDs)
	}
	number, known := s.bySymbol[c.Symbol]
	if !known {
		c.Verdict.Reason = pb.Reason_REASON_UNKNOWN_SYMBOL
		return true, nil
	}
	if s.checkLimits(c, &s.instruments[number]) {
		price := c.Price
		if c.Type == matching.Market {
			price = c.Verdict.Bound
		}
		c.Verdict.Reason = reasonOf(s.engine.Check(&matching.Command{
			Kind: matching.Submit, Side: c.Side, Type: c.Type, TimeInForce: c.TimeInForce,
			Instrument: number, OrderID: orderID(s.orders.length), Price: price, Quantity: c.Quantity,
		}))
	}
	return true, nil
}

func (s *State) decideChange(c *Command, out *Answer) (journal bool, err error) {
	remembered := !c.RequestID.IsZero()
	if remembered {
		if number, known := s.findRequest(c.Account, c.RequestID); known {
			r := s.requests.at(number)
			if r.kind == c.Kind && r.clientOrderID == c.ClientOrderID && r.quantity == c.Quantity && r.price == c.Price {
				s.fill(out, &r.first, r.receivedNs)
				if r.orderNumber > 0 {
					out.OrderID = s.publicID(r.orderNumber - 1)
				}
				out.Duplicate = true
				return false, nil
			}
			s.refuse(out, c, pb.Reason_REASON_DUPLICATE_ID)
			return false, nil
		}
		if int(s.requests.length) >= s.options.MaxIDs {
			return false, fmt.Errorf("%w: it holds max_ids = %d requests until the end of the day; without a request id this would go through", ErrIDsFull, s.options.MaxIDs)
		}
	}
	number, known := s.findOrder(c.Account, c.ClientOrderID)
	switch {
	case !known:
		c.Verdict.Reason = pb.Reason_REASON_UNKNOWN_ORDER
	case s.orders.at(number).now.leaves == 0:
		c.Verdict.Reason = pb.Reason_REASON_TOO_LATE
	case c.Kind == Replace:
		s.decideReplace(c, number)
	}
	if c.Verdict.Reason == pb.Reason_REASON_UNSPECIFIED || remembered {
		return true, nil
	}
	s.refuse(out, c, c.Verdict.Reason)
	if known {
		o := s.orders.at(number)
		out.setQuantities(&o.now)
		out.Status = pb.OrderStatus_ORDER_STATUS_REJECTED
		out.OrderID = s.publicID(number)
	}
	return false, nil
}

// decideReplace checks a replace of an open order as a new order of the new quantity and price would be.
func (s *State) decideReplace(c *Command, number uint32) {
	o := s.orders.at(number)
	if c.Quantity <= o.now.filled {
		c.Verdict.Reason = pb.Reason_REASON_QUANTITY_FILLED
		c.Verdict.Limit = int64(o.now.filled)
		return
	}
	as := Command{Side: o.side, Type: o.orderType, Quantity: c.Quantity, Price: c.Price}
	if !s.checkLimits(&as, &s.instruments[o.instrument]) {
		c.Verdict = as.Verdict
		return
	}
	c.Verdict.Reason = reasonOf(s.engine.Check(&matching.Command{
		Kind: matching.Replace, Instrument: o.instrument, OrderID: orderID(number), Price: c.Price, Quantity: c.Quantity,
	}))
}

// reasonOf maps what the engine can still refuse after the checks before it.
func reasonOf(r matching.Reason) pb.Reason {
	switch r {
	case matching.ReasonNone:
		return pb.Reason_REASON_UNSPECIFIED
	case matching.ReasonBookFull:
		return pb.Reason_REASON_BOOK_FULL
	case matching.ReasonInvalidQuantity:
		return pb.Reason_REASON_MAX_QUANTITY
	default:
		return pb.Reason_REASON_MALFORMED
	}
}

// checkLimits fills the verdict: a refusal, for which it returns false, or the bound of a market order.
func (s *State) checkLimits(c *Command, in *instrument) bool {
	limits := &s.options.Limits
	refuse := func(reason pb.Reason, limit int64) bool {
		c.Verdict.Reason, c.Verdict.Limit = reason, limit
		return false
	}
	if in.State != pb.InstrumentState_INSTRUMENT_STATE_OPEN {
		return refuse(pb.Reason_REASON_INSTRUMENT_NOT_OPEN, 0)
	}
	if c.Quantity > limits.MaxQuantity {
		return refuse(pb.Reason_REASON_MAX_QUANTITY, int64(limits.MaxQuantity))
	}
	low, high := in.collar(limits.PriceCollarBps)
	price := c.Price
	if c.Type == matching.Market {
		c.Verdict.Bound = high
		if c.Side == matching.Sell {
			c.Verdict.Bound = low
		}
		price = c.Verdict.Bound
		if low == matching.MinPrice && high == matching.MaxPrice {
			price = in.reference() // no collar to be pessimistic with
		}
	} else if price < low {
		return refuse(pb.Reason_REASON_PRICE_COLLAR, low)
	} else if price > high {
		return refuse(pb.Reason_REASON_PRICE_COLLAR, high)
	}
	most := limits.MaxNotional
	if in.MaxNotional > 0 {
		most = min(most, in.MaxNotional)
	}
	notional, ok := notionalOf(price, c.Quantity)
	if !ok || notional > most {
		return refuse(pb.Reason_REASON_MAX_NOTIONAL, most)
	}
	if notional < in.MinNotional {
		return refuse(pb.Reason_REASON_MIN_NOTIONAL, in.MinNotional)
	}
	return true
}

// reference is the price that collars are measured from: the last trade's, before the first the definition's; 0 = none.
func (in *instrument) reference() int64 {
	if in.traded {
		return in.lastPrice
	}
	return in.ReferencePrice
}

// collar returns the lowest and highest price allowed, everything where there is no collar or nothing to measure from.
func (in *instrument) collar(bps uint32) (low, high int64) {
	reference := in.reference()
	if bps == 0 || reference == 0 {
		return matching.MinPrice, matching.MaxPrice
	}
	hi, lo := bits.Mul64(magnitude(reference), uint64(bps))
	if hi >= 10_000 {
		return matching.MinPrice, matching.MaxPrice // wider than prices are
	}
	width, _ := bits.Div64(hi, lo, 10_000)
	if width > math.MaxInt64 {
		return matching.MinPrice, matching.MaxPrice
	}
	low, high = reference-int64(width), reference+int64(width)
	if low > reference {
		low = matching.MinPrice
	}
	if high < reference {
		high = matching.MaxPrice
	}
	return max(low, matching.MinPrice), high
}

// notionalOf is |price| x quantity; ok is false when 63 bits do not hold it.
func notionalOf(price int64, quantity uint64) (notional int64, ok bool) {
	hi, lo := bits.Mul64(magnitude(price), quantity)
	if hi != 0 || lo > math.MaxInt64 {
		return 0, false
	}
	return int64(lo), true
}

func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}

// addNotional adds price x lots to a sum that stays at the ends of int64 rather than wrap: trades may be at better prices than
// the order's own, which MaxNotional was checked with.
func addNotional(sum, price int64, lots uint64) int64 {
	end := int64(math.MaxInt64)
	if price < 0 {
		end = -math.MaxInt64
	}
	amount, ok := notionalOf(price, lots)
	if !ok {
		return end
	}
	if price < 0 {
		amount = -amount
	}
	total := sum + amount
	if amount > 0 && total < sum || amount < 0 && total > sum {
		return end
	}
	return total
}

// sameContent says whether a repetition asks for what was asked first; tag and ack_detail are not content.
func (o *order) sameContent(c *Command) bool {
	return o.symbol == c.Symbol && o.side == c.Side && o.orderType == c.Type && o.timeInForce == c.TimeInForce &&
		o.enteredLots == c.Quantity && o.enteredPrice == c.Price
}

func (s *State) findOrder(account uint32, id ID) (number uint32, ok bool) {
	return s.byID.find(s.byID.hash(&key{account, id}), func(n uint32) bool {
		o := s.orders.at(n)
		return o.account == account && o.clientOrderID == id
	})
}

func (s *State) findRequest(account uint32, id ID) (number uint32, ok bool) {
	return s.byReq.find(s.byReq.hash(&key{account, id}), func(n uint32) bool {
		r := s.requests.at(n)
		return r.account == account && r.requestID == id
	})
}
