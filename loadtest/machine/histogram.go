package machine

import (
	"math"
	"runtime/metrics"
	"time"
)

// Histogram counts times by ranges, in ascending order; a range without a time is left out.
type Histogram []Bucket

// Bucket is the times of one range.
type Bucket struct {
	From  time.Duration `json:"from_ns"`
	Until time.Duration `json:"until_ns"` // the range ends before it; Endless = it does not end
	Count uint64        `json:"count"`
}

// Endless is the end of a range without one.
const Endless time.Duration = math.MaxInt64

func newHistogram(h *metrics.Float64Histogram) Histogram {
	var list Histogram
	for i, n := range h.Counts {
		if n > 0 {
			list = append(list, Bucket{seconds(h.Buckets[i]), seconds(h.Buckets[i+1]), n})
		}
	}
	return list
}

// seconds is a time of the runtime's, at least 0 and at most Endless.
func seconds(s float64) time.Duration {
	ns := s * float64(time.Second)
	switch {
	case !(ns > 0):
		return 0
	case ns >= float64(Endless):
		return Endless
	default:
		return time.Duration(math.Round(ns))
	}
}

// Since returns what was counted between an earlier reading of the same process and this one.
func (h Histogram) Since(earlier Histogram) Histogram {
	then := make(map[time.Duration]uint64, len(earlier))
	for _, b := range earlier {
		then[b.From] = b.Count
	}
	var list Histogram
	for _, b := range h {
		if b.Count -= min(b.Count, then[b.From]); b.Count > 0 {
			list = append(list, b)
		}
	}
	return list
}

// Count is how many times there are.
func (h Histogram) Count() (n uint64) {
	for _, b := range h {
		n += b.Count
	}
	return n
}

// AtMost is a time that at least the share q of the times do not pass: the end of the range in which the nearest rank lies, so the percentile itself
// is within that range (the runtime's are a seventh to a quarter wide). It is false where there are no times.
func (h Histogram) AtMost(q float64) (time.Duration, bool) {
	rank := max(uint64(math.Ceil(q*float64(h.Count()))), 1)
	var n uint64
	for _, b := range h {
		if n += b.Count; n >= rank {
			if b.Until == Endless {
				return b.From, true
			}
			return b.Until, true
		}
	}
	return 0, false
}
