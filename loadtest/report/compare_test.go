package report_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
)

// runsOf makes a run with n runs of two cells, whose p99 is about the given one, in microseconds.
func runsOf(seed uint64, n int, p99 ...float64) report.Run {
	rng := rand.New(rand.NewPCG(seed, 1))
	var r report.Run
	for i := range n {
		for j, middle := range p99 {
			v := middle * (1 + 0.02*rng.NormFloat64())
			r.Cells = append(r.Cells, report.Cell{
				Transport: "tcp", Size: 64, Clients: 10 * (j + 1), Run: i + 1, Seconds: 1, Throughput: 1e9 / v, Validity: runner.Valid,
				Response: report.Latency{Values: map[string]float64{"p50": v / 2, "p99": v}},
			})
		}
	}
	return r
}

// TestCompare: what differs is found, with its size and direction; what does not is ~; what cannot be told is said to be so.
func TestCompare(t *testing.T) {
	a, b := runsOf(1, 8, 1000, 1000), runsOf(2, 8, 1100, 1000)
	c := report.Compare(a, b)
	if len(c.Cells) != 2 || c.Cells[0].Cell != "tcp, 64 B x 10" {
		t.Fatalf("%+v", c.Cells)
	}
	worse, same := c.Cells[0].Figures[1], c.Cells[1].Figures[1]
	if worse.Figure != "p99" || worse.Verdict != "higher" || *worse.Change < 0.07 || *worse.Change > 0.13 || *worse.Low <= 0 || *worse.High < *worse.Change || worse.P >= worse.Adjusted {
		t.Errorf("%+v: want higher by about a tenth", worse)
	}
	if same.Verdict != "~" || *same.Low > 0 || *same.High < 0 {
		t.Errorf("%+v: want ~", same)
	}
	if rate := c.Cells[0].Figures[3]; rate.Figure != "throughput" || rate.Verdict != "lower" {
		t.Errorf("%+v: want lower", rate)
	}
	if few := c.Cells[0].Figures[2]; few.Verdict != "too few" || few.Median[0] != nil {
		t.Errorf("%+v: no run has a p99.9", few)
	}

	// INVALID runs do not count, and three of each side can tell nothing.
	for i := range b.Cells {
		if b.Cells[i].Run > 3 {
			b.Cells[i].Validity = runner.Invalid
		}
	}
	c = report.Compare(runsOf(1, 3, 1000, 1000), b)
	if f := c.Cells[0].Figures[1]; f.Verdict != "too few runs" || f.Runs != [2]int{3, 3} || c.Cells[0].Invalid != [2]int{0, 5} {
		t.Errorf("%+v of %+v: want too few runs, 5 left out", f, c.Cells[0].Invalid)
	}
	var out strings.Builder
	if err := report.CompareTable(&out, c, "a.json", "b.json"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{fmt.Sprintf("measure with --repeat %d or more", report.RunsToCompare), "INVALID runs were left out: tcp, 64 B x 10: 0 of A, 5 of B", "p99 of the response time"} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}

	// An infinite p99 is greater than any other, and nothing can be divided by it.
	b = runsOf(2, 8, 1000)
	for i := range b.Cells {
		delete(b.Cells[i].Response.Values, "p99")
		b.Cells[i].Response.Infinite = []string{"p99"}
	}
	if f := report.Compare(runsOf(1, 8, 1000), b).Cells[0].Figures[1]; f.Verdict != "higher" || f.Change != nil || f.Median[1] != nil {
		t.Errorf("%+v: want higher, without a size", f)
	}
	other := runsOf(1, 8, 1000)
	other.Environment.Kernel = "7.0"
	if notes := report.Compare(runsOf(1, 8, 1000), other).Notes; len(notes) != 1 || notes[0] != "kernel: unknown and 7.0" {
		t.Errorf("%q", notes)
	}
	// So is what was asked for, where it does not make another cell.
	asked := runsOf(1, 8, 1000)
	asked.Method.Congestion, asked.Method.ReplaceShare, asked.Method.TimeoutSeconds = "bbr", 0.1, 2
	a = runsOf(1, 8, 1000)
	for i := range asked.Cells {
		a.Cells[i].Connections.Asked, asked.Cells[i].Connections.Asked = 10, 1
	}
	want := []string{"congestion control: unknown and bbr", "shares of cancels and replaces: 0 + 0 and 0 + 0.1", "time of a request: 0 s and 2 s", "connections of tcp, 64 B x 10: 10 and 1"}
	if notes := report.Compare(a, asked).Notes; !slices.Equal(notes, want) {
		t.Errorf("%q, want %q", notes, want)
	}
	// Orders that draw their sizes are another load than clients that do.
	mixed, byClient := runsOf(1, 2, 1000), runsOf(1, 2, 1000)
	for i := range mixed.Cells {
		mixed.Cells[i].SizeMix, byClient.Cells[i].SizeMix, byClient.Cells[i].MixBy = []report.Share{{Size: 64, Weight: 1}}, []report.Share{{Size: 64, Weight: 1}}, "client"
	}
	if c := report.Compare(mixed, byClient); len(c.Cells) != 0 {
		t.Errorf("%+v: different loads were compared", c.Cells)
	}
}

// TestFalseDifferences: of twenty comparisons of equal cells, hardly one calls anything different, whichever of its figures.
func TestFalseDifferences(t *testing.T) {
	const trials = 100
	alarms := 0
	for seed := range uint64(trials) {
		c := report.Compare(runsOf(2*seed+10, 6, 1000, 2000, 3000), runsOf(2*seed+11, 6, 1000, 2000, 3000))
		if slices.ContainsFunc(c.Cells, func(cell report.ComparedCell) bool {
			return slices.ContainsFunc(cell.Figures, func(f report.ComparedFigure) bool { return f.Verdict == "higher" || f.Verdict == "lower" })
		}) {
			alarms++
		}
	}
	if alarms > 10 {
		t.Errorf("%d of %d comparisons of the same see a difference, want about 5 at most", alarms, trials)
	}
}

// TestScantRuns: runs that can tell much and not enough are said to be few.
func TestScantRuns(t *testing.T) {
	var out strings.Builder
	if err := report.CompareTable(&out, report.Compare(runsOf(1, 6, 1000), runsOf(2, 6, 1000)), "a.json", "b.json"); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("~ of fewer than %d runs a side says little", report.RunsToCompare); !strings.Contains(out.String(), want) {
		t.Errorf("it does not say %q:\n%s", want, out.String())
	}
	out.Reset()
	if err := report.CompareTable(&out, report.Compare(runsOf(1, report.RunsToCompare, 1000), runsOf(2, report.RunsToCompare, 1000)), "a.json", "b.json"); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "says little") {
		t.Errorf("enough runs are said to be few:\n%s", out.String())
	}
}

// inTurns gives the runs of two files times that alternate, and what the machine did at the time to both.
func inTurns(a, b *report.Run, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	now := time.Unix(1_800_000_000, 0)
	for i := range a.Cells {
		moment := 1 + rng.Float64() // the machine is up to twice as slow
		pair := []*report.Cell{&a.Cells[i], &b.Cells[i]}
		rng.Shuffle(len(pair), func(i, j int) { pair[i], pair[j] = pair[j], pair[i] })
		for _, c := range pair {
			c.Started, now = now, now.Add(2*time.Second)
			for name := range c.Response.Values {
				c.Response.Values[name] *= moment
			}
			c.Throughput /= moment
		}
	}
}

// TestCompareInTurns: runs that alternated are compared in pairs, so that a machine that changes between them hides nothing; runs one after the other are not.
func TestCompareInTurns(t *testing.T) {
	a, b := runsOf(1, 10, 1000), runsOf(2, 10, 1100)
	inTurns(&a, &b, 5)
	c := report.Compare(a, b)
	f := c.Cells[0].Figures[0]
	if !c.Cells[0].Paired || f.Verdict != "higher" || *f.Change < 0.07 || *f.Change > 0.13 || f.Low == nil || *f.Low <= 0 || f.Runs != [2]int{10, 10} {
		t.Errorf("%+v: want higher by a tenth, in pairs", f)
	}
	var out strings.Builder
	if err := report.CompareTable(&out, c, "a.json", "b.json"); err != nil || !strings.Contains(out.String(), "compared in pairs") {
		t.Errorf("%v; it does not say how it was tested:\n%s", err, out.String())
	}
	// The same figures, had the files been measured one after the other: nothing can be told.
	for i := range b.Cells {
		b.Cells[i].Started = b.Cells[i].Started.Add(time.Hour)
	}
	if c := report.Compare(a, b); c.Cells[0].Paired || c.Cells[0].Figures[0].Verdict != "~" {
		t.Errorf("%+v: want ~, not in pairs", c.Cells[0])
	}

	// An INVALID run takes its partner with it, and only it counts as INVALID. A p99 that is infinite in both is no difference.
	a, b = runsOf(1, 10, 1000), runsOf(2, 10, 1100)
	inTurns(&a, &b, 5)
	a.Cells[3].Validity = runner.Invalid
	for _, r := range []report.Run{a, b} {
		delete(r.Cells[5].Response.Values, "p99")
		r.Cells[5].Response.Infinite = []string{"p99"}
	}
	c = report.Compare(a, b)
	if f := c.Cells[0].Figures[1]; !c.Cells[0].Paired || f.Runs != [2]int{9, 9} || c.Cells[0].Invalid != [2]int{1, 0} || f.Verdict != "higher" || *f.Change < 0.05 {
		t.Errorf("%+v of %+v: want 9 pairs", f, c.Cells[0].Invalid)
	}
	// Infinite in one alone, it has no size.
	b.Cells[5].Response.Infinite, b.Cells[5].Response.Values["p99"] = nil, 1
	if f := report.Compare(a, b).Cells[0].Figures[1]; f.Change != nil || f.Runs != [2]int{9, 9} {
		t.Errorf("%+v: want no size", f)
	}
}

// TestWithin: the transports of one run are held against its first, round by round.
func TestWithin(t *testing.T) {
	var r report.Run
	for i, name := range []string{"tcp", "rest", "grpc"} {
		side := runsOf(uint64(i+1), 10, 1000+100*float64(i%2), 2000)
		for _, c := range side.Cells {
			c.Transport = name
			r.Cells = append(r.Cells, c)
		}
	}
	r.Cells = append(r.Cells, report.Cell{Transport: "floor", Peer: report.PeerEcho, Size: 64, Clients: 10, Run: 1, Seconds: 1, Validity: runner.Valid})
	c, first := report.Within(r)
	var names []string
	for _, cell := range c.Cells {
		names = append(names, cell.Cell)
		if !cell.Paired || cell.Figures[0].Runs != [2]int{10, 10} {
			t.Errorf("%+v: want 10 pairs", cell)
		}
	}
	if want := "rest, 64 B x 10|rest, 64 B x 20|grpc, 64 B x 10|grpc, 64 B x 20"; first != "tcp" || strings.Join(names, "|") != want || c.Tests != 12 {
		t.Errorf("against %q: %q, %d tests; want against tcp %q, 12 tests", first, names, c.Tests, want)
	}
	if c.Cells[0].Figures[0].Verdict != "higher" || c.Cells[1].Figures[0].Verdict == "higher" {
		t.Errorf("%+v", c.Cells[:2])
	}
	if c, first := report.Within(runsOf(1, 3, 1000)); first != "" || len(c.Cells) > 0 {
		t.Errorf("one transport alone: against %q: %+v", first, c.Cells)
	}
}
