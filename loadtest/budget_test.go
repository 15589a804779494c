package main

import (
	"errors"
	"testing"
	"time"
)

// TestBudgetShares: every cell gets an equal share of what is left, but no more than was planned; starts that take longer than was thought make later cells shorter; what
// no time is left for is refused. Whatever cells take, none is begun that does not fit.
func TestBudgetShares(t *testing.T) {
	start := time.Now()
	const warmup = 100 * time.Millisecond
	for _, c := range []struct {
		name  string
		total time.Duration
		cells int
		over  time.Duration // that each cell takes beside warm-up and measured time
		want  []time.Duration
	}{
		{"as planned", 10 * time.Second, 4, cellOverhead, []time.Duration{2050 * time.Millisecond, 2050 * time.Millisecond, 2050 * time.Millisecond, 2050 * time.Millisecond}},
		{"slow starts", 10 * time.Second, 4, 1350 * time.Millisecond, []time.Duration{2050 * time.Millisecond, 720 * time.Millisecond, 720 * time.Millisecond, 720 * time.Millisecond}},
		{"no time left", 6 * time.Second, 4, 3 * time.Second, []time.Duration{1050 * time.Millisecond, 0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &plan{options: &options{Budget: c.total, Warmup: warmup}, cells: make([]cell, c.cells)}
			if err := p.timing(); err != nil {
				t.Fatal(err)
			}
			b, now := p.newBudget(start, c.cells), start
			var got []time.Duration
			for range c.cells {
				d, err := b.next(now)
				if out, _ := errors.AsType[usedUpError](err); err != nil && out.total != c.total {
					t.Fatal(err)
				}
				if got = append(got, d); err != nil {
					continue
				}
				if now.Add(d + warmup).After(start.Add(c.total)) {
					t.Errorf("a cell of %v begins at %v of %v", d, now.Sub(start), c.total)
				}
				b.took(d+warmup+c.over, d)
				now = now.Add(d + warmup + c.over)
			}
			for i := range got {
				if diff := got[i] - c.want[i]; diff < -20*time.Millisecond || diff > 20*time.Millisecond {
					t.Errorf("cells of %v, want %v", got, c.want)
					break
				}
			}
		})
	}
	if (&plan{options: &options{}}).newBudget(start, 3) != nil {
		t.Error("a budget that was not given")
	}
}
