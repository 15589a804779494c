package runner

import (
	"time"

	"tailgate/loadtest/speed"
	"tailgate/loadtest/stats"
)

// leastKept is the share of the interval below which its rest at full speed is too little to stand for it.
const leastKept = 0.1

// Speed is how fast the cores ran during the measured interval, and what was measured while none of them was slow.
type Speed struct {
	speed.Slowness

	Kept       float64            // share of the interval at full speed; 0 where what is left is below a tenth of it, or the cell has no series
	Response   stats.Distribution // of the requests that were due then, to the 0.4 % of the series
	Throughput float64            // those that were answered, a second of that time
}

// SetSpeed reads what was seen of the cores during the cell. Requests count as of full speed when none of the cores was slow from one p99 before they were due to one p99
// after: the first for what stood before them in a queue, the second for the time that they took themselves. The p99 is that of all, so it errs on the side of
// leaving out. What is left out is told by the cores alone, never by a response time.
func (o *Outcome) SetSpeed(t speed.Trace) {
	if o.Seconds <= 0 || o.Series.Width <= 0 {
		return
	}
	interval := time.Duration(o.Seconds * float64(time.Second))
	width := o.Series.Width
	n := max(int((interval+width-1)/width), len(o.Series.Blocks))
	begin := speed.Now() - int64(time.Since(o.Began))
	slow, sum, ok := t.Slow(begin, width, n)
	if !ok {
		return
	}
	o.Speed = &Speed{Slowness: sum}
	reach := o.Response.At(stats.P99)
	if reach.State != stats.Known {
		reach = o.Response.Max()
	}
	if reach.State != stats.Known {
		return // what takes for ever has met every slow time
	}
	keep := make([]bool, n)
	var kept time.Duration
	for i, slow := range speed.Around(slow, int((reach.Duration+width-1)/width)) {
		keep[i] = !slow
		if keep[i] {
			kept += max(min(width, interval-time.Duration(i)*width), 0)
		}
	}
	if kept.Seconds() < leastKept*o.Seconds {
		return
	}
	o.Speed.Kept = kept.Seconds() / o.Seconds
	o.Speed.Response = o.Series.Only(keep)
	o.Speed.Throughput = float64(o.Speed.Response.Answered()) / kept.Seconds()
}
