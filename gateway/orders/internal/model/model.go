// Package model is the slow, obvious account state that package orders is compared with. It keeps orders, trades and events in
// plain slices, finds what it needs by looking at all of them, and reckons every exposure anew each time it is asked. It judges a
// command itself, matches it itself, and shares with the state that it judges only the types that go in and come out.
//
// It must never become fast: whatever makes it clever makes it a worse judge. It is written to be checked by eye against the
// contract and the order rules, so it checks no arguments: its one caller is a test that gives it well-formed commands.
package model

import (
	"tailgate/gateway/orders"
	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// Options are the sizes that decide outcomes. All are set.
type Options struct {
	MaxIDs, MaxOpenOrders, MaxLevels, MaxEvents, MaxSessions, MaxSessionsOfAccount int
}

// Model is the account state.
type Model struct {
	options Options
	epoch   uint32

	instruments []instrument
	accounts    []account
	firms       []string
	limits      map[orders.Scope]orders.Limits
	configured  map[orders.Scope]orders.Limits
	killed      map[orders.Scope]bool

	orders   []*order  // of the day, and those carried over, in the order of their entry
	requests []request // of replaces, cancels and mass cancels
	trades   []trade   // of the day
	opening  map[holding]int64
	events   map[stream][]orders.Report
	sessions []session
	timers   map[uint32]int64 // armed ones, by account

	submits    uint64 // journaled since the beginning
	executions uint64
	matches    uint64
	arrivals   int // in any queue
}

type instrument struct {
	orders.Instrument
	traded    bool
	lastPrice int64
}

type account struct {
	name  string
	firm  uint32 // number plus one; 0 = none
	group string
}

// order is an order with all that became of it. It is in the book while it has leaves.
type order struct {
	id       uint64
	account  uint32
	symbol   uint32 // number of the instrument
	group    group
	session  uint32
	entered  orders.Command
	now      orders.Order
	answered orders.Answer // first answer

	// Its place in the book: what it shows, and when it came to the back of its queue.
	shown   uint64
	arrival int
}

// group is whom prevention keeps apart: accounts of one name, or one account that is in no group.
type group struct {
	name  string
	alone uint32 // account number plus one
}

// request is a request with an id of its own.
type request struct {
	asked    orders.Command
	order    *order // nil: of no order
	answered orders.Answer
}

// trade is one trade of the day.
type trade struct {
	instrument    uint32
	buyer, seller uint32
	lots          uint64
}

// holding is a place for a position.
type holding struct{ account, instrument uint32 }

// stream is the place for the events of an account in one epoch.
type stream struct{ account, epoch uint32 }

// New returns a model of nothing.
func New(options Options) *Model {
	return &Model{
		options: options, epoch: 1,
		limits: map[orders.Scope]orders.Limits{}, configured: map[orders.Scope]orders.Limits{}, killed: map[orders.Scope]bool{},
		opening: map[holding]int64{}, events: map[stream][]orders.Report{}, timers: map[uint32]int64{},
	}
}

// Apply carries out a command that Decide let pass, with the verdict that stands in it.
func (m *Model) Apply(c *orders.Command) orders.Answer {
	out := orders.Answer{Epoch: m.epoch, ReceivedNs: c.ReceivedNs}
	switch c.Kind {
	case orders.Submit:
		return m.submit(c)
	case orders.Replace, orders.Cancel:
		return m.change(c)
	case orders.MassCancel:
		return m.massCancel(c)
	case orders.DefineInstrument:
		m.defineInstrument(c.Instrument)
	case orders.DefineAccount:
		m.defineAccount(c)
	case orders.DefineFirm:
		m.firms = append(m.firms, c.Name)
	case orders.SetLimits:
		m.limits[c.Scope] = *c.Limits
		if c.Configured {
			m.configured[c.Scope] = *c.Limits
		}
	case orders.SetKillSwitch:
		m.killed[c.Scope] = c.Engaged
		if c.Engaged {
			out.Count = m.cancelAll(c.ReceivedNs, pb.Reason_REASON_KILL_SWITCH, func(o *order) bool { return m.within(o.account, c.Scope) })
		}
	case orders.CancelAllAfter:
		delete(m.timers, c.Account)
		if c.TriggerNs != 0 {
			m.timers[c.Account] = c.TriggerNs
		}
		out.TriggerNs = c.TriggerNs
	case orders.FireTimer:
		delete(m.timers, c.Account)
		out.Status = pb.OrderStatus_ORDER_STATUS_CANCELED
		out.Count = m.cancelAll(c.ReceivedNs, pb.Reason_REASON_CANCEL_ALL_AFTER, func(o *order) bool { return o.account == c.Account })
	case orders.Logon:
		m.logon(c, &out)
	case orders.Logout:
		m.sessions[c.Session-1].LoggedOn = false
	case orders.ExpireSession:
		m.expire(c, &out)
	case orders.EndDay:
		m.endDay(c, &out)
	}
	return out
}

func (m *Model) defineInstrument(definition *orders.Instrument) {
	for i := range m.instruments {
		if m.instruments[i].Symbol == definition.Symbol {
			version := m.instruments[i].Version
			m.instruments[i].Instrument = *definition
			m.instruments[i].Version = version + 1
			return
		}
	}
	m.instruments = append(m.instruments, instrument{Instrument: *definition})
	m.instruments[len(m.instruments)-1].Version = 1
}

func (m *Model) defineAccount(c *orders.Command) {
	firm, _ := m.firm(c.Firm)
	defined := account{name: c.Name, group: c.Group, firm: firm}
	for i := range m.accounts {
		if m.accounts[i].name == c.Name {
			m.accounts[i] = defined
			return
		}
	}
	m.accounts = append(m.accounts, defined)
}

// firm returns a firm's number plus one; 0 for no name.
func (m *Model) firm(name string) (plusOne uint32, ok bool) {
	if name == "" {
		return 0, true
	}
	for i := range m.firms {
		if m.firms[i] == name {
			return uint32(i) + 1, true
		}
	}
	return 0, false
}

// submit enters an order, or remembers that it was refused.
func (m *Model) submit(c *orders.Command) orders.Answer {
	m.submits++
	o := &order{
		id: m.submits, account: c.Account, session: c.Session, entered: *c,
		now: orders.Order{
			ClientOrderID: c.ClientOrderID, OrderID: m.submits, Symbol: c.Symbol, Side: c.Side, Type: c.Type, TimeInForce: c.TimeInForce,
			Price: c.Price, Quantity: c.Quantity, ReceivedNs: c.ReceivedNs,
			PostOnly: c.PostOnly, DisplayQuantity: c.DisplayQuantity, MinimumQuantity: c.MinimumQuantity, SelfTradePrevention: c.SelfTradePrevention,
		},
	}
	m.orders = append(m.orders, o)
	if c.Verdict.Reason != pb.Reason_REASON_UNSPECIFIED {
		o.now.OrderID = 0
		o.now.Status, o.now.Reason = pb.OrderStatus_ORDER_STATUS_REJECTED, c.Verdict.Reason
		sequence := m.report(o, c.ReceivedNs, happening{kind: pb.ExecutionType_EXECUTION_TYPE_REJECTED, reason: c.Verdict.Reason})
		o.answered = m.answer(c, &o.now, sequence)
		return o.answered
	}
	o.symbol, _ = m.instrument(c.Symbol)
	o.group = m.groupOf(c.Account)
	o.now.Status = pb.OrderStatus_ORDER_STATUS_ACCEPTED
	o.now.Leaves = c.Quantity
	o.now.Version = 1
	sequence := m.report(o, c.ReceivedNs, happening{kind: pb.ExecutionType_EXECUTION_TYPE_NEW})
	m.enter(o, worstPrice(c), c.ReceivedNs)
	if o.now.Leaves > 0 && !mayRest(c.Type, c.TimeInForce) {
		m.cancelLots(o, o.now.Leaves, c.ReceivedNs, pb.Reason_REASON_IMMEDIATE_OR_CANCEL)
	}
	o.answered = m.answer(c, &o.now, sequence)
	return o.answered
}

// change carries out a replace or a cancel, or remembers that it was refused.
func (m *Model) change(c *orders.Command) orders.Answer {
	o := m.find(c.Account, c.ClientOrderID)
	var sequence uint64
	switch {
	case c.Verdict.Reason != pb.Reason_REASON_UNSPECIFIED:
		refused := o
		if refused == nil {
			refused = &order{account: c.Account, now: orders.Order{ClientOrderID: c.ClientOrderID}}
		}
		sequence = m.report(refused, c.ReceivedNs, happening{kind: pb.ExecutionType_EXECUTION_TYPE_REJECTED, reason: c.Verdict.Reason})
	case c.Kind == orders.Cancel:
		sequence = m.cancelLots(o, o.now.Leaves, c.ReceivedNs, pb.Reason_REASON_UNSPECIFIED)
	default:
		sequence = m.replace(o, c)
	}
	var now orders.Order
	if o != nil {
		now = o.now
	}
	answered := m.answer(c, &now, sequence)
	if !c.RequestID.IsZero() {
		m.requests = append(m.requests, request{asked: *c, order: o, answered: answered})
	}
	return answered
}

func (m *Model) replace(o *order, c *orders.Command) (sequence uint64) {
	leaves := c.Quantity - o.now.Filled
	keepsPlace := c.Price == o.now.Price && leaves <= o.now.Leaves
	o.now.Price, o.now.Quantity, o.now.Leaves = c.Price, c.Quantity, leaves
	o.now.Status = openStatus(&o.now)
	o.now.Version++
	sequence = m.report(o, c.ReceivedNs, happening{kind: pb.ExecutionType_EXECUTION_TYPE_REPLACED})
	if keepsPlace {
		o.shown = min(o.shown, leaves)
		return sequence
	}
	m.enter(o, c.Price, c.ReceivedNs)
	return sequence
}

func (m *Model) massCancel(c *orders.Command) orders.Answer {
	out := orders.Answer{Epoch: m.epoch, ReceivedNs: c.ReceivedNs, Status: pb.OrderStatus_ORDER_STATUS_CANCELED}
	if c.Verdict.Reason != pb.Reason_REASON_UNSPECIFIED {
		out.Status, out.Reason = pb.OrderStatus_ORDER_STATUS_REJECTED, c.Verdict.Reason
	} else {
		out.Count = m.cancelAll(c.ReceivedNs, pb.Reason_REASON_MASS_CANCEL, func(o *order) bool {
			return o.account == c.Account && (c.Symbol == orders.Symbol{} || o.now.Symbol == c.Symbol) && (c.Side == 0 || o.now.Side == c.Side)
		})
	}
	out.Sequence = uint64(len(m.events[stream{c.Account, m.epoch}]))
	if !c.RequestID.IsZero() {
		m.requests = append(m.requests, request{asked: *c, answered: out})
	}
	return out
}

// endDay lets everything go that has ended, after the orders for the day have.
func (m *Model) endDay(c *orders.Command, out *orders.Answer) {
	m.epoch++
	for key := range m.events {
		if key.epoch+1 < m.epoch {
			delete(m.events, key)
		}
	}
	for _, account := range m.accountNumbers() {
		for _, o := range m.orders {
			if o.account == account && o.now.Leaves > 0 && o.now.TimeInForce == matching.Day {
				o.now.Leaves = 0
				o.now.Status = pb.OrderStatus_ORDER_STATUS_EXPIRED
				o.now.Version++
				m.report(o, c.ReceivedNs, happening{kind: pb.ExecutionType_EXECUTION_TYPE_EXPIRED, reason: pb.Reason_REASON_END_OF_DAY})
				out.Count++
			}
		}
	}
	for i := range m.instruments {
		for account := range m.accounts {
			place := holding{uint32(account), uint32(i)}
			m.opening[place] = m.position(place)
		}
	}
	m.trades = nil
	var stay []*order
	for _, o := range m.orders {
		if o.now.Leaves > 0 {
			stay = append(stay, o)
		}
	}
	m.orders = stay
	var remembered []request
	for _, r := range m.requests {
		if r.order != nil && r.order.now.Leaves > 0 {
			remembered = append(remembered, r)
		}
	}
	m.requests = remembered
	m.closeSessions()
	out.Epoch = m.epoch
}

// cancelAll cancels every open order that is meant, account by account.
func (m *Model) cancelAll(eventNs int64, reason pb.Reason, meant func(*order) bool) (count uint32) {
	for _, account := range m.accountNumbers() {
		for _, o := range m.orders {
			if o.account == account && o.now.Leaves > 0 && meant(o) {
				m.cancelLots(o, o.now.Leaves, eventNs, reason)
				count++
			}
		}
	}
	return count
}

func (m *Model) accountNumbers() []uint32 {
	var numbers []uint32
	for i := range m.accounts {
		numbers = append(numbers, uint32(i))
	}
	return numbers
}

func (m *Model) find(account uint32, id orders.ID) *order {
	for _, o := range m.orders {
		if o.account == account && o.now.ClientOrderID == id {
			return o
		}
	}
	return nil
}

func (m *Model) findRequest(account uint32, id orders.ID) *request {
	for i := range m.requests {
		if m.requests[i].asked.Account == account && m.requests[i].asked.RequestID == id {
			return &m.requests[i]
		}
	}
	return nil
}

func (m *Model) instrument(symbol orders.Symbol) (number uint32, ok bool) {
	for i := range m.instruments {
		if m.instruments[i].Symbol == symbol {
			return uint32(i), true
		}
	}
	return 0, false
}

func (m *Model) groupOf(account uint32) group {
	if name := m.accounts[account].group; name != "" {
		return group{name: name}
	}
	return group{alone: account + 1}
}

// within tells whether a scope binds an account.
func (m *Model) within(account uint32, scope orders.Scope) bool {
	if scope.Firm {
		return m.accounts[account].firm == scope.Number+1
	}
	return account == scope.Number
}

// answer is what an order, a replace or a cancel is answered with when it was journaled.
func (m *Model) answer(c *orders.Command, o *orders.Order, sequence uint64) orders.Answer {
	out := answerOf(o)
	out.Epoch, out.Sequence, out.ReceivedNs = m.epoch, sequence, c.ReceivedNs
	if c.Verdict.Reason != pb.Reason_REASON_UNSPECIFIED {
		out.Status, out.Reason = pb.OrderStatus_ORDER_STATUS_REJECTED, c.Verdict.Reason
	}
	return out
}

func answerOf(o *orders.Order) orders.Answer {
	return orders.Answer{
		OrderID: o.OrderID, Status: o.Status, Quantity: o.Quantity, Filled: o.Filled, Leaves: o.Leaves,
		LastPrice: o.LastPrice, FilledNotional: o.FilledNotional, Version: o.Version,
	}
}
