package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"tailgate/loadtest/export"
	"tailgate/loadtest/host"
	"tailgate/loadtest/machine"
	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
	"tailgate/loadtest/workload"
	"tailgate/transports"
)

// connectionsBeside are allowed by the hosted gateway beyond those of the clients.
const connectionsBeside = 16

// execute measures every cell, keeps the results after each, and prints them.
func (p *plan) execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	began := time.Now()
	status, ok, unreachable := p.prepare(ctx, stderr)
	if !ok {
		return status
	}
	defer p.release()
	result := p.newRun(args)
	if p.options.command == "calibrate" {
		timer, err := lateness()
		if err != nil {
			fmt.Fprintln(stderr, "loadtest:", err)
			return exitFailure
		}
		result.Timer = &timer
	}
	live := newProgress(stderr)
	left := 0 // cells for which the budget had no time
	measured := make([]*report.Cell, len(p.cells))
	if p.options.Resume {
		if err := p.resume(&result, measured); err != nil {
			return usage(stderr, err)
		}
	}
	live.budget = p.newBudget(began, len(p.cells)-result.Resumed)
	for i, index := range p.order {
		if ctx.Err() != nil {
			break
		}
		if measured[index] != nil {
			continue
		}
		c := p.cells[index]
		rc, said := p.reportCell(c, i+1), ""
		err := unreachable
		if err == nil {
			err = p.cell(ctx, c, i, &rc, live)
			live.clear()
		}
		_, outOfTime := errors.AsType[usedUpError](err)
		switch {
		case err != nil && ctx.Err() != nil:
			continue // it had not begun
		case err != nil && (unreachable != nil || outOfTime): // said once, not for every cell
			rc.Fail(err)
			if outOfTime {
				left++
			}
		case err != nil:
			rc.Fail(err)
			advice := ""
			if p.options.Target != "" {
				advice = p.advice(err)
			}
			said = fmt.Sprintf("loadtest: %s: %v%s\n", p.place(c, &rc), err, advice)
		case rc.Validity == runner.Invalid:
			said = fmt.Sprintf("loadtest: %s: INVALID: %s\n", p.place(c, &rc), strings.Join(rc.Reasons[:min(len(rc.Reasons), 2)], "; "))
		}
		measured[index] = &rc
		result.Cells = compact(measured)
		// Where it fails, what was measured is still here, and the disk may have room again at the end.
		_ = p.write(ctx, &result)
		if said != "" { // afterwards, since where nobody reads it this waits
			fmt.Fprint(stderr, said)
		}
	}
	result.Cells = compact(measured)
	notKept := p.write(ctx, &result)
	if err := p.print(stdout, result, notKept.kept()); err != nil {
		fmt.Fprintln(stderr, "loadtest: standard output:", err)
		return exitFailure
	}
	if notKept != nil {
		fmt.Fprintln(stderr, "loadtest:", notKept)
		return exitFailure
	}
	status, why := p.status(result, left)
	if why != "" {
		fmt.Fprintln(stderr, "loadtest:", why)
	}
	return status
}

// cell measures the cell whose turn it is, within the budget, and keeps its histograms.
func (p *plan) cell(ctx context.Context, c cell, turn int, rc *report.Cell, live progress) error {
	b := live.budget
	within, cancel := b.within(ctx)
	defer cancel()
	timed := *p
	if b != nil {
		var err error
		if timed.duration, err = b.next(time.Now()); err != nil {
			return err
		}
		began := time.Now()
		defer func() { b.took(time.Since(began), time.Duration(rc.Seconds*float64(time.Second))) }()
	}
	out, err := timed.measure(within, c, rc, live.cell(p, turn, c))
	switch {
	case err != nil && within.Err() != nil && ctx.Err() == nil:
		return context.Cause(within)
	case err != nil:
		return err
	case out.Interrupted && ctx.Err() == nil:
		rc.Reasons = append(rc.Reasons, context.Cause(within).Error())
	}
	p.histograms(rc, out)
	return nil
}

// place names a cell for a message: what, and where unless it was hosted.
func (p *plan) place(c cell, rc *report.Cell) string {
	at := ""
	if p.options.Target != "" {
		at = " at " + p.options.Target
	}
	return fmt.Sprintf("%s%s, %s x %d", c.spec, at, rc.SizeName(), c.clients)
}

// prepare does what comes before the first cell: cores, the target, the output folder. Where it is not ok, the status is the process's. A target
// that cannot be reached is no end: every cell says so.
func (p *plan) prepare(ctx context.Context, stderr io.Writer) (status int, ok bool, unreachable error) {
	if err := p.pin(ctx); err != nil {
		fmt.Fprintln(stderr, "loadtest:", err)
		return exitFailure, false, nil
	}
	if p.options.Target != "" {
		unreachable = p.reach(ctx)
		if _, ok := errors.AsType[*workload.SizeError](unreachable); ok {
			return usage(stderr, unreachable), false, nil
		}
		if unreachable != nil && ctx.Err() == nil {
			fmt.Fprintln(stderr, "loadtest:", unreachable)
		}
		if unreachable == nil {
			if err := p.checkAdmin(ctx); err != nil && ctx.Err() == nil {
				fmt.Fprintf(stderr, "loadtest: --admin: %v; going on without them\n", err)
			}
		}
	}
	if err := report.Probe(p.options.Out); err != nil {
		fmt.Fprintf(stderr, "loadtest: --out: %v; nothing was measured, name a folder that can be written\n", err)
		return exitFailure, false, nil
	}
	var err error
	if p.release, err = report.Lock(p.options.Out); err != nil {
		fmt.Fprintf(stderr, "loadtest: --out: %v; nothing was measured, name another folder, or wait\n", err)
		return exitFailure, false, nil
	}
	p.watch = p.newWatcher(ctx, stderr)
	unlock := p.release
	p.release = func() {
		p.watch.stop()
		unlock()
	}
	return exitOK, true, unreachable
}

// pin gives this process its cores and decides on the server's.
func (p *plan) pin(ctx context.Context) error {
	cores, err := machine.Cores()
	if err != nil {
		return err
	}
	if p.options.Target != "" {
		p.cores = p.locate(ctx, cores)
		return nil
	}
	p.cores = machine.NewPlan(cores, p.options.ServerCores)
	if !p.cores.Pinned {
		return nil
	}
	if refused := machine.PinProcess(p.cores.Clients); refused != nil {
		// Where it is not allowed, the run goes on and says so.
		both := slices.Concat(p.cores.Clients, p.cores.Server)
		p.cores = machine.Plan{Server: both, Clients: both, Note: "not pinned: " + refused.Error()}
	}
	threads(p.cores, "")
	return nil
}

// measure runs one cell: against a gateway of its own, or the target. It fills in the report's cell.
func (p *plan) measure(ctx context.Context, c cell, rc *report.Cell, progress func(runner.Progress)) (out runner.Outcome, err error) {
	cell := p.runnerCell(c)
	cell.Progress = progress
	warnings := func() string { return "" }
	if p.options.Target != "" {
		cell.Dial.Address = p.options.Target
		if p.admin != nil {
			cell.ServerCounters, cell.ServerMetrics = p.admin.Counters, p.admin.Metrics
		}
	} else {
		child, err := p.host(ctx, c)
		if err != nil {
			return out, err
		}
		defer func() {
			if stopErr := child.Stop(); stopErr != nil && err == nil {
				rc.Validity = runner.Invalid
				rc.Reasons = append([]string{"the gateway did not end well: " + stopErr.Error()}, rc.Reasons...)
			}
		}()
		cell.Dial.Address, cell.Keys, cell.ServerMetrics = child.Address(c.spec.Transport.Name), child.Keys(), child.Metrics
		cell.ServerCounters = func(ctx context.Context) (runner.Reading, error) {
			counters, err := child.Counters(ctx)
			return runner.Reading{Counters: counters}, err
		}
		rc.Gomaxprocs.Server = child.Ready.Gomaxprocs
		warnings = child.Warnings
	}
	threads(p.cores, c.spec.Engine)
	rc.Gomaxprocs.Client = runtime.GOMAXPROCS(0)
	p.watch.begin(ctx)
	if out, err = runner.Run(ctx, cell); err != nil {
		return out, err
	}
	p.watch.end(ctx, &out)
	rc.Fill(out, runner.Judge(cell, out), p.slos)
	if p.admin != nil {
		rc.Gomaxprocs.Server = p.admin.Gomaxprocs()
	}
	if out.ServerUnknown != nil {
		if rc.Validity == runner.Valid && p.options.Target == "" { // of a gateway that is not ours they are an extra
			rc.Validity = runner.Suspect
		}
		rc.Reasons = append(rc.Reasons, out.ServerUnknown.Error())
	}
	if out.Counts.Lost() > 0 {
		rc.ServerLog = warnings()
	}
	return out, nil
}

// procs is how many threads the runtime began with.
var procs = runtime.GOMAXPROCS(0)

// threads gives this process as many threads as the clients have cores, and a second one beside a loop that never sleeps.
func threads(cores machine.Plan, engine string) {
	n := procs
	if cores.Pinned {
		n = len(cores.Clients)
	}
	if engine == transports.EngineSpin {
		n = max(n, host.LeastProcs)
	}
	runtime.GOMAXPROCS(n)
}

// histograms writes the cell's own files. Where that fails its figures stand all the same.
func (p *plan) histograms(rc *report.Cell, out runner.Outcome) {
	if err := export.Histograms(p.options.Out, *rc, out.Result); err != nil {
		rc.Reasons = append(rc.Reasons, "its histograms could not be written: "+err.Error())
	}
}

// host starts a gateway, or a bare echo, for one cell.
func (p *plan) host(ctx context.Context, c cell) (*host.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("this binary cannot find itself to host the gateway: %w", err)
	}
	o := host.Options{
		Command: []string{self, childCommand},
		Task: host.Task{
			Transport: c.spec.Transport.Name, Keys: host.NewKeys(p.options.Accounts), Sync: p.options.Sync,
			Engine: c.spec.Engine, CongestionControl: p.options.Congestion, MaxConnections: max(c.clients, p.options.Connections) + connectionsBeside,
			Null: c.peer == report.PeerNull, Spin: c.peer == report.PeerSpin, HandlerDelay: c.delay,
		},
	}
	if p.cores.Pinned {
		o.Cores = p.cores.Server
	}
	return host.Start(ctx, o)
}

func (p *plan) newRun(args []string) report.Run {
	o := p.options
	r := report.Run{
		Schema: report.Schema, Started: time.Now(), Command: redact(args), Planned: len(p.cells), Environment: machine.ReadEnvironment(),
		Method: report.Method{
			Loop: "closed", Seed: o.Seed, WarmupSeconds: o.Warmup.Seconds(), TimeoutSeconds: o.Timeout.Seconds(), Target: o.Target, Admin: o.Admin,
			Accounts: max(len(o.Key), 1), Pinned: p.cores.Pinned, ServerCores: append([]int{}, p.cores.Server...), ClientCores: append([]int{}, p.cores.Clients...), PinningNote: p.cores.Note,
			Congestion: o.Congestion, CancelShare: o.CancelShare, ReplaceShare: o.ReplShare, Repeat: o.Repeat, MinBeyond: stats.MinBeyond,
		},
		Cells: []report.Cell{}, Capacity: []report.Capacity{},
	}
	if o.Target == "" {
		r.Method.Accounts, r.Method.Journal = o.Accounts, o.Sync
	}
	if o.command == "calibrate" {
		r.Method.Journal = "none"
	}
	if p.pace != nil {
		r.Method.Loop, r.Method.MaxWaitSeconds = "open", cmp.Or(o.MaxWait, o.Timeout).Seconds()
	}
	for _, slo := range p.slos {
		r.Method.SLO = append(r.Method.SLO, slo.String())
	}
	return r
}

// redact leaves out the values of keys.
func redact(args []string) []string {
	out := slices.Clone(args)
	for i, arg := range args {
		for _, flag := range []string{"--key", "--admin-key"} {
			switch {
			case strings.HasPrefix(arg, flag+"="):
				out[i] = flag + "=***"
			case i > 0 && args[i-1] == flag:
				out[i] = "***"
			}
		}
	}
	return out
}

func compact(cells []*report.Cell) []report.Cell {
	list := []report.Cell{}
	for _, c := range cells {
		if c != nil {
			list = append(list, *c)
		}
	}
	return list
}

// write keeps what there is, so that a run that is killed leaves its finished cells. The error says what is missing.
func (p *plan) write(ctx context.Context, r *report.Run) *notKeptError {
	r.Finished, r.Interrupted = time.Now(), ctx.Err() != nil
	r.Finish()
	if _, err := r.Write(p.options.Out); err != nil {
		return &notKeptError{results: true, error: err}
	}
	err := errors.Join(
		report.WriteFile(filepath.Join(p.options.Out, export.SchemaFile), export.Schema),
		report.WriteFile(filepath.Join(p.options.Out, export.MetricsFile), export.Metrics(*r)),
	)
	if err != nil {
		return &notKeptError{error: err}
	}
	return nil
}

// notKeptError says what could not be written.
type notKeptError struct {
	error

	results bool // run.json itself; otherwise something beside it
}

// Error implements error.
func (e *notKeptError) Error() string {
	if e.results {
		return fmt.Sprintf("the results stand on the standard output alone: %v", e.error)
	}
	return fmt.Sprintf("%s is kept, but not all that belongs beside it: %v", report.FileName, e.error)
}

// kept says whether run.json has the results.
func (e *notKeptError) kept() bool { return e == nil || !e.results }

// print shows the run, and where its file is, unless it could not be kept.
func (p *plan) print(stdout io.Writer, r report.Run, kept bool) error {
	switch p.options.Format {
	case "json":
		return writeJSON(stdout, r)
	case "markdown":
		return export.Markdown(stdout, r)
	case "csv":
		return export.CSV(stdout, r)
	}
	if err := report.Table(stdout, r); err != nil || !kept {
		return err
	}
	return p.where(stdout)
}

// where says where the results are.
func (p *plan) where(stdout io.Writer) error {
	_, err := fmt.Fprintf(stdout, "Results: %s%c%s\n", strings.TrimRight(p.options.Out, string(os.PathSeparator)), os.PathSeparator, report.FileName)
	return err
}

// status is what the run comes to for the process's exit. A failure outweighs all, since cells are missing; a missed objective
// outweighs an invalid cell beside it, since it was measured. For so many cells as are left the budget had no time.
func (p *plan) status(r report.Run, left int) (int, string) {
	failed := -left // of the cells without figures, those that were left are no failures
	var missed, undecided, invalid int
	for _, c := range r.Cells {
		switch {
		case c.Validity == runner.Invalid && c.Client == nil:
			failed++
			continue
		case c.Validity == runner.Invalid:
			invalid++
			continue
		case c.IsFloor() || len(p.options.SLO) == 0:
			continue
		}
		for _, o := range c.SLO {
			switch {
			case o.Met == nil:
				undecided++
			case !*o.Met:
				missed++
			}
		}
	}
	switch {
	case r.Interrupted:
		return exitFailure, "interrupted; what was measured is kept, and the same command with --resume measures the rest"
	case failed > 0:
		return exitFailure, fmt.Sprintf("%d of %d cells could not be measured", failed, len(r.Cells))
	case left > 0:
		return exitFailure, fmt.Sprintf("%d of %d cells were not measured, since %v; the same command with --resume measures them", left, len(r.Cells), usedUpError{p.options.Budget})
	case missed > 0:
		return exitMissed, fmt.Sprintf("an SLO was missed %d times", missed)
	case invalid > 0:
		return exitInvalid, fmt.Sprintf("%d of %d measurements are INVALID", invalid, len(r.Cells))
	case undecided > 0:
		return exitInvalid, fmt.Sprintf("too few samples for %d verdicts on an SLO; measure longer", undecided)
	default:
		return exitOK, ""
	}
}
