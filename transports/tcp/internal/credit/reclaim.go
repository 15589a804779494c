package credit

import (
	"fmt"
	"time"
)

// patienceForDemand is how many times as long a grant may lie unused that the client had asked for: the request is likely to be on its way, held up by the network or by
// this server.
const patienceForDemand = 8

// mostPatience bounds patience, in times of Config.Standing, so that clients which are slow on purpose cannot raise it for themselves without end.
const mostPatience = 4

// patience is how long a grant may take until the request that uses it is here, for its share to count as prompt. What the queue before the server adds is not
// the client's doing.
func (p *Pool) patience() int64 {
	return min(int64(p.config.Standing)+p.controller.lag, mostPatience*int64(p.config.Standing))
}

// reclaim takes float that lies unused while others wait for a hoard, asks for it back, the oldest first and no more than they wait for, and gives up shares that
// were asked and do neither give back nor use what they have.
func (p *Pool) reclaim(now int64, told *notices) {
	for s := p.asked.front(); s != nil && p.uptime-s.askedAt >= int64(p.config.ReclaimAfter); s = p.asked.front() {
		s.broken = fmt.Errorf("a RECLAIM of %d units that was neither followed nor used up within %v", s.ask.Load(), p.config.ReclaimAfter)
		p.totals.violations++
		p.asked.remove(&s.asking)
		p.settle(s)
		told.add(s, noticeViolated)
	}
	if p.waiting == 0 || p.uses != p.usesSeen {
		p.usesSeen, p.idleSince = p.uses, p.uptime
	}
	if p.waiting == 0 {
		p.shortSince = -1
		return
	}
	if p.shortSince < 0 {
		p.shortSince = p.uptime
	}
	if p.uptime-p.shortSince < int64(p.config.Standing) {
		return
	}
	asked, patience := uint32(0), p.patience()
	if p.idle() >= p.config.Standing {
		patience = 0
	}
	for s := p.unspent.front(); s != nil; s = p.unspent.after(&s.hoard) {
		age := now - s.grantedAt
		if age < patience {
			return // so are all behind it
		}
		if s.riding {
			continue
		}
		units := s.unspent() - s.floor
		p.setAside(s, units)
		switch {
		case s.asking.in():
			asked += s.target - s.spent()
			continue
		case s.broken != nil || asked >= p.unmet || s.demanded && age < patienceForDemand*p.patience():
			continue
		}
		asked += units
		s.ask.Store(units)
		s.target, s.askedAt, s.standing = s.spent()+units, p.uptime, 0
		p.asked.push(&s.asking)
		p.totals.reclaims++
		p.settle(s)
		told.add(s, noticeReclaim)
	}
}

// idle is for how long somebody has waited and nobody has used any of the float.
func (p *Pool) idle() time.Duration { return time.Duration(p.uptime - p.idleSince) }

// relieve goes on with the turns after reclaim. When the whole float lies with clients that do not use it, the server has nothing to do, and a float that keeps its
// queue short is no use: then twice as much is granted as at the tick before, so that hundreds who hoard are through in some ticks.
func (p *Pool) relieve(now int64, told *notices) {
	p.relief = 0
	if idle := p.idle(); p.waiting > 0 && idle >= p.config.Standing {
		doubled := min(uint((idle-p.config.Standing)/TickEvery), 16)
		p.relief = uint32(min(uint64(p.controller.float)<<doubled, uint64(p.ceiling()))) - p.controller.float
	}
	p.controller.float += p.relief
	p.serve(now, nil, told)
	p.controller.float = min(p.controller.float-p.relief, p.ceiling())
}

// setAside takes unspent float of a share for a hoard, as far as the capacity leaves room for another such amount of float, and for the largest request.
func (p *Pool) setAside(s *Share, units uint32) {
	more := min(over(units, s.hoarded), over(p.ceiling(), max(p.config.Largest, p.lent)))
	if more > 0 {
		s.hoarded += more
		p.hoarded += more
		s.lent -= more
		p.lent -= more
		p.bound()
	}
}
