package orders

import "tailgate/matching"

// pass writes the state. restore reads the same in the same order.
func (s *State) pass(p *pass) {
	s.passHeader(p)
	p.times(len(s.groups), func(i int) { p.text(&s.groups[i], MaxIDBytes) })
	p.times(len(s.firms), func(i int) { s.firms[i].pass(p) })
	p.times(len(s.instruments), func(i int) { s.instruments[i].pass(p) })
	p.times(len(s.accounts), func(i int) { s.accounts[i].pass(p) })
	p.times(len(s.sessions.table), func(i int) { s.sessions.table[i].pass(p) })
	for _, d := range []*day{&s.yesterday, &s.today} {
		d.passHead(p)
		p.times(int(d.orders.length), func(i int) { d.orders.at(uint32(i)).pass(p) })
		p.times(int(d.requests.length), func(i int) { d.requests.at(uint32(i)).pass(p) })
		p.times(int(d.expired.length), func(i int) { d.expired.at(uint32(i)).pass(p) })
	}
	for i := range s.accounts {
		for _, t := range []*stream{&s.accounts[i].before, &s.accounts[i].events} {
			p.times(int(t.length), func(i int) { t.at(uint64(i) + 1).pass(p) })
		}
	}
	resting := s.engine.Resting()
	p.record()
	number(p, &resting)
	for o := range s.engine.Orders() {
		if !p.record() {
			return
		}
		passBookOrder(p, &o)
	}
	if p.err == nil {
		p.err = p.flush(p.out)
	}
}

func (s *State) passHeader(p *pass) {
	p.record()
	magic, version := snapshotMagic, snapshotVersion
	p.text(&magic, len(snapshotMagic))
	number(p, &version)
	p.must(magic == snapshotMagic && version == snapshotVersion)
	number(p, &s.epoch)
	p.uvarint(&s.executions)
	p.uvarint(&s.matches)
}

func (f *firm) pass(p *pass) {
	p.text(&f.name, MaxIDBytes)
	f.risk.pass(p)
}

func (r *risk) pass(p *pass) {
	p.limits(&r.limits)
	p.limits(&r.configured)
	p.bool(&r.killed)
}

func (in *instrument) pass(p *pass) {
	p.symbol(&in.Symbol)
	p.uvarint(&in.TickNanos)
	p.uvarint(&in.LotSize)
	p.text(&in.Currency, 3)
	number(p, &in.State)
	number(p, &in.Version)
	p.varint(&in.MinNotional)
	p.varint(&in.MaxNotional)
	p.varint(&in.ReferencePrice)
	p.varint(&in.lastPrice)
	p.bool(&in.traded)
}

// pass has the net positions with how far the next one is from the last; the open part is reckoned from the orders. The last
// distance is 0.
func (a *account) pass(p *pass) {
	p.text(&a.name, MaxIDBytes)
	number(p, &a.firm)
	number(p, &a.group)
	p.varint(&a.triggerNs)
	a.risk.pass(p)
	if p.reading {
		a.risk.readPositions(p)
		return
	}
	last := -1
	for i := range a.risk.positions {
		if net := a.risk.positions[i].net; net != 0 {
			distance := i - last
			number(p, &distance)
			p.varint(&net)
			last = i
		}
	}
	end := 0
	number(p, &end)
}

func (r *risk) readPositions(p *pass) {
	for i := -1; ; {
		var distance int
		number(p, &distance)
		if distance == 0 || p.in.failed {
			return
		}
		if distance > MaxInstruments || i+distance >= MaxInstruments {
			p.in.fail()
			return
		}
		i += distance
		p.varint(&r.at(uint32(i)).net)
	}
}

func (e *session) pass(p *pass) {
	p.id(&e.id)
	number(p, &e.account)
	number(p, &e.incarnation)
	p.varint(&e.graceNs)
	number(p, &e.mode)
	p.bool(&e.loggedOn)
}

func (d *day) passHead(p *pass) {
	if p.record() {
		p.uvarint(&d.base)
		number(p, &d.carried)
	}
}

func (o *order) pass(p *pass) {
	p.uvarint(&o.id)
	p.id(&o.clientOrderID)
	p.symbol(&o.symbol)
	number(p, &o.side)
	number(p, &o.orderType)
	number(p, &o.timeInForce)
	number(p, &o.selfTradePrevention)
	p.bool(&o.postOnly)
	number(p, &o.account)
	number(p, &o.instrument)
	number(p, &o.session)
	p.varint(&o.enteredPrice)
	p.uvarint(&o.enteredLots)
	p.uvarint(&o.displayQuantity)
	p.uvarint(&o.minimumQuantity)
	p.varint(&o.price)
	p.varint(&o.receivedNs)
	o.now.pass(p)
	o.first.pass(p)
}

func (r *request) pass(p *pass) {
	p.id(&r.requestID)
	p.id(&r.clientOrderID)
	p.symbol(&r.symbol)
	number(p, &r.side)
	number(p, &r.kind)
	number(p, &r.account)
	p.uvarint(&r.quantity)
	p.varint(&r.price)
	number(p, &r.order)
	p.varint(&r.receivedNs)
	number(p, &r.count)
	r.first.pass(p)
}

func (q *quantities) pass(p *pass) {
	p.uvarint(&q.quantity)
	p.uvarint(&q.filled)
	p.uvarint(&q.leaves)
	p.varint(&q.lastPrice)
	p.varint(&q.notional)
	number(p, &q.version)
	number(p, &q.status)
}

func (a *answer) pass(p *pass) {
	a.quantities.pass(p)
	p.uvarint(&a.sequence)
	p.varint(&a.limit)
	number(p, &a.epoch)
	number(p, &a.reason)
	p.bool(&a.firm)
}

func (e *event) pass(p *pass) {
	p.uvarint(&e.executionID)
	p.uvarint(&e.matchID)
	p.varint(&e.eventNs)
	p.uvarint(&e.lastQuantity)
	p.varint(&e.price)
	p.uvarint(&e.quantity)
	p.uvarint(&e.filled)
	p.uvarint(&e.leaves)
	p.varint(&e.lastPrice)
	p.varint(&e.notional)
	number(p, &e.record)
	number(p, &e.version)
	number(p, &e.reason)
	number(p, &e.kind)
	number(p, &e.status)
	number(p, &e.liquidity)
	number(p, &e.about)
}

func passBookOrder(p *pass, o *matching.Order) {
	p.uvarint(&o.ID)
	number(p, &o.Instrument)
	number(p, &o.Group)
	number(p, &o.Side)
	number(p, &o.TimeInForce)
	p.bool(&o.PostOnly)
	number(p, &o.SelfTradePrevention)
	p.varint(&o.Price)
	p.uvarint(&o.Quantity)
	p.uvarint(&o.Leaves)
	p.uvarint(&o.Shown)
	p.uvarint(&o.DisplayQuantity)
}
