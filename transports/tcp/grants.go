package tcp

import (
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/tcp/internal/credit"
	"tailgate/transports/tcp/internal/outbox"
	"tailgate/transports/tcp/internal/wire"
)

// openShare gives the connection its part of the server's credit.
func (c *conn) openShare() {
	account := "" // an account of its own
	if s, ok := c.session.(transports.AccountSession); ok {
		account = s.Account()
	}
	c.share = c.server.credit.Open(account, c.used, c)
	c.announced.Store(c.share.Granted())
}

// pay takes a request's cost from what its client was granted. A fault is fatal.
func (c *conn) pay(h wire.Header, op transports.Operation) *transports.Fault {
	if c.share == nil {
		return nil
	}
	cost := c.server.model.Cost(op, h.Length)
	if h.Flags&wire.ClassMask == wire.Urgent {
		if c.urgent.Load()+cost > c.server.credit.Reserve() {
			c.box.WaitSettled()
		}
		if err := c.share.Urgent(cost); err != nil {
			return transports.Refuse(pb.Reason_REASON_NO_CREDIT, "%v", err)
		}
		c.urgent.Add(cost)
		c.owed.Urgent += cost
		return nil
	}
	if err := c.share.Request(c.exchange.ReceivedNs, h.Credit, cost, uint32(h.X), uint32(h.Y)); err != nil {
		return transports.Refuse(pb.Reason_REASON_NO_CREDIT, "%v", err)
	}
	c.heard(h)
	c.used += cost
	c.owed.Cost += cost
	c.price = cost
	return nil
}

// demand takes what a client has queued and gives back. A fault is fatal.
func (c *conn) demand(h wire.Header) *transports.Fault {
	if err := c.share.Demand(transports.Now(), h.Credit, h.Aux, uint32(h.Y)); err != nil {
		return transports.Refuse(pb.Reason_REASON_NO_CREDIT, "%v", err)
	}
	c.heard(h)
	return nil
}

// heard remembers what the client says of its queue and of what it has given back.
func (c *conn) heard(h wire.Header) {
	c.wants = h.Y != 0
	if wire.After(h.Credit, c.released) {
		c.released = h.Credit
	}
}

// afford judges a request by its header, before room is made for the rest of it.
func (c *conn) afford(h wire.Header, op transports.Operation) *transports.Fault {
	if c.share == nil || h.Flags&wire.ClassMask == wire.Urgent {
		return nil
	}
	if spent, granted := c.used+h.Credit+c.server.model.Cost(op, h.Length), c.share.Granted(); wire.After(spent, granted) {
		return transports.Refuse(pb.Reason_REASON_NO_CREDIT, "the request brings what is used and released to %d, %d is granted", spent, granted)
	}
	return nil
}

// granted is what the frame that is being appended announces. With the answer to a normal request, the client's next permission goes out where there is one.
func (c *conn) granted() (granted uint32, standing uint16) {
	if c.share == nil {
		return 0, 0
	}
	var place uint32
	if c.price > 0 {
		granted, place = c.share.Answer(c.exchange.ReceivedNs, c.price)
		c.price = 0
	} else {
		granted, place = c.share.Granted(), c.share.Standing()
	}
	c.announcing(granted)
	return granted, wire.Capped(place)
}

// announcing remembers the latest counter that was appended, and reports whether this one is.
func (c *conn) announcing(granted uint32) bool {
	for {
		known := c.announced.Load()
		if !wire.After(granted, known) {
			return false
		}
		if c.announced.CompareAndSwap(known, granted) {
			return true
		}
	}
}

// announce sends CREDIT where the share has been granted what no frame has said.
func (c *conn) announce() {
	if granted := c.share.Granted(); c.announcing(granted) {
		c.box.Express(wire.Header{Type: wire.Credit, Credit: granted})
	}
}

// Granted implements credit.Notice.
func (c *conn) Granted() { c.announce() }

// Reclaim implements credit.Notice.
func (c *conn) Reclaim(units uint32) {
	granted := c.share.Granted()
	c.announcing(granted)
	c.box.Express(wire.Header{Type: wire.Reclaim, Credit: granted, Aux: units})
}

// Violated implements credit.Notice.
func (c *conn) Violated(reason error) {
	c.over.CompareAndSwap(nil, transports.Refuse(pb.Reason_REASON_NO_CREDIT, "%v", reason))
	c.kick()
}

// flushed takes back what the kernel's answers have cost.
func (c *conn) flushed(debt outbox.Debt) {
	if debt.Urgent > 0 {
		c.share.UrgentDone(debt.Urgent)
		c.urgent.Add(-debt.Urgent)
	}
	if debt.Cost > 0 {
		c.share.Completed(transports.Now(), debt.Cost, debt.Service)
		c.server.tick()
	}
}

// tick makes sure that the pool ticks while it has to. A loop ticks for itself.
func (s *server) tick() {
	if !s.credit.Hungry() || s.loop != nil || s.ticking.Swap(true) {
		return
	}
	s.mu.Lock()
	s.work++ // a connection is there, so it was not 0
	s.mu.Unlock()
	go s.ticks()
}

func (s *server) ticks() {
	defer s.leave(nil)
	ticker := time.NewTicker(credit.TickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
		if !s.credit.Tick(transports.Now()) {
			s.ticking.Store(false)
			if !s.credit.Hungry() || s.ticking.Swap(true) { // it may have become so just before
				return
			}
		}
	}
}

// Metrics implements transports.Metered.
func (s *server) Metrics() []transports.Metric {
	s.mu.Lock()
	connections := len(s.conns)
	s.mu.Unlock()
	stats := s.credit.Stats()
	state := func(name, help string, value float64) transports.Metric {
		return transports.Metric{Name: name, Help: help, Value: value}
	}
	total := func(name, help string, value uint64) transports.Metric {
		return transports.Metric{Name: name, Help: help, Value: float64(value), Counter: true}
	}
	return []transports.Metric{
		state("connections", "Open connections.", float64(connections)),
		state("credit_capacity_units", "Credit that the server may have out at most.", float64(stats.Capacity)),
		state("credit_floor_units", "Credit that connections hold as their own, urgent reserves included.", float64(stats.Floors)),
		state("credit_float_units", "Credit that is granted in turn, as the controller has sized it.", float64(stats.Float)),
		state("credit_granted_units", "Credit granted, not given back, and not completed.", float64(stats.Granted)),
		state("credit_used_units", "Credit of requests in service.", float64(stats.Used)),
		state("credit_demand_units", "Cost of what clients have queued without credit for it.", float64(stats.Demand)),
		state("credit_queue_connections", "Connections that wait for their turn.", float64(stats.Queue)),
		state("credit_queue_delay_seconds", "Delay of requests behind their grant, as the controller sees it.", stats.QueueDelay.Seconds()),
		total("credit_grants_total", "Turns granted.", stats.Grants),
		total("credit_renewals_total", "Grants that went out with an answer, without a turn.", stats.Renewals),
		total("credit_refusals_total", "Answers that carried no grant, because credit was short.", stats.Refusals),
		total("credit_reclaims_total", "RECLAIMs sent.", stats.Reclaims),
		total("credit_violations_total", "Clients that broke the rules of credit.", stats.Violations),
	}
}
