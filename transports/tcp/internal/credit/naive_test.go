package credit

import (
	"slices"
	"time"
)

// The naive twin of the pool: the same rules, said as plainly as possible. Its counters are 64 bits and never wrap, it has no sums but adds up what it needs,
// and its queues are slices. It does not size the float: a test tells both what that is.
type twin struct {
	config              Config
	maxFloors, maxSpare int64
	float, lag, large   int64
	relief              int64
	shares              []*twinShare // also closed ones with something in service
	queue               []*twinAccount
	hoard               []*twinShare
	asked               []*twinShare
	uptime, lastTick    int64
	shortSince          int64
	idleSince           int64
	used                bool                  // since the last tick, of the float
	told                map[*twinShare]uint32 // by the present call
	totals              totals
}

type twinAccount struct {
	name  string
	queue []*twinShare
}

type twinShare struct {
	account *twinAccount
	start   int64

	granted, released, used, completed int64
	own, spare, reserve, aside         int64
	queued, next, standing             int64
	closed, held, broken               bool
	grantedAt                          int64
	riding, demanded, prompt           bool
	ask, target, askedAt               int64
}

func newTwin(config Config) *twin {
	t := &twin{config: config.withDefaults(), shortSince: -1}
	t.maxFloors = min(int64(t.config.Capacity)/2, int64(t.config.Capacity)-int64(t.config.Largest))
	t.maxSpare = t.maxFloors / 32
	t.maxFloors -= t.maxSpare
	t.float = int64(t.config.MinFloat)
	return t
}

func (s *twinShare) unspent() int64 { return s.granted - s.released - s.used }
func (s *twinShare) out() int64     { return s.granted - s.released - s.completed }
func (s *twinShare) floor() int64 {
	if s.closed {
		return min(s.own+s.spare, s.out())
	}
	return s.own + s.spare
}
func (s *twinShare) hoarded() int64     { return min(s.aside, max(s.unspent()-s.floor(), 0)) }
func (s *twinShare) lent() int64        { return max(s.out()-s.floor(), 0) - s.hoarded() }
func (s *twinShare) more(n int64) int64 { return max(s.out()+n-s.floor(), 0) - s.lent() - s.hoarded() }
func (s *twinShare) first() int64       { return max(s.next, s.standing) }
func (s *twinShare) unmet() int64 {
	if s.closed {
		return 0
	}
	return max(max(s.queued, s.standing)-s.unspent(), 0)
}

func (t *twin) sum(of func(*twinShare) int64) (sum int64) {
	for _, s := range t.shares {
		sum += of(s)
	}
	return sum
}

func (t *twin) lent() int64 { return t.sum((*twinShare).lent) }
func (t *twin) floors() int64 {
	return t.sum(func(s *twinShare) int64 { return s.floor() + s.reserve })
}
func (t *twin) hoarded() int64 { return t.sum((*twinShare).hoarded) }
func (t *twin) ceiling() int64 { return int64(t.config.Capacity) - t.floors() - t.hoarded() }
func (t *twin) bound()         { t.float = min(t.float, t.ceiling()) }
func (t *twin) patience() int64 {
	return min(int64(t.config.Standing)+t.lag, mostPatience*int64(t.config.Standing))
}

func (t *twin) served(s *twinShare) bool {
	if s.closed || s.held || s.broken {
		return false
	}
	if s.used == s.completed && s.unspent() < s.first() {
		return true // nothing will happen to it by itself
	}
	return s.lent()+s.hoarded() <= t.float/2
}

func (t *twin) open(account string, start uint32) *twinShare {
	t.told = nil
	s := &twinShare{start: int64(start), used: int64(start), completed: int64(start), granted: int64(start), grantedAt: never}
	for _, o := range t.shares {
		if o.account.name == account && account != "" && !o.closed {
			s.account = o.account
		}
	}
	if s.account == nil {
		s.account = &twinAccount{name: account}
	}
	spare := t.sum(func(s *twinShare) int64 { return max(s.floor()-s.own, 0) })
	own := int64(t.config.Floor + t.config.Reserve)
	if t.floors()-spare+own <= t.maxFloors && t.floors()+t.lent()+t.hoarded()+own <= int64(t.config.Capacity) {
		s.own, s.reserve = int64(t.config.Floor), int64(t.config.Reserve)
		s.granted += s.own
	}
	t.shares = append(t.shares, s)
	t.bound()
	return s
}

// refresh puts a share where it belongs after a change.
func (t *twin) refresh(s *twinShare) {
	s.aside = s.hoarded()
	a := s.account
	if wait, waits := s.unmet() > 0 && t.served(s), slices.Contains(a.queue, s); wait && !waits {
		a.queue = append(a.queue, s)
		if len(a.queue) == 1 {
			t.queue = append(t.queue, a)
		}
	} else if !wait && waits {
		a.queue = without(a.queue, s)
		if len(a.queue) == 0 {
			t.queue = without(t.queue, a)
		}
	}
	if s.closed || s.unspent() <= s.floor() {
		t.hoard = without(t.hoard, s)
	} else if !slices.Contains(t.hoard, s) {
		t.hoard = append(t.hoard, s)
	}
	if s.closed || s.used+s.released >= s.target {
		t.asked = without(t.asked, s)
	}
}

func without[T comparable](list []T, what T) []T {
	return slices.DeleteFunc(list, func(v T) bool { return v == what })
}

func last[T comparable](list []T, what T) []T { return append(without(list, what), what) }

func (t *twin) grant(now int64, s *twinShare, units int64) {
	if s.more(units) > 0 {
		s.grantedAt, s.riding, s.demanded = now, false, s.queued > s.unspent()
		t.hoard = without(t.hoard, s)
	}
	s.granted += units
	t.refresh(s)
}

func (t *twin) tell(s, self *twinShare, what uint32) {
	if s != self {
		t.told[s] |= what
	}
}

// serve gives one message to each in turn, for as long as the float covers the next.
func (t *twin) serve(now int64, self *twinShare) {
	for len(t.queue) > 0 {
		a := t.queue[0]
		s := a.queue[0]
		var need int64
		if s.first() > s.unspent() {
			need = s.first() - s.unspent()
			t.float = max(t.float, min(s.first()-s.own, t.ceiling()))
		} else {
			need = min(s.next, s.queued-s.unspent())
		}
		if t.lent()+s.more(need) > t.float {
			return
		}
		t.queue, a.queue = last(t.queue, a), last(a.queue, s)
		t.grant(now, s, need)
		t.totals.grants++
		if s.standing <= s.unspent() {
			s.standing = 0
			t.refresh(s)
		}
		t.tell(s, self, noticeGranted)
	}
}

func (t *twin) restore(s, self *twinShare) {
	if need := s.own - s.out(); t.served(s) && need > 0 && (s.unmet() == 0 || s.first() <= s.own) {
		s.granted += need
		t.refresh(s)
		t.tell(s, self, noticeGranted)
	}
}

// frame is a REQUEST, or a DEMAND at a cost of 0. It returns whether it was in order.
func (t *twin) frame(now int64, s *twinShare, released uint32, cost, queued, next int64) bool {
	t.told = map[*twinShare]uint32{}
	back := max(int64(int32(released-uint32(s.released))), 0)
	if back+cost > s.unspent() || next > int64(t.config.Largest) {
		t.totals.violations++
		return false
	}
	t.used = t.used || cost > 0 && s.lent()+s.hoarded() > 0
	s.released += back
	s.used += cost
	if s.next, s.queued = next, max(queued, next); next == 0 {
		s.queued = 0
	}
	if cost > 0 {
		s.prompt = now-s.grantedAt <= t.patience()
	}
	t.refresh(s)
	if cost > t.large {
		t.large = cost
		t.float = max(t.float, min(keepBusy*cost, t.ceiling()))
	}
	t.restore(s, s)
	t.serve(now, s)
	return true
}

func (t *twin) answer(now int64, s *twinShare, cost int64) {
	t.told = map[*twinShare]uint32{}
	if need := max(cost, s.own) - s.unspent(); need > 0 && t.served(s) {
		spare := t.sum(func(s *twinShare) int64 { return max(s.floor()-s.own, 0) })
		more := s.more(need)
		switch {
		case len(t.queue) == 0 && t.lent()+more <= t.float:
			t.grant(now, s, need)
			s.riding, s.standing = true, 0
			t.totals.renewals++
		case cost <= s.own && spare+more <= t.maxSpare && t.floors()+t.lent()+t.hoarded()+more <= int64(t.config.Capacity):
			s.spare += more
			t.bound()
			s.granted += need
			t.refresh(s)
			s.riding, s.standing = true, 0
			t.totals.renewals++
		default:
			t.totals.refusals++
			if cost > s.own && s.prompt && s.queued <= s.unspent() {
				s.standing = cost
			}
		}
	}
	t.refresh(s)
	t.serve(now, s)
}

func (t *twin) complete(now int64, s *twinShare, cost int64) {
	t.told = map[*twinShare]uint32{}
	if s.closed {
		s.spare = max(s.floor()-s.own, 0)
	}
	s.completed += cost
	if s.riding {
		s.riding, s.grantedAt = false, now
		if slices.Contains(t.hoard, s) {
			t.hoard = last(t.hoard, s)
		}
	}
	s.spare -= min(s.spare, cost)
	t.refresh(s)
	t.restore(s, nil)
	t.serve(now, nil)
	if s.closed && s.out() == 0 {
		t.shares = without(t.shares, s)
	}
}

func (t *twin) hold(now int64, s *twinShare, held bool) {
	t.told = map[*twinShare]uint32{}
	s.held = held
	t.refresh(s)
	t.restore(s, nil)
	t.serve(now, nil)
}

func (t *twin) close(now int64, s *twinShare) {
	t.told = map[*twinShare]uint32{}
	s.closed, s.granted, s.reserve = true, s.used+s.released, 0
	t.refresh(s)
	t.serve(now, nil)
	if s.out() == 0 {
		t.shares = without(t.shares, s)
	}
}

func (t *twin) tick(now int64) {
	t.told = map[*twinShare]uint32{}
	gap := max(now-t.lastTick, 0)
	t.uptime += min(gap, int64(t.config.Standing))
	if gap > int64(t.config.Standing) { // the server was not there, or nobody waited
		t.shortSince, t.idleSince = -1, t.uptime
	}
	t.lastTick = now
	t.serve(now, nil)
	t.reclaim(now)
	float := t.float
	if idle := t.uptime - t.idleSince; len(t.queue) > 0 && idle >= int64(t.config.Standing) {
		for range min((idle-int64(t.config.Standing))/int64(TickEvery), 16) {
			float = min(2*float, t.ceiling())
		}
	}
	float, t.float = t.float, float
	t.relief = t.float - float
	t.serve(now, nil)
	t.float = min(t.float-t.relief, t.ceiling())
}

func (t *twin) reclaim(now int64) {
	for _, s := range slices.Clone(t.asked) {
		if t.uptime-s.askedAt >= int64(t.config.ReclaimAfter) {
			s.broken = true
			t.totals.violations++
			t.asked = without(t.asked, s)
			t.refresh(s)
			t.tell(s, nil, noticeViolated)
		}
	}
	if len(t.queue) == 0 || t.used {
		t.used, t.idleSince = false, t.uptime
	}
	if len(t.queue) == 0 {
		t.shortSince = -1
		return
	}
	if t.shortSince < 0 {
		t.shortSince = t.uptime
	}
	if t.uptime-t.shortSince < int64(t.config.Standing) {
		return
	}
	asked, patience := int64(0), t.patience()
	if t.uptime-t.idleSince >= int64(t.config.Standing) {
		patience = 0
	}
	for _, s := range slices.Clone(t.hoard) {
		age := now - s.grantedAt
		if age < patience {
			return
		}
		if s.riding {
			continue
		}
		s.aside += max(min(s.unspent()-s.floor()-s.aside, t.ceiling()-max(int64(t.config.Largest), t.lent())), 0)
		t.bound()
		switch {
		case slices.Contains(t.asked, s):
			asked += s.target - s.used - s.released
			continue
		case s.broken || asked >= t.sum((*twinShare).unmet) || s.demanded && age < patienceForDemand*t.patience():
			continue
		}
		s.ask = s.unspent() - s.floor()
		asked += s.ask
		s.target, s.askedAt, s.standing = s.used+s.released+s.ask, t.uptime, 0
		t.asked = append(t.asked, s)
		t.totals.reclaims++
		t.refresh(s)
		t.tell(s, nil, noticeReclaim)
	}
}

func (t *twin) stats() Stats {
	s := Stats{
		Capacity: t.config.Capacity, Floors: uint32(t.floors()), Float: uint32(t.float), Hoarded: uint32(t.hoarded()),
		Granted: uint32(t.sum((*twinShare).out)), Used: uint32(t.sum(func(s *twinShare) int64 { return s.used - s.completed })),
		Demand: uint32(t.sum((*twinShare).unmet)), QueueDelay: time.Duration(0),
		Grants: t.totals.grants, Renewals: t.totals.renewals, Refusals: t.totals.refusals, Reclaims: t.totals.reclaims, Violations: t.totals.violations,
	}
	for _, a := range t.queue {
		s.Queue += len(a.queue)
	}
	return s
}
