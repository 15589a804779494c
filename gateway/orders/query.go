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

// view copies an order.
func (o *order) view(v *Order) {
	*v = Order{
		ClientOrderID: o.clientOrderID, OrderID: o.publicID(), Symbol: o.symbol,
		Side: o.side, Type: o.orderType, TimeInForce: o.timeInForce,
		Status: o.now.status, Reason: o.first.reason, Price: o.price,
		Quantity: o.now.quantity, Filled: o.now.filled, Leaves: o.now.leaves,
		LastPrice: o.now.lastPrice, FilledNotional: o.now.notional, Version: o.now.version, ReceivedNs: o.receivedNs,
		PostOnly: o.postOnly, DisplayQuantity: o.displayQuantity, MinimumQuantity: o.minimumQuantity,
		SelfTradePrevention: o.selfTradePrevention,
	}
}

// Account returns an account's number.
func (s *State) Account(name string) (number uint32, ok bool) {
	number, ok = s.accountNumber[name]
	return number, ok
}

// AccountName returns the name of an account that is defined.
func (s *State) AccountName(account uint32) string { return s.accounts[account].name }

// Firm returns a firm's number.
func (s *State) Firm(name string) (number uint32, ok bool) {
	number, ok = s.firmNumber[name]
	return number, ok
}

// FirmName returns the name of a firm that is defined.
func (s *State) FirmName(firm uint32) string { return s.firms[firm].name }

// FirmOf returns the number of an account's firm; ok is false when it has none.
func (s *State) FirmOf(account uint32) (number uint32, ok bool) {
	link := s.accounts[account].firm
	return link - 1, link > 0
}

// Membership returns the names of an account's firm and of its group for self-trade prevention, empty where it has none.
func (s *State) Membership(account uint32) (firm, group string) {
	a := &s.accounts[account]
	if a.firm > 0 {
		firm = s.firms[a.firm-1].name
	}
	if a.group > 0 {
		group = s.groups[a.group-1]
	}
	return firm, group
}

// Exposure is what a firm or an account has open and holds.
type Exposure struct {
	OpenOrders   uint32
	OpenNotional int64 // |price| x leaves over the open orders, in ticks x lots
	Positions    []Position
}

// Position is one instrument's part of an exposure.
type Position struct {
	Symbol   Symbol
	Net      int64  // lots bought less lots sold
	OpenBuy  uint64 // lots open
	OpenSell uint64
}

// Exposure returns a scope's exposure; positions in the order of the instruments' definition, those with nothing in them left
// out. An unknown scope has nothing.
func (s *State) Exposure(scope Scope) Exposure {
	r := s.riskOf(scope)
	if r == nil {
		return Exposure{}
	}
	e := Exposure{OpenOrders: r.openOrders, OpenNotional: r.openNotional}
	for i := range r.positions {
		if p := &r.positions[i]; !p.isEmpty() {
			e.Positions = append(e.Positions, Position{Symbol: s.instruments[i].Symbol, Net: p.net, OpenBuy: p.open[0], OpenSell: p.open[1]})
		}
	}
	return e
}

// Limits returns a scope's limits, whose slice is the state's own and never changed; an unknown scope has no bounds.
func (s *State) Limits(scope Scope) Limits {
	if r := s.riskOf(scope); r != nil {
		return r.limits
	}
	return Limits{}
}

// ConfiguredLimits returns the limits that a scope got last from the configuration, as Limits does.
func (s *State) ConfiguredLimits(scope Scope) Limits {
	if r := s.riskOf(scope); r != nil {
		return r.configured
	}
	return Limits{}
}

// KillSwitch reports whether a scope's own kill switch is engaged.
func (s *State) KillSwitch(scope Scope) bool {
	r := s.riskOf(scope)
	return r != nil && r.killed
}

// Order returns an account's order.
func (s *State) Order(account uint32, id ID) (o Order, ok bool) {
	number, ok := s.findOrder(account, id)
	if !ok {
		return Order{}, false
	}
	s.today.orders.at(number).view(&o)
	return o, true
}

// maxSteps bounds the records that one List looks at, since the caller holds the writer's lock. A page of open orders may end
// early because of it.
const maxSteps = 2048

// List appends at most n of an account's orders to page, in the order of their entry, the open ones or all. after is the
// cursor of the page before, 0 for the first; next is the cursor of the next page, 0 when there is none. A page may be
// shorter than n, even empty, before the last one. A cursor goes on behind its order also when that has ended, or its day has. ok is
// false for a cursor that this account was never given.
func (s *State) List(account uint32, open bool, after uint64, n int, page []Order) (orders []Order, next uint64, ok bool) {
	link, ok := s.behind(account, open, after)
	if !ok {
		return page, 0, false
	}
	last := after
	for steps := 0; link > 0; steps++ {
		if n == 0 || steps == maxSteps {
			return page, last, true
		}
		o := s.today.orders.at(link - 1)
		last = o.id
		if o.id > after && (!open || o.now.leaves > 0) {
			page = append(page, Order{})
			o.view(&page[len(page)-1])
			n--
		}
		link = o.following(open)
	}
	return page, 0, true
}

// behind finds where a page goes on: at an order behind the cursor's, or before it where that one was let go with its day.
func (s *State) behind(account uint32, open bool, after uint64) (link uint32, ok bool) {
	d, a := &s.today, &s.accounts[account]
	if after > d.lastID() {
		return 0, false
	}
	number, found := d.find(after)
	switch {
	case found && d.orders.at(number).account != account:
		return 0, false
	case found:
		return d.orders.at(number).following(open), true
	case open:
		return a.firstOpen, true
	}
	return a.first, true
}

func (o *order) following(open bool) uint32 {
	if open {
		return o.nextOpen
	}
	return o.nextOfAccount
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
	Accounts                     int // defined; they have the numbers from 0 on
}

// Usage returns how full the state is.
func (s *State) Usage() Usage {
	return Usage{
		OrderIDs: int(s.today.orders.length), RequestIDs: int(s.today.requests.length), MaxIDs: s.options.MaxIDs,
		OpenOrders: s.engine.Resting(), Events: s.store.used, MaxEvents: s.options.MaxEvents,
		Sessions: len(s.sessions.number), MaxSessions: s.options.MaxSessions,
		Accounts: len(s.accounts),
	}
}
