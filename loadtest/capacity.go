package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"tailgate/loadtest/capacity"
	"tailgate/loadtest/pacer"
	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
)

type capacityOptions struct {
	Sum       time.Duration `default:"7s" placeholder:"TIME" help:"Time of trials that decides on a rate; --duration is that of one. (${default})"`
	Exceed    float64       `default:"0.5" placeholder:"SHARE" help:"Share of that time that may miss the SLO. (${default})"`
	Width     float64       `default:"0.05" placeholder:"SHARE" help:"How near the rate that is kept and the one that is not have to come, the one by the other less 1; no less than the SLO's own share (0.01 for p99) is recommended. (${default})"`
	MinRate   float64       `default:"10" placeholder:"R" help:"Lowest rate that is tried. (${default})"`
	MaxRate   float64       `default:"1000000" placeholder:"R" help:"Highest rate that is tried. (${default})"`
	MaxTrials int           `default:"300" placeholder:"N" help:"Most trials for one transport. (${default})"`
}

const (
	// trialDuration is that of one trial unless told otherwise.
	trialDuration = time.Second
	// longestTrial bounds how long a trial at a low rate goes on for the samples that its objective needs.
	longestTrial = 30 * time.Second
	// scoutDuration is that of the closed loop which tells where to begin.
	scoutDuration = 500 * time.Millisecond
)

// checkCapacity holds the flags of a search to their bounds.
func (o *options) checkCapacity() error {
	if o.command != "capacity" {
		return nil
	}
	for _, name := range []string{"rate", "step", "requests", "repeat", "budget", "resume"} {
		if o.given[name] {
			return fmt.Errorf("--%s: not with capacity, which looks for the rate by trials of its own", name)
		}
	}
	c, trial := o.Capacity, o.trial()
	switch {
	case len(o.Size) > 1 || len(o.Clients) > 1:
		return errors.New("--size, --clients: capacity takes one of each")
	case c.Sum < trial || c.Sum > time.Hour:
		return fmt.Errorf("--sum %v: from the %v of one trial (--duration) to 1h are allowed", c.Sum, trial)
	case !(c.Exceed >= 0 && c.Exceed < 1):
		return fmt.Errorf("--exceed %v: 0 to below 1 are allowed", c.Exceed)
	case !(c.Width >= 0.005 && c.Width <= 1):
		return fmt.Errorf("--width %v: 0.005 to 1 are allowed", c.Width)
	case !(c.MinRate >= pacer.MinRate && c.MinRate < c.MaxRate && c.MaxRate <= pacer.MaxRate):
		return fmt.Errorf("--min-rate %v and --max-rate %v: from %v to %d, the one below the other, are allowed", c.MinRate, c.MaxRate, pacer.MinRate, int64(pacer.MaxRate))
	case c.MaxTrials < 1 || c.MaxTrials > 100_000:
		return fmt.Errorf("--max-trials %d: 1 to 100000 are allowed", c.MaxTrials)
	}
	return nil
}

// trial is how long a full-length trial is.
func (o *options) trial() time.Duration {
	if o.Duration > 0 {
		return o.Duration
	}
	return trialDuration
}

// goals are the objectives in the terms of the search.
func (p *plan) goals() ([]capacity.Goal, error) {
	var goals []capacity.Goal
	for _, slo := range p.slos {
		if slo.Statistic.Name == "mean" {
			return nil, fmt.Errorf("--slo %s: capacity needs an objective that is a share of requests, so a percentile or max", slo)
		}
		goal := capacity.Goal{Name: slo.String(), FinalDuration: p.options.trial(), DurationSum: p.options.Capacity.Sum, ExceedRatio: p.options.Capacity.Exceed}
		if p := slo.Statistic.Percentile; p > 0 {
			goal.LossRatio = float64(1_000_000-p) / 1_000_000
		}
		goals = append(goals, goal)
	}
	return goals, nil
}

// searchCapacity looks for the capacity of every transport of the plan.
func (p *plan) searchCapacity(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	goals, err := p.goals()
	if err != nil {
		return usage(stderr, err)
	}
	status, ok, unreachable := p.prepare(ctx, stderr)
	if !ok {
		return status
	}
	defer p.release()
	if unreachable != nil { // said already
		return exitFailure
	}
	result := p.newRun(args)
	result.Planned = 0
	live := newProgress(stderr)
	failed := 0
	for _, c := range p.cells {
		if ctx.Err() != nil {
			break
		}
		if err := p.searchCell(ctx, c, goals, &result, live); err != nil && ctx.Err() == nil {
			fmt.Fprintf(stderr, "loadtest: %s: %v\n", c.spec, err)
			failed++
		}
		live.clear()
		_ = p.write(ctx, &result) // once more at the end
	}
	notKept := p.write(ctx, &result)
	if p.options.Format == "table" {
		if err = report.CapacityTable(stdout, result); err == nil && notKept.kept() {
			err = p.where(stdout)
		}
	} else {
		err = p.print(stdout, result, notKept.kept())
	}
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "loadtest: standard output:", err)
	case notKept != nil:
		fmt.Fprintln(stderr, "loadtest:", notKept)
	case result.Interrupted:
		fmt.Fprintln(stderr, "loadtest: interrupted; what is known is kept")
	case failed > 0:
		fmt.Fprintf(stderr, "loadtest: the capacity of %d of %d transports could not be measured\n", failed, len(p.cells))
	default:
		for _, c := range result.Capacity {
			if c.Rate == nil && c.Limit != "minimum" {
				fmt.Fprintf(stderr, "loadtest: %s: no rate is known to keep %s\n", c.Spec, c.SLO)
				return exitInvalid
			}
		}
		return exitOK
	}
	return exitFailure
}

// searchCell looks for one cell's capacity. Its trials become cells of the run.
func (p *plan) searchCell(ctx context.Context, c cell, goals []capacity.Goal, result *report.Run, live progress) error {
	o := p.options.Capacity
	start, err := p.scout(ctx, c)
	if err != nil {
		return err
	}
	config := capacity.Config{Goals: goals, Min: o.MinRate, Max: o.MaxRate, Start: min(max(start, o.MinRate), o.MaxRate), Width: o.Width, MaxTrials: o.MaxTrials}
	results, err := capacity.Search(ctx, config, func(ctx context.Context, number int, rate float64, duration time.Duration) (capacity.Trial, error) {
		duration = p.trialFor(rate, duration)
		rc, out, err := p.try(ctx, c, rate, duration, len(result.Cells)+1)
		if err != nil {
			return capacity.Trial{}, err
		}
		result.Cells = append(result.Cells, rc)
		live.trial(c, rc)
		switch {
		case out.Interrupted:
			return capacity.Trial{}, context.Canceled
		case out.Wrong > 0:
			return capacity.Trial{}, fmt.Errorf("answers were wrong: %s", out.FirstWrong)
		case runner.CouldNotOffer(out):
			return capacity.Trial{}, capacity.ErrBeyond
		}
		trial := capacity.Trial{Duration: duration}
		for _, slo := range p.slos {
			late := out.Response.Count() - out.Response.CountBelow(slo.Bound, slo.Inclusive)
			trial.Loss = append(trial.Loss, float64(late)/math.Max(float64(out.Response.Count()), 1))
		}
		// The tester's lag is in the response times, so an objective that is kept is kept without it too. One that is missed may be missed by the tester.
		if trial.Loss[number] > goals[number].LossRatio && runner.Lagged(out) {
			return capacity.Trial{}, capacity.ErrBeyond
		}
		return trial, nil
	})
	if err != nil {
		return err
	}
	for _, r := range results {
		result.Capacity = append(result.Capacity, report.NewCapacity(p.reportCell(c, 0), r))
	}
	return nil
}

// try measures one trial, against a gateway of its own.
func (p *plan) try(ctx context.Context, c cell, rate float64, duration time.Duration, order int) (report.Cell, runner.Outcome, error) {
	trial := *p
	pace := *p.pace
	pace.Rate = rate
	trial.pace, trial.duration, trial.extra = &pace, duration, 0
	rc := trial.reportCell(c, order)
	out, err := trial.measure(ctx, c, &rc, nil)
	return rc, out, err
}

// trialFor is how long a trial takes at a rate: so long that the strictest objective has its samples, where the rate is low.
func (p *plan) trialFor(rate float64, duration time.Duration) time.Duration {
	for _, slo := range p.slos {
		if q := slo.Statistic.Percentile; q > 0 {
			duration = max(duration, min(time.Duration(float64(q.MinSamples())/rate*float64(time.Second)), longestTrial))
		}
	}
	return duration
}

// scout finds about where to begin: half of what a closed loop of the cell's clients reaches.
func (p *plan) scout(ctx context.Context, c cell) (float64, error) {
	closed := *p
	closed.pace, closed.duration, closed.extra = nil, scoutDuration, 0
	rc := closed.reportCell(c, 0)
	out, err := closed.measure(ctx, c, &rc, nil)
	return out.Throughput / 2, err
}
