package orders

import (
	"math"
	"math/bits"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// terms are an order as the checks before the book see it: a new one, or what a replace would make of one.
type terms struct {
	instrument uint32
	side       matching.Side
	market     bool
	rests      bool // it may rest
	price      int64
	quantity   uint64 // in total
	lots       uint64 // of them open

	// What the exposures have of it already, which a replace takes out first.
	counted  bool
	notional int64
	counts   uint64 // lots
}

// check makes the checks before the book, the account's limit before the firm's in each. It fills the verdict: a refusal, for which it
// returns false, or the bound of a market order.
func (s *State) check(v *Verdict, a *account, t *terms) bool {
	account, firm := s.risksOf(a)
	in := &s.instruments[t.instrument]
	if !v.checkOpen(account, firm, in, t) {
		return false
	}
	price, ok := v.checkPrice(account, firm, in, t)
	if !ok {
		return false
	}
	return v.checkNotional(account, firm, in, price, t.quantity) && v.checkExposure(account, firm, price, t)
}

func (v *Verdict) refuse(reason pb.Reason, limit int64, firm bool) bool {
	v.Reason, v.Limit, v.Firm = reason, limit, firm
	return false
}

// checkOpen asks whether such an order may be entered at all.
func (v *Verdict) checkOpen(account, firm *risk, in *instrument, t *terms) bool {
	switch {
	case account.killed:
		return v.refuse(pb.Reason_REASON_KILL_SWITCH, 0, false)
	case firm.killed:
		return v.refuse(pb.Reason_REASON_KILL_SWITCH, 0, true)
	case account.restricts(t.instrument):
		return v.refuse(pb.Reason_REASON_RESTRICTED_SYMBOL, 0, false)
	case firm.restricts(t.instrument):
		return v.refuse(pb.Reason_REASON_RESTRICTED_SYMBOL, 0, true)
	case in.State != pb.InstrumentState_INSTRUMENT_STATE_OPEN:
		return v.refuse(pb.Reason_REASON_INSTRUMENT_NOT_OPEN, 0, false)
	case t.quantity > account.maxQuantity():
		return v.refuse(pb.Reason_REASON_MAX_QUANTITY, int64(account.maxQuantity()), false)
	case t.quantity > firm.maxQuantity():
		return v.refuse(pb.Reason_REASON_MAX_QUANTITY, int64(firm.maxQuantity()), true)
	}
	return true
}

// maxQuantity is never above what the book takes.
func (r *risk) maxQuantity() uint64 {
	if r.limits.MaxQuantity == 0 {
		return matching.MaxQuantity
	}
	return min(r.limits.MaxQuantity, matching.MaxQuantity)
}

// checkPrice holds a price against both collars. It returns the price that the notional is reckoned with: a market order's is the
// worst one that the collars allow, which becomes its bound.
func (v *Verdict) checkPrice(account, firm *risk, in *instrument, t *terms) (price int64, ok bool) {
	low, high := in.collar(account.limits.PriceCollarBps)
	firmLow, firmHigh := in.collar(firm.limits.PriceCollarBps)
	if t.market {
		low, high = max(low, firmLow), min(high, firmHigh)
		v.Bound = high
		if t.side == matching.Sell {
			v.Bound = low
		}
		if low == matching.MinPrice && high == matching.MaxPrice {
			return in.reference(), true // no collar to be pessimistic with
		}
		return v.Bound, true
	}
	const outside = pb.Reason_REASON_PRICE_COLLAR
	switch {
	case t.price < low:
		return 0, v.refuse(outside, low, false)
	case t.price > high:
		return 0, v.refuse(outside, high, false)
	case t.price < firmLow:
		return 0, v.refuse(outside, firmLow, true)
	case t.price > firmHigh:
		return 0, v.refuse(outside, firmHigh, true)
	}
	return t.price, true
}

// checkNotional holds the notional of one order against all bounds on it.
func (v *Verdict) checkNotional(account, firm *risk, in *instrument, price int64, quantity uint64) bool {
	notional, fits := notionalOf(price, quantity)
	above := func(limit int64) bool { return limit > 0 && (!fits || notional > limit) }
	const most = pb.Reason_REASON_MAX_NOTIONAL
	switch {
	case above(account.limits.MaxNotional):
		return v.refuse(most, account.limits.MaxNotional, false)
	case above(firm.limits.MaxNotional):
		return v.refuse(most, firm.limits.MaxNotional, true)
	case above(in.MaxNotional):
		return v.refuse(most, in.MaxNotional, false)
	case !fits:
		return v.refuse(most, maxInt64, false)
	case notional < in.MinNotional:
		return v.refuse(pb.Reason_REASON_MIN_NOTIONAL, in.MinNotional, false)
	}
	return true
}

// checkExposure holds what is open and held, with this order, against the limits. Every sum is refused that 63 bits would not hold.
func (v *Verdict) checkExposure(account, firm *risk, price int64, t *terms) bool {
	if t.rests {
		if most, ok := account.takesOrder(t); !ok {
			return v.refuse(pb.Reason_REASON_MAX_OPEN_ORDERS, most, false)
		}
		if most, ok := firm.takesOrder(t); !ok {
			return v.refuse(pb.Reason_REASON_MAX_OPEN_ORDERS, most, true)
		}
		notional := openNotional(price, t.lots) // fits, since that of all its lots does
		if most, ok := account.takesNotional(t, notional); !ok {
			return v.refuse(pb.Reason_REASON_MAX_OPEN_NOTIONAL, most, false)
		}
		if most, ok := firm.takesNotional(t, notional); !ok {
			return v.refuse(pb.Reason_REASON_MAX_OPEN_NOTIONAL, most, true)
		}
	}
	if most, ok := account.takesLots(t); !ok {
		return v.refuse(pb.Reason_REASON_MAX_POSITION, most, false)
	}
	if most, ok := firm.takesLots(t); !ok {
		return v.refuse(pb.Reason_REASON_MAX_POSITION, most, true)
	}
	return true
}

func (r *risk) takesOrder(t *terms) (most int64, ok bool) {
	most = int64(r.limits.MaxOpenOrders)
	open := int64(r.openOrders) + 1
	if t.counted {
		open--
	}
	return most, most == 0 || open <= most
}

func (r *risk) takesNotional(t *terms, notional int64) (most int64, ok bool) {
	return within(r.openNotional-t.notional, notional, r.limits.MaxOpenNotional)
}

func (r *risk) takesLots(t *terms) (most int64, ok bool) {
	return within(r.worst(t.instrument, t.side)-int64(t.counts), int64(t.lots), int64(r.limits.MaxPosition))
}

// within reports whether what is there and what is added stay at or below most, where 0 means what 63 bits hold.
func within(there, added, most int64) (limit int64, ok bool) {
	if most == 0 {
		most = maxInt64
	}
	total, fits := sum(there, added)
	return most, fits && total <= most
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
