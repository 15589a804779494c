package capacity

import (
	"cmp"
	"slices"
	"time"
)

// Goal is one objective of a search, in the terms of RFC 9971.
type Goal struct {
	Name          string
	LossRatio     float64       // share of requests that may be lost, 0 to below 1
	FinalDuration time.Duration // of a full-length trial
	DurationSum   time.Duration // of full-length trials that decide on a rate
	ExceedRatio   float64       // share of that time whose trials may lose more, 0 to below 1
}

// Trial is one measurement at a rate.
type Trial struct {
	Duration time.Duration
	Loss     []float64 // share of requests that were lost, by goal
}

// Class is what is known of a rate for a goal.
type Class uint8

// The classes.
const (
	Undecided Class = iota
	Lower           // the goal is kept, whatever the trials that are missing would say
	Upper           // it is not
)

// String is "undecided", "lower bound" or "upper bound".
func (c Class) String() string { return [...]string{"undecided", "lower bound", "upper bound"}[c] }

// Classify decides on a rate by its trials (RFC 9971, load classification). Trials shorter than the goal's final duration can only speak against it, and
// only as far as short ones with little loss do not balance them.
func (g Goal) Classify(number int, trials []Trial) Class {
	var fullLow, fullHigh, shortLow, shortHigh float64 // seconds
	for _, t := range trials {
		sum := &fullLow
		switch high, full := t.Loss[number] > g.LossRatio, t.Duration >= g.FinalDuration; {
		case full && high:
			sum = &fullHigh
		case high:
			sum = &shortHigh
		case !full:
			sum = &shortLow
		}
		*sum += t.Duration.Seconds()
	}
	balanced := shortLow * g.ExceedRatio / (1 - g.ExceedRatio)
	high := fullHigh + max(shortHigh-balanced, 0)
	whole := max(fullLow+high, g.DurationSum.Seconds())
	allowed := whole * g.ExceedRatio
	switch {
	case whole-fullLow <= allowed: // even if all that is missing were lost
		return Lower
	case high <= allowed:
		return Undecided
	default:
		return Upper
	}
}

// conditional is the throughput that the goal's share of the time reaches at a rate: the rate, less the loss of the worst trial that has to count.
func (g Goal) conditional(number int, rate float64, trials []Trial) float64 {
	full := slices.DeleteFunc(slices.Clone(trials), func(t Trial) bool { return t.Duration < g.FinalDuration })
	slices.SortFunc(full, func(a, b Trial) int { return cmp.Compare(a.Loss[number], b.Loss[number]) })
	whole := 0.0
	for _, t := range full {
		whole += t.Duration.Seconds()
	}
	left, loss := max(whole, g.DurationSum.Seconds())*(1-g.ExceedRatio), 0.0
	for _, t := range full {
		loss = t.Loss[number]
		if left -= t.Duration.Seconds(); left <= 0 {
			break
		}
	}
	return rate * (1 - loss)
}
