package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"tailgate/loadtest/machine"
	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
	"tailgate/transports/all"
)

// What asks for the study, and what it is asked.
const (
	studyEnv         = "LOADTEST_STUDY"          // folder of study.json; a study that is there is gone on with
	studyForEnv      = "LOADTEST_STUDY_FOR"      // stop after so much time, to be gone on with; none = to the end
	studyEvaluateEnv = "LOADTEST_STUDY_EVALUATE" // folder of study.json: evaluate what is there, measure nothing
)

const (
	studyFile = "study.json"
	studySeed = 1
	// studyBlocks is how many blocks of three runs each transport has, two of the same and a delayed one: draws of 20 blocks still differ from each other.
	studyBlocks = 40
	// A cell of the study. It is as short as a cell can be that is judged in full: the verdict wants a second of core time by the kernel's ticks of
	// 10 ms at both edges, and p99.9 its 10,000 samples, which the slowest transport has at 10,000/s.
	studyDuration, studyWarmup = "1050ms", "200ms"
	// studyEffect is by what share the delayed handler is to raise the p50.
	studyEffect = 0.10
	// doseRuns is how many runs tell the p50 of which the delay is a share.
	doseRuns = 5
)

// study is what was measured.
type study struct {
	Environment machine.Environment `json:"environment"`
	Started     time.Time           `json:"started"`
	Cores       machine.Plan        `json:"cores"`
	Size        int                 `json:"size"`
	Clients     int                 `json:"clients"`
	Doses       []studyDose         `json:"doses"`
	Runs        []studyRun          `json:"runs"` // in the order of time
}

// studyDose is the delay of one transport's handler.
type studyDose struct {
	Transport string        `json:"transport"`
	P50US     float64       `json:"p50_us"`   // without it
	Delay     time.Duration `json:"delay_ns"` // of every request
}

// studyRun is one run. The figures are those of the cores' full speed, as compare takes them. One that the run does not have is 0.
type studyRun struct {
	Transport   string         `json:"transport"`
	Block       int            `json:"block"` // of its transport, from 0
	Kind        studyKind      `json:"kind"`
	Started     time.Time      `json:"started"`
	P50         float64        `json:"p50_us"`
	P99         float64        `json:"p99_us"`
	P999        float64        `json:"p99.9_us"`
	Throughput  float64        `json:"throughput"`
	LagP99      float64        `json:"lag_p99_us"`
	Checks      runner.Checks  `json:"checks"`
	Involuntary [2]int64       `json:"involuntary_switches"` // client's, server's
	CPUShare    [2]float64     `json:"cpu_share"`            // the same
	Whole       [3]float64     `json:"whole"`                // p50 and p99 in microseconds and throughput of the whole interval, slow times of the cores included
	Kept        float64        `json:"kept_share"`           // of the interval at full speed
	Slow        float64        `json:"slow_share"`           // of the time that a core was slow
	BoundBy     string         `json:"bound_by"`
	Validity    runner.Verdict `json:"validity"`
	Reasons     []string       `json:"reasons"`
}

// studyKind is what a run of a block is.
type studyKind string

// The kinds.
const (
	studyBefore  studyKind = "before"
	studySame    studyKind = "same"    // as studyBefore: what compare must not find
	studyDelayed studyKind = "delayed" // with a handler that was made longer: what it must
)

var studyKinds = []studyKind{studyBefore, studySame, studyDelayed}

// TestStudy measures how many runs a comparison needs, on this machine, and where the verdict's thresholds lie. Every transport has blocks of three runs of the same
// cell, one of them with a gateway whose handler was made longer; the three follow each other in random order, and so do the blocks of all transports. It
// takes about 1.7 s a run.
func TestStudy(t *testing.T) {
	if folder := os.Getenv(studyEvaluateEnv); folder != "" {
		s, err := readStudy(folder)
		if err != nil {
			t.Fatal(err)
		}
		s.evaluate(t, t.Output(), studyComparisons, studySizes)
		return
	}
	folder := os.Getenv(studyEnv)
	if testing.Short() || folder == "" {
		t.Skipf("takes some 6 minutes a transport and a quiet machine: set %s to a folder, or %s to evaluate the study in one", studyEnv, studyEvaluateEnv)
	}
	s, err := readStudy(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s = study{Environment: machine.ReadEnvironment(), Started: time.Now()}
	case err != nil:
		t.Fatal(err)
	}
	var deadline time.Time
	if text := os.Getenv(studyForEnv); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("%s: %v", studyForEnv, err)
		}
		deadline = time.Now().Add(d)
	}
	if s.measure(t, folder, deadline) {
		s.evaluate(t, t.Output(), studyComparisons, studySizes)
	}
}

func readStudy(folder string) (study, error) {
	text, err := os.ReadFile(filepath.Join(folder, studyFile))
	if err != nil {
		return study{}, err
	}
	var s study
	err = json.Unmarshal(text, &s)
	return s, err
}

func (s *study) write(folder string) error {
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	path := filepath.Join(folder, studyFile)
	return errors.Join(os.MkdirAll(folder, 0o750), os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new", path))
}

// bench is a plan whose process is pinned as the load tester's is, until the test ends.
func bench(t *testing.T, args ...string) *plan {
	t.Helper()
	t.Setenv(asMain, "1") // for the hosted gateways
	o, _ := parse(append(slices.Clone(args), "--out", t.TempDir()), io.Discard, t.Output())
	if o == nil {
		t.Fatalf("%q is no command line", args)
	}
	p, err := o.plan()
	if err != nil {
		t.Fatal(err)
	}
	before, procs := p.cores, runtime.GOMAXPROCS(0)
	cores, err := machine.Cores()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cores {
		before.Clients = append(before.Clients, c.ID)
	}
	t.Cleanup(func() {
		runtime.GOMAXPROCS(procs)
		if err := machine.PinProcess(before.Clients); err != nil {
			t.Error(err)
		}
	})
	if err := p.pin(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.watch = p.newWatcher(t.Context(), t.Output())
	t.Cleanup(p.watch.stop)
	return p
}

// measure goes on where the study is, until it is complete (true) or the time has passed. What is measured is kept after each run.
func (s *study) measure(t *testing.T, folder string, deadline time.Time) (complete bool) {
	p := bench(t, "--duration", studyDuration, "--warmup", studyWarmup, "--size", "64", "--clients", "1")
	s.Cores, s.Size, s.Clients = p.cores, 64, 1
	cells := map[string]cell{}
	for _, c := range p.cells {
		if !c.floor {
			cells[c.spec.Transport.Name] = c
		}
	}
	keep := func() {
		if err := s.write(folder); err != nil {
			t.Fatal(err)
		}
	}
	over := func() bool { return !deadline.IsZero() && time.Now().After(deadline) }
	for _, name := range all.Names() {
		if slices.ContainsFunc(s.Doses, func(d studyDose) bool { return d.Transport == name }) {
			continue
		}
		if over() {
			return false
		}
		s.Doses = append(s.Doses, doseOf(t, p, cells[name]))
		keep()
	}
	order := s.order()
	for i := len(s.Runs); i < len(order); i++ {
		if over() {
			fmt.Fprintf(t.Output(), "study: %d of %d runs; go on with the same command\n", i, len(order))
			return false
		}
		c := cells[order[i].transport]
		if order[i].kind == studyDelayed {
			c.delay = s.dose(order[i].transport).Delay
		}
		run := studyCell(t, p, c)
		run.Block, run.Kind = order[i].block, order[i].kind
		s.Runs = append(s.Runs, run)
		keep()
		fmt.Fprintf(t.Output(), "study: %d of %d, %s %s: p50 %.0f us, p99 %.0f us, %s %q\n", i+1, len(order), run.Transport, run.Kind, run.P50, run.P99, run.Validity, run.Reasons)
	}
	return true
}

func (s *study) dose(transport string) studyDose {
	for _, d := range s.Doses {
		if d.Transport == transport {
			return d
		}
	}
	return studyDose{}
}

type studyStep struct {
	transport string
	block     int
	kind      studyKind
}

// order is that of all runs: blocks by chance, and the runs of each by chance, the same for the same transports.
func (s *study) order() []studyStep {
	var blocks [][]studyStep
	rng := rand.New(rand.NewPCG(studySeed, 0))
	for _, d := range s.Doses {
		for block := range studyBlocks {
			var steps []studyStep
			for _, at := range rng.Perm(len(studyKinds)) {
				steps = append(steps, studyStep{d.Transport, block, studyKinds[at]})
			}
			blocks = append(blocks, steps)
		}
	}
	rng.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
	return slices.Concat(blocks...)
}

// doseOf is a tenth of the p50 that is measured first, as the median of some runs. With one client nothing waits for anything else, so a handler that is longer by that
// makes every response longer by it. With more, all wait for one core, each for the handlers of those before it, and the same delay makes the p50 several times as long,
// which anything can find.
func doseOf(t *testing.T, p *plan, c cell) studyDose {
	d := studyDose{Transport: c.spec.Transport.Name}
	var p50 []float64
	for range doseRuns {
		p50 = append(p50, studyCell(t, p, c).P50)
	}
	d.P50US = stats.Median(p50)
	d.Delay = time.Duration(studyEffect * d.P50US * 1e3)
	fmt.Fprintf(t.Output(), "study: %s: p50 %.1f us, so the handler is made longer by %v\n", d.Transport, d.P50US, d.Delay)
	return d
}

// studyCell measures one run.
func studyCell(t *testing.T, p *plan, c cell) studyRun {
	rc := p.reportCell(c, 0)
	out, err := p.measure(t.Context(), c, &rc, nil)
	if err != nil {
		t.Fatal(err)
	}
	rc.Reasons = append([]string{}, rc.Reasons...)
	run := studyRun{
		Transport: rc.Transport, Started: rc.Started,
		Whole:  [3]float64{rc.Response.Values["p50"], rc.Response.Values["p99"], rc.Throughput},
		LagP99: rc.Lag.Values["p99"], Checks: runner.Check(p.runnerCell(c), out),
		BoundBy: rc.BoundBy, Validity: rc.Validity, Reasons: rc.Reasons,
		Involuntary: [2]int64{out.ClientUse.InvoluntarySwitches}, CPUShare: [2]float64{out.ClientUse.Share},
	}
	if rc.Speed != nil {
		run.Slow, run.Kept = rc.Speed.SlowShare, rc.Speed.KeptShare
	}
	if run.Kept > 0 {
		run.P50, run.P99, run.P999, run.Throughput = rc.Speed.Response.Values["p50"], rc.Speed.Response.Values["p99"], rc.Speed.Response.Values["p99.9"], *rc.Speed.Throughput
	}
	if out.ServerUse != nil {
		run.Involuntary[1], run.CPUShare[1] = out.ServerUse.InvoluntarySwitches, out.ServerUse.Share
	}
	return run
}

// cell is the run as compare takes it.
func (r studyRun) cell() report.Cell {
	c := report.Cell{Transport: r.Transport, Spec: r.Transport, Peer: report.PeerGateway, Mode: "closed", Seconds: 1, Throughput: r.Throughput, Validity: r.Validity, Started: r.Started}
	c.Response.Values = map[string]float64{}
	for name, v := range map[string]float64{"p50": r.P50, "p99": r.P99, "p99.9": r.P999} {
		if v > 0 {
			c.Response.Values[name] = v
		}
	}
	return c
}

// of returns the runs of a transport and a kind, one for each block that is complete, in the order of time.
func (s *study) of(transport string, kind studyKind) []studyRun {
	complete := map[int]int{}
	for _, r := range s.Runs {
		if r.Transport == transport {
			complete[r.Block]++
		}
	}
	var list []studyRun
	for _, r := range s.Runs {
		if r.Transport == transport && r.Kind == kind && complete[r.Block] == len(studyKinds) {
			list = append(list, r)
		}
	}
	return list
}

// undelayed are all runs of a transport whose handler was left alone.
func (s *study) undelayed(transport string) []studyRun {
	list := slices.Concat(s.of(transport, studyBefore), s.of(transport, studySame))
	slices.SortStableFunc(list, func(a, b studyRun) int { return a.Started.Compare(b.Started) })
	return list
}
