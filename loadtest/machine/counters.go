package machine

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"tailgate/loadtest/hardware"
)

// Counters are what a process has used since it started; two readings are subtracted. Times are nanoseconds in JSON.
type Counters struct {
	At                  time.Duration `json:"at_ns"` // on the process's own monotonic clock
	UserCPU             time.Duration `json:"user_cpu_ns"`
	SystemCPU           time.Duration `json:"system_cpu_ns"`
	VoluntarySwitches   int64         `json:"voluntary_switches"`   // gave the core up: waited for a socket, a lock
	InvoluntarySwitches int64         `json:"involuntary_switches"` // the core was taken away
	MinorFaults         int64         `json:"minor_faults"`         // pages mapped without reading a disk
	MajorFaults         int64         `json:"major_faults"`
	PeakRSS             int64         `json:"peak_rss_bytes"`  // resident memory, greatest since the start or since ResetPeak
	AllocatedBytes      uint64        `json:"allocated_bytes"` // on the Go heap
	AllocatedObjects    uint64        `json:"allocated_objects"`
	GCCycles            int64         `json:"gc_cycles"`
	GCPause             time.Duration `json:"gc_pause_ns"`       // sum of the times when the collector stopped the program
	MutexWait           time.Duration `json:"mutex_wait_ns"`     // sum of the times that goroutines waited for a mutex, the runtime's own included
	SchedulerLatency    Histogram     `json:"scheduler_latency"` // from ready to run to running, of the goroutines that the runtime samples (one switch in eight)

	Hardware hardware.Reading `json:"hardware"`
}

// Since returns what was used between an earlier reading and this one. PeakRSS is this one's.
func (c Counters) Since(earlier Counters) Counters {
	c.At -= earlier.At
	c.UserCPU -= earlier.UserCPU
	c.SystemCPU -= earlier.SystemCPU
	c.VoluntarySwitches -= earlier.VoluntarySwitches
	c.InvoluntarySwitches -= earlier.InvoluntarySwitches
	c.MinorFaults -= earlier.MinorFaults
	c.MajorFaults -= earlier.MajorFaults
	c.AllocatedBytes -= earlier.AllocatedBytes
	c.AllocatedObjects -= earlier.AllocatedObjects
	c.GCCycles -= earlier.GCCycles
	c.GCPause -= earlier.GCPause
	c.MutexWait -= earlier.MutexWait
	c.SchedulerLatency = c.SchedulerLatency.Since(earlier.SchedulerLatency)
	c.Hardware = c.Hardware.Since(earlier.Hardware)
	return c
}

var processStart = time.Now()

// hardwareCounter counts from the first reading on, for as long as the process lives.
var hardwareCounter = sync.OnceValue(hardware.Count)

// ReadCounters reads this process's own, one call at a time. Hardware counters begin at zero with the first call. It does not stop the program (runtime/metrics, not ReadMemStats).
func ReadCounters() (Counters, error) {
	c := Counters{At: time.Since(processStart)}
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"},
		{Name: "/sync/mutex/wait/total:seconds"}, {Name: "/sched/latencies:seconds"},
	}
	metrics.Read(samples)
	c.AllocatedBytes = samples[0].Value.Uint64()
	c.AllocatedObjects = samples[1].Value.Uint64() + samples[2].Value.Uint64() // tiny ones share blocks and are counted apart
	c.MutexWait = seconds(samples[3].Value.Float64())
	c.SchedulerLatency = newHistogram(samples[4].Value.Float64Histogram())
	c.Hardware = hardwareCounter().Read()
	var gc debug.GCStats
	debug.ReadGCStats(&gc)
	c.GCCycles, c.GCPause = gc.NumGC, gc.PauseTotal
	return c, c.readUsage()
}

// CoreTimes is what cores did since the machine started, summed over them, in units of 10 ms.
type CoreTimes struct {
	Busy  time.Duration // running any process or serving interrupts
	Idle  time.Duration
	Steal time.Duration // taken by the hypervisor for other guests
}

// Since returns what was done between an earlier reading and this one.
func (t CoreTimes) Since(earlier CoreTimes) CoreTimes {
	return CoreTimes{Busy: t.Busy - earlier.Busy, Idle: t.Idle - earlier.Idle, Steal: t.Steal - earlier.Steal}
}

// Total is all time of the cores.
func (t CoreTimes) Total() time.Duration { return t.Busy + t.Idle + t.Steal }
