package matching_test

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"tailgate/matching"
)

// BenchmarkFlow applies whole flows to a fresh engine: a synthetic one always,
// and those in the folder that MATCHING_FLOW_DIR names. It reports ns/message and
// messages/s over all passes, and allocations a flow, which must be 0.
//
// undisturbed-ns/message is for machines whose cores are shared: every pass does
// the same work, so of each stretch of 1,000 messages the fastest pass is kept and
// these are added up. It leaves out what other processes took, and with them the
// engine's own rare delays; BenchmarkMessage shows those.
func BenchmarkFlow(b *testing.B) {
	forEachFlow(b, func(b *testing.B, options matching.Options, commands []matching.Command) {
		b.ReportAllocs()
		events := make([]matching.Event, 0, 4096)
		const stretch = 1000
		fastest := slices.Repeat([]time.Duration{math.MaxInt64}, (len(commands)+stretch-1)/stretch)
		start := time.Now()
		for b.Loop() {
			b.StopTimer()
			engine := benchmarkEngine(b, options)
			b.StartTimer()
			last := time.Since(start)
			for i := range fastest {
				part := commands[i*stretch : min((i+1)*stretch, len(commands))]
				for j := range part {
					events = engine.Apply(&part[j], events[:0])
				}
				now := time.Since(start)
				fastest[i] = min(fastest[i], now-last)
				last = now
			}
		}
		messages := float64(b.N) * float64(len(commands))
		b.ReportMetric(b.Elapsed().Seconds()*1e9/messages, "ns/message")
		undisturbed := time.Duration(0)
		for _, t := range fastest {
			undisturbed += t
		}
		b.ReportMetric(float64(undisturbed)/float64(len(commands)), "undisturbed-ns/message")
		b.ReportMetric(messages/b.Elapsed().Seconds(), "messages/s")
	})
}

// BenchmarkMessage stamps every message. The percentiles contain one reading of
// the clock each, whose own median cost is reported beside them as clock-ns.
func BenchmarkMessage(b *testing.B) {
	forEachFlow(b, func(b *testing.B, options matching.Options, commands []matching.Command) {
		start := time.Now()
		var clock durations
		for last, i := time.Since(start), 0; i < 1_000_000; i++ {
			now := time.Since(start)
			clock.add(now - last)
			last = now
		}
		var message durations
		events := make([]matching.Event, 0, 4096)
		for b.Loop() {
			b.StopTimer()
			engine := benchmarkEngine(b, options)
			b.StartTimer()
			last := time.Since(start)
			for i := range commands {
				events = engine.Apply(&commands[i], events[:0])
				now := time.Since(start)
				message.add(now - last)
				last = now
			}
		}
		b.ReportMetric(clock.percentile(50), "clock-ns")
		b.ReportMetric(clock.percentile(99.9), "clock-p99.9-ns")
		b.ReportMetric(message.percentile(50), "p50-ns")
		b.ReportMetric(message.percentile(99.9), "p99.9-ns")
		b.ReportMetric(message.percentile(99.99), "p99.99-ns")
		b.ReportMetric(0, "ns/op") // a whole flow with stamps; BenchmarkFlow has it without
	})
}

// durations counts whole nanoseconds; what is longer than the last bucket counts
// as that long.
type durations struct {
	buckets [1 << 17]uint64
	count   uint64
}

func (d *durations) add(t time.Duration) {
	d.buckets[min(max(t, 0), time.Duration(len(d.buckets)-1))]++
	d.count++
}

// percentile is the smallest duration that at least p % of all do not exceed.
func (d *durations) percentile(p float64) float64 {
	rank := p / 100 * float64(d.count)
	seen := uint64(0)
	for ns, n := range d.buckets {
		if seen += n; float64(seen) >= rank {
			return float64(ns)
		}
	}
	return float64(len(d.buckets))
}

// benchmarkEngine comes with the garbage of its predecessor collected, so that
// no collection runs while the clock does.
func benchmarkEngine(b *testing.B, options matching.Options) *matching.Engine {
	engine, err := matching.NewEngine(options)
	if err == nil {
		err = engine.AddInstrument(0)
	}
	if err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	return engine
}

func forEachFlow(b *testing.B, run func(*testing.B, matching.Options, []matching.Command)) {
	b.Run("synthetic", func(b *testing.B) { run(b, matching.Options{}, syntheticFlow(b, 40)) })
	b.Run("sparse", func(b *testing.B) { run(b, matching.Options{}, syntheticFlow(b, 40_000)) })
	dir := os.Getenv(flowDirVariable)
	if dir == "" {
		return
	}
	names, err := flowNames(dir)
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range names {
		commands, err := readFlow(filepath.Join(dir, name+flowOrders))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) { run(b, matching.Options{ModifyIsCancelNew: true}, commands) })
	}
}

// syntheticFlow makes 200,000 messages with sequential ids: half of them new
// orders near a wandering middle, two fifths cancels and one tenth replaces of
// orders that rest then, once 5,000 have been entered that may still rest. The
// orders lie spread ticks from the middle on average: with 40 about 3,000 rest on
// some 450 levels, with 40,000 about 700, each on a level of its own.
func syntheticFlow(tb testing.TB, spread int64) []matching.Command {
	const messages, depth = 200_000, 5_000
	engine, err := matching.NewEngine(matching.Options{})
	if err == nil {
		err = engine.AddInstrument(0)
	}
	if err != nil {
		tb.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	var resting []uint64 // may hold ids that were filled since
	var commands []matching.Command
	var events []matching.Event
	middle := 250 * spread
	for nextID := uint64(1); len(commands) < messages; {
		middle += rng.Int64N(spread*3/40) - spread/40
		offset := int64(rng.ExpFloat64() * float64(spread))
		cmd := matching.Command{
			Kind: matching.Submit, Side: matching.Buy, Type: matching.Limit, TimeInForce: matching.GoodTillCancel,
			Sequence: uint64(len(commands)), OrderID: nextID, Price: middle - offset, Quantity: 1 + rng.Uint64N(100),
		}
		if rng.IntN(2) == 0 {
			cmd.Side, cmd.Price = matching.Sell, middle+offset
		}
		draw := rng.IntN(10)
		if full := len(resting) >= depth; draw >= 5 && full {
			at := rng.IntN(len(resting))
			o, rests := engine.Order(resting[at])
			if !rests || draw < 9 {
				resting = slices.Delete(resting, at, at+1)
			}
			if !rests {
				continue
			}
			cmd.Kind, cmd.OrderID = matching.Cancel, o.ID
			if draw == 9 {
				cmd.Kind, cmd.Price, cmd.Quantity = matching.Replace, o.Price, o.Filled()+1+rng.Uint64N(100)
			}
		} else {
			nextID++
			if draw == 0 {
				cmd.TimeInForce = matching.ImmediateOrCancel
			} else {
				resting = append(resting, cmd.OrderID)
			}
		}
		events = engine.Apply(&cmd, events[:0])
		commands = append(commands, cmd)
	}
	return commands
}

// The claim of the package comment: once events has room, nothing allocates.
func TestApplyDoesNotAllocate(t *testing.T) {
	commands := syntheticFlow(t, 40)
	engine, err := matching.NewEngine(matching.Options{})
	if err == nil {
		err = engine.AddInstrument(0)
	}
	if err != nil {
		t.Fatal(err)
	}
	events := make([]matching.Event, 0, 4096)
	const batch = 1000
	next := 0
	if allocations := testing.AllocsPerRun(len(commands)/batch-1, func() {
		for _, cmd := range commands[next : next+batch] {
			events = engine.Apply(&cmd, events[:0])
		}
		next += batch
	}); allocations != 0 {
		t.Errorf("%v allocations in %d messages", allocations, batch)
	}
	if cap(events) != 4096 {
		t.Errorf("a sweep outgrew the events slice: capacity %d", cap(events))
	}
}
