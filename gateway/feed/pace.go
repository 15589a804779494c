package feed

import (
	"slices"
	"sync"
	"time"

	"tailgate/transports"
)

// pace hands out turns of a batch each to readers that are far behind, at a steady rate. Only those that wait stand in line: whoever leaves takes
// his claim with him, and a turn that was not used is not charged. Accounts are served in turn, so that an account gets
// one share however many readers it has; within an account it is first come, first served. Safe for concurrent use.
//
// There are at most as many claims as readers, and as many shares as accounts.
type pace struct {
	cost time.Duration // of a turn, by which the next one is later

	mu      sync.Mutex // a leaf
	next    time.Time  // when the next turn begins
	waiting int        // claims in line
	line    []*share   // in the order of their turns; one that nobody waits for any more is let go when its turn comes
	shares  map[uint32]*share
	timer   *time.Timer // calls grant when the next turn begins
}

// share is an account's place in the line.
type share struct {
	account uint32
	claims  []*claim
}

// claim is one reader's wish for a turn. It is used again for the reader's next one.
type claim struct{ granted chan struct{} } // holds one, so that granting never blocks

func newClaim() claim { return claim{granted: make(chan struct{}, 1)} }

// maxLate bounds what is made up for when the timer was late: a process that slept for long must not let everybody go at once.
const maxLate = 10 * time.Millisecond

func newPace(eventsPerSecond int) pace {
	return pace{cost: transports.MaxEvents * time.Second / time.Duration(eventsPerSecond), shares: make(map[uint32]*share)}
}

// ask puts a claim in line. It is granted at once where it is time and nobody waits.
func (p *pace) ask(account uint32, c *claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.waiting == 0 && p.next.Before(now) {
		p.next = now // time in which nobody waited is not made up for
	}
	s := p.shares[account]
	if s == nil {
		s = &share{account: account}
		p.shares[account] = s
		p.line = append(p.line, s)
	}
	s.claims = append(s.claims, c)
	p.waiting++
	p.grant()
}

// giveUp takes a claim back, and its turn if it was granted meanwhile.
func (p *pace) giveUp(account uint32, c *claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.shares[account]; s != nil {
		if i := slices.Index(s.claims, c); i >= 0 {
			s.claims = slices.Delete(s.claims, i, i+1)
			p.waiting--
			return
		}
	}
	<-c.granted
	p.next = p.next.Add(-p.cost)
	p.grant()
}

// grant gives out the turns whose time has come, and sets the timer for the next one. p.mu is held.
func (p *pace) grant() {
	for len(p.line) > 0 {
		s := p.line[0]
		if len(s.claims) == 0 {
			p.line = p.line[1:]
			delete(p.shares, s.account)
			continue
		}
		now := time.Now()
		if wait := p.next.Sub(now); wait > 0 {
			if p.timer == nil {
				p.timer = time.AfterFunc(wait, p.tick)
			} else {
				p.timer.Reset(wait)
			}
			return
		}
		if late := now.Add(-maxLate); p.next.Before(late) {
			p.next = late
		}
		p.next = p.next.Add(p.cost)
		s.claims[0].granted <- struct{}{}
		s.claims = slices.Delete(s.claims, 0, 1)
		p.waiting--
		p.line = append(p.line[1:], s)
	}
}

func (p *pace) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grant()
}
