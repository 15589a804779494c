package pacer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Arrivals is the process by which requests become due.
type Arrivals uint8

// The processes.
const (
	Poisson  Arrivals = iota // independent of each other: exponential gaps, as from many senders who know nothing of each other
	Constant                 // equal gaps
)

// String is "poisson" or "constant".
func (a Arrivals) String() string {
	if a == Constant {
		return "constant"
	}
	return "poisson"
}

// Bounds of a rate, in requests a second. No generator comes near the upper one, and at the lower one a minute has six requests.
const (
	MinRate = 0.1
	MaxRate = 10e6
)

// MaxSteps bounds the changes of the rate in one schedule.
const MaxSteps = 1000

// MaxLength bounds the time of a schedule. With MaxRate its arrivals stay below 2^53, so that a float64 counts them exactly.
const MaxLength = 48 * time.Hour

// Step is a change of the rate.
type Step struct {
	At   time.Duration // from the start of the schedule; above 0, later than the step before
	Rate float64       // from then on, MinRate to MaxRate
}

// Config describes a schedule.
type Config struct {
	Rate     float64 // requests a second at the start, MinRate to MaxRate
	Steps    []Step  // later rates, in order; at most MaxSteps
	Arrivals Arrivals
	Seed     uint64 // of Poisson arrivals; same seed, same schedule
}

// Schedule is when requests are due. Immutable, safe for concurrent use.
type Schedule struct {
	arrivals Arrivals
	seed     uint64
	pieces   []piece
}

// piece is a time of one rate.
type piece struct {
	from     float64 // nanoseconds from the start of the schedule
	rate     float64 // a nanosecond
	expected float64 // arrivals before from, on average: the integral of the rate
}

// New checks the configuration. The error says which value is not allowed and what is.
func New(config Config) (*Schedule, error) {
	s := &Schedule{arrivals: config.Arrivals, seed: config.Seed}
	if len(config.Steps) > MaxSteps {
		return nil, fmt.Errorf("%d steps: at most %d are allowed", len(config.Steps), MaxSteps)
	}
	last := piece{rate: config.Rate / 1e9}
	if err := checkRate(config.Rate); err != nil {
		return nil, err
	}
	s.pieces = append(s.pieces, last)
	for i, step := range config.Steps {
		if err := checkRate(step.Rate); err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		if float64(step.At) <= last.from || step.At > MaxLength {
			return nil, fmt.Errorf("step %d at %v: above 0, later than the step before, and at most %v are allowed", i+1, step.At, MaxLength)
		}
		at := float64(step.At)
		last = piece{from: at, rate: step.Rate / 1e9, expected: last.expected + (at-last.from)*last.rate}
		s.pieces = append(s.pieces, last)
	}
	return s, nil
}

func checkRate(rate float64) error {
	if !(rate >= MinRate && rate <= MaxRate) {
		return fmt.Errorf("rate %v: %v to %v requests a second are allowed", rate, MinRate, int64(MaxRate))
	}
	return nil
}

// Expected is the number of arrivals between two times on average: the integral of the rate.
func (s *Schedule) Expected(from, until time.Duration) float64 {
	return s.integral(float64(until)) - s.integral(float64(from))
}

func (s *Schedule) integral(at float64) float64 {
	p := s.pieces[0]
	for _, next := range s.pieces[1:] {
		if next.from > at {
			break
		}
		p = next
	}
	return p.expected + (at-p.from)*p.rate
}

// Walk goes through the schedule, or through one of several equal shares of it. It is for one goroutine at a time.
type Walk struct {
	schedule *Schedule
	rng      *rand.Rand
	number   int64
	every    int64
	expected float64
	piece    int
}

// Walk starts at the beginning and returns every every-th arrival, from number first (0 to every-1) on: the shares of several
// generators are disjoint, and together they are the schedule, however many generators there are.
func (s *Schedule) Walk(first, every int64) *Walk {
	w := &Walk{schedule: s, rng: rand.New(rand.NewPCG(s.seed, 0x706163657273)), number: -1, every: every}
	for range first {
		w.step()
	}
	w.number = first - every
	return w
}

// Next returns the number of the next arrival, from 0, and when it is due, from the start of the schedule. Due times never fall.
//
// Both processes are one in the time in which the rate is 1 (the time-rescaling theorem): arrivals at 0, 1, 2, ... or with exponential gaps of
// mean 1. So a change of the rate takes effect at its very moment, and a constant rate is exact for ever: no error adds up.
func (w *Walk) Next() (number int64, due time.Duration) {
	steps := w.every
	if w.number < 0 {
		steps = 1
	}
	for range steps {
		w.step()
	}
	w.number += w.every
	if w.schedule.arrivals == Constant {
		w.expected = float64(w.number)
	}
	pieces := w.schedule.pieces
	for w.piece+1 < len(pieces) && pieces[w.piece+1].expected <= w.expected {
		w.piece++
	}
	p := pieces[w.piece]
	at := p.from + (w.expected-p.expected)/p.rate
	if at >= math.MaxInt64 {
		return w.number, math.MaxInt64
	}
	return w.number, time.Duration(at)
}

// step moves by one arrival.
func (w *Walk) step() {
	if w.schedule.arrivals == Poisson {
		w.expected += w.rng.ExpFloat64()
	}
}

// Count is the number of arrivals that are due within [from, until). It walks the schedule, some ten nanoseconds an arrival, where the arrivals are
// random.
func (s *Schedule) Count(from, until time.Duration) int64 {
	var n int64
	for w := s.Walk(0, 1); ; {
		_, due := w.Next()
		switch {
		case due >= until:
			return n
		case due >= from:
			n++
		}
	}
}

// End is the time at which the n-th arrival after from (n at least 1) has been and the next is due: [from, End) holds exactly n.
func (s *Schedule) End(from time.Duration, n int64) time.Duration {
	for w := s.Walk(0, 1); ; {
		_, due := w.Next()
		if due < from {
			continue
		}
		if n == 0 {
			return due
		}
		n--
	}
}
