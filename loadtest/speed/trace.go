package speed

import (
	"slices"
	"time"
)

const (
	// Every is how often a core is looked at. Slow times of virtual machines last tens of milliseconds, so few are missed.
	Every = 10 * time.Millisecond
	// MaxSamples bounds what is kept of a core: 5 minutes. When it is full, two samples become one, the slower, and further ones are as far apart as those.
	MaxSamples = 1 << 15
	// SlowFactor is from which multiple of its full speed's time on a core counts as slow. Hardware threads that share a physical core are slower by less.
	SlowFactor = 1.5
	// fullShare of a core's samples are at its full speed or faster.
	fullShare = 0.1
)

// Sample is a look at a core.
type Sample struct {
	At   int64 `json:"at"`   // when it ended, in nanoseconds of CLOCK_MONOTONIC
	Took int64 `json:"took"` // in nanoseconds, the shorter of two tries
}

// Core is what was seen of one core.
type Core struct {
	ID      int      `json:"id"`
	Full    int64    `json:"full"` // nanoseconds that the arithmetic takes at full speed: a tenth of the first MaxSamples/2 looks since the start took no longer
	Samples []Sample `json:"samples"`
}

// Trace is the cores' speed over a time.
type Trace struct {
	Cores []Core `json:"cores"`
}

// Slowness sums up an interval.
type Slowness struct {
	Share float64 // of the samples that were slow, on the core with the most
	Worst float64 // the slowest sample's multiple of full speed
}

// Slow looks at the time from begin on, in n blocks of a width, and says in which of them a core was slow. A block without a sample is as the one before it. Not
// ok where the trace has no sample in that time.
func (t Trace) Slow(begin int64, width time.Duration, n int) (blocks []bool, sum Slowness, ok bool) {
	blocks = make([]bool, n)
	end := begin + int64(width)*int64(n)
	for _, core := range t.Cores {
		slow, all := 0, 0
		limit := SlowFactor * float64(core.Full)
		slowFrom := n // the block of the last sample, where that was slow
		for _, s := range core.Samples {
			if s.At < begin || s.At >= end {
				continue
			}
			at := int((s.At - begin) / int64(width))
			mark(blocks, slowFrom, at)
			all++
			sum.Worst = max(sum.Worst, float64(s.Took)/float64(max(core.Full, 1)))
			if slowFrom = n; float64(s.Took) > limit {
				slow++
				slowFrom, blocks[at] = at, true
			}
		}
		mark(blocks, slowFrom, n)
		if all > 0 {
			ok = true
			sum.Share = max(sum.Share, float64(slow)/float64(all))
		}
	}
	return blocks, sum, ok
}

// mark makes the blocks from one to before another slow.
func mark(blocks []bool, from, to int) {
	for i := from; i < to; i++ {
		blocks[i] = true
	}
}

// Around makes the margin blocks before and after every slow one slow too.
func Around(blocks []bool, margin int) []bool {
	out := slices.Clone(blocks)
	for i, slow := range blocks {
		if !slow {
			continue
		}
		for k := max(0, i-margin); k <= min(len(out)-1, i+margin); k++ {
			out[k] = true
		}
	}
	return out
}
