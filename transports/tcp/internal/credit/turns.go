package credit

// fits reports whether the float covers another need units for a share.
func (p *Pool) fits(s *Share, need uint32) bool {
	return p.lent+s.more(need) <= p.controller.float
}

// more is what need units take from the float, beyond the floor.
func (s *Share) more(need uint32) uint32 {
	return over(s.outstanding()+need, s.floor) - s.lent - s.hoarded
}

// extend lets a share hold its floor twice for a moment: unspent, while what it was used for last is answered and on its way to the kernel. So a small answer
// carries its connection's next floor also while the pool is short, and no frame of its own has to. All shares together have a small part of the pool for this.
func (p *Pool) extend(s *Share, need uint32) bool {
	more := s.more(need)
	if p.extended+more > p.maxExtended || p.floors+p.lent+p.hoarded+more > p.config.Capacity {
		return false
	}
	s.floor += more
	p.floors += more
	p.extended += more
	p.bound()
	s.granted.Add(need)
	p.settle(s)
	return true
}

// contract ends an extension when an answer of this cost is through.
func (p *Pool) contract(s *Share, cost uint32) {
	if less := min(over(s.floor, s.own), cost); less > 0 {
		s.floor -= less
		p.floors -= less
		p.extended -= less
	}
}

// turnCost is what the share's turn grants: what the next message lacks, or, where that is covered, as much again. The cost of the messages behind the next is not
// known before they are next, so it is taken for the same.
func (s *Share) turnCost() uint32 {
	unspent := s.unspent()
	if first := max(s.next, s.standing); first > unspent {
		return first - unspent
	}
	return min(s.next, s.queued-unspent)
}

// grant raises Granted. Out of the float it makes the share the owner of the latest grant.
func (p *Pool) grant(now int64, s *Share, units uint32) {
	if s.more(units) > 0 {
		s.grantedAt, s.riding, s.demanded = now, false, s.queued > s.unspent()
		p.unspent.remove(&s.hoard) // settle puts it at the end
	}
	s.granted.Add(units)
	p.settle(s)
}

// settle brings the pool's sums and lists up to what the share's counters say. It follows every change of these.
func (p *Pool) settle(s *Share) {
	out, busy, unspent := s.outstanding(), s.inService(), s.unspent()
	if s.closed && s.floor > out { // a closed share holds its floor only as far as it is in service
		p.floors -= s.floor - out
		p.extended -= min(over(s.floor, s.own), s.floor-out)
		s.floor = out
	}
	hoarded := min(s.hoarded, over(unspent, s.floor)) // what is used or given back is of the hoard first
	lent, unmet := over(out, s.floor)-hoarded, uint32(0)
	if !s.closed {
		unmet = over(max(s.queued, s.standing), unspent)
	}
	p.lent += lent - s.lent
	p.hoarded += hoarded - s.hoarded
	p.outstanding += out - s.out
	p.inService += busy - s.busy
	p.unmet += unmet - s.unmet
	s.lent, s.hoarded, s.out, s.busy, s.unmet = lent, hoarded, out, busy, unmet

	p.line(s, unmet > 0 && s.served())
	if unspent > s.floor && !s.closed {
		if !s.hoard.in() {
			p.unspent.push(&s.hoard)
		}
	} else {
		p.unspent.remove(&s.hoard)
	}
	if s.asking.in() && (s.closed || !after(s.target, s.spent())) {
		p.asked.remove(&s.asking)
	}
}

// line puts a share at the end of the queue or takes it out.
func (p *Pool) line(s *Share, wait bool) {
	a := s.account
	switch {
	case wait == s.turn.in():
	case wait:
		if a.shares.empty() {
			p.turns.push(&a.place)
		}
		a.shares.push(&s.turn)
		p.waiting++
	default:
		a.shares.remove(&s.turn)
		p.waiting--
		if a.shares.empty() {
			p.turns.remove(&a.place)
		}
	}
}

// serve grants turns while the float covers the next. Whoever cannot be covered yet is waited for, so that small messages do not keep a large one waiting for
// ever. self is the share whose call it is.
func (p *Pool) serve(now int64, self *Share, told *notices) {
	for {
		a := p.turns.front()
		if a == nil {
			return
		}
		s := a.shares.front()
		need := s.turnCost()
		more := s.more(need)
		if first := max(s.next, s.standing); first > s.unspent() {
			// A float that is smaller than the message whose turn it is would never grant it. The ceiling is no smaller than the largest request.
			p.controller.float = max(p.controller.float, min(over(first, s.own), p.ceiling()))
		}
		if p.lent+more > p.controller.float {
			return
		}
		turns := uint64(1)
		if more > 0 && p.turns.single() && a.shares.single() && s.next > 0 {
			// Nobody else waits: as many turns as there would be, at once.
			rest := min(over(s.queued, s.unspent()+need), p.controller.float-p.lent-more) / s.next
			if lent, half := s.lent+s.hoarded+more, p.controller.float/2; lent > half {
				rest = 0
			} else {
				rest = min(rest, (half-lent)/s.next+1)
			}
			need += rest * s.next
			turns += uint64(rest)
		}
		p.totals.grants += turns
		if !s.waited {
			s.waited, s.sampleMark = true, s.granted.Load()
		}
		p.turns.last(&a.place)
		a.shares.last(&s.turn)
		p.grant(now, s, need)
		if s.standing <= s.unspent() {
			s.standing = 0
			p.settle(s)
		}
		if s != self {
			told.add(s, noticeGranted)
		}
	}
}

// restore gives a share what costs no float: its floor, as soon as what has used it is completed. Where it stands in the queue for more
// than its floor, all of that comes in its turn, in one frame.
func (p *Pool) restore(s, self *Share, told *notices) {
	if !s.served() || s.unmet > 0 && max(s.next, s.standing) > s.own {
		return
	}
	if need := over(s.own, s.outstanding()); need > 0 {
		s.granted.Add(need)
		p.settle(s)
		if s != self {
			told.add(s, noticeGranted)
		}
	}
}
