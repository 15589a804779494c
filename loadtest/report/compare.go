package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
)

// CompareSchema names the format of a comparison as JSON.
const CompareSchema = "tailgate.loadtest.compare/v1"

// level is below which p a difference counts.
const level = 0.05

// RunsToCompare is how many runs a side a comparison should have: the fewest with which, in the study of testdata, at least 90 of 100 comparisons see nothing between runs of
// the same and at least 90 of 100 find a handler that is longer by a tenth of the p50, for each of tcp, rest and grpc (9, 24 and 28 runs; measured in turns, on a
// virtual machine whose p50 moves by 14 to 22 % from run to run). TestStudy measures it on another. Many cells in one comparison may need more, which the table says.
const RunsToCompare = 28

// Comparison holds the runs of two files against each other. The run is the unit: within one the latencies depend on each other.
type Comparison struct {
	Schema string         `json:"schema"`
	Notes  []string       `json:"notes"` // what else differs between the two
	Tests  int            `json:"tests"` // figures of cells that were tested, for whose number p is adjusted
	Cells  []ComparedCell `json:"cells"`
}

// ComparedCell is one cell that both have.
type ComparedCell struct {
	Cell    string `json:"cell"`
	Paired  bool   `json:"paired"`  // runs were compared with their neighbours in time, or of the same round
	Invalid [2]int `json:"invalid"` // runs left out, since their measurement does not count
	// FullSpeed: the figures are those of the times when no core was slow, since every run has them. What a slow core does to a run is no difference between the sides.
	FullSpeed bool             `json:"full_speed"`
	Figures   []ComparedFigure `json:"figures"`
}

// ComparedFigure is one figure of it. Medians are in microseconds, or answers a second; null where infinite or where there is no run.
type ComparedFigure struct {
	Figure   string      `json:"figure"`
	Runs     [2]int      `json:"runs"` // that have it
	Median   [2]*float64 `json:"median"`
	Change   *float64    `json:"change"` // of B against A as a share: the median quotient of their runs (Hodges and Lehmann), less 1
	Low      *float64    `json:"low"`    // 95 % interval of it
	High     *float64    `json:"high"`
	P        float64     `json:"p"`       // of Wilcoxon's test of signed ranks for pairs, else of Mann and Whitney's
	Adjusted float64     `json:"p_holm"`  // for all figures of all cells
	Verdict  string      `json:"verdict"` // "higher", "lower", "~", "too few runs" for any p, or "too few": a side has no run that carries the figure

	paired bool
}

// compared are the figures in their order.
var compared = []string{"p50", "p99", "p99.9", "throughput"}

// Key is what makes two cells the same: all that was asked for but the run.
func (c *Cell) Key() string { return c.Name() + ", " + c.load() }

// load is what was asked of the transport.
func (c *Cell) load() string {
	load := fmt.Sprintf("%s x %d", c.SizeName(), c.Clients)
	if c.MixBy == "client" {
		load += ", each client of one size"
	}
	if c.OfferedRate != nil {
		load += " at " + c.rates() + " " + c.Arrivals
	}
	if c.Ack == "minimal" {
		load += ", minimal answers"
	}
	return load
}

// Compare does it for every cell that both have, in the order of A. Where the runs of a cell took turns in time, one of A and one of B at a time, they are compared in
// pairs: what the machine did to both then is no difference between them.
func Compare(a, b Run) Comparison {
	out := Comparison{Schema: CompareSchema, Notes: differences(a, b), Cells: []ComparedCell{}}
	var keys []string
	for i := range a.Cells {
		key := a.Cells[i].Key()
		if !slices.Contains(keys, key) && slices.ContainsFunc(b.Cells, func(c Cell) bool { return c.Key() == key }) {
			keys = append(keys, key)
		}
	}
	sequential := len(keys) > 0
	for _, key := range keys {
		var runs [2][]Cell
		for side, run := range []Run{a, b} {
			for i := range run.Cells {
				if run.Cells[i].Key() == key {
					runs[side] = append(runs[side], run.Cells[i])
				}
			}
		}
		paired := tookTurns(&runs)
		sequential = sequential && !paired
		out.Cells = append(out.Cells, compareCell(key, runs, paired))
		if x, y := connections(runs[0]), connections(runs[1]); x != y && x > 0 && y > 0 {
			out.Notes = append(out.Notes, fmt.Sprintf("connections of %s: %d and %d", key, x, y))
		}
	}
	if sequential && a.Finished.After(b.Started) != b.Finished.After(a.Started) {
		out.Notes = append(out.Notes, "the two were measured one after the other, so a drift of the machine between them counts as a difference")
	}
	out.adjust()
	return out
}

// connections is how many the runs of a cell had; 0 where none was measured.
func connections(runs []Cell) int {
	n := 0
	for i := range runs {
		n = max(n, runs[i].Connections.Asked)
	}
	return n
}

// Within holds every transport of one run against its first, A, load by load. The runs of a round are pairs. Cells of the bare echo are left out.
func Within(r Run) (out Comparison, first string) {
	out = Comparison{Schema: CompareSchema, Notes: []string{}, Cells: []ComparedCell{}}
	runs := map[string][]Cell{}
	var names, loads []string
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.IsFloor() {
			continue
		}
		if name := c.Name(); !slices.Contains(names, name) {
			names = append(names, name)
		}
		if load := c.load(); !slices.Contains(loads, load) {
			loads = append(loads, load)
		}
		runs[c.Key()] = append(runs[c.Key()], *c)
	}
	if len(names) < 2 {
		return out, ""
	}
	for _, name := range names[1:] {
		for _, load := range loads {
			a, b := runs[names[0]+", "+load], runs[name+", "+load]
			if len(a) == 0 || len(b) == 0 {
				continue
			}
			sides := [2][]Cell{a, b}
			out.Cells = append(out.Cells, compareCell(name+", "+load, sides, sameRounds(&sides)))
		}
	}
	out.adjust()
	return out, names[0]
}

// tookTurns says whether the runs of two sides alternated in time, one of each at a time in whatever order, and sorts both by it.
func tookTurns(runs *[2][]Cell) bool {
	if len(runs[0]) != len(runs[1]) || len(runs[0]) < 2 {
		return false
	}
	for side := range runs {
		runs[side] = slices.Clone(runs[side])
		slices.SortStableFunc(runs[side], func(a, b Cell) int { return a.Started.Compare(b.Started) })
		if runs[side][0].Started.IsZero() {
			return false
		}
	}
	for i := range len(runs[0]) - 1 {
		for _, earlier := range runs {
			for _, later := range runs {
				if !earlier[i].Started.Before(later[i+1].Started) {
					return false
				}
			}
		}
	}
	return true
}

// sameRounds leaves the runs of rounds that both sides have, sorted by round, where there are two or more.
func sameRounds(runs *[2][]Cell) bool {
	var both [2][]Cell
	for _, a := range runs[0] {
		if i := slices.IndexFunc(runs[1], func(b Cell) bool { return b.Run == a.Run }); i >= 0 {
			both[0], both[1] = append(both[0], a), append(both[1], runs[1][i])
		}
	}
	if len(both[0]) < 2 {
		return false
	}
	*runs = both
	return true
}

// compareCell compares the runs of one cell, pair by pair where they are paired. INVALID ones are left out, and their partners.
func compareCell(name string, runs [2][]Cell, paired bool) ComparedCell {
	cell := ComparedCell{Cell: name, Paired: paired}
	var counted [2][]Cell
	invalid := func(side, i int) bool { return runs[side][i].Validity == runner.Invalid }
	for side := range runs {
		for i := range runs[side] {
			if invalid(side, i) {
				cell.Invalid[side]++
			}
			if !invalid(side, i) && !(paired && invalid(1-side, i)) {
				counted[side] = append(counted[side], runs[side][i])
			}
		}
	}
	all := slices.Concat(counted[0], counted[1])
	cell.FullSpeed = len(all) > 0 && !slices.ContainsFunc(all, func(c Cell) bool { return c.Speed == nil || c.Speed.Response == nil })
	for _, figure := range compared {
		if paired {
			cell.Figures = append(cell.Figures, compareInPairs(figure, counted, cell.FullSpeed))
		} else {
			cell.Figures = append(cell.Figures, compareFigure(figure, counted, cell.FullSpeed))
		}
	}
	return cell
}

// adjust gives every figure its adjusted p and its verdict.
func (c *Comparison) adjust() {
	// One test for each figure of each cell: the more there are, the likelier one of them sees what is not there. Whoever reads four lines of a cell and finds
	// one that differs has made four tests.
	var figures []*ComparedFigure
	var p []float64
	for i := range c.Cells {
		for j := range c.Cells[i].Figures {
			if f := &c.Cells[i].Figures[j]; f.Runs[0] == 0 || f.Runs[1] == 0 {
				f.Adjusted, f.Verdict = 1, "too few"
			} else {
				figures, p = append(figures, f), append(p, f.P)
			}
		}
	}
	for i, adjusted := range stats.Holm(p) {
		figures[i].judge(adjusted, len(p))
	}
	c.Tests = len(p)
}

// compareInPairs is compareFigure for runs of which the same numbers are pairs.
func compareInPairs(figure string, runs [2][]Cell, full bool) ComparedFigure {
	f := ComparedFigure{Figure: figure, paired: true}
	var values [2][]float64
	var differences []float64
	for i := range runs[0] {
		a, okA := runs[0][i].figure(figure, full)
		b, okB := runs[1][i].figure(figure, full)
		if !okA || !okB {
			continue
		}
		values[0], values[1] = append(values[0], a), append(values[1], b)
		difference := math.Log(b) - math.Log(a)
		if math.IsNaN(difference) { // both infinite, or both nothing
			difference = 0
		}
		differences = append(differences, difference)
	}
	if len(differences) == 0 {
		return f
	}
	for side := range values {
		f.Runs[side], f.Median[side] = len(differences), finite(stats.Median(values[side]))
	}
	f.P = stats.SignedRank(differences)
	if !slices.ContainsFunc(differences, func(v float64) bool { return math.IsInf(v, 0) }) {
		estimate, low, high, ok := stats.PairedShift(differences)
		f.changeBy(estimate, low, high, ok)
	}
	return f
}

// changeBy takes the estimate of a shift of logarithms.
func (f *ComparedFigure) changeBy(estimate, low, high float64, interval bool) {
	change := math.Expm1(estimate)
	f.Change = &change
	if interval {
		low, high = math.Expm1(low), math.Expm1(high)
		f.Low, f.High = &low, &high
	}
}

func compareFigure(figure string, runs [2][]Cell, full bool) ComparedFigure {
	f := ComparedFigure{Figure: figure}
	var values, logs [2][]float64
	for side := range runs {
		for i := range runs[side] {
			if v, ok := runs[side][i].figure(figure, full); ok {
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
		f.changeBy(estimate, low, high, ok)
	}
	return f
}

// figure is a cell's, of the whole interval or of its cores' full speed: +Inf where infinite; not ok where the samples are too few.
func (c *Cell) figure(name string, full bool) (float64, bool) {
	response, throughput := &c.Response, &c.Throughput
	if full {
		response, throughput = c.Speed.Response, c.Speed.Throughput
	}
	if name == "throughput" {
		return *throughput, c.Seconds > 0
	}
	if slices.Contains(response.Infinite, name) {
		return math.Inf(1), true
	}
	v, ok := response.Values[name]
	return v, ok
}

// judge holds the adjusted p against the level. Where not even runs that all lie apart could reach it, there is no verdict.
func (f *ComparedFigure) judge(adjusted float64, tests int) {
	f.Adjusted = adjusted
	switch {
	case leastP(f.paired, f.Runs)*float64(tests) >= level && adjusted >= level:
		f.Verdict = "too few runs"
	case adjusted >= level:
		f.Verdict = "~"
	case f.higher():
		f.Verdict = "higher"
	default:
		f.Verdict = "lower"
	}
}

// leastP is the smallest p that so many runs can have.
func leastP(paired bool, runs [2]int) float64 {
	if paired {
		return stats.LeastPairedP(runs[0])
	}
	return stats.LeastP(runs[0], runs[1])
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

// differences tells what else is not the same, so that nobody takes the change of a machine, or of what was asked for, for that of a transport.
func differences(a, b Run) []string {
	notes := []string{}
	seconds := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) + " s" }
	shares := func(m Method) string { return fmt.Sprintf("%v + %v", m.CancelShare, m.ReplaceShare) }
	for _, d := range []struct{ what, a, b string }{
		{"machine", a.Environment.Host, b.Environment.Host}, {"processor", a.Environment.CPU, b.Environment.CPU},
		{"kernel", a.Environment.Kernel, b.Environment.Kernel}, {"Go", a.Environment.GoVersion, b.Environment.GoVersion},
		{"revision", a.Environment.Revision, b.Environment.Revision}, {"congestion control", a.congestion(), b.congestion()},
		{"journal", a.Method.Journal, b.Method.Journal}, {"target", a.Method.Target, b.Method.Target},
		{"server's cores", list(a.Method.ServerCores), list(b.Method.ServerCores)}, {"clients' cores", list(a.Method.ClientCores), list(b.Method.ClientCores)},
		{"accounts", strconv.Itoa(a.Method.Accounts), strconv.Itoa(b.Method.Accounts)}, {"shares of cancels and replaces", shares(a.Method), shares(b.Method)},
		{"warm-up", seconds(a.Method.WarmupSeconds), seconds(b.Method.WarmupSeconds)}, {"time of a request", seconds(a.Method.TimeoutSeconds), seconds(b.Method.TimeoutSeconds)},
		{"longest wait to be sent", seconds(a.Method.MaxWaitSeconds), seconds(b.Method.MaxWaitSeconds)},
	} {
		if d.a != d.b {
			notes = append(notes, fmt.Sprintf("%s: %s and %s", d.what, orUnknown(d.a), orUnknown(d.b)))
		}
	}
	return notes
}

// congestion is the congestion control that the connections had.
func (r *Run) congestion() string {
	return cmp.Or(r.Method.Congestion, r.Environment.CongestionControl)
}

// fullSpeed says which cells' figures are those of the cores' full speed.
func (c *Comparison) fullSpeed() string {
	full := 0
	for i := range c.Cells {
		if c.Cells[i].FullSpeed {
			full++
		}
	}
	switch full {
	case 0:
		return ""
	case len(c.Cells):
		return "Figures of the times when the cores ran at full speed: a slow core is no difference between A and B."
	}
	return fmt.Sprintf("In %d of %d cells the figures are of the times when the cores ran at full speed; the others have runs of which that is not known.", full, len(c.Cells))
}

// comparedLayout is one line: cell, A, B, change, p and runs.
const comparedLayout = "  %-32s %11s %11s  %-26s %s"

// CompareTable writes the comparison for a person: a table for each figure, noise as ~.
func CompareTable(w io.Writer, c Comparison, nameA, nameB string) error {
	var t table
	t.line("A is %s, B is %s; median of the runs, and the change from A to B with its 95 %% interval.", nameA, nameB)
	t.line("~: no difference that the runs can tell from noise (%s, p adjusted by Holm for %s, level %v).", c.test(), count(int64(c.Tests), "test"), level)
	for _, note := range c.Notes {
		t.line("Not the same: %s.", note)
	}
	if text := c.fullSpeed(); text != "" {
		t.line("%s", text)
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
		t.line("too few runs: even if all of B lay beyond all of A, p would not be below %v; measure with --repeat %d or more.", level, c.enoughRuns())
	}
	if scant {
		t.line("~ of fewer than %d runs a side says little: a difference of a tenth may hide there; measure with --repeat %d or more.", RunsToCompare, c.enoughRuns())
	}
	if len(left) > 0 {
		t.line("INVALID runs were left out: %s.", strings.Join(left, "; "))
	}
	_, err := io.WriteString(w, t.out.String())
	return err
}

// paired says whether the runs of any cell were compared in pairs.
func (c *Comparison) paired() bool {
	return slices.ContainsFunc(c.Cells, func(c ComparedCell) bool { return c.Paired })
}

// test names the tests that were made.
func (c *Comparison) test() string {
	switch {
	case !c.paired():
		return "Mann and Whitney's test"
	case slices.ContainsFunc(c.Cells, func(c ComparedCell) bool { return !c.Paired }):
		return "Wilcoxon's test of signed ranks where runs took turns, so that they are pairs, else Mann and Whitney's test"
	default:
		return "Wilcoxon's test of signed ranks: the runs took turns, so they are compared in pairs"
	}
}

// enoughRuns is how many runs of each side are advised: RunsToCompare, or with how many p can be below the level at all for so many tests.
func (c *Comparison) enoughRuns() int {
	n := RunsToCompare
	for n < stats.MostPairs && leastP(c.paired(), [2]int{n, n})*float64(c.Tests) >= level {
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
