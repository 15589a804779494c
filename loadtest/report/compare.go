package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
)

// CompareSchema names the format of a comparison as JSON.
const CompareSchema = "tailgate.loadtest.compare/v1"

// level is below which p a difference counts.
const level = 0.05

// RunsToCompare is how many runs a side a comparison should have: with so many, runs of the same are called the same and a p50 that is longer by a tenth is
// found in nine of ten comparisons at least (METHOD.md, the study of comparisons). Many cells in one comparison may need more, see enoughRuns.
const RunsToCompare = 8

// Comparison holds the runs of two files against each other. The run is the unit: within one the latencies depend on each other.
type Comparison struct {
	Schema string         `json:"schema"`
	Notes  []string       `json:"notes"` // what else differs between the two
	Tests  int            `json:"tests"` // figures of cells that were tested, for whose number p is adjusted
	Cells  []ComparedCell `json:"cells"`
}

// ComparedCell is one cell that both have.
type ComparedCell struct {
	Cell    string           `json:"cell"`
	Invalid [2]int           `json:"invalid"` // runs left out, since their measurement does not count
	Figures []ComparedFigure `json:"figures"`
}

// ComparedFigure is one figure of it. Medians are in microseconds, or answers a second; null where infinite or where there is no run.
type ComparedFigure struct {
	Figure   string      `json:"figure"`
	Runs     [2]int      `json:"runs"` // that have it
	Median   [2]*float64 `json:"median"`
	Change   *float64    `json:"change"` // of B against A as a share: the median quotient of their runs (Hodges and Lehmann), less 1
	Low      *float64    `json:"low"`    // 95 % interval of it
	High     *float64    `json:"high"`
	P        float64     `json:"p"`       // of Mann and Whitney's test
	Adjusted float64     `json:"p_holm"`  // for all figures of all cells
	Verdict  string      `json:"verdict"` // "higher", "lower", "~", or "too few runs"
}

// compared are the figures in their order.
var compared = []string{"p50", "p99", "p99.9", "throughput"}

// Key is what makes two cells the same: all that was asked for but the run.
func (c *Cell) Key() string {
	key := fmt.Sprintf("%s, %s x %d", c.Name(), c.SizeName(), c.Clients)
	if c.OfferedRate != nil {
		key += " at " + c.rates() + " " + c.Arrivals
	}
	if c.Ack == "minimal" {
		key += ", minimal answers"
	}
	return key
}

// Compare does it for every cell that both have, in the order of A.
func Compare(a, b Run) Comparison {
	out := Comparison{Schema: CompareSchema, Notes: differences(a, b), Cells: []ComparedCell{}}
	var keys []string
	for i := range a.Cells {
		key := a.Cells[i].Key()
		if !slices.Contains(keys, key) && slices.ContainsFunc(b.Cells, func(c Cell) bool { return c.Key() == key }) {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		cell := ComparedCell{Cell: key}
		var runs [2][]Cell
		for side, run := range []Run{a, b} {
			for _, c := range run.Cells {
				switch {
				case c.Key() != key:
				case c.Validity == runner.Invalid:
					cell.Invalid[side]++
				default:
					runs[side] = append(runs[side], c)
				}
			}
		}
		for _, figure := range compared {
			cell.Figures = append(cell.Figures, compareFigure(figure, runs))
		}
		out.Cells = append(out.Cells, cell)
	}
	// One test for each figure of each cell: the more there are, the likelier one of them sees what is not there. Whoever reads four lines of a cell and finds
	// one that differs has made four tests.
	var figures []*ComparedFigure
	var p []float64
	for i := range out.Cells {
		for j := range out.Cells[i].Figures {
			if f := &out.Cells[i].Figures[j]; f.Runs[0] == 0 || f.Runs[1] == 0 {
				f.Adjusted, f.Verdict = 1, "too few"
			} else {
				figures, p = append(figures, f), append(p, f.P)
			}
		}
	}
	for i, adjusted := range stats.Holm(p) {
		figures[i].judge(adjusted, len(p))
	}
	out.Tests = len(p)
	return out
}

func compareFigure(figure string, runs [2][]Cell) ComparedFigure {
	f := ComparedFigure{Figure: figure}
	var values, logs [2][]float64
	for side := range runs {
		for i := range runs[side] {
			if v, ok := runs[side][i].figure(figure); ok {
				values[side], logs[side] = append(values[side], v), append(logs[side], math.Log(v))
			}
		}
		if f.Runs[side] = len(values[side]); f.Runs[side] > 0 {
			f.Median[side] = finite(stats.Median(values[side]))
		}
	}
	_, f.P = stats.MannWhitney(values[0], values[1])
	if slices.ContainsFunc(slices.Concat(logs[0], logs[1]), func(v float64) bool { return math.IsInf(v, 0) }) {
		return f // nothing can be divided by the infinite, or by nothing
	}
	if len(logs[0]) > 0 && len(logs[1]) > 0 {
		estimate, low, high, ok := stats.Shift(logs[0], logs[1])
		change := math.Expm1(estimate)
		f.Change = &change
		if ok {
			low, high = math.Expm1(low), math.Expm1(high)
			f.Low, f.High = &low, &high
		}
	}
	return f
}

// figure is a cell's, +Inf where infinite; not ok where the samples are too few.
func (c *Cell) figure(name string) (float64, bool) {
	if name == "throughput" {
		return c.Throughput, c.Seconds > 0
	}
	if slices.Contains(c.Response.Infinite, name) {
		return math.Inf(1), true
	}
	v, ok := c.Response.Values[name]
	return v, ok
}

// judge holds the adjusted p against the level. Where not even runs that all lie apart could reach it, there is no verdict.
func (f *ComparedFigure) judge(adjusted float64, tests int) {
	f.Adjusted = adjusted
	switch {
	case stats.LeastP(f.Runs[0], f.Runs[1])*float64(tests) >= level && adjusted >= level:
		f.Verdict = "too few runs"
	case adjusted >= level:
		f.Verdict = "~"
	case f.higher():
		f.Verdict = "higher"
	default:
		f.Verdict = "lower"
	}
}

func (f *ComparedFigure) higher() bool {
	if f.Change != nil {
		return *f.Change > 0
	}
	value := func(v *float64) float64 {
		if v == nil {
			return math.Inf(1)
		}
		return *v
	}
	return value(f.Median[1]) > value(f.Median[0])
}

// differences tells what else is not the same, so that nobody takes the change of a machine for that of a transport.
func differences(a, b Run) []string {
	notes := []string{}
	for _, d := range []struct{ what, a, b string }{
		{"machine", a.Environment.Host, b.Environment.Host}, {"processor", a.Environment.CPU, b.Environment.CPU},
		{"kernel", a.Environment.Kernel, b.Environment.Kernel}, {"Go", a.Environment.GoVersion, b.Environment.GoVersion},
		{"revision", a.Environment.Revision, b.Environment.Revision}, {"congestion control", a.Environment.CongestionControl, b.Environment.CongestionControl},
		{"journal", a.Method.Journal, b.Method.Journal}, {"target", a.Method.Target, b.Method.Target},
		{"server's cores", list(a.Method.ServerCores), list(b.Method.ServerCores)}, {"clients' cores", list(a.Method.ClientCores), list(b.Method.ClientCores)},
	} {
		if d.a != d.b {
			notes = append(notes, fmt.Sprintf("%s: %s and %s", d.what, orUnknown(d.a), orUnknown(d.b)))
		}
	}
	if a.Finished.After(b.Started) == b.Finished.After(a.Started) {
		return notes
	}
	return append(notes, "the two were measured one after the other, so a drift of the machine between them counts as a difference")
}

// comparedLayout is one line: cell, A, B, change, p and runs.
const comparedLayout = "  %-32s %11s %11s  %-26s %s"

// CompareTable writes the comparison for a person: a table for each figure, noise as ~.
func CompareTable(w io.Writer, c Comparison, nameA, nameB string) error {
	var t table
	t.line("A is %s, B is %s; median of the runs, and the change from A to B with its 95 %% interval.", nameA, nameB)
	t.line("~: no difference that the runs can tell from noise (Mann and Whitney's test, p adjusted by Holm for %s, level %v).", count(int64(c.Tests), "test"), level)
	for _, note := range c.Notes {
		t.line("Not the same: %s.", note)
	}
	few, scant := false, false
	for i, figure := range compared {
		heading := figure + " of the response time"
		if figure == "throughput" {
			heading = "answers a second"
		}
		t.line("")
		t.line(comparedLayout, heading, "A", "B", "change", "p (runs)")
		for _, cell := range c.Cells {
			f := cell.Figures[i]
			few = few || f.Verdict == "too few runs"
			scant = scant || f.Verdict == "~" && min(f.Runs[0], f.Runs[1]) < RunsToCompare
			t.line(comparedLayout, cut(cell.Cell, 32), f.text(0), f.text(1), f.change(), f.evidence())
		}
	}
	var left []string
	for _, cell := range c.Cells {
		if cell.Invalid[0]+cell.Invalid[1] > 0 {
			left = append(left, fmt.Sprintf("%s: %d of A, %d of B", cell.Cell, cell.Invalid[0], cell.Invalid[1]))
		}
	}
	if few || scant || len(left) > 0 {
		t.line("")
	}
	if few {
		t.line("too few runs: even if all of B lay beyond all of A, p would not be below %v; measure with --repeat %d or more.", level, enoughRuns(c.Tests))
	}
	if scant {
		t.line("~ of fewer than %d runs a side says little: a difference of a tenth may hide there; measure with --repeat %d or more.", RunsToCompare, enoughRuns(c.Tests))
	}
	if len(left) > 0 {
		t.line("INVALID runs were left out: %s.", strings.Join(left, "; "))
	}
	_, err := io.WriteString(w, t.out.String())
	return err
}

// enoughRuns is how many runs of each side are advised for so many tests: RunsToCompare, or with how many p can be below the level at all.
func enoughRuns(tests int) int {
	n := RunsToCompare
	for stats.LeastP(n, n)*float64(tests) >= level {
		n++
	}
	return n
}

func (f *ComparedFigure) text(side int) string {
	switch {
	case f.Runs[side] == 0:
		return "-"
	case f.Median[side] == nil:
		return "inf"
	case f.Figure == "throughput":
		return thousands(int64(*f.Median[side] + 0.5))
	default:
		return Microseconds(*f.Median[side])
	}
}

func percent(v float64) string { return fmt.Sprintf("%+.1f %%", 100*v) }

func (f *ComparedFigure) change() string {
	switch {
	case f.Verdict == "~" || f.Verdict == "too few" || f.Verdict == "too few runs":
		return f.Verdict
	case f.Change == nil:
		return f.Verdict
	case f.Low == nil:
		return percent(*f.Change)
	default:
		return fmt.Sprintf("%s [%s, %s]", percent(*f.Change), percent(*f.Low), percent(*f.High))
	}
}

func (f *ComparedFigure) evidence() string {
	return fmt.Sprintf("%.3f (%d, %d)", f.Adjusted, f.Runs[0], f.Runs[1])
}
