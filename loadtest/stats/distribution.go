package stats

import (
	"fmt"
	"time"
)

// State says what kind of answer a Value is.
type State uint8

// The states.
const (
	TooFew   State = iota // the samples do not carry it
	Known                 // Duration holds it
	Infinite              // so many requests got no answer that the rank falls among them
)

// Value is a latency, or why there is none.
type Value struct {
	State    State
	Duration time.Duration
}

// Bucket is a number of samples with the same latency, to the resolution of the recorder.
type Bucket struct {
	Value time.Duration
	Count int64
}

// Distribution is the latencies of all requests of a cell: the answered ones with their times, the lost ones as infinitely late. It is
// immutable and safe for concurrent use.
type Distribution struct {
	buckets  []Bucket
	answered int64
	lost     int64
	min, max time.Duration
	mean     float64 // nanoseconds, of the answered
}

// Exact is what a recorder knows beside its buckets, without rounding. All zero where nothing was answered.
type Exact struct {
	Min, Max time.Duration
	Sum      float64 // nanoseconds
}

// NewDistribution builds a distribution from buckets sorted upwards (kept, not copied) and the number of requests without an answer.
// It returns an error for buckets out of order, negative counts, or an Exact that contradicts them.
func NewDistribution(buckets []Bucket, exact Exact, lost int64) (Distribution, error) {
	d := Distribution{buckets: buckets, lost: lost, min: exact.Min, max: exact.Max}
	if lost < 0 {
		return Distribution{}, fmt.Errorf("stats: %d lost requests: a count cannot be negative", lost)
	}
	for i, b := range buckets {
		if b.Count < 0 || i > 0 && b.Value <= buckets[i-1].Value {
			return Distribution{}, fmt.Errorf("stats: bucket %d (%v, %d samples) is negative or not above the one before", i, b.Value, b.Count)
		}
		d.answered += b.Count
	}
	if exact.Min > exact.Max || exact.Min < 0 {
		return Distribution{}, fmt.Errorf("stats: minimum %v and maximum %v contradict each other", exact.Min, exact.Max)
	}
	if d.answered > 0 {
		d.mean = exact.Sum / float64(d.answered)
	}
	return d, nil
}

// Buckets returns the latencies, sorted upwards, as values and counts. They are the distribution's own: they must not be changed.
func (d Distribution) Buckets() []Bucket { return d.buckets }

// Answered is the number of requests with a latency.
func (d Distribution) Answered() int64 { return d.answered }

// Lost is the number of requests without an answer.
func (d Distribution) Lost() int64 { return d.lost }

// Count is the number of all requests.
func (d Distribution) Count() int64 { return d.answered + d.lost }

// At returns the nearest-rank percentile over all requests, lost ones last. The value of a bucket is its upper edge, but never above the
// exact maximum.
func (d Distribution) At(p Percentile) Value {
	n := d.Count()
	if !p.Enough(n) {
		return Value{State: TooFew}
	}
	rank := p.Rank(n)
	if rank > d.answered {
		return Value{State: Infinite}
	}
	for _, b := range d.buckets {
		rank -= b.Count
		if rank <= 0 {
			return Value{State: Known, Duration: min(b.Value, d.max)}
		}
	}
	return Value{State: Infinite} // not reached: the buckets hold all answered
}

// Min is the smallest latency; TooFew where nothing was answered.
func (d Distribution) Min() Value { return d.extreme(d.min) }

// Max is the greatest latency; Infinite where a request was lost.
func (d Distribution) Max() Value {
	if d.lost > 0 {
		return Value{State: Infinite}
	}
	return d.extreme(d.max)
}

// Mean is the arithmetic mean; Infinite where a request was lost.
func (d Distribution) Mean() Value {
	if d.lost > 0 {
		return Value{State: Infinite}
	}
	return d.extreme(time.Duration(d.mean + 0.5))
}

func (d Distribution) extreme(v time.Duration) Value {
	if d.answered == 0 {
		return Value{State: TooFew}
	}
	return Value{State: Known, Duration: v}
}

// CountBelow is the number of answers that came before the limit (or at it, where inclusive), to the resolution of the recorder: a bucket
// counts when its upper edge does.
func (d Distribution) CountBelow(limit time.Duration, inclusive bool) int64 {
	var n int64
	for _, b := range d.buckets {
		v := min(b.Value, d.max)
		if v > limit || v == limit && !inclusive {
			break
		}
		n += b.Count
	}
	return n
}
