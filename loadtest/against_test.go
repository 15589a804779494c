package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tailgate/loadtest/host"
	"tailgate/loadtest/machine"
	"tailgate/loadtest/stats"
	"tailgate/loadtest/workload"
	pb "tailgate/proto/gen/orderentry/v1"
	"tailgate/transports"
	"tailgate/transports/all"
)

// The environment that asks for TestAgainst, and makes it shorter.
const (
	againstEnv  = "LOADTEST_AGAINST"
	roundsEnv   = "LOADTEST_AGAINST_ROUNDS"
	durationEnv = "LOADTEST_AGAINST_DURATION"
)

// What every comparison reads or trades: the first instrument of a hosted gateway.
var (
	symbol         = host.Instruments()[0].Symbol
	referencePrice = host.Instruments()[0].ReferencePrice
)

// comparison is one load and those who make it.
type comparison struct {
	name  string
	load  load
	delay time.Duration // by which the gateway's handler is made longer
	tools []tool        // beside ours
	// explained is by how much a tool's medians may be off ours beyond the spread of the rounds, by tool; without an entry it is noise. The reasons
	// stand in METHOD.md under "Held against other tools", each with its evidence.
	explained map[string]margin
	empty     bool // the book has no levels
}

// margin is the least and the greatest difference of a tool's figures to ours that is explained, as a share of ours.
type margin struct {
	throughput, p50 [2]float64
	// clientBound: only where our core is used up, and with the tool the gateway's.
	clientBound bool
}

// noise is by how much the medians of a few rounds of one and the same tool lie apart here, so that two tools may too: throughput is kept by a rate, or by
// the gateway; the service time at a gentle rate is mostly that of waking up.
var noise = margin{throughput: [2]float64{-0.02, 0.02}, p50: [2]float64{-0.2, 0.2}}

// serverBound: where the gateway's core decides, both figures follow from it.
var serverBound = margin{throughput: [2]float64{-0.03, 0.03}, p50: [2]float64{-0.03, 0.03}}

// Shares of a core from which it counts as used up, and as taken by others than gateway and tool.
const (
	usedUp = 0.85
	taken  = 0.1
)

const (
	inFlight = 16
	// gentle is a rate whose gaps are longer than the millisecond that Go's timers are late by: at a higher one, ghz and vegeta send several requests at
	// once and then none, and measure how these wait for each other.
	gentle = 500
	// handlerDelay makes the gateway's core the one that decides: a tenth of it is more than a request costs any of the tools. The core is busy for this time,
	// so no tool can reach 1,000 answers a second, and 16 requests in flight take 16 times as long at least.
	handlerDelay = time.Millisecond
)

// cheaper is a closed loop in which a tool in C leaves the gateway's core as the bound, where ours is the bound itself.
var cheaper = margin{throughput: [2]float64{0, 1.5}, p50: [2]float64{-0.7, 0}, clientBound: true}

var comparisons = []comparison{
	{
		name: "rest_open", load: load{transport: "rest", rate: gentle}, tools: []tool{vegeta, fortio, fortioStd},
		explained: map[string]margin{fortio.name: {throughput: noise.throughput, p50: [2]float64{-0.6, 0}}}, // its own HTTP client
	},
	{
		name: "grpc_open", load: load{transport: "grpc", rate: gentle}, tools: []tool{ghz},
		explained: map[string]margin{ghz.name: {throughput: noise.throughput, p50: [2]float64{0, 0.7}}}, // decodes the levels by reflection
	},
	{name: "grpc_open_empty_book", load: load{transport: "grpc", rate: gentle}, empty: true, tools: []tool{ghz}},
	{name: "rest_orders", load: load{transport: "rest", rate: gentle, orders: true}, tools: []tool{vegeta}},
	{name: "grpc_orders", load: load{transport: "grpc", rate: gentle, orders: true}, tools: []tool{ghz}},
	{
		name: "rest_closed_server_bound", load: load{transport: "rest"}, delay: handlerDelay, tools: []tool{wrk, h2load},
		explained: map[string]margin{wrk.name: serverBound, h2load.name: serverBound},
	},
	{
		name: "grpc_closed_server_bound", load: load{transport: "grpc"}, delay: handlerDelay, tools: []tool{ghz},
		explained: map[string]margin{ghz.name: serverBound},
	},
	{
		name: "rest_closed", load: load{transport: "rest"}, tools: []tool{wrk, h2load},
		explained: map[string]margin{wrk.name: cheaper, h2load.name: cheaper},
	},
}

// TestAgainst holds the load tester against five others: every tool of a comparison drives the same running gateway with the same requests, one after the other,
// several rounds, each round in another order; server and tool have a core each. It prints tables, and fails where a median of service time or
// throughput is off ours by more than both the spread of the rounds and what is explained.
func TestAgainst(t *testing.T) {
	if testing.Short() || os.Getenv(againstEnv) == "" {
		t.Skipf("takes some minutes: set %s=1 (%s=%d and %s=%v make it shorter)", againstEnv, roundsEnv, defaultRounds, durationEnv, defaultDuration)
	}
	if names := missing(); len(names) > 0 {
		t.Skipf("not in PATH: %s; bash .tools/load-testers DIR installs them, then PATH=DIR:$PATH", strings.Join(names, ", "))
	}
	s := setting(t)
	s.describe(t)
	for _, c := range comparisons {
		t.Run(c.name, func(t *testing.T) { s.compare(t, c) })
	}
	t.Run("highest_rate", s.highest)
}

const (
	defaultRounds   = 5
	defaultDuration = 3 * time.Second
	againstWarmup   = time.Second
)

// settings are how the comparisons are made on this machine.
type settings struct {
	rounds   int
	duration time.Duration
	cores    machine.Plan
}

func setting(t *testing.T) settings {
	t.Helper()
	s := settings{rounds: defaultRounds, duration: defaultDuration}
	var err error
	if text := os.Getenv(roundsEnv); text != "" {
		if s.rounds, err = strconv.Atoi(text); err != nil || s.rounds < 1 {
			t.Fatalf("%s=%s: a number of rounds, 1 and more, is needed", roundsEnv, text)
		}
	}
	if text := os.Getenv(durationEnv); text != "" {
		// wrk and h2load take whole seconds, and a p99 needs 100 samples at the gentle rate.
		if s.duration, err = time.ParseDuration(text); err != nil || s.duration < time.Second || s.duration%time.Second != 0 {
			t.Fatalf("%s=%s: whole seconds are needed, as 2s", durationEnv, text)
		}
	}
	cores, err := machine.Cores()
	if err != nil {
		t.Fatal(err)
	}
	if s.cores = machine.NewPlan(cores, 1); !s.cores.Pinned {
		t.Skipf("needs a core for the gateway and one for the tools: %s", s.cores.Note)
	}
	s.cores.Clients = s.cores.Clients[:1] // one core each, whatever the machine has
	return s
}

// describe prints what a reader has to know of the figures.
func (s settings) describe(t *testing.T) {
	t.Helper()
	e := machine.ReadEnvironment()
	var versions []string
	for _, u := range theirs {
		versions = append(versions, u.name+" "+u.versionText(t))
	}
	fmt.Printf("%s, %s, %d cores, kernel %s, %s; gateway on core %d, tools on core %d; %d rounds of %v after a warm-up of %v; %s\n",
		time.Now().UTC().Format("2006-01-02"), cmp.Or(e.CPU, "unknown processor"), e.OnlineCores, e.Kernel, e.GoVersion,
		s.cores.Server[0], s.cores.Clients[0], s.rounds, s.duration, againstWarmup, strings.Join(versions, ", "))
}

// serve starts a gateway of one transport, whose first book has its levels unless it is to be empty, and fills in where it is.
func (s settings) serve(t *testing.T, l *load, delay time.Duration, empty bool) *host.Process {
	t.Helper()
	t.Setenv(asMain, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := host.Start(t.Context(), host.Options{
		Command: []string{self, childCommand}, Cores: s.cores.Server,
		Task: host.Task{Transport: l.transport, Keys: host.NewKeys(1), Sync: "os", MaxConnections: 1024, HandlerDelay: delay},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	l.address, l.key, l.cores, l.clients, l.warmup = p.Address(l.transport), p.Keys()[0], s.cores.Clients, inFlight, againstWarmup
	if !l.orders && !empty {
		fillBook(t, *l)
	}
	return p
}

// fillBook gives the book the levels that loadtest gives those of its own gateways.
func fillBook(t *testing.T, l load) {
	t.Helper()
	spec, err := all.Parse(l.transport)
	if err != nil {
		t.Fatal(err)
	}
	client, err := spec.Transport.Dial(t.Context(), transports.DialConfig{Address: l.address, Key: l.key})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	flow, err := workload.New(workload.Config{Operation: transports.GetBook, Prefix: workload.RandomPrefix(), Clients: 1, Instruments: host.Instruments()})
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range flow.BookOrders() {
		var response pb.SubmitOrderResponse
		if err := client.Do(t.Context(), &transports.Call{Operation: transports.SubmitOrder, Request: order, Response: &response}); err != nil || response.LeavesQuantity != order.Quantity {
			t.Fatalf("%v: %v, %v", order, &response, err)
		}
	}
}

// measured is a run of a tool with what it took from the gateway's core.
type measured struct {
	sample
	gateway float64 // share of its core
	others  float64 // greatest share of one of the two cores that neither of them used, or that the hypervisor took
}

// measure runs a tool once.
func (s settings) measure(t *testing.T, u tool, l load, gateway *host.Process) measured {
	t.Helper()
	l.folder = t.TempDir()
	counters := func() (c, self machine.Counters, tool, server machine.CoreTimes) {
		c, err := gateway.Counters(context.Background())
		if err == nil {
			self, err = machine.ReadCounters()
		}
		if err == nil {
			tool, err = machine.ReadCoreTimes(l.cores)
		}
		if err == nil {
			server, err = machine.ReadCoreTimes(s.cores.Server)
		}
		if err != nil {
			t.Fatal(err)
		}
		return c, self, tool, server
	}
	before, selfBefore, toolBefore, serverBefore := counters()
	begun := time.Now()
	out, used := u.run(t, l)
	out.busy = float64(used) / float64(time.Since(begun))
	after, selfAfter, toolAfter, serverAfter := counters()
	server, self := after.Since(before), selfAfter.Since(selfBefore) // what this process does, on whichever core, it does before and after
	foreign := func(c machine.CoreTimes, own time.Duration) float64 {
		return float64(c.Busy+c.Steal-own-self.UserCPU-self.SystemCPU) / float64(max(c.Total(), 1))
	}
	return measured{
		sample: out, gateway: float64(server.UserCPU+server.SystemCPU) / float64(server.At),
		others: max(foreign(toolAfter.Since(toolBefore), used), foreign(serverAfter.Since(serverBefore), server.UserCPU+server.SystemCPU)),
	}
}

// compare makes the rounds of a comparison, prints them and judges.
func (s settings) compare(t *testing.T, c comparison) {
	l := c.load
	l.duration = s.duration
	gateway := s.serve(t, &l, c.delay, c.empty)
	tools := append([]tool{ours}, c.tools...)
	runs := map[string][]measured{}
	random := rand.New(rand.NewPCG(1, 0))
	invalid := 0
	for round := 0; round < s.rounds && invalid <= s.rounds; {
		once := map[string]measured{}
		for _, i := range random.Perm(len(tools)) {
			once[tools[i].name] = s.measure(t, tools[i], l, gateway)
		}
		// Whatever disturbed one may have disturbed the others: the whole round is made again.
		if why := disturbed(once); why != "" {
			t.Logf("a round is left out: %s", why)
			invalid++
			continue
		}
		for name, m := range once {
			runs[name] = append(runs[name], m)
		}
		round++
	}
	if len(runs[ours.name]) < s.rounds {
		t.Skipf("not judged: %d of %d rounds were disturbed by what else this machine does", invalid, invalid+len(runs[ours.name]))
	}
	c.print(tools, runs)
	for _, u := range c.tools {
		explained, given := c.explained[u.name]
		if !given {
			explained = noise
		}
		if gateway, own := core(runs[u.name], gatewayShare), core(runs[ours.name], toolShare); explained.clientBound && (own < usedUp || gateway < usedUp) {
			t.Errorf("%s: our core is used to %s and with %s the gateway's to %s: neither is used up, so that a difference would have no reason", c.name, percent(own), u.name, percent(gateway))
		}
		judge(t, "throughput", "answers/s", u.name, runs[ours.name], runs[u.name], func(m measured) float64 { return m.throughput }, explained.throughput)
		judge(t, "p50 of the service time", "µs", u.name, runs[ours.name], runs[u.name], func(m measured) float64 { return m.p50 }, explained.p50)
	}
}

// disturbed says what makes a round worthless; empty where nothing does.
func disturbed(round map[string]measured) string {
	for name, m := range round {
		switch {
		case m.invalid != "":
			return m.invalid
		case m.others > taken:
			return fmt.Sprintf("others used %s of a core while %s ran", percent(m.others), name)
		}
	}
	return ""
}

func gatewayShare(m measured) float64 { return m.gateway }

func toolShare(m measured) float64 { return m.busy }

// core is the median share of a core over the rounds.
func core(runs []measured, of func(measured) float64) float64 { return stats.Median(pick(runs, of)) }

// pick is a figure of every run.
func pick(runs []measured, of func(measured) float64) []float64 {
	values := make([]float64, len(runs))
	for i, m := range runs {
		values[i] = of(m)
	}
	return values
}

// judge fails where two figures do not agree: the ranges of their rounds are apart, and the difference of the medians is not among those that are explained.
func judge(t *testing.T, what, unit, name string, a, b []measured, of func(measured) float64, explained [2]float64) {
	t.Helper()
	x, y := pick(a, of), pick(b, of)
	if slices.Min(x) <= slices.Max(y) && slices.Min(y) <= slices.Max(x) {
		return
	}
	if off := stats.Median(y)/stats.Median(x) - 1; off < explained[0] || off > explained[1] {
		t.Errorf("%s: %s %.6g %s, loadtest %.6g (%+.1f %%; explained are %+.0f to %+.0f %%), and no round of the one lies among the other's",
			what, name, stats.Median(y), unit, stats.Median(x), 100*off, 100*explained[0], 100*explained[1])
	}
}

// print writes the comparison as a Markdown table.
func (c comparison) print(tools []tool, runs map[string][]measured) {
	l, loop := c.load, fmt.Sprintf("closed loop of %d", inFlight)
	operation := "GetBook"
	if l.orders {
		operation = fmt.Sprintf("SubmitOrder, %d B", size)
	}
	if c.empty {
		operation += " of an empty book"
	}
	if l.rate > 0 {
		loop = fmt.Sprintf("%g/s, at most %d in flight", l.rate, inFlight)
	}
	if c.delay > 0 {
		loop += fmt.Sprintf(", handler %v longer", c.delay)
	}
	fmt.Printf("\n%s, %s, %s (%d rounds)\n\n", l.transport, operation, loop, len(runs[ours.name]))
	fmt.Println("| tool | answers/s | off ours | service p50, µs | off ours | service p99, µs | tool's core | gateway's core |")
	fmt.Println("|---|---:|---:|---:|---:|---:|---:|---:|")
	for _, u := range tools {
		mine, own := runs[u.name], runs[ours.name]
		throughput, p50 := func(m measured) float64 { return m.throughput }, func(m measured) float64 { return m.p50 }
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %s | %s |\n", u.name,
			spread(pick(mine, throughput), "%.0f"), paired(mine, own, throughput), spread(pick(mine, p50), "%.0f"), paired(mine, own, p50),
			spread(pick(mine, func(m measured) float64 { return m.p99 }), "%.0f"),
			percent(core(mine, toolShare)), percent(core(mine, gatewayShare)))
	}
}

// spread is the median with the lowest and the highest.
func spread(values []float64, format string) string {
	switch {
	case slices.ContainsFunc(values, math.IsNaN):
		return "too few"
	case len(values) == 1:
		return fmt.Sprintf(format, values[0])
	}
	return fmt.Sprintf(format+" ("+format+" to "+format+")", stats.Median(values), slices.Min(values), slices.Max(values))
}

// paired is by how much the rounds of a tool differ from ours of the same round.
func paired(mine, own []measured, of func(measured) float64) string {
	x, y := pick(own, of), pick(mine, of)
	if &mine[0] == &own[0] {
		return "-"
	}
	off := make([]float64, len(x))
	for i := range x {
		off[i] = 100 * (y[i]/x[i] - 1)
	}
	return spread(off, "%+.1f") + " %"
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// Bounds of the search for the highest rate.
const (
	firstRate, lastRate = 2000, 1_024_000
	searchDuration      = time.Second
	searchWarmup        = 500 * time.Millisecond
	searchInFlight      = 64
	bisections          = 3 // after which the rate is known to 2^(1/8), or 9 %
	// keepsUp is the share of what was asked for that has to be answered within the interval: below, loadtest calls itself INVALID. Ghz shares a rate out to
	// its workers in whole requests and is off by some percent at the lowest rates.
	keepsUp = 0.95
)

// highest prints the highest constant rate that a tool on one core keeps up with against a gateway on another, and for tools without a rate what they
// reach in a closed loop; ours on every transport.
func (s settings) highest(t *testing.T) {
	fmt.Printf("\nHighest rate of a tool on one core, GetBook, at most %d in flight\n\n| transport | tool | loop | answers/s | tool's core | gateway's core |\n|---|---|---|---:|---:|---:|\n", searchInFlight)
	others := map[string][]tool{"rest": {vegeta, wrk, h2load}, "grpc": {ghz}}
	for _, transport := range all.Names() {
		l := load{transport: transport}
		gateway := s.serve(t, &l, 0, false)
		l.clients, l.duration, l.warmup = searchInFlight, searchDuration, searchWarmup
		for _, u := range append([]tool{ours}, others[transport]...) {
			if u.name == wrk.name || u.name == h2load.name {
				printHighest(transport, u, "closed", s.measure(t, u, l, gateway))
				continue
			}
			switch best := s.search(t, u, l, gateway); {
			case best.throughput > 0:
				printHighest(transport, u, "constant rate", best)
			case best.others > taken:
				t.Logf("not judged: others used %s of a core while %s could not keep up with %d/s on %s", percent(best.others), u.name, firstRate, transport)
			default:
				t.Errorf("%s on %s does not even keep up with %d/s", u.name, transport, firstRate)
			}
		}
	}
}

func printHighest(transport string, u tool, loop string, m measured) {
	disturbed := ""
	if m.others > taken {
		disturbed = ", disturbed: others used " + percent(m.others)
	}
	fmt.Printf("| %s | %s | %s%s | %.0f | %s | %s |\n", transport, u.name, loop, disturbed, m.throughput, percent(m.busy), percent(m.gateway))
}

// search doubles the rate until the tool does not keep up, and then takes geometric means. A trial that was missed while others used the cores is made
// again, tries times in all. Without any rate the result has no throughput, and says what others used.
func (s settings) search(t *testing.T, u tool, l load, gateway *host.Process) (best measured) {
	t.Helper()
	const tries = 2
	keeps := func(rate float64) bool {
		l.rate = math.Round(rate)
		for range tries {
			m := s.measure(t, u, l, gateway)
			if m.invalid == "" && m.throughput >= keepsUp*l.rate {
				best = m
				return true
			}
			if best.throughput == 0 {
				best.others = m.others
			}
			if m.others <= taken {
				break
			}
		}
		return false
	}
	low, high := 0.0, float64(firstRate)
	for high <= lastRate && keeps(high) {
		low, high = high, 2*high
	}
	for range bisections {
		if middle := math.Sqrt(low * high); low > 0 && keeps(middle) {
			low = middle
		} else if low > 0 {
			high = middle
		}
	}
	return best
}
