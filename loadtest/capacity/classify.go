package capacity

import (
	"cmp"
	"slices"
	"time"
)

// Goal is one objective of a search: the attributes that RFC 9971 requires of a Search Goal (Section 4.6). Width stands in [Config], since it is the same for all
// goals, and there is no Initial Trial Duration: a search asks for trials of the final duration alone, as Section 5.5 recommends.
type Goal struct {
	Name          string
	LossRatio     float64       // share of requests that may be lost, 0 to below 1
	FinalDuration time.Duration // of a full-length trial, above 0
	DurationSum   time.Duration // of full-length trials that always decide on a rate, at least FinalDuration
	ExceedRatio   float64       // share of that time whose trials may lose more, 0 to below 1
}

// Trial is one measurement at a rate.
type Trial struct {
	// Duration is the RFC's Trial Duration and its Trial Effective Duration in one. A trial longer than a goal's final duration counts with all of it.
	Duration time.Duration
	Loss     []float64 // share of requests that were lost, 0 to 1, by goal
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

// Classify decides on a rate by all its trials (RFC 9971, Section 6.1 and Appendix A). A trial is high-loss when it loses more than the goal's loss ratio, and short when its
// duration is below the goal's final one. Short trials can only speak against a rate: those with high loss count as far as short ones with low loss, weighted
// by exceed / (1 - exceed), do not balance them. A rate is an upper bound when the share of high-loss time is above the exceed ratio even if all time that is
// missing to the duration sum had low loss, and a lower bound when it is not above even if all of that had high loss.
func (g Goal) Classify(number int, trials []Trial) Class {
	var fullLow, fullHigh, shortLow, shortHigh time.Duration // whole numbers, so that sums of equal times are equal
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
		*sum += t.Duration
	}
	balancing := float64(shortLow) * g.ExceedRatio / (1 - g.ExceedRatio)
	high := float64(fullHigh) + max(float64(shortHigh)-balancing, 0)
	whole := max(float64(fullLow)+high, float64(g.DurationSum))
	allowed := whole * g.ExceedRatio
	switch pessimistic := whole - float64(fullLow); {
	case pessimistic <= allowed:
		return Lower
	case high <= allowed: // the optimistic view
		return Undecided
	default:
		return Upper
	}
}

// Conditional is the conditional throughput at a rate with at least one trial (RFC 9971, Section 6.2 and Appendix B): the rate, less the loss of the worst trial that has to
// count when full-length trials are taken from the best on until the share 1 - exceed of the time is filled. Time that no trial has filled counts as lost entirely, which
// at a lower bound does not occur. Where they differ, as for the duration sum, Appendix B is followed and not Section 6.2.
func (g Goal) Conditional(number int, rate float64, trials []Trial) float64 {
	full := slices.DeleteFunc(slices.Clone(trials), func(t Trial) bool { return t.Duration < g.FinalDuration })
	slices.SortFunc(full, func(a, b Trial) int { return cmp.Compare(a.Loss[number], b.Loss[number]) })
	whole := time.Duration(0)
	for _, t := range full {
		whole += t.Duration
	}
	whole = max(whole, g.DurationSum)
	allowed := float64(whole) * g.ExceedRatio // compared as in Classify, so that a lower bound there has its throughput here
	left, loss := whole, 0.0
	for _, t := range full {
		if float64(left) <= allowed {
			break
		}
		loss = t.Loss[number]
		left -= t.Duration
	}
	if float64(left) > allowed {
		loss = 1
	}
	return rate * (1 - loss)
}
