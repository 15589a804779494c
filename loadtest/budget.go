package main

import (
	"context"
	"fmt"
	"time"
)

// budget keeps a run within --budget. What it cannot know beforehand, how long gateways take to start and to stop and how much longer a warm-up goes on, it learns from
// the cells that have been; later ones become shorter for it, down to shortestCell, and for what no time is left then is not begun. A cell that is under way when
// the budget ends is cut short. So a run ends within its budget and what the last cell needs to stop.
//
// Its nil has no end.
type budget struct {
	total    time.Duration
	end      time.Time
	warmup   time.Duration
	longest  time.Duration // of a cell, as planned
	left     int           // cells that have not begun
	overhead time.Duration // of a cell, beside warm-up and measured time: the mean of those that have been
	taken    int           // how many have been
}

// newBudget begins a run's budget; nil where none was given.
func (p *plan) newBudget(now time.Time, cells int) *budget {
	if p.options.Budget == 0 {
		return nil
	}
	return &budget{
		total: p.options.Budget, end: now.Add(p.options.Budget), warmup: p.options.Warmup, longest: p.duration, left: cells, overhead: cellOverhead,
	}
}

// next is how long the next cell may measure. The error says that there is no time left for it.
func (b *budget) next(now time.Time) (time.Duration, error) {
	left := b.left
	b.left--
	rest := b.end.Sub(now)
	share := min(rest/time.Duration(left)-b.overhead-b.warmup, b.longest).Round(10 * time.Millisecond)
	if share >= shortestCell {
		return share, nil
	}
	if rest < shortestCell+b.warmup+b.overhead {
		return 0, b.usedUp()
	}
	return shortestCell, nil
}

// took tells how long a cell has taken in all that was to measure for a time.
func (b *budget) took(all, measured time.Duration) {
	sum := b.overhead * time.Duration(b.taken) // before the first, what was thought counts for nothing
	b.taken++
	b.overhead = (sum + max(all-measured-b.warmup, 0)) / time.Duration(b.taken)
}

// usedUpError says that a cell was not measured for want of time.
type usedUpError struct{ total time.Duration }

func (e usedUpError) Error() string {
	return fmt.Sprintf("the --budget of %v was used up", e.total)
}

func (b *budget) usedUp() error { return usedUpError{b.total} }

// within is the context of a cell: it ends with the budget.
func (b *budget) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if b == nil {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, b.end, b.usedUp())
}

// remaining is the time left, about as the clock shows it.
func (b *budget) remaining(now time.Time) time.Duration { return max(b.end.Sub(now), 0) }
