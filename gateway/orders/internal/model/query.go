package model

import (
	"math/big"
	"slices"

	"tailgate/gateway/orders"
	"tailgate/matching"
)

// Exposure is what an account or a firm has open and holds.
type Exposure struct {
	OpenOrders   int
	OpenNotional *big.Int
	Positions    []Position // by instrument number
}

// Position is what is held and open in one instrument, in lots.
type Position struct {
	Net                 int64
	OpenBuys, OpenSells uint64
}

// Exposure adds up all open orders and all trades of those whom the scope binds.
func (m *Model) Exposure(scope orders.Scope) Exposure { return m.exposure(scope, nil) }

// exposure leaves one order out.
func (m *Model) exposure(scope orders.Scope, without *order) Exposure {
	e := Exposure{OpenNotional: new(big.Int), Positions: make([]Position, len(m.instruments))}
	for _, o := range m.open() {
		if !m.within(o.account, scope) || o == without {
			continue
		}
		e.OpenOrders++
		e.OpenNotional.Add(e.OpenNotional, notionalOf(o.now.Price, o.now.Leaves))
		p := &e.Positions[o.symbol]
		if o.now.Side == matching.Buy {
			p.OpenBuys += o.now.Leaves
		} else {
			p.OpenSells += o.now.Leaves
		}
	}
	for place, net := range m.opening {
		if m.within(place.account, scope) {
			e.Positions[place.instrument].Net += net
		}
	}
	for _, t := range m.trades {
		if m.within(t.buyer, scope) {
			e.Positions[t.instrument].Net += int64(t.lots)
		}
		if m.within(t.seller, scope) {
			e.Positions[t.instrument].Net -= int64(t.lots)
		}
	}
	return e
}

// position is what an account holds.
func (m *Model) position(place holding) int64 {
	return m.exposure(orders.Scope{Number: place.account}, nil).Positions[place.instrument].Net
}

// Epoch is the day's number.
func (m *Model) Epoch() uint32 { return m.epoch }

// Events are an account's events of an epoch.
func (m *Model) Events(account, epoch uint32) []orders.Report {
	return m.events[stream{account, epoch}]
}

// Orders are an account's orders in the order of their entry, the open ones or all.
func (m *Model) Orders(account uint32, open bool) (list []orders.Order) {
	for _, o := range m.orders {
		if o.account == account && (!open || o.now.Leaves > 0) {
			list = append(list, o.now)
		}
	}
	return list
}

// Order is one order of an account.
func (m *Model) Order(account uint32, id orders.ID) (o orders.Order, ok bool) {
	if found := m.find(account, id); found != nil {
		return found.now, true
	}
	return orders.Order{}, false
}

// Book is what one side of a book shows, best first.
func (m *Model) Book(symbol orders.Symbol, side matching.Side) (levels []matching.Level) {
	var queue []*order
	for _, o := range m.open() {
		if o.now.Symbol == symbol && o.now.Side == side {
			queue = append(queue, o)
		}
	}
	slices.SortFunc(queue, func(a, b *order) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	for _, o := range queue {
		if last := len(levels) - 1; last < 0 || levels[last].Price != o.now.Price {
			levels = append(levels, matching.Level{Price: o.now.Price})
		}
		levels[len(levels)-1].Quantity += o.shown
		levels[len(levels)-1].Orders++
	}
	return levels
}

// LastPrice is the price of the last trade; 0 before the first.
func (m *Model) LastPrice(symbol orders.Symbol) int64 {
	number, _ := m.instrument(symbol)
	return m.instruments[number].lastPrice
}

// Limits are the limits of an account or a firm, and those that were configured last.
func (m *Model) Limits(scope orders.Scope) (limits, configured orders.Limits, killed bool) {
	return m.limits[scope], m.configured[scope], m.killed[scope]
}

// FirmOf is the number of an account's firm.
func (m *Model) FirmOf(account uint32) (number uint32, ok bool) {
	if firm := m.accounts[account].firm; firm > 0 {
		return firm - 1, true
	}
	return 0, false
}

// Timers are the armed dead-man timers.
func (m *Model) Timers() map[uint32]int64 { return m.timers }

// Sessions are those that have a place.
func (m *Model) Sessions() (list []orders.SessionInfo) {
	for _, s := range m.sessions {
		if s.taken {
			list = append(list, s.SessionInfo)
		}
	}
	return list
}

// Usage is how many orders, requests, open orders and events there are.
func (m *Model) Usage() (orderIDs, requestIDs, open, events int) {
	return len(m.orders), len(m.requests), len(m.open()), m.used()
}
