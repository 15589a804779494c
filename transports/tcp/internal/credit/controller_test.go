package credit

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"
)

// event is something that happens at a time of the simulation.
type event struct {
	at   int64
	what func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// sim is one server that handles a request at a time, and clients in closed loop behind a network of constant delay.
type sim struct {
	t       *testing.T
	pool    *Pool
	now     int64
	events  events
	rand    *rand.Rand
	trip    int64 // one way, ns
	service func() int64
	cost    uint32
	queue   []*simClient // requests that have arrived
	serving bool
	ticking bool

	completed int
	delays    []int64 // from arrival to completion
}

type simClient struct {
	sim      *sim
	share    *Share
	credit   uint32 // Granted as the client knows it
	used     uint32
	waiting  bool // for credit
	standing bool
	arrived  int64
}

func newSim(t *testing.T, config Config, clients int, cost uint32, trip time.Duration, service time.Duration) *sim {
	s := &sim{t: t, pool: New(config), rand: rand.New(rand.NewPCG(1, 2)), trip: int64(trip), cost: cost, now: 1}
	s.slow(service)
	for range clients {
		c := &simClient{sim: s}
		c.share = s.pool.Open("", 0, c)
		c.credit = c.share.Granted()
		s.at(s.rand.Int64N(int64(time.Millisecond)), c.next)
	}
	return s
}

// slow sets the mean time of a request.
func (s *sim) slow(service time.Duration) {
	s.service = func() int64 { return int64(float64(service) * (0.5 + s.rand.Float64())) }
}

func (s *sim) at(in int64, what func()) { heap.Push(&s.events, event{s.now + in, what}) }

func (s *sim) run(d time.Duration) {
	s.completed, s.delays = 0, s.delays[:0]
	for end := s.now + int64(d); s.events[0].at <= end; {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.what()
		if s.pool.Hungry() && !s.ticking {
			s.ticking = true
			s.at(int64(TickEvery), s.tick)
		}
	}
}

func (s *sim) tick() {
	s.ticking = false
	s.pool.Tick(s.now)
}

// next is the client's: it has a message to send.
func (c *simClient) next() {
	if c.credit-c.used >= c.sim.cost {
		c.waiting = false
		c.used += c.sim.cost
		c.sim.at(c.sim.trip, func() {
			c.arrived = c.sim.now
			c.sim.queue = append(c.sim.queue, c)
			c.sim.serve()
		})
		return
	}
	if !c.waiting && !c.standing {
		c.sim.at(c.sim.trip, func() {
			if err := c.share.Demand(c.sim.now, 0, c.sim.cost, c.sim.cost); err != nil {
				c.sim.t.Error(err)
			}
			c.Granted()
		})
	}
	c.waiting = true
}

func (c *simClient) Granted() {
	granted := c.share.Granted()
	c.sim.at(c.sim.trip, func() {
		if after(granted, c.credit) {
			c.credit, c.standing = granted, false
		}
		if c.waiting {
			c.next()
		}
	})
}

// Reclaim comes when the server is so far behind that what is on its way looks like a hoard. The client has nothing to give back, and no place any more.
func (c *simClient) Reclaim(uint32) {
	c.sim.at(c.sim.trip, func() {
		c.standing = false
		if c.waiting {
			c.waiting = false
			c.next()
		}
	})
}

func (c *simClient) Violated(err error) { c.sim.t.Error(err) }

// serve is the server's: it takes the next request if it can.
func (s *sim) serve() {
	if s.serving || len(s.queue) == 0 {
		return
	}
	c := s.queue[0]
	s.queue = s.queue[1:]
	s.serving = true
	if err := c.share.Request(s.now, 0, s.cost, 0, 0); err != nil {
		s.t.Fatal(err)
	}
	work := s.service()
	s.at(work, func() {
		granted, standing := c.share.Answer(s.now, s.cost)
		c.share.Completed(s.now, s.cost, time.Duration(work))
		s.completed++
		s.delays = append(s.delays, s.now-c.arrived-work)
		s.at(s.trip, func() {
			if !after(c.credit, granted) {
				c.credit, c.standing = granted, standing >= s.cost
			}
			c.next()
		})
		s.serving = false
		s.serve()
	})
}

func (s *sim) utilization(d, service time.Duration) float64 {
	return float64(s.completed) * float64(service) / float64(d)
}

func (s *sim) queueing() time.Duration {
	var sum int64
	for _, d := range s.delays {
		sum += d
	}
	return time.Duration(sum / int64(max(len(s.delays), 1)))
}

// TestControllerKeepsTheServerBusyAndTheQueueShort has many clients with large messages, near by.
func TestControllerKeepsTheServerBusyAndTheQueueShort(t *testing.T) {
	const service = 40 * time.Microsecond
	s := newSim(t, Config{Largest: 1400}, 500, 81, 50*time.Microsecond, service)
	s.run(time.Second)
	s.run(time.Second)
	t.Logf("float %d, utilization %.3f, mean queueing %v, %+v", s.pool.Stats().Float, s.utilization(time.Second, service), s.queueing(), s.pool.Stats())
	if u := s.utilization(time.Second, service); u < 0.97 {
		t.Errorf("the server is busy for %.3f of the time", u)
	}
	if q := s.queueing(); q > 1200*time.Microsecond {
		t.Errorf("requests wait %v at the server", q)
	}
	if r := s.pool.Stats().Reclaims; r != 0 {
		t.Errorf("%d RECLAIMs to clients that hold nothing back", r)
	}
}

// TestControllerShrinksWhatIsTooMuch begins with a float that makes requests wait for many times the target.
func TestControllerShrinksWhatIsTooMuch(t *testing.T) {
	const service = 40 * time.Microsecond
	s := newSim(t, Config{MinFloat: 20000}, 500, 81, 50*time.Microsecond, service)
	s.pool.controller.minFloat = 0
	s.run(100 * time.Millisecond)
	first := s.queueing()
	s.run(400 * time.Millisecond)
	s.run(time.Second)
	t.Logf("at first %v, then %v; %+v", first, s.queueing(), s.pool.Stats())
	if q := s.queueing(); q > 1500*time.Microsecond {
		t.Errorf("requests wait %v at the server", q)
	}
	if u := s.utilization(time.Second, service); u < 0.97 {
		t.Errorf("the server is busy for %.3f of the time", u)
	}
	// A server that becomes ten times slower has ten times less float.
	before := s.pool.Stats().Float
	s.slow(10 * service)
	s.run(2 * time.Second)
	s.run(time.Second)
	t.Logf("ten times slower: %v, %+v", s.queueing(), s.pool.Stats())
	if f := s.pool.Stats().Float; f > before/2 && f > keepBusy*81 {
		t.Errorf("a float of %d, %d before the server became slower", f, before)
	}
	if u := s.utilization(time.Second, 10*service); u < 0.95 {
		t.Errorf("the slow server is busy for %.3f of the time", u)
	}
}

// TestControllerGrowsForDistance has clients so far away that the float covers a fraction of what is under way.
func TestControllerGrowsForDistance(t *testing.T) {
	const service = 40 * time.Microsecond
	s := newSim(t, Config{Largest: 100}, 500, 81, 2*time.Millisecond, service)
	s.run(100 * time.Millisecond)
	first := s.utilization(100*time.Millisecond, service)
	s.run(5 * time.Second)
	s.run(time.Second)
	u := s.utilization(time.Second, service)
	t.Logf("at first %.3f of the time, then %.3f; %v, %+v", first, u, s.queueing(), s.pool.Stats())
	if first > 0.5 {
		t.Errorf("busy for %.3f of the time at once: nothing to grow for", first)
	}
	if u < 0.9 {
		t.Errorf("the server is busy for %.3f of the time", u)
	}
}

// TestControllerHoldsWorkForWhoParks looks at the lower bound in time.
func TestControllerHoldsWorkForWhoParks(t *testing.T) {
	const service = 40 * time.Microsecond
	s := newSim(t, Config{Largest: 100, MinWork: time.Millisecond}, 500, 81, 10*time.Microsecond, service)
	s.run(time.Second)
	work := time.Duration(float64(s.pool.Stats().Float) / 81 * float64(service))
	t.Logf("%v of work, %+v", work, s.pool.Stats())
	if work < 900*time.Microsecond {
		t.Errorf("a float of %v of work", work)
	}
}

// TestControllerIsNotMovedByFewSlowClients lets some clients take long for every grant.
func TestControllerIsNotMovedByFewSlowClients(t *testing.T) {
	const service = 40 * time.Microsecond
	s := newSim(t, Config{Largest: 1400}, 400, 81, 50*time.Microsecond, service)
	for range 20 {
		c := &simClient{sim: s}
		c.share = s.pool.Open("", 0, slowNotice{c, 3 * time.Millisecond})
		c.credit = c.share.Granted()
		s.at(1, c.next)
	}
	s.run(time.Second)
	s.run(time.Second)
	t.Logf("%v, %+v", s.queueing(), s.pool.Stats())
	if u := s.utilization(time.Second, service); u < 0.97 {
		t.Errorf("the server is busy for %.3f of the time", u)
	}
}

// slowNotice is a client that sees its grants late.
type slowNotice struct {
	*simClient
	late time.Duration
}

func (n slowNotice) Granted() {
	n.sim.at(int64(n.late), n.simClient.Granted)
}
