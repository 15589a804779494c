package report_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
)

// atSpeed gives a cell figures of its cores' full speed.
func atSpeed(c report.Cell, slow, p50, p99, throughput float64) report.Cell {
	ratio := p99 / p50
	c.Speed = &report.Speed{
		SlowShare: slow, Slowest: 12, KeptShare: 0.8, Throughput: &throughput, Amplification: &ratio,
		Response: &report.Latency{Values: map[string]float64{"p50": p50, "p99": p99}, TooFew: []string{"p99.9"}},
	}
	return c
}

// TestFullSpeedInTheTable: a row below the cell's own, in the same columns, where slow times matter; of several runs the medians; none where they do not matter or are not known.
func TestFullSpeedInTheTable(t *testing.T) {
	table := func(cells ...report.Cell) []string {
		r := sample(t, "p99<10ms")
		r.Cells, r.Method.Repeat = cells, len(cells)
		var out strings.Builder
		if err := report.Table(&out, r); err != nil {
			t.Fatal(err)
		}
		return strings.Split(out.String(), "\n")
	}
	row := func(lines []string) (cell, below string) {
		for i, line := range lines {
			if strings.HasPrefix(line, "  tcp ") {
				return line, lines[i+1]
			}
		}
		t.Fatalf("no row of tcp:\n%s", strings.Join(lines, "\n"))
		return "", ""
	}
	plain := made{transport: "tcp", spec: "tcp", size: 64, clients: 1, n: 2000, median: 1e6}.cell(t, nil)
	cell, below := row(table(atSpeed(plain, 0.1, 900, 1200, 5000)))
	if got, want := strings.Join(strings.Fields(below), " "), "at full speed 900 µs 1.2 ms too few 1.33x 5,000 80 % of it"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if runes := []rune(below); len(runes) > report.Width || string(runes[23:31]) != "  900 µs" {
		t.Errorf("the figures are not below those of\n%s\n%s", cell, below)
	}
	if _, below := row(table(atSpeed(plain, runner.SuspectSlow/2, 900, 1200, 5000))); strings.Contains(below, "full speed") {
		t.Errorf("slow times that do not matter have a row: %q", below)
	}
	if _, below := row(table(plain)); strings.Contains(below, "full speed") {
		t.Errorf("unknown speed has a row: %q", below)
	}
	second, third := plain, plain
	second.Run, third.Run = 2, 3
	if _, below := row(table(atSpeed(plain, 0.1, 900, 1200, 5000), atSpeed(second, 0.2, 700, 1400, 6000), atSpeed(third, 0.3, 800, 1300, 5500))); strings.Join(strings.Fields(below), " ") != "at full speed 800 µs 1.3 ms too few 1.63x 5,500 80 % of it" {
		t.Errorf("medians of three runs: %q", below)
	}
	if _, below := row(table(atSpeed(plain, 0.1, 900, 1200, 5000), second, third)); strings.Contains(below, "full speed") {
		t.Errorf("two of three runs have no figures, and there is a row: %q", below)
	}
}

// TestCompareAtFullSpeed: slow times that all but hide a difference of a tenth do not hide it where every run has figures without them; one run without them, and all are compared whole.
func TestCompareAtFullSpeed(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	side := func(middle float64) report.Run {
		r := runsOf(uint64(middle), report.RunsToCompare, middle)
		for i := range r.Cells {
			c := &r.Cells[i]
			v := c.Response.Values["p99"]
			*c = atSpeed(*c, 0.2, v/2, v, c.Throughput)
			for name := range c.Response.Values {
				c.Response.Values[name] *= 1 + 2*rng.Float64()
			}
		}
		return r
	}
	a, b := side(1000), side(1100)
	c := report.Compare(a, b)
	if got := c.Cells[0]; !got.FullSpeed || got.Figures[1].Figure != "p99" || got.Figures[1].Verdict != "higher" || *got.Figures[1].Median[0] > 1050 {
		t.Errorf("%+v", got)
	}
	var out strings.Builder
	if err := report.CompareTable(&out, c, "a", "b"); err != nil || !strings.Contains(out.String(), "Figures of the times when the cores ran at full speed") {
		t.Errorf("%v:\n%s", err, out.String())
	}
	b.Cells[3].Speed = nil
	if got := report.Compare(a, b).Cells[0]; got.FullSpeed || *got.Figures[1].Median[0] < 1200 {
		t.Errorf("a run without figures of the full speed: %+v", got)
	}
}
