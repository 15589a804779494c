package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tailgate/loadtest/pacer"
	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
	"tailgate/loadtest/workload"
)

// checkOpen holds the flags of an open loop to their bounds, those of its steps excepted.
func (o *options) checkOpen() error {
	if o.command == "capacity" {
		return nil
	}
	if !o.given["rate"] {
		for _, name := range []string{"arrivals", "step", "max-wait", "generators"} {
			if o.given[name] {
				return fmt.Errorf("--%s: belongs to an open loop, so it needs --rate", name)
			}
		}
		return nil
	}
	switch {
	case !(o.Rate >= pacer.MinRate && o.Rate <= pacer.MaxRate):
		return fmt.Errorf("--rate %v: %v to %d requests a second are allowed", o.Rate, pacer.MinRate, int64(pacer.MaxRate))
	case o.MaxWait < 0 || o.given["max-wait"] && o.MaxWait == 0 || o.MaxWait > stats.MaxBound/4:
		return fmt.Errorf("--max-wait %v: above 0 and at most %v are allowed", o.MaxWait, stats.MaxBound/4)
	case o.Generators < 0 || o.given["generators"] && o.Generators == 0 || o.Generators > runner.MaxGenerators:
		return fmt.Errorf("--generators %d: 1 to %d are allowed", o.Generators, runner.MaxGenerators)
	case o.Connections > workload.MaxClients:
		return fmt.Errorf("--connections %d: at most %d are allowed", o.Connections, workload.MaxClients)
	}
	return nil
}

// pace is the schedule that was asked for; nil in a closed loop.
func (o *options) pace() (*pacer.Config, error) {
	if !o.given["rate"] && o.command != "capacity" {
		return nil, nil //nolint:nilnil // a closed loop has none
	}
	pace := pacer.Config{Rate: o.Rate, Seed: o.Seed}
	if o.command == "capacity" {
		pace.Rate = o.Capacity.MinRate // each trial has its own
	}
	if o.Arrivals == pacer.Constant.String() {
		pace.Arrivals = pacer.Constant
	}
	for _, text := range o.Step {
		at, rate, found := strings.Cut(text, ":")
		time, err := time.ParseDuration(at)
		number, err2 := strconv.ParseFloat(rate, 64)
		if !found || err != nil || err2 != nil {
			return nil, fmt.Errorf("--step %q: write a time of the measured interval and the rate from then on, as 5s:2000", text)
		}
		pace.Steps = append(pace.Steps, pacer.Step{At: time, Rate: number})
	}
	slices.SortStableFunc(pace.Steps, func(a, b pacer.Step) int { return int(a.At - b.At) })
	if _, err := pacer.New(pace); err != nil {
		return nil, fmt.Errorf("--step: %w", err)
	}
	return &pace, nil
}

// checkPace holds the schedule against the measured time.
func (p *plan) checkPace() error {
	if p.pace == nil || p.options.command == "capacity" {
		return nil
	}
	schedule, err := pacer.New(*p.pace)
	if err != nil {
		return err
	}
	if p.options.Requests > 0 {
		if seconds := float64(p.options.Requests) / p.pace.Rate; len(p.pace.Steps) == 0 && seconds > (24*time.Hour).Seconds() {
			return fmt.Errorf("--requests %d at --rate %v take %.0f hours: at most 24 are allowed", p.options.Requests, p.pace.Rate, seconds/3600)
		}
		return nil
	}
	if n := len(p.pace.Steps); n > 0 && p.pace.Steps[n-1].At >= p.duration {
		return fmt.Errorf("--step at %v: the measured interval lasts %v", p.pace.Steps[n-1].At, p.duration)
	}
	if expected := schedule.Expected(0, p.duration); expected < 1 {
		return fmt.Errorf("--rate %v: within %v not one request would be due; raise the rate, or --duration", p.pace.Rate, p.duration)
	}
	return nil
}

// sizeMix reads --size-mix or --client-mix; none = every cell has its size.
func (o *options) sizeMix() ([]workload.Share, error) {
	switch {
	case o.SizeMix != "":
		return parseMix("--size-mix", o.SizeMix)
	case o.ClientMix != "":
		return parseMix("--client-mix", o.ClientMix)
	}
	return nil, nil
}

func parseMix(flag, given string) ([]workload.Share, error) {
	var mix []workload.Share
	for part := range strings.SplitSeq(given, ",") {
		text, weight, found := strings.Cut(part, ":")
		var size byteSize
		err := size.UnmarshalText([]byte(text))
		n, err2 := strconv.ParseFloat(weight, 64)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", flag, err)
		case !found || err2 != nil || !(n > 0 && n <= 1e9):
			return nil, fmt.Errorf("%s %q: write sizes with their weights, above 0 and at most 1e9, as 64:80,4KB:20", flag, part)
		case slices.ContainsFunc(mix, func(s workload.Share) bool { return s.Size == int(size) }):
			return nil, fmt.Errorf("%s: size %s stands twice", flag, report.SizeText(int(size)))
		}
		mix = append(mix, workload.Share{Size: int(size), Weight: n})
	}
	if len(mix) > workload.MaxShares {
		return nil, fmt.Errorf("%s: at most %d sizes are allowed", flag, workload.MaxShares)
	}
	return mix, nil
}

// openLoop is the cell's open loop; nil for a closed one.
func (p *plan) openLoop() *runner.OpenLoop {
	if p.pace == nil {
		return nil
	}
	return &runner.OpenLoop{Pace: *p.pace, MaxWait: p.options.MaxWait, Generators: p.options.Generators}
}
