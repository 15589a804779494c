package credit

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// heard is a connection that notes what it was told.
type heard struct {
	what  uint32
	units uint32
	err   error
}

func (h *heard) Granted()           { h.what |= noticeGranted }
func (h *heard) Reclaim(u uint32)   { h.what |= noticeReclaim; h.units = u }
func (h *heard) Violated(err error) { h.what |= noticeViolated; h.err = err }

// peer is a connection of the model test: the share, its twin, and what the frames of its client and its server's outbox would hold.
type peer struct {
	heard
	share   *Share
	twin    *twinShare
	working []uint32 // costs of requests not answered
	leaving []uint32 // costs of answers not completed
	urgent  uint32
	closed  bool
	doomed  bool // its server is about to close it
	idle    bool // its client is, most of the time
}

// model drives a pool, and unless the controller runs its twin, by random calls.
type model struct {
	t       *testing.T
	rand    *rand.Rand
	pool    *Pool
	twin    *twin // nil while the controller sizes the float
	peers   []*peer
	most    int // peers
	now     int64
	lent    uint32 // of the float, before the call
	hoarded uint32 // likewise
	step    int
	call    string
	kinds   []uint32
	config  Config
}

const frozen = -1 << 62 // a count that never ends a window

func newModel(t *testing.T, seed uint64, live bool) *model {
	m := &model{t: t, rand: rand.New(rand.NewPCG(seed, 7)), kinds: []uint32{18, 18, 19, 21, 24, 81, 81, 200, 700}}
	m.most = 3 + m.rand.IntN(60)
	m.config = Config{Capacity: 4096, Largest: 800, ReclaimAfter: 20 * time.Millisecond}
	m.pool = New(m.config)
	if !live {
		m.pool.controller.completions, m.pool.controller.requests = frozen, frozen
		m.twin = newTwin(m.config)
	}
	return m
}

func (m *model) cost() uint32 { return m.kinds[m.rand.IntN(len(m.kinds))] }

func (m *model) one(n int) bool { return m.rand.IntN(n) == 0 }

// try makes one call and checks everything after it.
func (m *model) try() {
	m.step++
	m.lent, m.hoarded = m.pool.lent, m.pool.hoarded
	for _, p := range m.peers {
		p.doomed = p.doomed || p.heard.what&noticeViolated != 0
		p.heard = heard{}
	}
	if len(m.peers) == 0 || len(m.peers) < m.most && m.one(40) {
		m.open()
	} else {
		m.act(m.peers[m.rand.IntN(len(m.peers))])
	}
	m.check()
}

func (m *model) open() {
	p := &peer{idle: m.one(4)}
	account, start := []string{"", "a", "b", "c"}[m.rand.IntN(4)], -m.rand.Uint32N(3000)
	m.call = fmt.Sprintf("Open(%q, %d)", account, start)
	p.share = m.pool.Open(account, start, &p.heard)
	if m.twin != nil {
		p.twin = m.twin.open(account, start)
	}
	m.peers = append(m.peers, p)
}

func (m *model) act(p *peer) {
	s := p.share
	dice := m.rand.IntN(200)
	if p.idle && dice < 80 && !m.one(30) {
		dice = 199
	}
	switch {
	case !p.closed && (p.doomed || dice == 171 && m.one(4)):
		m.call = "Close"
		s.Close(m.now)
		p.closed = true
		if m.twin != nil {
			m.twin.close(m.now, p.twin)
		}
	case dice < 50 && !p.closed:
		m.request(p)
	case dice >= 50 && dice < 80 && !p.closed:
		m.demand(p)
	case dice >= 80 && dice < 125 && len(p.working) > 0:
		m.answer(p)
	case dice >= 125 && dice < 170 && len(p.leaving) > 0:
		m.complete(p, &p.leaving)
	case dice == 170 && p.closed && len(p.working) > 0: // its connection has died
		m.complete(p, &p.working)
	case dice >= 172 && dice < 175 && !p.closed:
		held := m.one(5)
		m.call = fmt.Sprintf("Hold(%v)", held)
		s.Hold(m.now, held)
		if m.twin != nil {
			m.twin.hold(m.now, p.twin, held)
		}
	case dice >= 175 && dice < 180:
		m.urgent(p)
	case dice >= 180 && dice < 182 && m.twin != nil: // the controller's part
		m.call = "float"
		m.pool.controller.float = min(uint32(60+m.rand.IntN(4096)), m.pool.ceiling())
		m.pool.controller.lag = m.rand.Int64N(int64(20 * time.Millisecond))
		m.twin.float, m.twin.lag = int64(m.pool.controller.float), m.pool.controller.lag
		m.tick()
	default:
		m.now += m.rand.Int64N(int64(time.Millisecond))
		if m.one(300) {
			m.now += int64(time.Second)
		}
		m.tick()
	}
	if p.closed && len(p.working) == 0 && len(p.leaving) == 0 {
		if out := s.outstanding(); out != 0 {
			m.t.Fatalf("step %d: %d units outstanding of a share that is gone", m.step, out)
		}
		for i := range m.peers {
			if m.peers[i] == p {
				m.peers[i] = m.peers[len(m.peers)-1]
				m.peers = m.peers[:len(m.peers)-1]
				break
			}
		}
	}
}

func (m *model) tick() {
	m.call = "Tick"
	if again := m.pool.Tick(m.now); again != m.pool.Hungry() {
		m.t.Fatalf("step %d: Tick says %v, Hungry %v", m.step, again, !again)
	}
	if m.twin != nil {
		m.twin.tick(m.now)
	}
}

// frame decides what the header of the client's next frame says; cost is of a request in it.
func (m *model) frame(p *peer, cost uint32) (released, queued, next uint32) {
	left := p.share.unspent() - min(cost, p.share.unspent())
	released = p.share.released
	switch {
	case p.heard.what&noticeReclaim != 0 || p.share.asking.in() && m.one(3):
		released += min(left, p.share.ask.Load())
	case m.one(10):
		released += m.rand.Uint32N(left + 1)
	case m.one(50):
		released -= m.rand.Uint32N(100) // an old frame again
	case m.one(2000):
		released += left + 1 + m.rand.Uint32N(100) // a lie
	}
	if m.one(2) {
		next = m.cost()
		queued = next
		if m.one(2) {
			queued += m.rand.Uint32N(3000)
		}
	}
	if m.one(2000) {
		next = m.config.Largest + 1
	}
	return released, queued, next
}

func (m *model) judge(p *peer, err error, fine bool) {
	if (err == nil) != fine {
		m.t.Fatalf("step %d: %s: %v, in order: %v", m.step, m.call, err, fine)
	}
}

func (m *model) request(p *peer) {
	unspent := p.share.unspent()
	cost := m.cost()
	if cost > unspent && !m.one(100) {
		if cost = unspent; m.one(2) || cost == 0 {
			m.demand(p)
			return
		}
	}
	released, queued, next := m.frame(p, cost)
	m.call = fmt.Sprintf("Request(%d, %d, %d, %d) with %d", released, cost, queued, next, unspent)
	err := p.share.Request(m.now, released, cost, queued, next)
	if err == nil {
		p.working = append(p.working, cost)
	} else {
		p.doomed = true
	}
	if m.twin != nil {
		m.judge(p, err, m.twin.frame(m.now, p.twin, released, int64(cost), int64(queued), int64(next)))
	}
}

func (m *model) demand(p *peer) {
	released, queued, next := m.frame(p, 0)
	m.call = fmt.Sprintf("Demand(%d, %d, %d)", released, queued, next)
	err := p.share.Demand(m.now, released, queued, next)
	p.doomed = err != nil
	if m.twin != nil {
		m.judge(p, err, m.twin.frame(m.now, p.twin, released, 0, int64(queued), int64(next)))
	}
}

func (m *model) answer(p *peer) {
	cost := p.working[0]
	p.working, p.leaving = p.working[1:], append(p.leaving, cost)
	if p.closed { // its answer is not made any more
		m.call = "none"
		if m.twin != nil {
			m.twin.told = nil
		}
		return
	}
	m.call = fmt.Sprintf("Answer(%d)", cost)
	granted, standing := p.share.Answer(m.now, cost)
	if granted != p.share.Granted() || standing != p.share.Standing() {
		m.t.Fatalf("step %d: Answer returns %d, %d; the share says %d, %d", m.step, granted, standing, p.share.Granted(), p.share.Standing())
	}
	if m.twin != nil {
		m.twin.answer(m.now, p.twin, int64(cost))
	}
}

func (m *model) complete(p *peer, from *[]uint32) {
	cost := (*from)[0]
	*from = (*from)[1:]
	m.call = fmt.Sprintf("Completed(%d)", cost)
	p.share.Completed(m.now, cost, 0)
	if m.twin != nil {
		m.twin.complete(m.now, p.twin, int64(cost))
	}
}

func (m *model) urgent(p *peer) {
	if m.twin != nil {
		m.twin.told = nil
	}
	m.call = "urgent"
	if p.urgent > 0 && m.one(2) {
		p.share.UrgentDone(18)
		p.urgent -= 18
		return
	}
	err := p.share.Urgent(18)
	if (err == nil) != (p.urgent+18 <= DefaultReserve) {
		m.t.Fatalf("step %d: Urgent with %d in service: %v", m.step, p.urgent, err)
	}
	if err == nil {
		p.urgent += 18
	} else if m.twin != nil {
		m.twin.totals.violations++
	}
}

// check holds the pool to its invariants, and to its twin.
func (m *model) check() {
	p := m.pool
	var out, busy, lent, hoarded, unmet, floors uint64
	waiting := 0
	for _, peer := range m.peers {
		s := peer.share
		if int32(s.unspent()) < 0 || int32(s.inService()) < 0 {
			m.t.Fatalf("step %d: %s: a counter has passed another: %d unspent, %d in service", m.step, m.call, int32(s.unspent()), int32(s.inService()))
		}
		out += uint64(s.granted.Load() - s.released - s.completed)
		busy += uint64(s.used - s.completed)
		lent += uint64(over(s.outstanding(), s.floor) - s.hoarded)
		hoarded += uint64(s.hoarded)
		unmet += uint64(s.unmet)
		floors += uint64(s.floor + s.reserve)
		if s.turn.in() {
			waiting++
		}
		// One that had half of the float before that grew is looked at again when something happens to it.
		if s.unmet > 0 && s.served() && !s.turn.in() && s.inService() == 0 && s.unspent() < max(s.next, s.standing) {
			m.t.Fatalf("step %d: %s: a share with demand is not in the queue", m.step, m.call)
		}
	}
	got := p.Stats()
	if out != uint64(got.Granted) || busy != uint64(got.Used) || unmet != uint64(got.Demand) || floors != uint64(got.Floors) || waiting != got.Queue || lent != uint64(p.lent) || hoarded != uint64(got.Hoarded) {
		m.t.Fatalf("step %d: %s: the sums are wrong: %+v, lent %d; added up: granted %d, used %d, demand %d, floors %d, queue %d, lent %d",
			m.step, m.call, got, p.lent, out, busy, unmet, floors, waiting, lent)
	}
	// Credit is conserved: what is out is covered by floors and float, and both by the capacity; a float that has shrunk gives nothing.
	// What of a hoard is used counts again.
	if lent > uint64(max(got.Float+p.relief, m.lent+over(m.hoarded, got.Hoarded))) {
		m.t.Fatalf("step %d: %s: %d of the float lent, with a float of %d and %d lent before", m.step, m.call, lent, got.Float, m.lent)
	}
	if out > floors+lent+hoarded || floors+lent+hoarded > uint64(got.Capacity) || floors+uint64(got.Float)+hoarded > uint64(got.Capacity) {
		m.t.Fatalf("step %d: %s: past the capacity: %d out, %d floors, %d lent: %+v", m.step, m.call, out, floors, lent, got)
	}
	// No deadlock: while somebody waits, what is free does not do for whose turn it is, and never because the float is too small.
	if waiting > 0 {
		s := p.turns.front().shares.front()
		if more := s.more(s.turnCost()); p.lent+more <= got.Float && p.relief == 0 {
			m.t.Fatalf("step %d: %s: %d of %d lent, and a share waits for %d", m.step, m.call, p.lent, got.Float, more)
		}
	}
	if m.twin != nil {
		m.compare(got)
	}
}

func (m *model) compare(got Stats) {
	want := m.twin.stats()
	if got.QueueDelay = 0; got != want {
		m.t.Fatalf("step %d: %s:\n%+v, its twin\n%+v", m.step, m.call, got, want)
	}
	for i, p := range m.peers {
		if p.closed {
			continue
		}
		if got, want := p.share.Granted(), uint32(p.twin.granted); got != want {
			m.t.Fatalf("step %d: %s: share %d has Granted %d, its twin %d", m.step, m.call, i, got, want)
		}
		if got, want := p.heard.what, m.twin.told[p.twin]; got != want {
			m.t.Fatalf("step %d: %s: share %d was told %03b, its twin %03b", m.step, m.call, i, got, want)
		}
		if p.heard.what&noticeReclaim != 0 && int64(p.heard.units) != p.twin.ask {
			m.t.Fatalf("step %d: %s: share %d was asked for %d units, its twin for %d", m.step, m.call, i, p.heard.units, p.twin.ask)
		}
	}
}

// TestModel compares the pool with its naive twin after each of many random calls. TCP_CREDIT_STEPS says how many.
func TestModel(t *testing.T) {
	runModel(t, false)
}

// TestModelWithController holds the pool to its invariants while the controller sizes the float.
func TestModelWithController(t *testing.T) {
	runModel(t, true)
}

func runModel(t *testing.T, live bool) {
	t.Parallel()
	steps := 100_000
	if text := os.Getenv("TCP_CREDIT_STEPS"); text != "" {
		var err error
		if steps, err = strconv.Atoi(text); err != nil {
			t.Fatalf("TCP_CREDIT_STEPS: %v", err)
		}
	}
	const run = 20_000
	var grants, renewals, reclaims, violations uint64
	for seed := uint64(0); steps > 0; seed++ {
		m := newModel(t, seed, live)
		for range min(run, steps) {
			m.try()
			if t.Failed() {
				return
			}
		}
		steps -= run
		s := m.pool.Stats()
		grants, renewals, reclaims, violations = grants+s.Grants, renewals+s.Renewals, reclaims+s.Reclaims, violations+s.Violations
	}
	t.Logf("%d grants, %d renewals, %d reclaims, %d violations", grants, renewals, reclaims, violations)
	if grants == 0 || renewals == 0 || reclaims == 0 || violations == 0 {
		t.Error("a rule that was never used was not tested")
	}
}
