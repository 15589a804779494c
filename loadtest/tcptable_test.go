package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tailgate/loadtest/floor"
	"tailgate/loadtest/machine"
	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
	"tailgate/transports/all"
)

// What asks for the table of raw TCP, and what it is asked:
//
//	LOADTEST_TCP_TABLE=. go test ./loadtest -run TestTCPTable -v -timeout 120m
const (
	tableEnv         = "LOADTEST_TCP_TABLE"          // regular expression of the rows, by "group/measure, engine"; "." = all
	tableRoundsEnv   = "LOADTEST_TCP_TABLE_ROUNDS"   // rounds, in each of which every cell of a group is measured once; none = tableRounds, in the matrix matrixRounds
	tableDurationEnv = "LOADTEST_TCP_TABLE_DURATION" // of a cell; none = tableDuration
)

const (
	tableRounds   = 10
	matrixRounds  = 5 // of 100 cells each
	tableDuration = 2 * time.Second
	tableSeed     = 1
	// tableDepth is how many requests the pipelined connection has in flight.
	tableDepth = 256
	// tableSLO is the objective of the open loops, and how long a request may wait in them.
	tableSLO = 10 * time.Millisecond
	// overloadDelay makes the server's core the one that is overloaded.
	overloadDelay = 50 * time.Microsecond
	// Of the step: its rates as shares of the capacity, when it begins, how long it and the cell last, so that the recorder's 128 blocks are 20 ms wide.
	stepBase, stepTop                  = 0.7, 1.4
	stepAt, stepLength, stepCellLength = 500 * time.Millisecond, time.Second, 2560 * time.Millisecond
	// calm is how many blocks in a row have to be as before the step.
	calm = 3
	// noAllocation is what counts as none for each request: the runtime's own work and the gateway's housekeeping allocate too.
	noAllocation = 0.05
)

// tableGroup is cells that are measured side by side, in rounds, and the rows that come of them.
type tableGroup struct {
	name   string
	rounds int
	cells  []tableCell
	rows   []tableRow
}

// tableCell is one of them.
type tableCell struct {
	name   string
	args   []string                                 // of the load tester
	floor  string                                   // report.PeerEcho, PeerSpin or PeerTurn instead of what the arguments say
	engine string                                   // of PeerTurn
	delay  time.Duration                            // of every request in the handler
	rate   func(round tableRound) []string          // further arguments, from the cells of the round that come before; nil = none, and the order is drawn
	also   func(c *tableResult, out runner.Outcome) // reads what the report does not have
}

// tableResult is one measurement.
type tableResult struct {
	report.Cell
	back time.Duration // after a step; -1 = not within the cell

	inTime   float64      // answers a second within tableSLO
	fullTime float64      // the same at the cores' full speed
	admitted *report.Cell // nothing but the response times of what was answered at full speed; nil without
}

// fill reads what the report does not have.
func (r *tableResult) fill(t *testing.T, out runner.Outcome) {
	t.Helper()
	if out.Seconds > 0 {
		r.inTime = float64(r.Good) / out.Seconds
	}
	s := out.Speed
	if s == nil || s.Kept == 0 {
		return
	}
	r.fullTime = float64(s.Response.CountBelow(tableSLO, false)) / (s.Kept * out.Seconds)
	answered, err := stats.NewDistribution(s.Response.Buckets(), stats.Exact{Max: stats.MaxBound}, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.admitted = &report.Cell{Response: report.NewLatency(answered)}
}

// full is the result as it is at the cores' full speed; nil where that is not known.
func (r *tableResult) full() *tableResult {
	if r.Speed == nil || r.Speed.Response == nil {
		return nil
	}
	f := *r
	f.Response, f.Throughput, f.Amplification, f.inTime = *r.Speed.Response, *r.Speed.Throughput, r.Speed.Amplification, r.fullTime
	if r.admitted != nil {
		f.Admitted = r.admitted.Response
	}
	return &f
}

// full is the round as it is at the cores' full speed, without those cells of which that is not known.
func (r tableRound) full() tableRound {
	f := tableRound{}
	for name, cell := range r {
		if at := cell.full(); at != nil {
			f[name] = at
		}
	}
	return f
}

// tableRound is the measurements of one round by the names of their cells.
type tableRound map[string]*tableResult

// tableRow is a figure of every round, held against what it must be.
type tableRow struct {
	measure, engine, against string
	value                    func(tableRound) (float64, bool)
	must                     func(rounds []tableRound) (text string, limit float64)
	mustBe, aim              float64 // where must is nil; at least 0 is no bound, so the row is shown and passes nothing
	atMost                   bool    // otherwise at least
	digits                   int
}

func (r *tableRow) name(group string) string { return group + "/" + r.measure + ", " + r.engine }

// TestTCPTable measures raw TCP against what it is compared with, cell beside cell in the same run, and holds each row against what it must show. The figure
// of a row is the median of its rounds, with the least and the greatest. Cells whose measurement is INVALID are left out and counted.
func TestTCPTable(t *testing.T) {
	want := os.Getenv(tableEnv)
	if testing.Short() || want == "" {
		t.Skip("measures for an hour: set " + tableEnv + " to a regular expression of its rows, \".\" for all")
	}
	rows, err := regexp.Compile(want)
	if err != nil {
		t.Fatalf("%s: %v", tableEnv, err)
	}
	b := &tableBench{duration: tableDuration}
	if text := os.Getenv(tableDurationEnv); text != "" {
		if b.duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", tableDurationEnv, err)
		}
	}
	if text := os.Getenv(tableRoundsEnv); text != "" {
		if b.rounds, err = strconv.Atoi(text); err != nil || b.rounds < 1 {
			t.Fatalf("%s %q: 1 and more are allowed", tableRoundsEnv, text)
		}
	}
	p := bench(t, "--transport", "tcp")
	b.cores, b.watch = p.cores, p.watch
	e := machine.ReadEnvironment()
	out := []string{
		fmt.Sprintf("%s, %d cores, kernel %s, %s, %s; server on core %v, clients on core %v; journal os; cells of %v.", e.CPU, e.OnlineCores, e.Kernel, e.GoVersion, e.CongestionControl, b.cores.Server, b.cores.Clients, b.duration),
		"", "| measure | engine | against | cores at full speed: median (least..greatest) | rounds | whole interval | must | aim | |", "|---|---|---|---|---|---|---|---|---|",
	}
	asked := 0
	for _, g := range tableGroups() {
		g.rows = slices.DeleteFunc(g.rows, func(r tableRow) bool { return !rows.MatchString(r.name(g.name)) })
		if len(g.rows) == 0 {
			continue
		}
		rounds := b.measure(t, g)
		for _, row := range g.rows {
			line, ok := row.line(rounds)
			asked++
			if !ok {
				t.Errorf("%s: %s", row.name(g.name), line)
			}
			out = append(out, line)
		}
	}
	if asked == 0 {
		t.Errorf("no row is called as %s=%q asks", tableEnv, want)
	}
	fmt.Fprintf(t.Output(), "\n%s\n", strings.Join(append(out, b.troubles...), "\n"))
}

type tableBench struct {
	duration time.Duration
	rounds   int // 0 = the group's own
	cores    machine.Plan
	watch    *watcher
	troubles []string
}

// plan reads the cell's command line, for the cores that are known already.
func (b *tableBench) plan(t *testing.T, c tableCell, more []string) *plan {
	t.Helper()
	args := slices.Concat(c.args, []string{"--duration", b.duration.String(), "--slo", "p99<" + tableSLO.String()}, more)
	o, _ := parse(args, io.Discard, t.Output())
	if o == nil {
		t.Fatalf("%q is no command line", args)
	}
	p, err := o.plan()
	if err != nil {
		t.Fatal(err)
	}
	p.cores, p.watch = b.cores, b.watch
	p.cells = p.cells[:1]
	at := &p.cells[0]
	at.delay = c.delay
	switch c.floor {
	case report.PeerEcho:
		at.spec = all.Spec{Transport: floor.Transport()}
	case report.PeerSpin:
		at.spec = all.Spec{Transport: floor.Spinning()}
	case report.PeerTurn:
		at.spec = all.Spec{Transport: floor.InTurn(), Engine: c.engine}
	}
	if c.floor != "" {
		at.peer, at.floor = c.floor, true
	}
	return p
}

// measure runs the group's cells, round by round, in an order drawn for each, but for those that need others before them.
func (b *tableBench) measure(t *testing.T, g tableGroup) []tableRound {
	t.Helper()
	rng := rand.New(rand.NewPCG(tableSeed, uint64(len(g.cells))))
	n := g.rounds
	if b.rounds > 0 {
		n = b.rounds
	}
	var rounds []tableRound
	for i := range n {
		cells := slices.Clone(g.cells)
		rng.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
		slices.SortStableFunc(cells, func(a, c tableCell) int {
			switch {
			case a.rate == nil && c.rate != nil:
				return -1
			case a.rate != nil && c.rate == nil:
				return 1
			}
			return 0
		})
		round := tableRound{}
		for _, c := range cells {
			var more []string
			if c.rate != nil {
				if more = c.rate(round.full()); more == nil {
					continue // what it depends on is missing
				}
			}
			if r := b.cell(t, g, c, i, more); r != nil {
				round[c.name] = r
			}
		}
		rounds = append(rounds, round)
	}
	return rounds
}

func (b *tableBench) cell(t *testing.T, g tableGroup, c tableCell, round int, more []string) *tableResult {
	t.Helper()
	p := b.plan(t, c, more)
	rc := p.reportCell(p.cells[0], round+1)
	out, err := p.measure(t.Context(), p.cells[0], &rc, nil)
	r := &tableResult{Cell: rc}
	switch {
	case err != nil:
		b.troubles = append(b.troubles, fmt.Sprintf("%s, %s, round %d: %v", g.name, c.name, round+1, err))
		return nil
	case rc.Validity == runner.Invalid:
		b.troubles = append(b.troubles, fmt.Sprintf("%s, %s, round %d: INVALID: %s", g.name, c.name, round+1, strings.Join(rc.Reasons, "; ")))
		return nil
	}
	r.fill(t, out)
	if c.also != nil {
		c.also(r, out)
	}
	at := ""
	if f := r.full(); f != nil {
		at = fmt.Sprintf("; at full speed, %.0f %% of it: p50 %.0f µs, p99 %.0f µs, %.0f/s", 100*r.Speed.KeptShare, f.Response.Values["p50"], f.Response.Values["p99"], f.Throughput)
	}
	t.Logf("%s, %s, round %d: p50 %.0f µs, p99 %.0f µs, %.0f/s%s, %s %s", g.name, c.name, round+1, rc.Response.Values["p50"], rc.Response.Values["p99"], rc.Throughput, at, rc.Validity, strings.Join(rc.Reasons, "; "))
	return r
}

// line is the row in markdown, judged at the cores' full speed. It is not ok where it missed what it must be, or has no round.
func (r *tableRow) line(whole []tableRound) (text string, ok bool) {
	var values, wholes []float64
	var rounds []tableRound
	for _, round := range whole {
		if v, ok := r.value(round); ok {
			wholes = append(wholes, v)
		}
		rounds = append(rounds, round.full())
		if v, ok := r.value(rounds[len(rounds)-1]); ok {
			values = append(values, v)
		}
	}
	limit, bound := r.mustBe, r.bound(r.mustBe)
	if r.must != nil {
		bound, limit = r.must(rounds)
	}
	shown := r.must == nil && r.mustBe == 0 && !r.atMost
	if shown {
		bound = "-"
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', r.digits, 64) }
	spread := func(values []float64) string {
		if len(values) == 0 {
			return "-"
		}
		return fmt.Sprintf("%s (%s..%s)", number(stats.Median(values)), number(slices.Min(values)), number(slices.Max(values)))
	}
	verdict := "NOT MEASURED"
	if len(values) > 0 {
		middle := stats.Median(values)
		switch {
		case r.holds(middle, r.aim) && r.holds(middle, limit):
			verdict, ok = "PASS, and the aim", true
		case shown:
			verdict, ok = "shown", true
		case r.holds(middle, limit):
			verdict, ok = "PASS", true
		default:
			verdict = "MISSED"
		}
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %d of %d | %s | %s | %s | %s |", r.measure, r.engine, r.against, spread(values), len(values), len(rounds), spread(wholes), bound, r.bound(r.aim), verdict), ok
}

func (r *tableRow) holds(v, limit float64) bool {
	if r.atMost {
		return v <= limit
	}
	return v >= limit
}

func (r *tableRow) bound(limit float64) string {
	text := strconv.FormatFloat(limit, 'f', -1, 64)
	if r.atMost {
		return "at most " + text
	}
	return "at least " + text
}

// TestTableRows: a row's line says what the rounds come to, and a row without a round, or that missed its bound, is not ok.
func TestTableRows(t *testing.T) {
	cell := func(p99 float64) *tableResult {
		// Slow times double it.
		r := &tableResult{}
		r.Response.Values = map[string]float64{"p99": 2 * p99}
		throughput := 1.0
		r.Speed = &report.Speed{Response: &report.Latency{Values: map[string]float64{"p99": p99}}, Throughput: &throughput}
		return r
	}
	rounds := []tableRound{{"a": cell(10), "b": cell(100)}, {"a": cell(30), "b": cell(100)}, {"a": cell(20), "b": cell(100)}, {"a": cell(20)}}
	rounds[0]["b"].Response.Values["p99"] = 100
	row := tableRow{measure: "P99", engine: "net", against: "b", value: ratio("a", "b", percentile("p99")), mustBe: 0.25, aim: 0.1, atMost: true, digits: 2}
	if line, ok := row.line(rounds); !ok || line != "| P99 | net | b | 0.20 (0.10..0.30) | 3 of 4 | 0.20 (0.20..0.30) | at most 0.25 | at most 0.1 | PASS |" {
		t.Errorf("%t: %s", ok, line)
	}
	row.aim = 0.2
	if line, ok := row.line(rounds); !ok || !strings.HasSuffix(line, "| PASS, and the aim |") {
		t.Errorf("%t: %s", ok, line)
	}
	row.mustBe = 0.19
	if line, ok := row.line(rounds); ok || !strings.HasSuffix(line, "| MISSED |") {
		t.Errorf("%t: %s", ok, line)
	}
	if line, ok := row.line(rounds[3:]); ok || !strings.HasSuffix(line, "| NOT MEASURED |") {
		t.Errorf("%t: %s", ok, line)
	}
	row.atMost = false
	if line, ok := row.line(rounds); !ok || !strings.Contains(line, "at least 0.19") {
		t.Errorf("%t: %s", ok, line)
	}
	row.mustBe, row.aim = 0, 1
	if line, ok := row.line(rounds); !ok || !strings.HasSuffix(line, "| - | at least 1 | shown |") {
		t.Errorf("%t: %s", ok, line)
	}
}

// TestTableStep: the time back to normal counts from the end of the step to the first of so many calm blocks.
func TestTableStep(t *testing.T) {
	const width = 20 * time.Millisecond
	for _, c := range []struct {
		name  string
		noisy func(at time.Duration) bool // blocks that are slow, beside those of the step
		want  time.Duration
	}{
		{"at once", func(time.Duration) bool { return false }, 0},
		{"after 60 ms", func(at time.Duration) bool { return at < 60*time.Millisecond }, 60 * time.Millisecond},
		{"with a relapse", func(at time.Duration) bool { return at < 20*time.Millisecond || at == 60*time.Millisecond }, 80 * time.Millisecond},
		{"never", func(time.Duration) bool { return true }, -1},
	} {
		var out runner.Outcome
		out.Series.Width = width
		for at := time.Duration(0); at < stepCellLength; at += width {
			b := stats.Block{Buckets: []stats.Bucket{{Value: time.Millisecond, Count: 99}, {Value: 2 * time.Millisecond, Count: 1}}}
			if after := at - stepAt - stepLength; at >= stepAt && after < 0 || after >= 0 && c.noisy(after) {
				b.Lost = 10
			}
			out.Series.Blocks = append(out.Series.Blocks, b)
		}
		var r tableResult
		if readStep(&r, out); r.back != c.want {
			t.Errorf("%s: %v, want %v", c.name, r.back, c.want)
		}
	}
}
