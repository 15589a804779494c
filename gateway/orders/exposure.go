package orders

import (
	"math/bits"

	"tailgate/matching"
)

// risk is what the checks before the book know of an account or a firm. Its figures are the sums over its open orders and trades,
// always.
type risk struct {
	limits       Limits
	configured   Limits
	restricted   []uint64 // bits by instrument number, of limits.Restricted
	killed       bool
	openOrders   uint32
	openNotional int64
	positions    []position // by instrument number, grown at first use
}

// position is what a scope holds and has open in one instrument, in lots. Decide keeps net + open buys and -net + open sells
// within 63 bits.
type position struct {
	net  int64
	open [2]uint64 // by side less one
}

// at returns the position to change.
func (r *risk) at(instrument uint32) *position {
	if int(instrument) >= len(r.positions) {
		grown := make([]position, instrument+1)
		copy(grown, r.positions)
		r.positions = grown
	}
	return &r.positions[instrument]
}

// worst is the position if everything open on the side were filled, seen so that more of the side is more.
func (r *risk) worst(instrument uint32, side matching.Side) int64 {
	if int(instrument) >= len(r.positions) {
		return 0
	}
	p := &r.positions[instrument]
	// The sum is within 63 bits, so it does not matter that a part of it may wrap.
	if side == matching.Buy {
		return p.net + int64(p.open[0])
	}
	return -p.net + int64(p.open[1])
}

func (r *risk) restricts(instrument uint32) bool {
	word := int(instrument / 64)
	return word < len(r.restricted) && r.restricted[word]>>(instrument%64)&1 == 1
}

// isEmpty tells a position with nothing in it.
func (p *position) isEmpty() bool { return *p == position{} }

// enter counts an order's open part.
func (s *State) enter(o *order) {
	o.counted = true
	a := &s.accounts[o.account]
	notional := openNotional(o.price, o.now.leaves)
	a.risk.openOrders++
	a.risk.openNotional += notional
	a.risk.at(o.instrument).open[o.side-1] += o.now.leaves
	if a.firm > 0 {
		f := &s.firms[a.firm-1].risk
		f.openOrders++
		f.openNotional += notional
		f.at(o.instrument).open[o.side-1] += o.now.leaves
	}
	s.instruments[o.instrument].parts[o.side-1] += parts(o.displayQuantity, o.now.leaves)
}

// leave takes lots out of what enter counted; when none are left, the order too. The caller has not yet taken them from the order.
func (s *State) leave(o *order, lots uint64) {
	if !o.counted {
		return // it is just trading, and counted later if it comes to rest
	}
	a := &s.accounts[o.account]
	notional := openNotional(o.price, lots)
	var order uint32
	if lots == o.now.leaves {
		order = 1
		o.counted = false
	}
	a.risk.openOrders -= order
	a.risk.openNotional -= notional
	a.risk.positions[o.instrument].open[o.side-1] -= lots
	if a.firm > 0 {
		f := &s.firms[a.firm-1].risk
		f.openOrders -= order
		f.openNotional -= notional
		f.positions[o.instrument].open[o.side-1] -= lots
	}
	p := &s.instruments[o.instrument].parts[o.side-1]
	*p -= parts(o.displayQuantity, o.now.leaves) - parts(o.displayQuantity, o.now.leaves-lots)
}

// hold moves the position by a trade's lots.
func (s *State) hold(o *order, lots uint64) {
	net := int64(lots)
	if o.side == matching.Sell {
		net = -net
	}
	a := &s.accounts[o.account]
	a.risk.at(o.instrument).net += net
	if a.firm > 0 {
		s.firms[a.firm-1].risk.at(o.instrument).net += net
	}
}

// openNotional is |price| x lots of an order that the checks let pass, which fits.
func openNotional(price int64, lots uint64) int64 { return int64(magnitude(price) * lots) }

// parts bounds in how many trades with one incoming order an open one can take part: one, or one for each part that an iceberg
// shows, the first and the last of which may be smaller.
func parts(display, leaves uint64) uint64 {
	switch {
	case leaves == 0:
		return 0
	case display == 0:
		return 1
	}
	return leaves/display + 2
}

// moveExposure takes an account's exposure from its firm to another one; both number plus one, 0 = none.
func (s *State) moveExposure(a *account, to uint32) {
	for i, sign := range []int64{-1, 1} {
		link := []uint32{a.firm, to}[i]
		if link == 0 {
			continue
		}
		f := &s.firms[link-1].risk
		f.openOrders += uint32(sign) * a.risk.openOrders
		f.openNotional += sign * a.risk.openNotional
		for instrument := range a.risk.positions {
			p := &a.risk.positions[instrument]
			if p.isEmpty() {
				continue
			}
			at := f.at(uint32(instrument))
			at.net += sign * p.net
			at.open[0] += uint64(sign) * p.open[0]
			at.open[1] += uint64(sign) * p.open[1]
		}
	}
}

// fits reports whether the firm's sums with the account's stay within 63 bits.
func (r *risk) fits(account *risk) bool {
	if _, ok := sum(r.openNotional, account.openNotional); !ok {
		return false
	}
	for instrument := range account.positions {
		for side := matching.Buy; side <= matching.Sell; side++ {
			own := account.worst(uint32(instrument), side)
			if _, ok := sum(r.worst(uint32(instrument), side), own); !ok {
				return false
			}
		}
	}
	return true
}

// sum adds, and reports whether 63 bits and a sign hold it.
func sum(a, b int64) (total int64, ok bool) {
	total = a + b
	return total, (a < 0) != (b < 0) || (total < 0) == (a < 0)
}

// notionalOf is |price| x quantity; ok is false when 63 bits do not hold it.
func notionalOf(price int64, quantity uint64) (notional int64, ok bool) {
	hi, lo := bits.Mul64(magnitude(price), quantity)
	if hi != 0 || lo > uint64(maxInt64) {
		return 0, false
	}
	return int64(lo), true
}

// addNotional adds price x lots to a sum that stays at the ends of int64 rather than wrap: trades may be at better prices than
// the order's own, which its notional was checked with.
func addNotional(total, price int64, lots uint64) int64 {
	end := maxInt64
	if price < 0 {
		end = -maxInt64
	}
	amount, ok := notionalOf(price, lots)
	if !ok {
		return end
	}
	if price < 0 {
		amount = -amount
	}
	if total, ok = sum(total, amount); !ok {
		return end
	}
	return total
}
