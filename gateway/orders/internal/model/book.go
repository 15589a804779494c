package model

import (
	"math"
	"math/big"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// mayRest tells the orders whose remainder stays in the book.
func mayRest(t matching.OrderType, f matching.TimeInForce) bool {
	return t == matching.Limit && (f == matching.Day || f == matching.GoodTillCancel)
}

// meeting is one thing that happens when an order comes to the book.
type meeting struct {
	trade bool // else lots of one of them are canceled
	maker *order
	of    *order // whose lots are canceled
	lots  uint64
}

// sweep lets an order take from the book what it can at its price, and tells each thing that happens after its lots are gone from
// leaves. arrivals counts those that came to the back of a queue.
func sweep(book []*order, taker *order, price int64, arrivals *int, happened func(meeting)) {
	for taker.now.Leaves > 0 {
		maker := next(book, taker, price)
		if maker == nil {
			return
		}
		if maker.group != taker.group || taker.now.SelfTradePrevention <= matching.AllowSelfTrade {
			lots := min(taker.now.Leaves, maker.shown)
			taker.now.Leaves -= lots
			maker.now.Leaves -= lots
			maker.shown -= lots
			happened(meeting{trade: true, maker: maker, lots: lots})
			if maker.shown == 0 {
				goToTheBack(maker, arrivals)
			}
			continue
		}
		ofMaker, ofTaker := maker.now.Leaves, taker.now.Leaves
		switch taker.now.SelfTradePrevention { //nolint:exhaustive // both by the whole is what stands above
		case matching.CancelTaker:
			ofMaker = 0
		case matching.CancelMaker:
			ofTaker = 0
		case matching.Decrement:
			ofMaker = min(ofMaker, ofTaker)
			ofTaker = ofMaker
		}
		if ofMaker > 0 {
			maker.now.Leaves -= ofMaker
			maker.shown = min(maker.shown, maker.now.Leaves)
			happened(meeting{maker: maker, of: maker, lots: ofMaker})
		}
		if ofTaker > 0 {
			taker.now.Leaves -= ofTaker
			happened(meeting{maker: maker, of: taker, lots: ofTaker})
		}
	}
}

// next is the order that trades first among those on the other side at the taker's price or better.
func next(book []*order, taker *order, price int64) *order {
	var found *order
	for _, o := range book {
		if o.symbol != taker.symbol || o.now.Side == taker.now.Side || o.now.Leaves == 0 {
			continue
		}
		if o.now.Side == matching.Sell && o.now.Price > price || o.now.Side == matching.Buy && o.now.Price < price {
			continue
		}
		if found == nil || before(o, found) {
			found = o
		}
	}
	return found
}

// before tells which of two orders on one side of a book trades first.
func before(a, b *order) bool {
	switch {
	case a.now.Price == b.now.Price:
		return a.arrival < b.arrival
	case a.now.Side == matching.Buy:
		return a.now.Price > b.now.Price
	default:
		return a.now.Price < b.now.Price
	}
}

// goToTheBack puts an order at the back of its queue, showing a new part.
func goToTheBack(o *order, arrivals *int) {
	*arrivals++
	o.arrival = *arrivals
	o.shown = o.now.Leaves
	if o.now.DisplayQuantity > 0 {
		o.shown = min(o.shown, o.now.DisplayQuantity)
	}
}

// open is the book of all instruments: every order with something open.
func (m *Model) open() []*order {
	var open []*order
	for _, o := range m.orders {
		if o.now.Leaves > 0 {
			open = append(open, o)
		}
	}
	return open
}

// wouldTrade is how many lots an order would trade at once. It is found out by trying it on a copy of the book.
func (m *Model) wouldTrade(taker *order, price int64) (lots uint64) {
	var copies []*order
	for _, o := range m.open() {
		c := *o
		copies = append(copies, &c)
	}
	c, arrivals := *taker, m.arrivals
	sweep(copies, &c, price, &arrivals, func(happened meeting) {
		if happened.trade {
			lots += happened.lots
		}
	})
	return lots
}

// enter lets an order trade, and puts what is left at the back of its queue.
func (m *Model) enter(taker *order, price int64, eventNs int64) {
	var others []*order
	for _, o := range m.open() {
		if o != taker {
			others = append(others, o)
		}
	}
	sweep(others, taker, price, &m.arrivals, func(happened meeting) {
		if happened.trade {
			m.trade(taker, happened.maker, happened.lots, eventNs)
			return
		}
		m.canceled(happened.of, eventNs, pb.Reason_REASON_SELF_TRADE)
	})
	if taker.now.Leaves > 0 {
		goToTheBack(taker, &m.arrivals)
	}
}

// trade books a trade that has taken its lots from the leaves of both.
func (m *Model) trade(taker, maker *order, lots uint64, eventNs int64) {
	m.matches++
	price := maker.now.Price
	for _, o := range []*order{taker, maker} {
		o.now.Filled += lots
		o.now.LastPrice = price
		o.now.FilledNotional = saturated(o.now.FilledNotional, price, lots)
		o.now.Version++
		switch {
		case o.now.Leaves > 0:
			o.now.Status = pb.OrderStatus_ORDER_STATUS_PARTIALLY_FILLED
		case o.now.Filled == o.now.Quantity:
			o.now.Status = pb.OrderStatus_ORDER_STATUS_FILLED
		default:
			o.now.Status = pb.OrderStatus_ORDER_STATUS_CANCELED
		}
		h := happening{
			kind: pb.ExecutionType_EXECUTION_TYPE_TRADE, price: price, lots: lots, match: m.matches, liquidity: pb.Liquidity_LIQUIDITY_TAKER,
		}
		if o == maker {
			h.liquidity = pb.Liquidity_LIQUIDITY_MAKER
		}
		m.report(o, eventNs, h)
	}
	t := trade{instrument: taker.symbol, buyer: taker.account, seller: maker.account, lots: lots}
	if taker.now.Side == matching.Sell {
		t.buyer, t.seller = t.seller, t.buyer
	}
	m.trades = append(m.trades, t)
	in := &m.instruments[taker.symbol]
	in.traded, in.lastPrice = true, price
}

// cancelLots takes open lots out of an order.
func (m *Model) cancelLots(o *order, lots uint64, eventNs int64, reason pb.Reason) (sequence uint64) {
	o.now.Leaves -= lots
	return m.canceled(o, eventNs, reason)
}

// canceled books that lots are gone from leaves without a trade.
func (m *Model) canceled(o *order, eventNs int64, reason pb.Reason) (sequence uint64) {
	o.now.Status = pb.OrderStatus_ORDER_STATUS_CANCELED
	if o.now.Leaves > 0 {
		o.now.Status = openStatus(&o.now)
	}
	o.now.Version++
	return m.report(o, eventNs, happening{kind: pb.ExecutionType_EXECUTION_TYPE_CANCELED, reason: reason})
}

// saturated adds price x lots to a sum that stays at the ends of 64 bits (MinInt64 aside) rather than wrap.
func saturated(sum, price int64, lots uint64) int64 {
	exact := new(big.Int).Mul(big.NewInt(price), new(big.Int).SetUint64(lots))
	exact.Add(exact, big.NewInt(sum))
	if end := big.NewInt(math.MaxInt64); exact.CmpAbs(end) > 0 {
		if exact.Sign() < 0 {
			return -math.MaxInt64
		}
		return math.MaxInt64
	}
	return exact.Int64()
}
