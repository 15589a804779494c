package capacity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Config describes a search.
type Config struct {
	Goals []Goal  // at least one
	Min   float64 // lowest rate that is tried, above 0
	Max   float64 // highest: the RFC's Max Load, as Min is its Min Load
	Start float64 // first rate, from Min to Max
	Width float64 // Goal Width (RFC 9971, Section 4.6.5), relative: how near the bounds have to come, upper / lower - 1, above 0

	// MaxTrials bounds the search; what is not known then is said.
	MaxTrials int
}

// ErrBeyond says that a rate cannot be offered: the tester's limit, and no loss of what it measures.
var ErrBeyond = errors.New("capacity: the rate cannot be offered")

// mostFailed is how many trials of a rate may fail to be offered before it counts as beyond the tester: as many as may lose too much before it counts as an upper
// bound, and one at least. It ends the search above that rate as an upper bound does, so it takes as much evidence: a stall of the machine outlasts two trials in a row.
func (g Goal) mostFailed() int {
	return max(int(float64(g.DurationSum)*g.ExceedRatio/float64(g.FinalDuration)), 1)
}

// Measure runs one trial at a rate for the goal with the number, though it tells the loss of all. Its errors end the search, but for ErrBeyond.
type Measure func(ctx context.Context, number int, rate float64, duration time.Duration) (Trial, error)

// Result is what is known for a goal. It is a Regular Goal Result of RFC 9971 where Limit is empty: both bounds exist and are no further apart than the width.
type Result struct {
	Goal        Goal
	Width       float64 // as asked for
	Lower       float64 // highest rate at which it is kept below all at which it is not; 0 = none
	Upper       float64 // lowest rate at which it is not kept; 0 = none was reached
	Conditional float64 // throughput at Lower; what the RFC recommends for comparisons
	Limit       string  // why the bounds are not as near as asked for: "", "tester", "maximum", "minimum", "trials", "interrupted"
	Trials      int     // of the whole search that were at rates up to Upper
}

// Search looks for every goal's capacity.
func Search(ctx context.Context, config Config, measure Measure) ([]Result, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	s := search{config: config, measure: measure, trials: map[float64][]Trial{}, limits: make([]string, len(config.Goals)), beyond: math.Inf(1)}
	for number := range config.Goals {
		if err := s.goal(ctx, number); err != nil {
			return nil, err
		}
	}
	var results []Result
	for number := range config.Goals {
		results = append(results, s.result(number))
	}
	return results, nil
}

func (c Config) check() error {
	if len(c.Goals) == 0 || !(c.Min > 0 && c.Min <= c.Start && c.Start <= c.Max) || !(c.Width > 0) || c.MaxTrials < 1 {
		return fmt.Errorf("capacity: %d goals from %v over %v to %v within %v in %d trials cannot be searched", len(c.Goals), c.Min, c.Start, c.Max, c.Width, c.MaxTrials)
	}
	for _, g := range c.Goals {
		if g.FinalDuration <= 0 || g.DurationSum < g.FinalDuration || !(g.LossRatio >= 0 && g.LossRatio < 1 && g.ExceedRatio >= 0 && g.ExceedRatio < 1) {
			return fmt.Errorf("capacity: goal %q cannot be searched: %+v", g.Name, g)
		}
	}
	return nil
}

type search struct {
	config  Config
	measure Measure
	trials  map[float64][]Trial
	count   int
	limits  []string
	beyond  float64 // lowest rate that cannot be offered
}

// rates are those that were tried, rising.
func (s *search) rates() []float64 {
	var list []float64
	for rate, trials := range s.trials {
		if len(trials) > 0 {
			list = append(list, rate)
		}
	}
	slices.Sort(list)
	return list
}

// bounds are the relevant ones (RFC 9971, Sections 4.8.1 and 4.8.2): the lowest upper bound, and the highest lower bound below it. A rate above an upper bound
// that looks good again (loss inversion) is not believed (Section 5.3.3).
func (s *search) bounds(number int) (lower, upper float64) {
	for _, rate := range s.rates() {
		switch s.config.Goals[number].Classify(number, s.trials[rate]) {
		case Upper:
			return lower, rate
		case Lower:
			lower = rate
		case Undecided:
		}
	}
	return lower, 0
}

// goal closes in on one goal's capacity.
func (s *search) goal(ctx context.Context, number int) error {
	for {
		rate, limit := s.next(number)
		if limit != "" || rate == 0 {
			s.limits[number] = limit
			return nil
		}
		if err := s.decide(ctx, number, rate); err != nil {
			return err
		}
		if s.limits[number] != "" {
			return nil
		}
	}
}

// next is the rate to try; 0 where the bounds are near enough, with the reason where they cannot be.
func (s *search) next(number int) (rate float64, limit string) {
	lower, upper := s.bounds(number)
	top, why := s.config.Max, "maximum"
	if s.beyond <= top {
		// Between what is kept and what cannot be offered there may be something.
		top, why = s.beyond, "tester"
	}
	switch {
	case lower == 0 && upper == 0 && why == "tester":
		return max(min(s.config.Start, top/2), s.config.Min), ""
	case lower == 0 && upper == 0:
		return s.config.Start, ""
	case lower == 0 && upper <= s.config.Min*(1+s.config.Width):
		return 0, "minimum"
	case lower == 0:
		return max(upper/2, s.config.Min), ""
	case upper == 0 && top <= lower*(1+s.config.Width):
		return 0, why
	case upper == 0 && why == "tester":
		return math.Sqrt(lower * top), ""
	case upper == 0:
		return min(2*lower, top), ""
	case upper <= lower*(1+s.config.Width):
		return 0, ""
	default:
		return math.Sqrt(lower * upper), ""
	}
}

// decide tries a rate until it is known for the goal, or cannot be offered, or the trials are used up.
func (s *search) decide(ctx context.Context, number int, rate float64) error {
	failed := 0
	for s.config.Goals[number].Classify(number, s.trials[rate]) == Undecided {
		if ctx.Err() != nil {
			s.limits[number] = "interrupted"
			return nil //nolint:nilerr // what is known stands
		}
		if s.count >= s.config.MaxTrials {
			s.limits[number] = "trials"
			return nil
		}
		s.count++
		trial, err := s.measure(ctx, number, rate, s.config.Goals[number].FinalDuration)
		switch {
		case errors.Is(err, ErrBeyond):
			if failed++; failed > s.config.Goals[number].mostFailed() {
				s.beyond = min(s.beyond, rate)
				if rate <= s.config.Min*(1+s.config.Width) {
					s.limits[number] = "tester"
				}
				return nil
			}
		case err != nil && ctx.Err() != nil:
			s.limits[number] = "interrupted"
			return nil //nolint:nilerr // what is known stands
		case err != nil:
			return err
		default:
			s.trials[rate] = append(s.trials[rate], trial)
		}
	}
	return nil
}

func (s *search) result(number int) Result {
	g := s.config.Goals[number]
	r := Result{Goal: g, Width: s.config.Width, Limit: s.limits[number]}
	r.Lower, r.Upper = s.bounds(number)
	if r.Lower > 0 {
		r.Conditional = g.Conditional(number, r.Lower, s.trials[r.Lower])
	}
	for rate, trials := range s.trials {
		if r.Upper == 0 || rate <= r.Upper {
			r.Trials += len(trials)
		}
	}
	return r
}
