// Package telemetry reads what a gateway's process has used, for whoever watches it.
//
// It counts for the rooms and drives none of them. The load tester has a reader of its own: the two know each other by the wire alone.
package telemetry

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"

	pb "tailgate/proto/gen/orderentry/v1"
)

// ReadProcess reads this process's counters. It does not stop the program. What the system does not tell is left out.
func ReadProcess() *pb.ProcessCounters {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"},
		{Name: "/sync/mutex/wait/total:seconds"}, {Name: "/sched/latencies:seconds"},
	}
	metrics.Read(samples)
	var gc debug.GCStats
	debug.ReadGCStats(&gc)
	c := &pb.ProcessCounters{
		AllocatedBytes:   samples[0].Value.Uint64(),
		AllocatedObjects: samples[1].Value.Uint64() + samples[2].Value.Uint64(), // tiny ones share blocks and are counted apart
		MutexWaitNs:      nanoseconds(samples[3].Value.Float64()),
		GcCycles:         uint64(gc.NumGC),
		GcPauseNs:        uint64(gc.PauseTotal),
	}
	h := samples[4].Value.Float64Histogram()
	for i, n := range h.Counts {
		if n > 0 {
			c.SchedulerLatency = append(c.SchedulerLatency, &pb.LatencyBucket{FromNs: nanoseconds(h.Buckets[i]), UntilNs: nanoseconds(h.Buckets[i+1]), Count: n})
		}
	}
	readUsage(c)
	return c
}

// nanoseconds is a time of the runtime's, at least 0 and at most 2^63-1.
func nanoseconds(seconds float64) uint64 {
	ns := seconds * float64(time.Second)
	switch {
	case !(ns > 0):
		return 0
	case ns >= math.MaxInt64:
		return math.MaxInt64
	default:
		return uint64(math.Round(ns))
	}
}
