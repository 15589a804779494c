package orders

import (
	"fmt"

	"tailgate/matching"
	pb "tailgate/proto/gen/orderentry/v1"
)

// restore reads a snapshot into a new state. It follows no number out of it before it has looked whether there is such a record, since
// damage is known only at the end.
func (s *State) restore(p *pass) error {
	s.passHeader(p)
	p.must(s.epoch > 0)
	p.times(0, func(int) {
		var name string
		p.text(&name, MaxIDBytes)
		p.must(name != "" && len(s.groups) < MaxGroups)
		s.groupNumber[name] = uint32(len(s.groups))
		s.groups = append(s.groups, name)
	})
	s.restoreDefinitions(p)
	if err := s.restoreSessions(p); err != nil {
		return err
	}
	for _, d := range []*day{&s.yesterday, &s.today} {
		if err := s.restoreDay(p, d); err != nil {
			return err
		}
	}
	if p.record() {
		p.must(len(s.groupNumber) == len(s.groups) && len(s.firmNumber) == len(s.firms) && len(s.accountNumber) == len(s.accounts))
	}
	if err := s.restoreStreams(p); err != nil {
		return err
	}
	s.restoreLists(p)
	if err := s.restoreBooks(p); err != nil {
		return err
	}
	if p.err == nil && p.in.failed {
		return fmt.Errorf("%w: a record is wrong", ErrSnapshot)
	}
	if p.err == nil && len(p.in.rest) > 0 {
		return fmt.Errorf("%w: there is more behind what should be its end", ErrSnapshot)
	}
	return p.err
}

func (s *State) restoreDefinitions(p *pass) {
	p.times(0, func(int) {
		var f firm
		f.pass(p)
		p.must(f.name != "" && len(s.firms) < MaxFirms)
		s.firmNumber[f.name] = uint32(len(s.firms))
		s.firms = append(s.firms, f)
	})
	p.times(0, func(int) {
		var in instrument
		in.pass(p)
		number := uint32(len(s.instruments))
		_, known := s.bySymbol[in.Symbol]
		p.must(!known && s.engine.AddInstrument(number) == nil)
		s.bySymbol[in.Symbol] = number
		s.instruments = append(s.instruments, in)
	})
	p.times(0, func(int) {
		var a account
		a.pass(p)
		p.must(a.name != "" && len(s.accounts) < MaxAccounts)
		p.must(int(a.firm) <= len(s.firms) && int(a.group) <= len(s.groups) && len(a.risk.positions) <= len(s.instruments))
		s.accountNumber[a.name] = uint32(len(s.accounts))
		s.accounts = append(s.accounts, a)
	})
	for i := range s.firms {
		s.findRestricted(&s.firms[i].risk)
	}
	for i := range s.accounts {
		a := &s.accounts[i]
		s.findRestricted(&a.risk)
		if !p.in.failed {
			s.moveExposure(&account{risk: a.risk}, a.firm)
		}
	}
}

// restoreSessions reads the table. Places that were let go may be beyond what it may hold now: nobody gets them.
func (s *State) restoreSessions(p *pass) error {
	t := &s.sessions
	places := 0 // up to the last one that is taken
	p.times(0, func(i int) {
		var e session
		e.pass(p)
		p.must(i < MaxSessionsCeiling && (int(e.account) < len(s.accounts) || e.id.IsZero()))
		t.table = append(t.table, e)
		if e.id.IsZero() {
			t.letGo++
			return
		}
		_, twice := t.number[key{e.account, e.id}]
		p.must(!twice)
		t.take(uint32(i), e.account, e.id)
		places = i + 1
	})
	if p.err == nil && !p.in.failed && places > s.options.MaxSessions {
		return fmt.Errorf("%w: %w: the snapshot has sessions in %d places, max_sessions is %d", ErrReplay, ErrSessionsFull, places, s.options.MaxSessions)
	}
	return nil
}

// restoreDay reads the records of a day.
func (s *State) restoreDay(p *pass, d *day) error {
	d.passHead(p)
	today := d == &s.today
	p.times(0, func(int) {
		o, number := d.orders.add()
		*o = order{}
		o.pass(p)
		p.must(s.isWhole(o, today) && o.id == d.expectedID(number, o.id))
	})
	if today && int(d.orders.length) > s.options.MaxIDs {
		return fmt.Errorf("%w: %w: the snapshot has %d orders, max_ids is %d", ErrReplay, ErrIDsFull, d.orders.length, s.options.MaxIDs)
	}
	p.must(d.carried <= d.orders.length)
	p.times(0, func(int) {
		r, _ := d.requests.add()
		*r = request{}
		r.pass(p)
		p.must(int(r.account) < len(s.accounts) && r.order <= d.orders.length)
	})
	if today && int(d.requests.length) > s.options.MaxIDs {
		return fmt.Errorf("%w: %w: the snapshot has %d requests, max_ids is %d", ErrReplay, ErrIDsFull, d.requests.length, s.options.MaxIDs)
	}
	p.times(0, func(int) {
		o, _ := d.expired.add()
		*o = order{}
		o.pass(p)
		p.must(s.isWhole(o, false))
	})
	return nil
}

// isWhole tells an order whose numbers lead somewhere; an open one must be able to rest.
func (s *State) isWhole(o *order, today bool) bool {
	if int(o.account) >= len(s.accounts) {
		return false
	}
	if !today || o.now.leaves == 0 {
		return true
	}
	return int(o.instrument) < len(s.instruments) && (o.side == matching.Buy || o.side == matching.Sell) &&
		s.sessions.isOf(o.session, o.account) && o.now.status != pb.OrderStatus_ORDER_STATUS_REJECTED
}

// expectedID is the id that a record must have: that of a carried one is below all later ones and above those before it.
func (d *day) expectedID(number uint32, id uint64) uint64 {
	switch {
	case number >= d.carried:
		return d.base + uint64(number) + 1
	case id == 0 || id > d.base+uint64(d.carried), number > 0 && id <= d.orders.at(number-1).id:
		return id + 1 // not this one
	}
	return id
}

func (s *State) restoreStreams(p *pass) error {
	used := 0
	for i := range s.accounts {
		a := &s.accounts[i]
		for _, t := range []*stream{&a.before, &a.events} {
			d := &s.yesterday
			if t == &a.events {
				d = &s.today
			}
			p.times(0, func(int) {
				e := s.store.add(t)
				*e = event{}
				e.pass(p)
				p.must(d.has(e, uint32(i)))
			})
		}
		used += int(a.events.length)
	}
	if p.err == nil && used > s.options.MaxEvents {
		return fmt.Errorf("%w: %w: the snapshot has %d events of the day, max_events is %d", ErrReplay, ErrEventsFull, used, s.options.MaxEvents)
	}
	s.store.used = used
	return nil
}

// has reports whether what an account's event speaks of is there, and the account's.
func (d *day) has(e *event, account uint32) bool {
	switch e.about {
	case aboutOrder:
		return e.record < d.orders.length && d.orders.at(e.record).account == account
	case aboutExpired:
		return e.record < d.expired.length && d.expired.at(e.record).account == account
	case aboutUnknown:
		return e.record < d.requests.length && d.requests.at(e.record).account == account
	}
	return false
}

// restoreLists reckons what is not in the snapshot: tables of ids, lists, exposures.
func (s *State) restoreLists(p *pass) {
	if p.err != nil || p.in.failed {
		return
	}
	for number := range s.today.orders.length {
		o := s.today.orders.at(number)
		s.listOrder(o, number)
		if o.now.leaves > 0 {
			s.linkOpen(o, number)
			s.enter(o)
		}
	}
	// An order that has ended leads to the open one behind it, for the pages that ended at it.
	next := make([]uint32, len(s.accounts))
	for number := s.today.orders.length; number > 0; number-- {
		o := s.today.orders.at(number - 1)
		if o.rests {
			next[o.account] = number
		} else {
			o.nextOpen = next[o.account]
		}
	}
	requests := s.today.requests
	s.today.requests.length = 0
	for number := range requests.length {
		r := *requests.at(number)
		s.addRequest(&r)
	}
}

// restoreBooks reads what rests, which must be the open orders.
func (s *State) restoreBooks(p *pass) error {
	open := 0
	for i := range s.accounts {
		open += int(s.accounts[i].risk.openOrders)
	}
	var fault error
	resting := 0
	p.times(0, func(int) {
		var o matching.Order
		passBookOrder(p, &o)
		resting++
		if p.in.failed || fault != nil {
			return
		}
		number, found := s.today.find(min(o.ID, s.today.lastID()))
		p.must(found && number < s.today.orders.length && s.today.orders.at(number).isIn(&o))
		if !p.in.failed {
			fault = s.engine.Restore(o)
		}
	})
	if fault != nil {
		return fmt.Errorf("%w: %w", ErrReplay, fault)
	}
	p.must(resting == open)
	return nil
}

// isIn reports whether the book's order is this one.
func (o *order) isIn(b *matching.Order) bool {
	return o.id == b.ID && o.instrument == b.Instrument && o.side == b.Side && o.timeInForce == b.TimeInForce && o.price == b.Price &&
		o.now.leaves == b.Leaves && o.now.leaves > 0
}
