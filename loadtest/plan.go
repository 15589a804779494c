package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"tailgate/loadtest/floor"
	"tailgate/loadtest/host"
	"tailgate/loadtest/machine"
	"tailgate/loadtest/pacer"
	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
	"tailgate/loadtest/workload"
	"tailgate/transports"
	"tailgate/transports/all"
)

// What is measured unless told otherwise. The default run is small enough to be waited for: a small order, one page and the largest size of
// the default matrix, by one client, by some, and by so many that they wait for each other.
var (
	defaultSizes   = []byteSize{64, 4 << 10, 64 << 10}
	defaultClients = []int{1, 50, 500}
	// From manyClients on, the default run has these three alone, for time's sake: a raw protocol, HTTP/1.1 and HTTP/2.
	manyClients  = 500
	withMany     = []string{"tcp", "rest", "grpc"}
	matrixSizes  = []byteSize{64, 256, 1 << 10, 4 << 10, 64 << 10}
	matrixCounts = []int{1, 10, 50, 100, 500}
)

const (
	// defaultBudget is for all cells of the default run together, so that with building and percentiles that ask for more time it stays below
	// two minutes.
	defaultBudget = 85 * time.Second
	// cellOverhead is about what a hosted cell takes beside its measured time and warm-up: starting and stopping the gateway, dialing.
	cellOverhead = 350 * time.Millisecond
	// Bounds of a default cell's measured time, and the time of a cell that was asked for.
	shortestCell, longestCell = 500 * time.Millisecond, 2 * time.Second
	askedCell                 = 10 * time.Second
)

// cell is one cell of the plan.
type cell struct {
	spec    all.Spec
	size    int
	clients int
	floor   bool
	run     int    // from 1, with --repeat
	peer    string // report.PeerGateway unless told otherwise

	delay time.Duration // of the hosted gateway's handler, for the study of comparisons; no flag leads here
}

// plan is a whole run, checked.
type plan struct {
	options   *options
	operation transports.Operation // of every request, cancels and replaces apart
	cells     []cell
	order     []int // in which they run
	slos      []stats.SLO
	duration  time.Duration
	extra     time.Duration // that a cell may go on for the samples of p99.9
	tls       *tls.Config
	cores     machine.Plan
	watch     *watcher // of the cores' speed
	keys      []string
	admin     *adminReader     // of the target's counters; nil = they are not read
	pace      *pacer.Config    // of an open loop; nil in a closed one
	mix       []workload.Share // of sizes; none = every cell has its size
	release   func()           // gives the output folder back
}

// plan checks the options and lays out the cells. Its errors are about the command line.
func (o *options) plan() (*plan, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	p := &plan{options: o, keys: o.Key}
	var err error
	if p.operation, err = workload.ParseOperation(o.Operation); err != nil {
		return nil, fmt.Errorf("--operation: %w", err)
	}
	if p.slos, err = o.objectives(); err != nil {
		return nil, err
	}
	if p.pace, err = o.pace(); err != nil {
		return nil, err
	}
	if p.mix, err = o.sizeMix(); err != nil {
		return nil, err
	}
	if err := p.layOut(); err != nil {
		return nil, err
	}
	if err := p.target(); err != nil {
		return nil, err
	}
	if err := p.prepareAdmin(); err != nil {
		return nil, err
	}
	if o.Target == "" {
		if err := p.checkSizes(host.Instruments()); err != nil {
			return nil, err
		}
	}
	once := p.cells
	p.cells = nil
	for run := range o.Repeat {
		for _, c := range once {
			c.run = run + 1
			p.cells = append(p.cells, c)
		}
	}
	if err := p.timing(); err != nil {
		return nil, err
	}
	if err := p.checkPace(); err != nil {
		return nil, err
	}
	p.interleave()
	return p, nil
}

// interleave decides on the order of the cells: round by round, in each round every cell once, and by chance. A machine that warms up or a
// neighbour that wakes must not always meet the same transport, nor all runs of one.
func (p *plan) interleave() {
	rng := rand.New(rand.NewPCG(p.options.Seed, 0))
	each := len(p.cells) / p.options.Repeat
	for round := range p.options.Repeat {
		order := make([]int, each)
		for i := range order {
			order[i] = round*each + i
		}
		rng.Shuffle(each, func(i, j int) { order[i], order[j] = order[j], order[i] })
		p.order = append(p.order, order...)
	}
}

// layOut lists the cells in the order of the report.
func (p *plan) layOut() error {
	o := p.options
	texts := []string{o.Transport}
	sizes, clients := o.Size, o.Clients
	switch {
	case o.command == "matrix":
		texts = strings.Split(strings.Join(o.Matrix.Transports, ","), ",")
		texts = joinChoices(texts)
		if len(o.Matrix.Transports) == 0 {
			texts = all.Names()
		}
		sizes, clients = orDefault(o.Matrix.Sizes, matrixSizes), orDefault(clients, matrixCounts)
	case o.Transport != "":
		sizes, clients = orDefault(sizes, []byteSize{64}), orDefault(clients, []int{50})
	case o.command == "calibrate":
		texts = all.Names()
		sizes, clients = orDefault(sizes, []byteSize{64}), orDefault(clients, []int{1})
	case o.command == "capacity":
		texts = all.Names()
		sizes, clients = orDefault(sizes, []byteSize{64}), orDefault(clients, []int{50})
	default:
		texts = all.Names()
		sizes, clients = orDefault(sizes, defaultSizes), orDefault(clients, defaultClients)
	}
	if len(p.mix) > 0 || o.reads() {
		sizes = []byteSize{0}
	}
	if p.pace != nil && len(o.Clients) == 0 && o.command != "matrix" {
		clients = []int{50} // they only share out the connections
	}
	if err := o.checkLists(sizes, clients); err != nil {
		return err
	}
	specs, err := p.specs(texts)
	if err != nil {
		return err
	}
	peer := report.PeerGateway
	if o.command == "calibrate" {
		peer = report.PeerNull
	}
	for _, spec := range specs {
		for _, size := range sizes {
			for _, n := range clients {
				if p.isDefault() && n >= manyClients && !slices.Contains(withMany, spec.Transport.Name) {
					continue
				}
				p.cells = append(p.cells, cell{spec: spec, size: int(size), clients: n, peer: peer})
			}
		}
	}
	if o.command == "calibrate" {
		p.echoes(sizes, clients)
		return nil
	}
	if o.Transport == "" && o.Target == "" && o.command != "capacity" && !o.reads() && o.CancelShare+o.ReplShare == 0 && len(p.mix) == 0 {
		// The floor is run where it is lowest, beside the smallest cell, since a multiple of it needs the same size and clients.
		smallest := slices.MinFunc(p.cells, func(a, b cell) int { return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.clients, b.clients)) })
		p.cells = append(p.cells, cell{spec: all.Spec{Transport: floor.Transport()}, size: smallest.size, clients: smallest.clients, floor: true, peer: report.PeerEcho})
	}
	return nil
}

// checkLists refuses cells that would stand twice in one run, which neither a report nor a resumed run could tell apart, and connections that no
// client would use. An open loop only deals its requests to connections.
func (o *options) checkLists(sizes []byteSize, clients []int) error {
	flag := "--size"
	if o.command == "matrix" {
		flag = "--sizes"
	}
	for i, size := range sizes {
		if slices.Contains(sizes[:i], size) {
			return fmt.Errorf("%s: %s stands twice; for several runs of every cell use --repeat", flag, report.SizeText(int(size)))
		}
	}
	for i, n := range clients {
		if slices.Contains(clients[:i], n) {
			return fmt.Errorf("--clients: %d stands twice; for several runs of every cell use --repeat", n)
		}
		if o.Connections > n && !o.given["rate"] && o.command != "capacity" {
			return fmt.Errorf("--connections %d: at most one for each of the %d clients makes sense", o.Connections, n)
		}
	}
	return nil
}

// echoes adds the bare echoes of a calibration: one for each size and number of clients, for one client alone the one that spins, and for
// several those that take turns.
func (p *plan) echoes(sizes []byteSize, clients []int) {
	for _, size := range sizes {
		for _, n := range clients {
			p.cells = append(p.cells, cell{spec: all.Spec{Transport: floor.Transport()}, size: int(size), clients: n, floor: true, peer: report.PeerEcho})
			if n == 1 && floor.CanSpin {
				p.cells = append(p.cells, cell{spec: all.Spec{Transport: floor.Spinning()}, size: int(size), clients: n, floor: true, peer: report.PeerSpin})
			}
			if n > 1 && floor.CanSpin {
				for _, engine := range []string{floor.EnginePark, floor.EngineSpin} {
					p.cells = append(p.cells, cell{spec: all.Spec{Transport: floor.InTurn(), Engine: engine}, size: int(size), clients: n, floor: true, peer: report.PeerTurn})
				}
			}
		}
	}
}

// isDefault tells the run without arguments that lay out cells.
func (p *plan) isDefault() bool {
	o := p.options
	return o.command != "matrix" && o.Transport == "" && len(o.Clients) == 0
}

// specs parses what was asked for, with the choices that were given by flags of their own.
func (p *plan) specs(texts []string) ([]all.Spec, error) {
	var choices []string
	for _, choice := range []string{p.options.Flow, p.options.Engine, p.options.Protocol, p.options.Encoding} {
		if choice != "" {
			choices = append(choices, choice)
		}
	}
	var specs []all.Spec
	seen := map[string]bool{}
	for _, text := range texts {
		if len(choices) > 0 {
			separator := ":"
			if strings.Contains(text, ":") {
				separator = ","
			}
			text += separator + strings.Join(choices, ",")
		}
		spec, err := all.Parse(text)
		if err != nil {
			return nil, err
		}
		if seen[spec.String()] {
			return nil, fmt.Errorf("transport %q stands twice", spec)
		}
		seen[spec.String()] = true
		specs = append(specs, spec)
	}
	return specs, nil
}

// joinChoices puts together what the comma between transports has cut: in "tcp:none,net,rest" the second part is a choice of the first.
func joinChoices(parts []string) []string {
	var texts []string
	for _, part := range parts {
		name, _, _ := strings.Cut(part, ":")
		if n := len(texts); n > 0 && strings.Contains(texts[n-1], ":") && !slices.Contains(all.Names(), name) {
			texts[n-1] += "," + part
			continue
		}
		texts = append(texts, part)
	}
	return texts
}

func orDefault[T any](given, otherwise []T) []T {
	if len(given) > 0 {
		return given
	}
	return otherwise
}

// checkSizes holds every size of the plan against the smallest order on these instruments, so that a size that cannot be had ends the run
// before anything is measured.
func (p *plan) checkSizes(instruments []workload.Instrument) error {
	checked := map[int]bool{}
	for _, c := range p.cells {
		if checked[c.size] || c.floor {
			continue
		}
		checked[c.size] = true
		config := p.runnerCell(c).Flow
		config.Clients, config.Prefix, config.Instruments = 1, workload.RandomPrefix(), instruments
		if _, err := workload.New(config); err != nil {
			if _, ok := errors.AsType[*workload.SizeError](err); ok {
				return fmt.Errorf("%s: %w", p.sizeFlag(), err)
			}
			return err
		}
	}
	return nil
}

func (p *plan) sizeFlag() string {
	switch {
	case p.options.ClientMix != "":
		return "--client-mix"
	case len(p.mix) > 0:
		return "--size-mix"
	}
	if p.options.command == "matrix" {
		return "--sizes"
	}
	return "--size"
}

// timing decides how long the cells last.
func (p *plan) timing() error {
	switch {
	case p.options.Budget > 0:
		each := p.options.Budget/time.Duration(len(p.cells)) - cellOverhead - p.options.Warmup
		if each < shortestCell {
			least := (shortestCell + cellOverhead + p.options.Warmup) * time.Duration(len(p.cells))
			return fmt.Errorf("--budget %v: %d cells, of %v at least and with their starts and warm-ups, take %v", p.options.Budget, len(p.cells), shortestCell, least.Round(time.Second))
		}
		p.duration = each.Round(10 * time.Millisecond)
	case p.options.Duration > 0:
		p.duration = p.options.Duration
	case p.options.command == "calibrate":
		p.duration = longestCell
	case p.options.Transport != "" || p.options.command == "matrix":
		p.duration = askedCell
	default:
		each := defaultBudget/time.Duration(len(p.cells)) - cellOverhead - p.options.Warmup
		// A third of a budget is kept for cells whose p99.9 asks for more.
		p.duration = min(max(each*3/4, shortestCell), longestCell).Round(10 * time.Millisecond)
		p.extra = p.duration / 2
	}
	return nil
}

// estimate is about how long the rest of the run takes, from the n-th cell on.
func (p *plan) estimate(from int) time.Duration {
	if p.options.Requests > 0 && p.pace == nil {
		return 0
	}
	if p.options.Requests > 0 {
		return time.Duration(len(p.cells)-from) * (time.Duration(float64(p.options.Requests)/p.pace.Rate*1e9) + p.options.Warmup + cellOverhead)
	}
	return time.Duration(len(p.cells)-from) * (p.duration + p.options.Warmup + cellOverhead)
}

// oneAtATime are the transports whose protocol has one exchange at a time on a connection, so that their clients open one more for each
// request in flight. Here the number of connections is a choice of its own, and requests wait for one.
var oneAtATime = []string{"rest", "twirp", "fasthttp", "fiber", "echo"}

// dialLimits bound a client of the transport.
func dialLimits(transport string) transports.Limits {
	if slices.Contains(oneAtATime, transport) {
		return transports.Limits{MaxStreams: 1}
	}
	return transports.Limits{}
}

// runnerCell is the cell as the runner takes it; the address and the server's counters come with the server.
func (p *plan) runnerCell(c cell) runner.Cell {
	o := p.options
	rc := runner.Cell{
		Transport: c.spec.Transport,
		Dial: transports.DialConfig{
			TLS: p.tls, CongestionControl: o.Congestion, Encoding: c.spec.Encoding, Protocol: c.spec.Protocol, Flow: c.spec.Flow, Window: c.spec.FlowLimit, Engine: c.spec.Engine,
			Limits: dialLimits(c.spec.Transport.Name),
		},
		Keys: p.keys, Clients: c.clients, Connections: o.Connections, InFlight: o.InFlight,
		Flow: workload.Config{
			Operation: p.operation, Seed: o.Seed, Size: c.size, Mix: p.mix, ByClient: o.ClientMix != "", Minimal: o.Ack == "minimal", CancelShare: o.CancelShare, ReplaceShare: o.ReplShare, EchoOnly: c.floor,
		},
		FillBook: o.Target == "", Duration: p.duration, Requests: o.Requests, Warmup: o.Warmup, Timeout: o.Timeout, Plan: p.cores, Open: p.openLoop(),
	}
	// What the client refuses by itself, because it would have to wait longer than this for credit, is no matter of a closed loop, which waits for
	// every answer.
	if p.pace != nil && len(c.spec.Transport.Flows) > 0 {
		rc.Dial.MaxWait = o.MaxWait
	}
	if p.extra > 0 {
		rc.MinSamples, rc.MaxExtra = stats.P999.MinSamples(), p.extra
	}
	return rc
}

// reportCell describes the cell, before it is measured.
func (p *plan) reportCell(c cell, order int) report.Cell {
	rc := report.Cell{
		Transport: c.spec.Transport.Name, Spec: c.spec.String(), Flow: c.spec.Flow, Window: c.spec.FlowLimit, Engine: c.spec.Engine, Encoding: c.spec.Encoding, Operation: p.options.Operation, Ack: p.options.Ack,
		Size: c.size, Clients: c.clients, InFlight: p.options.InFlight, Mode: "closed", Run: c.run, Order: order, Peer: c.peer,
		Notes: map[string]int64{}, Intervals: map[string]report.Interval{}, Trends: []report.Trend{}, SLO: []report.Objective{}, Reasons: []string{},
	}
	if o := p.options; o.reads() {
		rc.Ack = ""
	}
	if len(p.mix) > 0 {
		rc.MixBy = "order"
	}
	if p.options.ClientMix != "" {
		rc.MixBy = "client"
	}
	for _, share := range p.mix {
		rc.SizeMix = append(rc.SizeMix, report.Share{Size: share.Size, Weight: share.Weight})
	}
	if p.pace != nil {
		rc.Mode, rc.OfferedRate, rc.Arrivals = "open", &p.pace.Rate, p.pace.Arrivals.String()
		for _, step := range p.pace.Steps {
			rc.Steps = append(rc.Steps, report.Step{Seconds: step.At.Seconds(), Rate: step.Rate})
		}
	}
	return rc
}
