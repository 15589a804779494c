package orders

import (
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// Order is a copy of an order as it is now. Fields are those of proto orderentry.v1.Order.
type Order struct {
	ClientOrderID  ID
	OrderID        uint64
	Symbol         Symbol
	Side           matching.Side
	Type           matching.OrderType
	TimeInForce    matching.TimeInForce
	Status         pb.OrderStatus
	Reason         pb.Reason
	Price          int64
	Quantity       uint64
	Filled         uint64
	Leaves         uint64
	LastPrice      int64
	FilledNotional int64
	Version        uint32
	ReceivedNs     int64

	PostOnly            bool
	DisplayQuantity     uint64
	MinimumQuantity     uint64
	SelfTradePrevention matching.SelfTradePrevention
}

func (s *State) view(number uint32) Order {
	o := s.orders.at(number)
	return Order{
		ClientOrderID: o.clientOrderID, OrderID: s.publicID(number), Symbol: o.symbol,
		Side: o.side, Type: o.orderType, TimeInForce: o.timeInForce,
		Status: o.now.status, Reason: o.first.reason, Price: o.price,
		Quantity: o.now.quantity, Filled: o.now.filled, Leaves: o.now.leaves,
		LastPrice: o.now.lastPrice, FilledNotional: o.now.notional, Version: o.now.version, ReceivedNs: o.receivedNs,
	}
}

// Account returns an account's number.
func (s *State) Account(name string) (number uint32, ok bool) {
	number, ok = s.accountNumber[name]
	return number, ok
}

// Order returns an account's order.
func (s *State) Order(account uint32, id ID) (o Order, ok bool) {
	number, ok := s.findOrder(account, id)
	if !ok {
		return Order{}, false
	}
	return s.view(number), true
}

// maxSteps bounds the records that one List looks at, since the caller holds the writer's lock. A page of open orders may end
// early because of it.
const maxSteps = 2048

// List appends at most n of an account's orders to page, in the order of their entry, the open ones or all. after is the
// cursor of the page before, 0 for the first; next is the cursor of the next page, 0 when there is none. A page may be
// shorter than n, even empty, before the last one. ok is false for a cursor that this account was never given.
func (s *State) List(account uint32, open bool, after uint32, n int, page []Order) (orders []Order, next uint32, ok bool) {
	a := &s.accounts[account]
	link := a.first
	if open {
		link = a.firstOpen
	}
	if after > 0 {
		if after > s.orders.length || s.orders.at(after-1).account != account {
			return page, 0, false
		}
		link = s.following(after, open)
	}
	last := after
	for steps := 0; link > 0; steps++ {
		if n == 0 || steps == maxSteps {
			return page, last, true
		}
		last = link
		if o := s.orders.at(link - 1); !open || o.now.leaves > 0 {
			page = append(page, s.view(link-1))
			n--
		}
		link = s.following(link, open)
	}
	return page, 0, true
}

func (s *State) following(link uint32, open bool) uint32 {
	if open {
		return s.orders.at(link - 1).nextOpen
	}
	return s.orders.at(link - 1).nextOfAccount
}

// Instruments appends all definitions in the order of their first one.
func (s *State) Instruments(list []Instrument) []Instrument {
	for i := range s.instruments {
		list = append(list, s.instruments[i].Instrument)
	}
	return list
}

// Instrument returns one definition.
func (s *State) Instrument(symbol Symbol) (definition Instrument, ok bool) {
	number, ok := s.bySymbol[symbol]
	if !ok {
		return Instrument{}, false
	}
	return s.instruments[number].Instrument, true
}

// Book appends at most depth levels of each side, best first.
func (s *State) Book(symbol Symbol, depth int, bids, asks []matching.Level) (b, a []matching.Level, lastPrice int64, ok bool) {
	number, ok := s.bySymbol[symbol]
	if !ok {
		return bids, asks, 0, false
	}
	bids = s.engine.Depth(number, matching.Buy, depth, bids)
	asks = s.engine.Depth(number, matching.Sell, depth, asks)
	return bids, asks, s.instruments[number].lastPrice, true
}

// Usage is how full the state is.
type Usage struct {
	OrderIDs, RequestIDs, MaxIDs int
	OpenOrders                   int
	Events, MaxEvents            int // of the present epoch
	Sessions, MaxSessions        int
}

// Usage returns how full the state is.
func (s *State) Usage() Usage {
	return Usage{
		OrderIDs: int(s.orders.length), RequestIDs: int(s.requests.length), MaxIDs: s.options.MaxIDs,
		OpenOrders: s.engine.Resting(),
	}
}
