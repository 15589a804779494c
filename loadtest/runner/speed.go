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
	Lag        stats.Distribution // the same, of those that were answered; open loop
	Throughput float64            // those that were answered, a second of that time
}

// SetSpeed reads what was seen of the cores during the cell. Requests count as of full speed when none of the cores was slow from one p99 before they were due to one p99
// after: the first for what stood before them in a queue, the second for the time that they took themselves. The p99 is that of all answers, so it errs on the side of
// leaving out. What is left out is told by the cores alone, never by a response time.
func (o *Outcome) SetSpeed(t speed.Trace) {
	if o.Seconds <= 0 || o.Series.Width <= 0 {
		return
	}
	interval := time.Duration(o.Seconds * float64(time.Second))
	begin := speed.Now() - int64(time.Since(o.Began))
	_, sum, ok := t.Slow(begin, interval, 1)
	if !ok {
		return
	}
	o.Speed = &Speed{Slowness: sum}
	// What was lost has no time of its own: it is judged by that of the others.
	reach := o.Admitted.At(stats.P99)
	if reach.State != stats.Known {
		reach = o.Admitted.Max()
	}
	if reach.State != stats.Known {
		return // nobody was answered
	}
	// keep is which blocks of a series are at full speed, and how long they are.
	keep := func(s stats.Series) (blocks []bool, kept time.Duration) {
		n := max(int((interval+s.Width-1)/s.Width), len(s.Blocks))
		slow, _, _ := t.Slow(begin, s.Width, n)
		blocks = speed.Around(slow, int((reach.Duration+s.Width-1)/s.Width))
		for i, slow := range blocks {
			if blocks[i] = !slow; !slow {
				kept += max(min(s.Width, interval-time.Duration(i)*s.Width), 0)
			}
		}
		return blocks, kept
	}
	blocks, kept := keep(o.Series)
	if kept.Seconds() < leastKept*o.Seconds {
		return
	}
	o.Speed.Kept = kept.Seconds() / o.Seconds
	o.Speed.Response = o.Series.Only(blocks)
	o.Speed.Throughput = float64(o.Speed.Response.Answered()) / kept.Seconds()
	if o.Lags.Width > 0 {
		blocks, _ := keep(o.Lags)
		o.Speed.Lag = o.Lags.Only(blocks)
	}
}
