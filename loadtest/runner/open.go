package runner

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"tailgate/loadtest/pacer"
	"tailgate/loadtest/record"
	"tailgate/loadtest/workload"
	"tailgate/transports"
)

// Bounds of an open loop.
const (
	// MaxGenerators bounds how many schedules are walked side by side.
	MaxGenerators = 64
	// maxInFlight and inFlightBytes bound the requests in flight where no cap was asked for: each has a goroutine and messages of its own,
	// and a server that stands still meets rate x time of them.
	maxInFlight   = 16_384
	inFlightBytes = 512 << 20
	// startLead is from the creation of the generators to the first arrival, so that none is late before it has begun.
	startLead = 20 * time.Millisecond
	// lookEvery bounds a single sleep, so that a generator learns of an interrupt in time.
	lookEvery = 50 * time.Millisecond
	// spinFor is how long before a due time a generator stops sleeping and asks the clock, where it has a core to do so: about what a core that
	// sleeps needs to wake.
	spinFor = 50 * time.Microsecond
	// breathEvery: after so many requests in a row that were due already, a generator sleeps for the shortest time that there is. With
	// always one more to send, the runtime would look at its sockets every 10 ms only, and answers would lie there.
	breathEvery = 16
	breath      = time.Microsecond
	// spare workers are those that have given their place in flight back and are not in the pool yet.
	spare = 64
)

// OpenLoop makes a cell send on a schedule, whatever becomes of the requests before.
type OpenLoop struct {
	Pace       pacer.Config  // its steps count from the beginning of the measured interval
	MaxWait    time.Duration // how late a request may be sent, then it is unsent; 0 = the cell's Timeout
	Generators int           // 1 to MaxGenerators; 0 = one for each core of the clients, but for one where there are several

	// NewSleeper makes what a generator waits by; nil = pacer.NewSleeper, and the last microseconds are spun where there is a core for it.
	NewSleeper func() (pacer.Sleeper, error)

	spin bool
}

// InFlight is the most requests in flight of an open loop for which no cap was asked, by the size of the greatest order: its bytes are held
// twice, in request and answer.
func InFlight(size int) int {
	return max(min(maxInFlight, inFlightBytes/(2*max(size, 1))), 1)
}

// job is the next request to send, and the lead of its generator with it.
type job struct {
	generator *generator
	due       time.Duration // by the run's clock
}

// open is the state of an open loop. Requests are sent by workers, of which there are as many as requests in flight. One of them leads each
// generator: it waits for the due time of the next request, hands the lead to a free worker, and sends the request itself, at once. So the
// time that one goroutine needs to wake another does not stand between the due time and the sending, but in the gap before the
// next request.
type open struct {
	run      *run
	schedule *pacer.Schedule
	maxWait  time.Duration
	spin     bool
	running  *sync.WaitGroup // of the workers
	pending  sync.WaitGroup  // leads, and requests under way
	over     chan struct{}   // closed when there are none: the workers end

	generators []*generator

	mu      sync.Mutex
	free    [][]*client // by link, the one used last at the end
	workers []*client
	limit   int // of workers
}

// generator walks its share of the schedule. Its fields belong to the worker that leads it; without goroutines for requests, to the one goroutine
// that it has itself, see open_async.go.
type generator struct {
	walk    *pacer.Walk
	sleeper pacer.Sleeper
	streak  int           // requests sent in a row that were due already
	blocked time.Duration // until when it last waited for a place in flight
}

// prepareOpen checks the cell and completes it.
func prepareOpen(cell *Cell) error {
	o := *cell.Open
	if o.MaxWait == 0 {
		o.MaxWait = cell.Timeout
	}
	cores := freeCores(*cell)
	if o.Generators == 0 {
		o.Generators = min(max(cores-1, 1), MaxGenerators)
	}
	if o.NewSleeper == nil {
		o.NewSleeper, o.spin = pacer.NewSleeper, cores > o.Generators
	}
	if cell.InFlight == 0 {
		size := cell.Flow.Size
		for _, share := range cell.Flow.Mix {
			size = max(size, share.Size)
		}
		cell.InFlight = InFlight(size)
	}
	if o.MaxWait < 0 || o.Generators < 0 || o.Generators > MaxGenerators || cell.InFlight+o.Generators+spare > workload.MaxClients {
		return fmt.Errorf("runner: open loop with %d generators, %d in flight and a wait of %v: at most %d, %d and nothing negative are allowed", o.Generators, cell.InFlight, o.MaxWait, MaxGenerators, workload.MaxClients-o.Generators-spare)
	}
	cell.MaxExtra = 0 // how many samples there will be is known beforehand
	cell.Open = &o
	return nil
}

// freeCores is how many cores the generators may count on: not those that a spinning engine takes, and no more than there are, however many threads
// may run on them.
func freeCores(cell Cell) int {
	cores := runtime.GOMAXPROCS(0)
	if n := len(cell.Plan.Clients); n > 0 {
		cores = min(cores, n)
	}
	if cell.Dial.Engine == transports.EngineSpin {
		cores--
	}
	return cores
}

// newOpen lays out the schedule. The run's start is set; its interval is known from then on.
func newOpen(r *run, running *sync.WaitGroup) (*open, error) {
	config := r.cell.Open
	pace := config.Pace
	pace.Steps = slices.Clone(pace.Steps)
	for i := range pace.Steps {
		pace.Steps[i].At += r.cell.Warmup
	}
	schedule, err := pacer.New(pace)
	if err != nil {
		return nil, fmt.Errorf("runner: open loop: %w", err)
	}
	o := &open{
		run: r, schedule: schedule, maxWait: config.MaxWait, running: running, over: make(chan struct{}),
		spin: config.spin, free: make([][]*client, len(r.links)), limit: r.cell.InFlight + config.Generators + spare,
	}
	end := r.cell.Warmup + r.cell.Duration
	if r.cell.Requests > 0 {
		end = schedule.End(r.cell.Warmup, r.cell.Requests)
	}
	r.from.Store(int64(r.start + r.cell.Warmup))
	r.until.Store(int64(r.start + end))
	r.recorder.Expect(end - r.cell.Warmup)
	for i := range config.Generators {
		sleeper, err := config.NewSleeper()
		if err != nil {
			o.closeSleepers()
			return nil, err
		}
		o.generators = append(o.generators, &generator{walk: schedule.Walk(int64(i), int64(config.Generators)), sleeper: sleeper})
	}
	return o, nil
}

func (o *open) closeSleepers() {
	for _, g := range o.generators {
		_ = g.sleeper.Close() // a timer has nothing to lose
	}
}

// start lets the generators go. When everything that was due has ended, the workers end too.
func (o *open) start() {
	for _, g := range o.generators {
		if o.run.async {
			o.pending.Add(1)
			o.running.Go(func() { o.walkAsync(g) })
			continue
		}
		number, due := g.walk.Next()
		o.assign(g, number, o.run.start+due)
	}
	o.running.Go(func() {
		o.pending.Wait()
		close(o.over)
		o.closeSleepers()
		if o.run.async {
			for _, c := range o.workers {
				c.record.Flush()
			}
		}
	})
}

// assign gives a request, and the lead, to a free worker of the connection whose turn it is.
func (o *open) assign(g *generator, number int64, due time.Duration) {
	o.pending.Add(1)
	at := int(number % int64(len(o.run.links)))
	o.take(at).wake <- job{generator: g, due: due}
}

// take returns a free worker of the link; where there is none, one is on its way back.
func (o *open) take(at int) *client {
	for {
		if c := o.worker(at); c != nil {
			return c
		}
		runtime.Gosched()
	}
}

// worker takes a free worker of the link, makes one, or, where there are as many as there may be, has one change its link.
func (o *open) worker(at int) *client {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := pop(&o.free[at]); c != nil {
		return c
	}
	r := o.run
	if n := len(o.workers); n < o.limit {
		c := &client{
			run: r, link: r.links[at], at: at, source: r.flow.Source(n), record: r.recorder.Add(), answers: [2]time.Duration{never, never},
		}
		o.workers = append(o.workers, c)
		if r.async {
			return c.makeAsync(o)
		}
		c.wake = make(chan job, 1)
		o.running.Go(func() { c.serve(o) })
		return c
	}
	for i := range o.free {
		if c := pop(&o.free[i]); c != nil {
			c.source.Forget() // its open order belongs to the other connection's account
			c.link, c.at = r.links[at], at
			return c
		}
	}
	return nil
}

func pop(list *[]*client) *client {
	n := len(*list) - 1
	if n < 0 {
		return nil
	}
	c := (*list)[n]
	*list = (*list)[:n]
	return c
}

func (o *open) release(c *client) {
	o.mu.Lock()
	o.free[c.at] = append(o.free[c.at], c)
	o.mu.Unlock()
}

// serve is the life of a worker.
func (c *client) serve(o *open) {
	defer c.end()
	for {
		select {
		case j := <-c.wake:
			c.lead(o, j)
		case <-o.over:
			return
		}
	}
}

// lead waits for the request, hands the lead on and sends it. Requests that could not be sent in their time are counted, and the lead goes on
// with the next.
func (c *client) lead(o *open, j job) {
	defer o.pending.Done()
	defer o.release(c)
	r, g := c.run, j.generator
	c.source.Next(&c.call) // before it is due, so that drawing it is no lag
	for {
		if !o.await(g, j.due) {
			return // the schedule's end, or the run's
		}
		if c.place(o, g, j.due) {
			break
		}
		c.unsent(g, j.due)
		_, due := g.walk.Next()
		j.due = r.start + due
	}
	if g.streak++; g.streak%breathEvery == 0 {
		g.sleeper.Sleep(breath)
	}
	due, blocked := j.due, g.blocked
	number, next := g.walk.Next()
	o.assign(g, number, r.start+next)

	// From here on the generator belongs to another worker.
	stamps, measured := c.dueNow(due, blocked)
	c.refreshDeadline(stamps.sent)
	_, _ = c.exchange(stamps, nil, measured) // recorded there
}

// await waits for a due time. It returns false where the request does not belong to the run any more.
func (o *open) await(g *generator, due time.Duration) bool {
	r := o.run
	early := time.Duration(0)
	if o.spin {
		early = spinFor
	}
	for waited := false; ; waited = true {
		if int64(due) >= r.until.Load() {
			return false
		}
		left := due - r.now()
		switch {
		case left <= 0:
			if waited {
				g.streak = 0
			}
			return true
		case left > early:
			g.sleeper.Sleep(min(left-early, lookEvery))
		default:
			runtime.Gosched()
		}
	}
}

// place takes a place in flight, or returns false when the time to send the request has passed. How long the generator waits for it is
// not its own fault, for this request and for those that become due meanwhile.
func (c *client) place(o *open, g *generator, due time.Duration) bool {
	r := c.run
	latest := due + o.maxWait
	if r.requests.Err() != nil || r.now() > latest {
		return false
	}
	select {
	case r.slots <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(latest - r.now())
	defer timer.Stop()
	taken := false
	select {
	case r.slots <- struct{}{}:
		taken = true
	case <-timer.C:
	case <-r.requests.Done():
	}
	g.blocked, g.streak = r.now(), 0
	return taken
}

// unsent counts a request that was not sent in its time.
func (c *client) unsent(g *generator, due time.Duration) {
	r := c.run
	now, measured := r.now(), r.measured(due)
	if !measured {
		c.warmup[record.Unsent]++
		return
	}
	note := "no place in flight in its time"
	if own := now - max(due, g.blocked); own > r.cell.Open.MaxWait/2 {
		note = "the tester was too late to send it"
		c.behind++
	}
	c.record.Lost(record.Unsent, due-r.begins(), now-due, note)
}

func (r *run) measured(due time.Duration) bool {
	return int64(due) >= r.from.Load() && int64(due) < r.until.Load()
}

func (r *run) begins() time.Duration { return time.Duration(r.from.Load()) }

func (r *run) end() time.Duration { return time.Duration(r.until.Load()) }
