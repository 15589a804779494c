// Package credit decides who may send, and when: the receiver's own limit on what its clients send it.
//
// A server has one [Pool], a connection one [Share] of it. What a request may cost at most in memory, both ways, is its cost in units; a client may send only what
// the counter Granted of its share covers. Part of the pool lies with the connections as their floors, so that a small message never waits for a round
// trip. The rest floats: it is granted one message at a time, in turn by account, and within an account in turn by connection. How much floats is the
// controller's matter: as little as keeps the server busy, so that requests wait with their clients, where they can be seen, given up and refused for nothing,
// and not in the server's kernel buffers.
//
// # Counters
//
// A share has four, unsigned numbers of 32 bits that only grow and wrap around, compared by their difference (RFC 1982): Granted (by the server), Released
// (what the client gave back unused), Used (the cost of everything sent) and Completed (the cost of everything whose answer has reached the kernel,
// or never will). Granted - Released - Used is unspent, Used - Completed in service. At every moment
//
//	sum over shares of (Granted - Released - Completed) <= floors + float + hoard
//
// but for the time after float has shrunk: then nothing is granted out of it until this holds again. The hoard is what was granted and lies unused while others
// wait: it is asked back, and until it comes another may have as much, so that who hoards keeps nobody waiting. Floors, float and hoard together never
// pass [Config.Capacity], nor does that sum. Since the counters are absolute, a frame that repeats them changes nothing.
//
// # How it is used
//
// For each request: [Share.Request] when it has come whole, [Share.Answer] when its answer is made, [Share.Completed] when that has reached the kernel; one uncontended
// lock each and no allocation. A call tells its own share nothing by [Notice]: who calls reads what it led to in [Share.Granted].
// The package has no goroutine and no clock: times are nanoseconds of one clock that never goes back, and somebody calls [Pool.Tick] every [TickEvery] while
// [Pool.Hungry].
package credit

import (
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of Config.
const (
	DefaultCapacity     = 65536                // units: 64 MiB at a unit of 1 KiB
	DefaultFloor        = 21                   // units: an order of 4 KiB, at a base of 16, with an answer that is 1 KiB larger
	DefaultReserve      = 18                   // units: a cancel
	DefaultMinFloat     = 324                  // units: four orders of 64 KiB
	DefaultStanding     = 4 * time.Millisecond // some round trips on a busy machine, and few enough to go unnoticed in a hoard
	DefaultReclaimAfter = time.Second
)

// MaxLargest bounds the cost of one request: it is told in 16 bits.
const MaxLargest = 65535

// TickEvery is how often Tick is called while the pool is hungry.
const TickEvery = time.Millisecond

// Config is what a pool needs to know. A zero field means its default.
type Config struct {
	Capacity uint32 // units that floors and float may come to, a ceiling for memory; 0 = DefaultCapacity
	Floor    uint32 // units that a connection always holds, while half of Capacity suffices for all floors and reserves; 0 = DefaultFloor
	Reserve  uint32 // units of urgent requests in service on one connection; 0 = DefaultReserve
	Largest  uint32 // units of the dearest request that will ever be covered, at most Capacity and MaxLargest; 0 = half of Capacity

	// The float is never below MinFloat, what completes in MinWork, and four times the dearest request of late. An engine that polls needs no MinWork. One
	// that parks its goroutines needs about 1 ms, or it idles while it is being woken.
	MinFloat uint32        // units; 0 = DefaultMinFloat
	MinWork  time.Duration // 0 = none
	Target   time.Duration // queueing delay that the controller steers the float by; 0 = DefaultTarget

	Standing     time.Duration // in which a grant has to be used for its share to stand in the queue again unasked, and after which it is reclaimed; 0 = DefaultStanding
	ReclaimAfter time.Duration // for the answer to a RECLAIM; 0 = DefaultReclaimAfter
}

func (c Config) withDefaults() Config {
	setDefault(&c.Capacity, DefaultCapacity)
	setDefault(&c.Floor, DefaultFloor)
	setDefault(&c.Reserve, DefaultReserve)
	setDefault(&c.Largest, c.Capacity/2)
	setDefault(&c.MinFloat, min(DefaultMinFloat, c.Capacity/2))
	setDefault(&c.Target, DefaultTarget)
	setDefault(&c.Standing, DefaultStanding)
	setDefault(&c.ReclaimAfter, DefaultReclaimAfter)
	c.Largest = min(c.Largest, c.Capacity, MaxLargest)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Notice is how a connection hears what happened to its share in somebody else's call. The methods are called without any lock of the package, on the goroutine
// of that call; they must not block, and may call into the package. One may come late, after the share was closed.
type Notice interface {
	// Granted says that Share.Granted has risen. Several rises may be told by one call.
	Granted()
	// Reclaim asks for units that were granted and not used, by a RECLAIM to the client, behind everything granted so far.
	Reclaim(units uint32)
	// Violated says that the client has not answered a RECLAIM: the connection has to be closed, with this reason. It is the last notice.
	Violated(reason error)
}

// Pool is the credit of one server. Safe for concurrent use.
type Pool struct {
	config      Config
	maxFloors   uint32
	maxExtended uint32
	hungry      atomic.Bool

	mu       sync.Mutex
	accounts map[string]*account
	turns    list[account] // accounts with a share that waits, the next first
	unspent  list[Share]   // shares that hold unspent float, the oldest grant first
	asked    list[Share]   // shares with an open RECLAIM, the oldest first

	floors      uint32 // units of floors and reserves
	extended    uint32 // those of the floors that are extensions, see extend
	lent        uint32 // units of the float that shares have: their outstanding ones less their floors and hoards
	hoarded     uint32 // units of hoards
	outstanding uint32 // granted, not released, not completed
	inService   uint32 // used and not completed
	unmet       uint32 // waited for and not granted
	waiting     int    // shares in the queue

	uptime     int64 // ns of ticks: a clock that stands while the server does
	lastTick   int64
	shortSince int64 // uptime since when somebody waited at every tick, -1 = nobody does
	uses       uint64
	usesSeen   uint64 // at the last tick
	idleSince  int64  // uptime since when nobody has used float
	relief     uint32 // what the last tick granted beyond the float, at most

	controller controller
	totals     totals
}

// account is whose turn it is. It is known while it has shares.
type account struct {
	name    string
	members int         // shares that are not closed
	shares  list[Share] // those that wait, the next first
	place   link[account]
}

// New returns a pool of which nothing is granted.
func New(config Config) *Pool {
	config = config.withDefaults()
	p := &Pool{config: config, accounts: make(map[string]*account), shortSince: -1}
	// The largest request finds room in the float, whatever the floors take.
	p.maxFloors = min(config.Capacity/2, config.Capacity-config.Largest)
	p.maxExtended = p.maxFloors / 32
	p.maxFloors -= p.maxExtended
	p.turns.init()
	p.unspent.init()
	p.asked.init()
	p.controller.init(config)
	return p
}

// Largest is the cost of the dearest request that will ever be covered.
func (p *Pool) Largest() uint32 { return p.config.Largest }

// Reserve is what a connection may have of urgent requests in service, in units.
func (p *Pool) Reserve() uint32 { return p.config.Reserve }

// Hungry reports whether Tick has to be called every TickEvery: somebody waits, or has been asked for what it does not use.
func (p *Pool) Hungry() bool { return p.hungry.Load() }

// Open returns a new connection's share. Its turns are the account's; a share of no account is an account of its own. Used and Completed begin at start, Released
// at 0, Granted at start and the floor, which is zero where the floors that others hold leave no room: such a client says DEMAND first.
func (p *Pool) Open(account string, start uint32, told Notice) *Share {
	s := &Share{pool: p, told: told, used: start, completed: start, grantedAt: never}
	s.turn.of, s.hoard.of, s.asking.of = s, s, s
	p.mu.Lock()
	defer p.mu.Unlock()
	s.account = p.join(account)
	own := p.config.Floor + p.config.Reserve
	if p.floors-p.extended+own <= p.maxFloors && p.floors+p.lent+p.hoarded+own <= p.config.Capacity {
		s.floor, s.own, s.reserve = p.config.Floor, p.config.Floor, p.config.Reserve
		p.floors += own
		p.bound()
	}
	s.granted.Store(start + s.floor)
	p.settle(s)
	return s
}

// ceiling is the largest float that floors and hoards leave. It is never below Largest.
func (p *Pool) ceiling() uint32 { return p.config.Capacity - p.floors - p.hoarded }

// bound keeps the float below the ceiling after that has come down.
func (p *Pool) bound() { p.controller.float = min(p.controller.float, p.ceiling()) }

// join returns the account of a new share.
func (p *Pool) join(name string) *account {
	a := p.accounts[name]
	if a == nil {
		a = &account{name: name}
		a.shares.init()
		a.place.of = a
		if name != "" {
			p.accounts[name] = a
		}
	}
	a.members++
	return a
}

// leave ends a share's membership.
func (p *Pool) leave(a *account) {
	if a.members--; a.members == 0 {
		delete(p.accounts, a.name)
	}
}

// Tick does what time brings: it grants, asks for credit that lies unused while others wait, and gives up shares that do not answer. It reports whether to call it
// again after TickEvery; while not, a call is not wrong.
func (p *Pool) Tick(now int64) (again bool) {
	var told notices
	p.mu.Lock()
	// What the server slept through, stopped or starved of its core, is no client's fault.
	gap := max(now-p.lastTick, 0)
	p.uptime += min(gap, int64(p.config.Standing))
	p.lastTick = now
	if gap > int64(p.config.Standing) {
		p.shortSince, p.idleSince = -1, p.uptime
	}
	p.controller.tick(now, p.unmet > 0, p.ceiling())
	p.serve(now, nil, &told)
	p.reclaim(now, &told)
	p.relieve(now, &told)
	again = p.unlock()
	told.deliver()
	return again
}

// unlock gives the lock back and says whether there is something to tick for.
func (p *Pool) unlock() bool {
	hungry := p.waiting > 0 || !p.asked.empty()
	if p.hungry.Load() != hungry {
		p.hungry.Store(hungry)
	}
	p.mu.Unlock()
	return hungry
}
