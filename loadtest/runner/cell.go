package runner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"tailgate/loadtest/machine"
	"tailgate/loadtest/pacer"
	"tailgate/loadtest/record"
	"tailgate/loadtest/sockets"
	"tailgate/loadtest/stats"
	"tailgate/loadtest/workload"
	"tailgate/transports"
)

// Bounds of the waits around a cell.
const (
	// DialTimeout bounds the opening of one connection, and what is asked on it before the cell begins; where a request may take less, that and
	// leastDialTimeout are the bound, so that a peer which accepts and says nothing is found out in about the time of a request.
	DialTimeout      = 10 * time.Second
	leastDialTimeout = time.Second
	// dialsAtOnce bounds how many connections are opened at the same time: below the backlog that listeners usually have.
	dialsAtOnce = 32
	// interruptGrace is how long requests in flight may take after an interrupt before they are given up.
	interruptGrace = 2 * time.Second
	// stuckGrace is how long after its time a request may hold its client before the transport is called broken.
	stuckGrace = 5 * time.Second
	// countersTimeout bounds the wait for the server's counters.
	countersTimeout = 5 * time.Second
	// deadlineShare: a client takes a new deadline after this share of the request's time, so a request has at least Timeout and at most
	// a tenth more. A timer for every request would be the tester's greatest expense, and all clients would meet at the lock of the
	// context that theirs come from.
	deadlineShare = 10
	// maxExtraWarmup bounds how much longer a warm-up goes on until every client has had its first answer. The first wave of requests starts
	// at one moment, as no later one does, and an interval that begins while some of it is still under way would miss the slowest
	// of both.
	maxExtraWarmup = 5 * time.Second
	// maxRetryAfter bounds how long a client pauses when a refusal asks for it.
	maxRetryAfter = time.Second
	// maxInstruments bounds how many instruments the flow is spread over.
	maxInstruments = 16
)

// Cell is what one cell runs. The zero value of a field means what its comment says.
type Cell struct {
	Transport   transports.Transport
	Dial        transports.DialConfig // everything but Key
	Keys        []string              // API keys of the accounts; connection i uses number i modulo their count; none = no key
	Clients     int                   // at least 1
	Connections int                   // 1 to Clients, in an open loop to workload.MaxClients; client i uses number i modulo this; 0 = one each, or one for all where Transport.PerClient is false
	InFlight    int                   // most requests in flight over all clients; 0 = no bound but Clients, or InFlight's in an open loop
	Open        *OpenLoop             // nil = closed loop
	Flow        workload.Config       // Prefix and Instruments are filled in
	FillBook    bool                  // enter the orders that give a book its levels before it is read (GetBook): for a gateway whose book is empty

	Duration   time.Duration // of the measured interval; ignored with Requests
	Requests   int64         // requests to measure; 0 = go by Duration
	Warmup     time.Duration // before it, at least; the same load, not recorded, until every client has had an answer; 0 = none
	Timeout    time.Duration // of one request, above 0
	MinSamples int64         // go on after Duration until there are as many, but for MaxExtra at most
	MaxExtra   time.Duration

	Plan machine.Plan // who runs where, for the use of cores
	// ServerCounters reads the server's counters; nil = they are not known. Its error is no end of the cell: it becomes Outcome.ServerUnknown.
	ServerCounters func(ctx context.Context) (Reading, error)
	// ServerMetrics reads the figures of the server's own flow control, after its counters; nil = they are not known, nor where it fails.
	ServerMetrics func(ctx context.Context) ([]transports.Metric, error)
	// Progress, unless nil, is called about every second of the measured interval with what was done so far. Making its figures costs
	// the tester some tens of microseconds.
	Progress func(Progress)
}

// Progress is a look at a running cell.
type Progress struct {
	Elapsed, Total time.Duration // Total is 0 where the cell goes by requests
	Requests       int64         // to go by; 0 otherwise
	Done           int64
	P99            stats.Value
}

// Outcome is a cell that has run.
type Outcome struct {
	record.Result
	Started       time.Time
	Began         time.Time     // when the measured interval did
	IDPrefix      string        // with which the ids of all its requests begin, those of the warm-up too
	Warmup        time.Duration // as it was
	WarmupFates   record.Counts // its requests, of which nothing else is recorded
	Seconds       float64       // length of the measured interval
	Throughput    float64       // answers a second; in an open loop those that came within the interval
	Scheduled     int64         // open loop: requests that were due in the interval by the schedule
	Behind        int64         // open loop: of those, how many the tester itself had not sent by its end, or not in their time
	Workers       int           // open loop: most requests under way
	InFlightCap   int           // in force; 0 = none
	Silence       time.Duration // from the last answer within the interval to its end; the whole interval where there was none
	Deserted      bool          // every client's last request ended with nothing: timed out, error or unsent
	Trends        []stats.Trend // of the response time over the interval
	Connections   Connections
	ClientUse     Use
	ServerUse     *Use                // nil where unknown
	ServerUnknown error               // why ServerUse is nil, where its counters were asked for
	Metrics       []transports.Metric // of the server's flow control: counters as differences, states as at the end
	Fairness      []Fairness          // of a closed loop, by the clients' size
	Interrupted   bool
	Speed         *Speed // of the cores; nil where nobody has looked, see SetSpeed

	ClientTCP, ServerTCP sockets.End // what TCP did at both ends of the connections
}

// Connections is what became of them.
type Connections struct {
	Asked   int
	Open    int    // by the kernel's table, when the clients had stopped; -1 where unknown
	Unknown string // why, then
	Redials int64
}

// Run drives the cell. When the context ends, the cell stops early and what was measured is returned with Interrupted set. An error means
// that nothing was measured: no connection, no instrument, a size that cannot be had (*workload.SizeError), a transport that
// does not come back.
func Run(ctx context.Context, cell Cell) (Outcome, error) {
	r, err := prepare(ctx, cell)
	if err != nil {
		return Outcome{}, err
	}
	defer r.closeLinks()
	return r.run(ctx)
}

// run is the state of a running cell.
type run struct {
	cell       Cell
	links      []*link
	flow       *workload.Flow
	prefix     string // of its ids
	recorder   *record.Recorder
	redials    atomic.Int64
	remotes    []netip.AddrPort // what the address stands for
	unresolved error            // why that is not known
	sockets    *sockets.Watch
	requests   context.Context // of all requests; canceled when they are given up
	giveUp     context.CancelFunc

	epoch   time.Time // zero of the run's clock
	barrier chan struct{}
	start   time.Duration // when the clients were let go, or zero of the schedule

	schedule *pacer.Schedule // of an open loop

	from    atomic.Int64  // when the measured interval begins; in the far future while it is not known
	until   atomic.Int64  // when it ends; nobody begins a request after it
	tickets atomic.Int64  // measured requests begun, where the cell goes by requests
	last    atomic.Int64  // latest end of a measured request
	slots   chan struct{} // places in flight, nil without a bound
	stopped chan struct{} // closed when the end is near: pauses end
	begun   atomic.Int64  // clients that have had an answer, or known that there is none
	warm    chan struct{} // closed when all have

	async     bool // clients without goroutines, see async.go
	deadlines deadlines
	places    *places        // in flight, of their closed loop; nil without a bound
	left      atomic.Int64   // clients of their closed loop that have not ended
	gone      func()         // what such a client calls at its end, once
	closing   sync.WaitGroup // broken connections that are being closed
}

func (r *run) now() time.Duration { return time.Since(r.epoch) }

func prepare(ctx context.Context, cell Cell) (*run, error) {
	if cell.Clients < 1 || cell.Timeout <= 0 {
		return nil, fmt.Errorf("runner: %d clients with a timeout of %v: both must be above 0", cell.Clients, cell.Timeout)
	}
	if cell.Connections == 0 {
		cell.Connections = 1
		if cell.Transport.PerClient {
			cell.Connections = cell.Clients
		}
	}
	if cell.Open != nil {
		if err := prepareOpen(&cell); err != nil {
			return nil, err
		}
	}
	if cell.Connections > cell.Clients && cell.Open == nil || cell.Connections > workload.MaxClients {
		return nil, fmt.Errorf("runner: %d connections for %d clients: at most one a client makes sense", cell.Connections, cell.Clients)
	}
	// The other descriptors of a process (its files, pollers, pipes) are fewer than 64.
	if err := machine.EnsureFiles(cell.Connections + 64); err != nil {
		return nil, err
	}
	r := &run{cell: cell, barrier: make(chan struct{}), stopped: make(chan struct{}), warm: make(chan struct{})}
	if cell.InFlight > 0 {
		r.slots = make(chan struct{}, cell.InFlight)
	}
	// Once for the cell: an address that is looked up again may have become another.
	r.resolve(ctx)
	if err := r.dialAll(ctx); err != nil {
		r.closeLinks()
		return nil, err
	}
	r.sockets = sockets.NewWatch(r.remotes)
	r.async = isAsync(cell, r.links[0].client.Load().Client)
	r.deadlines.run = r
	config := cell.Flow
	r.prefix = workload.RandomPrefix()
	config.Clients, config.Prefix = cell.Clients, r.prefix
	instruments := []workload.Instrument{{Symbol: "ACME", ReferencePrice: 10_000}} // a bare echo has none
	var err error
	if !cell.Flow.EchoOnly {
		instruments, err = listInstruments(ctx, r.links[0].client.Load(), cell.Dial.Address, cell.dialTimeout())
	}
	if err == nil {
		config.Instruments = instruments
		r.flow, err = workload.New(config)
	}
	if err == nil && cell.FillBook && config.Operation == transports.GetBook {
		err = fillBook(ctx, r.links[0].client.Load(), r.flow)
	}
	if err != nil {
		r.closeLinks()
		return nil, err
	}
	// A shard for each client that can run at the same time, and as many more, so that two seldom want the same.
	if cell.Open != nil {
		r.recorder = record.New(0, 2*runtime.GOMAXPROCS(0)) // workers come as they are needed
		r.recorder.WatchLag()
	} else {
		r.recorder = record.New(cell.Clients, min(cell.Clients, 2*runtime.GOMAXPROCS(0)))
	}
	return r, nil
}

func (r *run) resolve(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	r.remotes, _, r.unresolved = machine.Resolve(ctx, r.cell.Dial.Address)
}

func (r *run) dialAll(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, dialsAtOnce)
	var wg sync.WaitGroup
	for i := range r.cell.Connections {
		config := r.cell.Dial
		if len(r.cell.Keys) > 0 {
			config.Key = r.cell.Keys[i%len(r.cell.Keys)]
		}
		l := &link{redials: &r.redials, dial: func(ctx context.Context) (transports.Client, error) {
			ctx, cancel := context.WithTimeout(ctx, r.cell.dialTimeout())
			defer cancel()
			return r.cell.Transport.Dial(ctx, config)
		}}
		r.links = append(r.links, l)
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			if err := l.open(ctx); err != nil {
				cancel(fmt.Errorf("connection %d of %d to %s: %w", i+1, r.cell.Connections, r.cell.Dial.Address, err))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (r *run) closeLinks() {
	r.closing.Wait()
	for _, l := range r.links {
		l.close()
	}
}

// dialTimeout is DialTimeout or what is enough for this cell.
func (c *Cell) dialTimeout() time.Duration {
	return min(max(c.Timeout, leastDialTimeout), DialTimeout)
}

// run lets the clients go, watches the clock and waits for them.
func (r *run) run(ctx context.Context) (Outcome, error) {
	r.requests, r.giveUp = context.WithCancel(context.WithoutCancel(ctx))
	defer r.giveUp()
	defer r.deadlines.end()
	// What earlier cells left behind is collected now rather than during the measurement.
	runtime.GC()
	_ = machine.ResetPeak() // where it cannot be reset, the peak is that of the whole run

	var running sync.WaitGroup
	finished := make(chan struct{})
	out := Outcome{IDPrefix: r.prefix, InFlightCap: r.cell.InFlight}
	begin := r.beginClosed
	if r.cell.Open != nil {
		begin = r.beginOpen
	}
	clients, err := begin(&running)
	if err != nil {
		return Outcome{}, err
	}
	go func() {
		running.Wait()
		close(finished)
	}()
	out.Started = r.epoch

	edges, watchErr := r.watch(ctx, finished)
	close(r.stopped)
	if err := r.join(ctx, finished); err != nil {
		return Outcome{}, err
	}
	out.Interrupted = ctx.Err() != nil
	if watchErr != nil {
		return Outcome{}, watchErr
	}

	if out.Result, err = r.recorder.Result(); err != nil {
		return Outcome{}, err
	}
	from, until := time.Duration(r.from.Load()), time.Duration(r.until.Load())
	if r.cell.Requests > 0 && r.cell.Open == nil {
		until = time.Duration(r.last.Load())
	}
	out.Began = r.epoch.Add(from)
	out.Warmup = min(from, until) - r.start
	out.Seconds = max(until-from, 0).Seconds()
	if out.Seconds > 0 {
		out.Throughput = float64(out.Counts.Answered()) / out.Seconds
	}
	r.account(&out, clients(), from, until)
	out.Trends = out.Series.Trends()
	r.use(&out, edges)
	out.Connections = r.connections()
	return out, nil
}

// beginClosed lets the clients of a closed loop go, and returns where to find them.
func (r *run) beginClosed(running *sync.WaitGroup) (func() []*client, error) {
	clients := make([]*client, r.cell.Clients)
	for i := range clients {
		clients[i] = &client{
			run: r, link: r.links[i%len(r.links)], source: r.flow.Source(i), record: r.recorder.Client(i), answers: [2]time.Duration{never, never},
		}
		if r.async {
			clients[i].makeAsync(nil)
		} else {
			running.Go(clients[i].loop)
		}
	}
	if r.async {
		r.driveAll(clients, running)
	}
	r.epoch = time.Now()
	r.start = r.now()
	r.until.Store(never)
	r.from.Store(never)
	if r.cell.Requests == 0 {
		r.recorder.Expect(r.cell.Duration + r.cell.MaxExtra)
	}
	if r.cell.Warmup == 0 {
		r.begin(r.start)
	}
	close(r.barrier)
	return func() []*client { return clients }, nil
}

// beginOpen starts the generators of an open loop, and returns where to find the workers when they have ended.
func (r *run) beginOpen(running *sync.WaitGroup) (func() []*client, error) {
	r.epoch = time.Now()
	r.start = r.now() + startLead
	o, err := newOpen(r, running)
	if err != nil {
		return nil, err
	}
	r.schedule = o.schedule
	o.start()
	return func() []*client { return o.workers }, nil
}

// account sums up what the clients, which have ended, know of themselves.
func (r *run) account(out *Outcome, clients []*client, from, until time.Duration) {
	var counted int64
	for _, c := range clients {
		for i, n := range c.warmup {
			out.WarmupFates[i] += n
		}
		counted += c.counted
		out.Behind += c.behind
	}
	out.Silence, out.Deserted = silence(clients, from, until)
	if r.cell.Open == nil {
		out.Fairness = r.fairness(clients, out.Seconds)
		return
	}
	out.Workers = len(clients)
	out.Scheduled = r.schedule.Count(from-r.start, until-r.start)
	if out.Seconds > 0 {
		out.Throughput = float64(counted) / out.Seconds
	}
}

// silence looks at how the clients, which have ended, fared at the end of the interval.
func silence(clients []*client, from, until time.Duration) (silence time.Duration, deserted bool) {
	last, deserted := from, true
	for _, c := range clients {
		if at, ok := c.lastAnswer(until); ok {
			last = max(last, at)
		}
		deserted = deserted && c.lost
	}
	return max(until-last, 0), deserted
}

// connections looks at the kernel's table.
func (r *run) connections() Connections {
	c := Connections{Asked: r.cell.Connections, Redials: r.redials.Load(), Open: -1}
	err := r.unresolved
	if err == nil {
		var open int
		if open, err = machine.OpenConnections(r.remotes); err == nil {
			c.Open = open
			return c
		}
	}
	c.Unknown = err.Error()
	return c
}

// never is a time of the run's clock that does not come.
const never = 1<<63 - 1

// begin lets the measured interval begin.
func (r *run) begin(from time.Duration) {
	if r.cell.Requests == 0 {
		r.until.Store(int64(from + r.cell.Duration + r.cell.MaxExtra))
	}
	r.from.Store(int64(from))
}

// warmUp waits for every client's first answer, but not for ever, and for its own time. Where the first answers come within it, as they
// should, the interval begins at a time that was known before.
func (r *run) warmUp(ctx context.Context, finished <-chan struct{}) {
	if r.cell.Open != nil {
		r.waitUntil(ctx, finished, time.Duration(r.from.Load()), nil)
		return
	}
	if r.cell.Warmup == 0 {
		return
	}
	least := r.start + r.cell.Warmup
	timer := time.NewTimer(least + maxExtraWarmup - r.now())
	defer timer.Stop()
	select {
	case <-r.warm:
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	r.begin(max(least, r.now()))
	r.waitUntil(ctx, finished, least, nil)
}

// watch reads the counters at both edges of the measured interval, and ends it.
func (r *run) watch(ctx context.Context, finished <-chan struct{}) (edges [2]edge, err error) {
	r.warmUp(ctx, finished)
	if edges[0], err = r.readEdge(ctx, false); err != nil {
		r.until.Store(0)
		return edges, err
	}
	end := time.Duration(never)
	if from := r.from.Load(); r.cell.Requests == 0 && from != never {
		end = time.Duration(from) + r.cell.Duration
	}
	if r.cell.Open != nil {
		end = r.end()
	}
	r.waitUntil(ctx, finished, end, r.progress)
	// A percentile that lacks samples may get some more time.
	for last := end + r.cell.MaxExtra; r.cell.MaxExtra > 0 && end < last && ctx.Err() == nil; {
		if r.recorder.Offered() >= r.cell.MinSamples {
			break
		}
		end = min(end+r.cell.MaxExtra/10, last)
		r.waitUntil(ctx, finished, end, r.progress)
	}
	if r.cell.Requests == 0 || ctx.Err() != nil {
		// The interval ends now; a request that begins in this moment may still be counted in, its client having looked before.
		r.until.Store(int64(min(r.now(), time.Duration(r.until.Load()))))
	}
	edges[1], err = r.readEdge(ctx, true)
	return edges, err
}

// waitUntil waits for a time of the run's clock, for the clients to finish, or for the context, and calls look about every second.
func (r *run) waitUntil(ctx context.Context, finished <-chan struct{}, until time.Duration, look func()) {
	timer := time.NewTimer(until - r.now())
	defer timer.Stop()
	var looks <-chan time.Time
	if look != nil && r.cell.Progress != nil {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		looks = ticker.C
	}
	for {
		select {
		case <-timer.C:
			return
		case <-finished:
			return
		case <-ctx.Done():
			return
		case <-looks:
			look()
		}
	}
}

func (r *run) progress() {
	p := Progress{Elapsed: r.now() - time.Duration(r.from.Load()), Requests: r.cell.Requests, Done: r.recorder.Offered()}
	if r.cell.Requests == 0 {
		p.Total = r.cell.Duration
	}
	var err error
	if p.P99, err = r.recorder.Peek(stats.P99); err == nil {
		r.cell.Progress(p)
	}
}

// errStuck is what a transport that does not keep its contract is told.
var errStuck = errors.New("runner: a client does not come back from its request, long after the request's time: the transport ignores its context; nothing of this cell can be trusted")

// join waits for the clients: as long as a request may take, or shorter after an interrupt. Then requests are canceled, and a transport
// that ignores even that is an error.
func (r *run) join(ctx context.Context, finished <-chan struct{}) error {
	patience := r.cell.Timeout + r.cell.Timeout/deadlineShare + stuckGrace
	if r.cell.Open != nil {
		patience += r.cell.Open.MaxWait
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-finished:
		return nil
	case <-timer.C:
	case <-ctx.Done():
		timer.Reset(interruptGrace)
		select {
		case <-finished:
			return nil
		case <-timer.C:
		}
	}
	r.giveUp()
	timer.Reset(stuckGrace)
	select {
	case <-finished:
		return nil
	case <-timer.C:
		return errStuck
	}
}
