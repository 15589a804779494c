package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
	"tailgate/transports/all"
)

// What the study asks of a comparison.
const (
	// studyComparisons are drawn for each number of runs: a share of 90 % is then known to 2 %, as far as the runs themselves carry it.
	studyComparisons = 300
	// studyPass is the share of them that have to be right.
	studyPass = 0.90
	// leastRuns is the smallest number of runs a side that is tried.
	leastRuns = 4
	// tooTight is the share of runs that a reason of the verdict may be given to while the figures of these runs are like those of the others. Where no more than
	// this share is without the reason, the others are too few to tell.
	tooTight = 0.10
)

// studySizes are the numbers of runs a side that are tried.
var studySizes = []int{leastRuns, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 24, 28, 32, 40}

// compareRuns is loadtest compare for one cell. Runs that took turns are compared in pairs.
func compareRuns(a, b []studyRun) []report.ComparedFigure {
	side := func(runs []studyRun) (r report.Run) {
		for _, run := range runs {
			r.Cells = append(r.Cells, run.cell())
		}
		return r
	}
	return report.Compare(side(a), side(b)).Cells[0].Figures
}

// alike says whether a comparison sees no difference in anything.
func alike(figures []report.ComparedFigure) bool {
	return !slices.ContainsFunc(figures, func(f report.ComparedFigure) bool { return f.Verdict == "higher" || f.Verdict == "lower" })
}

// slower says whether it sees that B's p50 is higher.
func slower(figures []report.ComparedFigure) bool { return figures[0].Verdict == "higher" }

// studyPower is how many comparisons of n runs a side were right, as shares: runs that took turns, and runs of any time.
type studyPower struct {
	paired, apart struct{ alike, found float64 }
	falsely       [4]float64 // in pairs, by figure: comparisons of the same that see a difference in it
}

// power draws comparisons of n runs a side without replacement: n blocks, or n runs of each kind from blocks that have nothing to do with each other.
func (s *study) power(rng *rand.Rand, transport string, n, comparisons int) (p studyPower) {
	before, same, delayed := s.of(transport, studyBefore), s.of(transport, studySame), s.of(transport, studyDelayed)
	each := 1 / float64(comparisons)
	count := func(share *float64, right bool) {
		if right {
			*share += each
		}
	}
	for range comparisons {
		blocks := rng.Perm(len(before))
		other := slices.Clone(blocks[n:])
		other = append(other, blocks[:n]...)[:n] // as many others as there are
		first := draw(before, blocks[:n])
		figures := compareRuns(first, draw(same, blocks[:n]))
		count(&p.paired.alike, alike(figures))
		for i := range figures {
			count(&p.falsely[i], !alike(figures[i:i+1]))
		}
		count(&p.paired.found, slower(compareRuns(first, draw(delayed, blocks[:n]))))
		first = timeless(first)
		count(&p.apart.alike, alike(compareRuns(first, timeless(draw(same, other)))))
		count(&p.apart.found, slower(compareRuns(first, timeless(draw(delayed, other)))))
	}
	return p
}

// draw takes the runs of these blocks.
func draw(runs []studyRun, blocks []int) []studyRun {
	list := make([]studyRun, len(blocks))
	for i, at := range blocks {
		list[i] = runs[at]
	}
	return list
}

// timeless are the runs without their times, so that nothing makes pairs of them.
func timeless(runs []studyRun) []studyRun {
	for i := range runs {
		runs[i].Started = time.Time{}
	}
	return runs
}

// evaluate prints what the study shows, and fails where it does not show what the load tester claims.
func (s *study) evaluate(t *testing.T, w io.Writer, comparisons int, sizes []int) {
	t.Helper()
	fmt.Fprintf(w, "\nStudy of %s: %s, %s, kernel %s, %s; server on %v, clients on %v; %d B x %d clients, closed loop, %s each; %d runs.\n",
		s.Started.Format("2006-01-02"), s.Environment.CPU, s.Environment.OS, s.Environment.Kernel, s.Environment.GoVersion, s.Cores.Server, s.Cores.Clients, s.Size, s.Clients, studyDuration, len(s.Runs))
	s.printSpread(w)
	enough := s.printPower(w, comparisons, sizes)
	s.printDrift(w)
	tight := s.printVerdict(w)
	if enough == 0 {
		t.Errorf("no number of runs up to %d a side is right in %.0f %% of the comparisons for every transport", slices.Max(sizes), 100*studyPass)
	} else if enough > report.RunsToCompare {
		t.Errorf("comparisons need %d runs a side, report.RunsToCompare is %d", enough, report.RunsToCompare)
	}
	for _, reason := range tight {
		t.Errorf("the verdict is too tight: %s", reason)
	}
}

func (s *study) printSpread(w io.Writer) {
	fmt.Fprintf(w, "\n| transport | p50 µs | spread p50 | p99 | p99.9 | throughput | spread p50, p99, throughput of the whole interval | kept | quotient of neighbours' p50 | delay a request | p50 raised by | VALID, SUSPECT, INVALID |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, d := range s.Doses {
		a, b := s.undelayed(d.Transport), s.of(d.Transport, studyDelayed)
		if len(b) == 0 {
			continue
		}
		verdicts := map[runner.Verdict]int{}
		for _, r := range slices.Concat(a, b) {
			verdicts[r.Validity]++
		}
		p50 := func(r studyRun) float64 { return r.P50 }
		whole := func(i int) float64 { return spreadOf(figuresOf(a, func(r studyRun) float64 { return r.Whole[i] })) }
		fmt.Fprintf(w, "| %s | %.0f | %.1f %% | %.1f %% | %.1f %% | %.1f %% | %.1f %%, %.1f %%, %.1f %% | %.0f %% | %.1f %% | %v | %.1f %% | %d, %d, %d |\n", d.Transport, stats.Median(figuresOf(a, p50)),
			spreadOf(figuresOf(a, p50)), spreadOf(figuresOf(a, func(r studyRun) float64 { return r.P99 })), spreadOf(figuresOf(a, func(r studyRun) float64 { return r.P999 })),
			spreadOf(figuresOf(a, func(r studyRun) float64 { return r.Throughput })), whole(0), whole(1), whole(2), 100*stats.Median(figuresOf(a, func(r studyRun) float64 { return r.Kept })), spreadOf(quotients(s.of(d.Transport, studyBefore), s.of(d.Transport, studySame))), d.Delay, 100*(stats.Median(figuresOf(b, p50))/stats.Median(figuresOf(a, p50))-1),
			verdicts[runner.Valid], verdicts[runner.Suspect], verdicts[runner.Invalid])
	}
	fmt.Fprintf(w, "Spread: standard deviation of the undelayed runs' logarithms. Kept: median share of the interval at the cores' full speed, from which the figures are but where they are of the whole interval.\n")
}

// quotients are those of the p50 of runs of the same blocks.
func quotients(a, b []studyRun) []float64 {
	var list []float64
	for i := range a {
		if a[i].P50 > 0 && b[i].P50 > 0 {
			list = append(list, b[i].P50/a[i].P50)
		}
	}
	return list
}

func figuresOf(runs []studyRun, of func(studyRun) float64) []float64 {
	var list []float64
	for _, r := range runs {
		if v := of(r); v > 0 {
			list = append(list, v)
		}
	}
	return list
}

// spreadOf is the standard deviation of the logarithms, in percent.
func spreadOf(values []float64) float64 {
	var sum, squares float64
	for _, v := range values {
		sum += math.Log(v)
	}
	mean := sum / float64(len(values))
	for _, v := range values {
		squares += (math.Log(v) - mean) * (math.Log(v) - mean)
	}
	return 100 * math.Sqrt(squares/float64(max(len(values)-1, 1)))
}

// printPower tries numbers of runs a side and returns the smallest from which on all are right often enough in pairs; 0 where there is none.
func (s *study) printPower(w io.Writer, comparisons int, sizes []int) (enough int) {
	fmt.Fprintf(w, "\n| runs a side |")
	var names []string
	for _, d := range s.Doses {
		if len(s.of(d.Transport, studyBefore)) < leastRuns {
			continue
		}
		names = append(names, d.Transport)
		fmt.Fprintf(w, " %s: same is ~ | delay found | not in turns: same is ~ | delay found |", d.Transport)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", 4*len(names)))
	if len(names) == 0 {
		return 0
	}
	rng := rand.New(rand.NewPCG(studySeed, 1))
	falsely := map[string][4]float64{}
	for _, n := range sizes {
		line, passed := fmt.Sprintf("| %d |", n), true
		for _, name := range names {
			if n > len(s.of(name, studyBefore)) {
				line, passed = line+" - | - | - | - |", false
				continue
			}
			p := s.power(rng, name, n, comparisons)
			line += fmt.Sprintf(" %.0f %% | %.0f %% | %.0f %% | %.0f %% |", 100*p.paired.alike, 100*p.paired.found, 100*p.apart.alike, 100*p.apart.found)
			passed = passed && p.paired.alike >= studyPass && p.paired.found >= studyPass
			sum := falsely[name]
			for i, v := range p.falsely {
				sum[i] = max(sum[i], v)
			}
			falsely[name] = sum
		}
		fmt.Fprintln(w, line)
		switch {
		case !passed:
			enough = 0
		case enough == 0:
			enough = n
		}
	}
	fmt.Fprintf(w, "%d comparisons each, drawn from up to %d blocks. In turns: runs of one block are neighbours in time and compared in pairs; not in turns: runs of any time, by Mann and Whitney's test. ", comparisons, studyBlocks)
	if enough > 0 {
		fmt.Fprintf(w, "The smallest number of runs from which on at least %.0f %% in turns are right for every transport: %d.\n", 100*studyPass, enough)
	} else {
		fmt.Fprintf(w, "No number of runs is right in at least %.0f %% for every transport.\n", 100*studyPass)
	}
	for _, name := range names {
		f := falsely[name]
		fmt.Fprintf(w, "%s: false differences of the same in turns, at most, in p50 %.0f %%, p99 %.0f %%, p99.9 %.0f %%, throughput %.0f %% of the comparisons.\n", name, 100*f[0], 100*f[1], 100*f[2], 100*f[3])
	}
	return enough
}

// printDrift asks what the order of time does: two files that are measured one after the other.
func (s *study) printDrift(w io.Writer) {
	fmt.Fprintf(w, "\nUndelayed runs one after the other:\n")
	n := report.RunsToCompare
	for _, d := range s.Doses {
		a := s.undelayed(d.Transport)
		if len(a) < 2*n {
			continue
		}
		half := len(a) / 2
		whole := compareRuns(a[:half], a[half:])
		var seen []string
		for _, f := range whole {
			if f.Change != nil {
				seen = append(seen, fmt.Sprintf("%s %+.1f %% (%s)", f.Figure, 100**f.Change, f.Verdict))
			}
		}
		alikes, windows := 0, 0
		for from := 0; from+2*n <= len(a); from++ {
			windows++
			if alike(compareRuns(a[from:from+n], a[from+n:from+2*n])) {
				alikes++
			}
		}
		fmt.Fprintf(w, "%s: second half against first: %s; of %d windows of %d runs against the next %d, %d see no difference.\n", d.Transport, strings.Join(seen, ", "), windows, n, n, alikes)
	}
}

// studyQuantities are those that the verdict checks, and some that it could.
var studyQuantities = []struct {
	name string
	of   func(studyRun) float64
}{
	{"lag p99 / response p99", func(r studyRun) float64 { return r.Checks.Lag }},
	{"steal", func(r studyRun) float64 { return r.Checks.Steal }},
	{"other processes", func(r studyRun) float64 { return r.Checks.Foreign }},
	{"collector pauses", func(r studyRun) float64 { return r.Checks.GC }},
	{"Little's residual", func(r studyRun) float64 { return math.Abs(r.Checks.Little) }},
	{"trend", func(r studyRun) float64 { return math.Abs(r.Checks.Drift) }},
	{"cores slow", func(r studyRun) float64 { return r.Slow }},
	{"involuntary switches, client", func(r studyRun) float64 { return float64(r.Involuntary[0]) }},
	{"involuntary switches, server", func(r studyRun) float64 { return float64(r.Involuntary[1]) }},
}

// deviating is an undelayed run with how far its figures of the whole interval, which are those that the verdict is on, lie from the median of its transport's, as logarithms.
type deviating struct {
	run      studyRun
	p50, p99 float64
}

func (s *study) deviations() []deviating {
	var list []deviating
	for _, d := range s.Doses {
		a := s.undelayed(d.Transport)
		p50, p99 := figuresOf(a, func(r studyRun) float64 { return r.Whole[0] }), figuresOf(a, func(r studyRun) float64 { return r.Whole[1] })
		for _, r := range a {
			if r.Whole[0] > 0 && r.Whole[1] > 0 {
				list = append(list, deviating{r, math.Log(r.Whole[0] / stats.Median(p50)), math.Log(r.Whole[1] / stats.Median(p99))})
			}
		}
	}
	return list
}

// printVerdict shows what each quantity of the verdict was and what it cost, and returns the reasons that are given too often without cost.
func (s *study) printVerdict(w io.Writer) (tight []string) {
	list := s.deviations()
	if len(list) < 20 {
		return nil
	}
	fmt.Fprintf(w, "\n| of %d undelayed runs | p50 | p90 | p99 | max | rank correlation with p50 | with p99 | beyond its p75: p50, p99 | beyond its p90 | beyond its p95 |\n|---|---|---|---|---|---|---|---|---|---|\n", len(list))
	p50s, p99s := make([]float64, len(list)), make([]float64, len(list))
	for i, d := range list {
		p50s[i], p99s[i] = d.p50, d.p99
	}
	for _, q := range studyQuantities {
		var v []float64
		for _, d := range list {
			v = append(v, q.of(d.run))
		}
		format := func(x float64) string { return fmt.Sprintf("%.2f %%", 100*x) }
		if strings.HasPrefix(q.name, "involuntary") {
			format = func(x float64) string { return fmt.Sprintf("%.0f", x) }
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %+.2f | %+.2f |", q.name, format(quantile(v, 0.5)), format(quantile(v, 0.9)), format(quantile(v, 0.99)), format(slices.Max(v)), spearman(v, p50s), spearman(v, p99s))
		for _, at := range []float64{0.75, 0.90, 0.95} {
			threshold := quantile(v, at)
			var beyond [2][]float64
			for i := range v {
				if v[i] > threshold {
					beyond[0], beyond[1] = append(beyond[0], p50s[i]), append(beyond[1], p99s[i])
				}
			}
			fmt.Fprintf(w, " %s |", cost(beyond))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "Rank correlation: Spearman's, with the deviation of p50 and p99 from their transport's median. Beyond: the median deviation of the runs beyond that percentile of the quantity.\n")
	fmt.Fprintf(w, "\n| reason of the verdict | undelayed runs | their p50, p99 | p of a difference to the others, p50 | p99 |\n|---|---|---|---|---|\n")
	groups := map[string][]int{}
	for i, d := range list {
		for _, reason := range d.run.Reasons {
			key := strings.TrimRight(reason[:min(strings.IndexAny(reason+"0", "0123456789"), len(reason))], " (")
			if !slices.Contains(groups[key], i) {
				groups[key] = append(groups[key], i)
			}
		}
	}
	for key, with := range sortedGroups(groups) {
		var inside, outside [2][]float64
		for i := range list {
			side := &outside
			if slices.Contains(with, i) {
				side = &inside
			}
			side[0], side[1] = append(side[0], p50s[i]), append(side[1], p99s[i])
		}
		_, of50 := stats.MannWhitney(inside[0], outside[0])
		_, of99 := stats.MannWhitney(inside[1], outside[1])
		share := float64(len(with)) / float64(len(list))
		fmt.Fprintf(w, "| %s ... | %d (%.0f %%) | %s | %.3f | %.3f |\n", key, len(with), 100*share, cost(inside), of50, of99)
		if share > tooTight && share < 1-tooTight && of50 >= 0.05 && of99 >= 0.05 {
			tight = append(tight, fmt.Sprintf("%q is said of %.0f %% of the runs, whose figures do not differ from the others'", key, 100*share))
		}
	}
	return tight
}

func sortedGroups(groups map[string][]int) func(func(string, []int) bool) {
	keys := make([]string, 0, len(groups))
	for key := range groups {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return func(yield func(string, []int) bool) {
		for _, key := range keys {
			if !yield(key, groups[key]) {
				return
			}
		}
	}
}

// cost is the median deviation of runs' p50 and p99 as text.
func cost(deviations [2][]float64) string {
	if len(deviations[0]) == 0 {
		return "no run"
	}
	return fmt.Sprintf("%+.1f %%, %+.1f %%", 100*math.Expm1(stats.Median(deviations[0])), 100*math.Expm1(stats.Median(deviations[1])))
}

// quantile is the value below which the share of the values lies.
func quantile(values []float64, share float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

// spearman is the correlation of ranks; 0 where one side is all the same.
func spearman(x, y []float64) float64 {
	ranks := func(v []float64) []float64 {
		out := make([]float64, len(v))
		for i := range v {
			for j := range v {
				switch {
				case v[j] < v[i]:
					out[i]++
				case v[j] == v[i]:
					out[i] += 0.5
				}
			}
		}
		return out
	}
	rx, ry := ranks(x), ranks(y)
	middle := float64(len(x)) / 2
	var both, onlyX, onlyY float64
	for i := range rx {
		both += (rx[i] - middle) * (ry[i] - middle)
		onlyX += (rx[i] - middle) * (rx[i] - middle)
		onlyY += (ry[i] - middle) * (ry[i] - middle)
	}
	if onlyX == 0 || onlyY == 0 {
		return 0
	}
	return both / math.Sqrt(onlyX*onlyY)
}

// TestStudyRecorded evaluates the study from which report.RunsToCompare is.
func TestStudyRecorded(t *testing.T) {
	s, err := readStudy(filepath.Join("testdata", "study"))
	if err != nil {
		t.Fatal(err)
	}
	if runs := len(s.undelayed(all.Names()[0])); runs < 2*studyBlocks {
		t.Fatalf("%d undelayed runs of %s, want %d", runs, all.Names()[0], 2*studyBlocks)
	}
	s.evaluate(t, io.Discard, 100, []int{report.RunsToCompare})
}

// TestStudyEvaluation evaluates studies whose truth is known: one that shows the claim, one whose delayed runs are not delayed, and one whose verdict says
// SUSPECT of every fifth run for nothing.
func TestStudyEvaluation(t *testing.T) {
	t.Parallel()
	made := func(effect float64, reasons ...string) *study {
		rng := rand.New(rand.NewPCG(7, 7))
		noise := func(sigma float64) float64 { return math.Exp(sigma * rng.NormFloat64()) }
		s := &study{Doses: []studyDose{{Transport: all.Names()[0]}}, Clients: 50, Size: 64}
		now := time.Now()
		for block := range studyBlocks {
			machine := noise(0.2) // how slow it is at the moment
			for i, kind := range studyKinds {
				r := studyRun{
					Transport: all.Names()[0], Block: block, Kind: kind, Started: now, P50: 1000 * machine * noise(0.03), P99: 3000 * machine * noise(0.08),
					P999: 9000 * machine * noise(0.2), Throughput: 50_000 / machine * noise(0.03), Kept: 0.9, Validity: runner.Valid,
				}
				if kind == studyDelayed {
					r.P50 *= 1 + effect
				}
				r.Whole = [3]float64{r.P50, r.P99, r.Throughput}
				if (block+i)%5 == 0 {
					r.Reasons = reasons
				}
				s.Runs = append(s.Runs, r)
				now = now.Add(time.Second)
			}
		}
		return s
	}
	var out strings.Builder
	good := made(0.10)
	if enough := good.printPower(&out, 20, studySizes); enough < leastRuns || enough > 10 {
		t.Errorf("a tenth in a noise of 3 %% between neighbours needs %d runs a side:\n%s", enough, out.String())
	}
	if enough := made(0).printPower(io.Discard, 20, studySizes); enough != 0 {
		t.Errorf("no delay is found with %d runs a side", enough)
	}
	if tight := good.printVerdict(&out); len(tight) > 0 {
		t.Errorf("too tight: %q", tight)
	}
	if tight := made(0.10, "the moon took 3 % of the cores").printVerdict(&out); len(tight) != 1 || !strings.Contains(tight[0], "the moon took") {
		t.Errorf("too tight: %q", tight)
	}
	good.printSpread(&out)
	good.printDrift(&out)
	for _, want := range []string{"The smallest number of runs", "| the moon took ... | 16 (", "second half against first", "rank correlation"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
	if r := spearman([]float64{1, 2, 3, 3}, []float64{10, 20, 30, 30}); math.Abs(r-1) > 1e-9 {
		t.Errorf("the ranks of the same order correlate by %v", r)
	}
}
