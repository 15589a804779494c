package matching_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"tailgate/matching"
)

// BenchmarkPriceStructures drives the candidates of gateway/adr/0002-price-levels.md
// with what whole flows do to the price levels: a level is placed by an order that
// rests, removed with its last order, and the next best is asked for when it was the
// best. "depth" reads the ten best levels of both sides after every tenth message
// besides. Allocations come with construction and, for the heap, with its table.
//
// Each pass does the same work on fresh structures, so the fastest of the passes is
// kept of every stretch of 1,000 operations, and of every single one, for the same
// reason as in BenchmarkFlow. The percentiles are over single operations and contain
// one reading of the clock each, whose own cost is reported as clock-ns.
func BenchmarkPriceStructures(b *testing.B) {
	forEachFlow(b, func(b *testing.B, options matching.Options, commands []matching.Command) {
		for _, depth := range []int{0, 10} {
			ops, levels := recordLevelOps(b, options, commands, depth)
			name := "updates"
			if depth > 0 {
				name = "depth"
			}
			for _, candidate := range matching.PriceStructures {
				b.Run(fmt.Sprintf("%s/%s", name, candidate.Name), func(b *testing.B) {
					benchmarkLevelOps(b, candidate.New, ops)
					b.ReportMetric(float64(levels), "most-levels")
				})
			}
		}
	})
}

func benchmarkLevelOps(b *testing.B, newStructure func(int) matching.PriceStructure, ops []levelOp) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	sides := newSides(newStructure)
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(sides)
	memory := float64(after.HeapAlloc-before.HeapAlloc) / float64(len(sides)) / 1024

	const stretch = 1000
	stretches := slices.Repeat([]time.Duration{math.MaxInt64}, (len(ops)+stretch-1)/stretch)
	single := slices.Repeat([]time.Duration{math.MaxInt64}, len(ops))
	clock := time.Duration(math.MaxInt64)
	start := time.Now()
	for b.Loop() {
		b.StopTimer()
		sides := newSides(newStructure)
		runtime.GC()
		b.StartTimer()
		for i := range stretches {
			from := time.Since(start)
			for _, op := range ops[i*stretch : min((i+1)*stretch, len(ops))] {
				op.do(sides)
			}
			stretches[i] = min(stretches[i], time.Since(start)-from)
		}
		b.StopTimer()
		sides = newSides(newStructure)
		runtime.GC()
		last := time.Since(start)
		for i, op := range ops {
			op.do(sides)
			now := time.Since(start)
			single[i] = min(single[i], now-last)
			last = now
		}
		for range 1000 {
			now := time.Since(start)
			clock = min(clock, now-last)
			last = now
		}
		b.StartTimer()
	}
	total := time.Duration(0)
	for _, t := range stretches {
		total += t
	}
	var each durations
	for _, t := range single {
		each.add(t)
	}
	b.ReportMetric(float64(total)/float64(len(ops)), "undisturbed-ns/operation")
	b.ReportMetric(each.percentile(99.9), "p99.9-ns")
	b.ReportMetric(float64(slices.Max(single)), "slowest-ns")
	b.ReportMetric(float64(clock), "clock-ns")
	b.ReportMetric(memory, "KiB/side")
	b.ReportMetric(0, "ns/op") // a whole flow
}

func newSides(newStructure func(int) matching.PriceStructure) (sides [2]matching.PriceStructure) {
	for i := range sides {
		sides[i] = newStructure(matching.DefaultMaxLevels)
	}
	return sides
}

// levelOp is one thing a flow does to the levels of one side.
type levelOp struct {
	key   uint64
	side  uint8
	kind  levelOpKind
	count uint16 // of levels, for levelWalk
}

type levelOpKind uint8

const (
	levelPlace levelOpKind = iota
	levelRemove
	levelRemoveBest // and find the next
	levelWalk       // from the best on
)

func (op *levelOp) do(sides [2]matching.PriceStructure) {
	s := sides[op.side]
	switch op.kind {
	case levelPlace:
		s.Place(op.key)
	case levelRemove:
		s.Remove(op.key)
	case levelRemoveBest:
		s.Remove(op.key)
		s.First()
	case levelWalk:
		level := s.First()
		for range op.count - 1 {
			if level == 0 {
				return
			}
			level = s.After(s.KeyOf(level))
		}
	}
}

// recordLevelOps applies the commands and writes down what they do to the levels,
// and how many of one side there were at most. With a depth above 0 it adds a walk
// over that many levels of each side after every tenth command.
func recordLevelOps(tb testing.TB, options matching.Options, commands []matching.Command, depth int) (ops []levelOp, most int) {
	engine, err := matching.NewEngine(options)
	if err == nil {
		err = engine.AddInstrument(commands[0].Instrument)
	}
	if err != nil {
		tb.Fatal(err)
	}
	type place struct {
		side matching.Side
		key  uint64
	}
	at, orders := map[uint64]place{}, map[place]int{} // of an order; at a level
	var keys [2][]uint64                              // sorted
	leave := func(id uint64) {
		p := at[id]
		delete(at, id)
		if orders[p]--; orders[p] > 0 {
			return
		}
		sorted := &keys[p.side-1]
		i, _ := slices.BinarySearch(*sorted, p.key)
		*sorted = slices.Delete(*sorted, i, i+1)
		kind := levelRemove
		if i == 0 {
			kind = levelRemoveBest
		}
		ops = append(ops, levelOp{key: p.key, side: uint8(p.side - 1), kind: kind})
	}
	var events []matching.Event
	for i := range commands {
		cmd := &commands[i]
		events = engine.Apply(cmd, events[:0])
		for _, ev := range events {
			switch {
			case ev.Kind == matching.Trade && ev.MakerLeaves == 0:
				leave(ev.MakerID)
			case ev.Kind == matching.Canceled && cmd.Kind == matching.Cancel, ev.Kind == matching.Replaced && ev.LostPriority:
				leave(ev.OrderID)
			}
		}
		_, known := at[cmd.OrderID]
		if o, rests := engine.Order(cmd.OrderID); rests && !known {
			p := place{o.Side, matching.PriceKey(o.Side, o.Price)}
			at[o.ID] = p
			ops = append(ops, levelOp{key: p.key, side: uint8(p.side - 1), kind: levelPlace})
			if orders[p]++; orders[p] == 1 {
				sorted := &keys[p.side-1]
				i, _ := slices.BinarySearch(*sorted, p.key)
				*sorted = slices.Insert(*sorted, i, p.key)
				most = max(most, len(*sorted))
			}
		}
		if depth > 0 && i%10 == 9 {
			for side := range uint8(2) {
				ops = append(ops, levelOp{side: side, kind: levelWalk, count: uint16(depth)})
			}
		}
	}
	return ops, most
}

// The candidates must come to the same under a flow, or their figures mean nothing.
func TestPriceStructuresAgree(t *testing.T) {
	for _, spread := range []int64{40, 40_000} {
		ops, _ := recordLevelOps(t, matching.Options{}, syntheticFlow(t, spread)[:40_000], 0)
		var want [2][]uint64
		for i, candidate := range matching.PriceStructures {
			sides := newSides(candidate.New)
			for _, op := range ops {
				op.do(sides)
			}
			var got [2][]uint64
			for side, s := range sides {
				for level := s.First(); level != 0; level = s.After(s.KeyOf(level)) {
					got[side] = append(got[side], s.KeyOf(level))
				}
			}
			if i == 0 {
				want = got
			}
			if len(got[0]) == 0 || !slices.Equal(got[0], want[0]) || !slices.Equal(got[1], want[1]) {
				t.Errorf("spread %d: %s ends with %d and %d levels, %s with %d and %d, or with others", spread,
					candidate.Name, len(got[0]), len(got[1]), matching.PriceStructures[0].Name, len(want[0]), len(want[1]))
			}
		}
	}
}
