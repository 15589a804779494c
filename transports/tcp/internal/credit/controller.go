package credit

import (
	"math"
	"slices"
	"time"
)

// DefaultTarget is the queueing delay that the float is steered by. Breakwater (Cho et al., OSDI 2020) recommends some multiple of the round trip; on a machine that
// has to wake its threads, scheduling alone comes to a large part of a millisecond.
const DefaultTarget = time.Millisecond

// The controller's constants. The shape of the decrease is Breakwater's, C x max(1 - b (d - T) / T, 0.5). It uses b = 0.02 every round trip of some 10 us, and grows
// by a thousandth of the number of clients. Here a decision is for a window of completions, which is many such round trips, hence larger steps. That growth has to
// show in the throughput is from Protego (Cho et al., NSDI 2023), which admits more only for a marginal gain.
const (
	windowCompletions = 64                    // completions between decisions
	windowTime        = 10 * time.Millisecond // after which a tick decides with fewer
	enoughSamples     = 8                     // delays that make a quantile, within windowTime
	delayQuantile     = 4                     // the lowest quarter: what most connections have at least, however slow some are
	growth            = 0.05                  // of the float, a window
	shrinkage         = 0.2                   // of the float for each target that the delay is past the target, a window
	leastShare        = 0.5                   // of the float that a window leaves
	baseTime          = 5 * time.Second       // the least round trip is forgotten after one to two of these
	largestRequests   = 1024                  // the dearest request is forgotten after one to two times as many
	keepBusy          = 4                     // dearest requests of late that the float holds at least

	trialWindows = 8    // windows of growth, then as many of watching what it brings: 1.05^8 = 1.48 times the float
	trialGain    = 0.1  // what the throughput has to gain to make growth worth it, as a part of what the float gained
	leastRest    = 16   // windows between a trial that failed and the next, doubled each time
	mostRest     = 256  // and its bound: a few per cent of the time is spent on trials
	rateWeight   = 0.25 // of the latest window in the average rate
)

// controller sizes the float: large enough to keep the server busy, no larger than its queue's delay allows or its throughput rewards. It belongs to the pool's lock.
//
// A window of completions gives a throughput and some delays. The delay of a request is the time from its grant to its completion, less its service, and less the
// least such time of late, which is the round trip: so it has in it the kernel and the run queue, of both ends. Only grants count that somebody waited for, or else
// a client's own pause would be in it. While the delay is below the target and somebody waits for all of a window, trials run: the float grows window by
// window, then stays, and goes back to where it was unless the throughput has followed. The next trial, after a rest, is the other way round: the float shrinks, and
// goes back if the throughput has followed. So chance moves it up no more than down.
type controller struct {
	float    uint32
	minFloat uint32
	minWork  float64 // ns
	target   float64 // ns

	// The window.
	opened      int64
	completions int
	cost        uint64
	busy        bool // somebody waited when it began
	samples     [windowCompletions]int64
	sampled     int

	base     [2]int64 // least time from grant to completion without service, of this period and the one before
	baseFrom int64
	large    [2]uint32 // dearest request, likewise
	requests int

	changed int64   // the float shrank then: grants of before say nothing about it
	delay   int64   // ns, the latest quantile
	lag     int64   // ns, the same with the round trip
	rate    float64 // units/ns while somebody waited, an average

	// The trial.
	reference rates  // at the float that is known to be worth it
	trial     rates  // at the grown float
	windows   int    // of growth, 0 = no trial
	from      uint32 // the float before
	down      bool   // the trial, or the next one, is of less
	rest      int    // windows until the next may begin
	nextRest  int
}

// rates are the throughputs of windows with an unchanged float.
type rates struct {
	n            int
	sum, squares float64
}

func (r *rates) add(rate float64) {
	r.n++
	r.sum += rate
	r.squares += rate * rate
}

func (r *rates) mean() float64 { return r.sum / float64(r.n) }

// variance is the mean's.
func (r *rates) variance() float64 {
	mean := r.mean()
	return max(r.squares/float64(r.n)-mean*mean, 0) / float64(r.n)
}

func (c *controller) init(config Config) {
	c.minFloat, c.minWork, c.target = config.MinFloat, float64(config.MinWork), float64(config.Target)
	c.float = min(config.MinFloat, config.Capacity)
	c.changed, c.base, c.nextRest = never, [2]int64{unknown, unknown}, leastRest
}

// unknown is a time longer than all others.
const unknown = -never

// largest notes what a request costs.
func (c *controller) largest(cost, ceiling uint32) {
	if c.requests++; c.requests == largestRequests {
		c.large, c.requests = [2]uint32{0, c.large[0]}, 0
	}
	if cost > c.large[0] {
		c.large[0] = cost
		c.float = max(c.float, min(keepBusy*cost, ceiling))
	}
}

// sample takes the time from a grant, made at from, to its request's completion, without the service.
func (c *controller) sample(now, from, elapsed int64) {
	if now-c.baseFrom > int64(baseTime) {
		c.base, c.baseFrom = [2]int64{unknown, c.base[0]}, now
	}
	c.base[0] = min(c.base[0], max(elapsed, 0))
	if from >= c.changed && c.sampled < len(c.samples) {
		c.samples[c.sampled] = elapsed
		c.sampled++
	}
}

// completed counts a completion, and decides at the end of a window. waits says whether somebody waits for credit, ceiling what the float may grow to.
func (c *controller) completed(now int64, cost uint32, waits bool, ceiling uint32) {
	if c.completions == 0 && c.cost == 0 {
		c.open(now, waits)
	}
	c.completions++
	c.cost += uint64(cost)
	if c.completions >= windowCompletions {
		c.decide(now, waits, ceiling)
	}
}

// tick decides when a window takes long.
func (c *controller) tick(now int64, waits bool, ceiling uint32) {
	if c.completions > 0 && now-c.opened >= int64(windowTime) {
		c.decide(now, waits, ceiling)
	}
}

func (c *controller) open(now int64, busy bool) {
	c.opened, c.completions, c.cost, c.busy = now, 0, 0, busy
}

// decide ends a window.
func (c *controller) decide(now int64, waits bool, ceiling uint32) {
	elapsed := now - c.opened
	if elapsed <= 0 {
		return // a clock too coarse for this window: it goes on
	}
	rate, busy := float64(c.cost)/float64(elapsed), c.busy && waits
	late := elapsed >= int64(windowTime)
	c.open(now, waits)
	if busy {
		if c.rate == 0 {
			c.rate = rate
		}
		c.rate += rateWeight * (rate - c.rate)
	}
	fresh := c.sampled >= enoughSamples || late && c.sampled > 0
	if fresh {
		c.quantile()
	}
	switch {
	case fresh && float64(c.delay) > c.target:
		c.shrink(now)
	case busy:
		c.try(rate)
	default: // nobody waits, so more would not be used; what a trial has grown was of use
		c.windows, c.reference, c.trial = 0, rates{}, rates{}
	}
	// The bounds come last. The lower one gives way to the upper.
	least := max(c.minFloat, keepBusy*max(c.large[0], c.large[1]), uint32(min(c.rate*c.minWork, float64(ceiling))))
	c.float = min(max(c.float, least), ceiling)
}

// quantile turns the samples into the delay.
func (c *controller) quantile() {
	samples := c.samples[:c.sampled]
	slices.Sort(samples)
	c.lag = max(samples[len(samples)/delayQuantile], 0)
	c.delay = max(c.lag-min(c.base[0], c.base[1]), 0)
	c.sampled = 0
}

// shrink answers a delay past the target. What a trial has grown goes first.
func (c *controller) shrink(now int64) {
	if c.windows > 0 && !c.down {
		c.float, c.down, c.rest = c.from, true, leastRest
	} else {
		past := (float64(c.delay) - c.target) / c.target
		c.float = uint32(float64(c.float) * max(1-shrinkage*past, leastShare))
	}
	c.changed = now
	c.windows, c.reference, c.trial = 0, rates{}, rates{}
}

// try takes a window further in which somebody waited and the delay was below the target.
func (c *controller) try(rate float64) {
	switch {
	case c.rest > 0:
		c.rest--
	case c.windows == 0 && c.reference.n < trialWindows:
		c.reference.add(rate)
	case c.windows == 0:
		c.from = c.float
		fallthrough
	case c.windows < trialWindows:
		c.windows++
		if step := max(uint32(growth*float64(c.float)), 1); c.down {
			c.float -= step
		} else {
			c.float += step
		}
	default:
		if c.trial.add(rate); c.trial.n == trialWindows {
			c.judge()
		}
	}
}

// judge ends a trial. Growth is kept where the throughput gained enough by it, the lack of growth where it lost too little, each time beyond what chance explains.
func (c *controller) judge() {
	less, more, small, large := c.reference, c.trial, c.from, c.float
	if c.down {
		less, more, small, large = more, less, large, small
	}
	gain := more.mean() - less.mean()
	enough := trialGain * (float64(large)/float64(small) - 1) * less.mean()
	noise := math.Sqrt(less.variance() + more.variance())
	if !c.down && gain > max(enough, noise) || c.down && gain < enough && gain < noise {
		c.reference, c.nextRest = c.trial, leastRest
	} else {
		c.float, c.reference = c.from, rates{}
		c.down, c.rest = !c.down, c.nextRest
		c.nextRest = min(2*c.nextRest, mostRest)
	}
	c.windows, c.trial = 0, rates{}
}
