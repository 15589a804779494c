package report

import (
	"tailgate/loadtest/hardware"
	"tailgate/loadtest/machine"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/sockets"
)

// Use is what one side used in the measured interval, in all and for each request.
type Use struct {
	Seconds             float64 `json:"seconds"` // between the two readings
	CPUShare            float64 `json:"cpu_share"`
	UserCPUSeconds      float64 `json:"user_cpu_seconds"`
	SystemCPUSeconds    float64 `json:"system_cpu_seconds"`
	VoluntarySwitches   int64   `json:"voluntary_switches"`
	InvoluntarySwitches int64   `json:"involuntary_switches"`
	MinorFaults         int64   `json:"minor_faults"`
	MajorFaults         int64   `json:"major_faults"`
	PeakRSSBytes        int64   `json:"peak_rss_bytes"`
	AllocatedBytes      uint64  `json:"allocated_bytes"`
	AllocatedObjects    uint64  `json:"allocated_objects"`
	GCCycles            int64   `json:"gc_cycles"`
	GCPauseUS           float64 `json:"gc_pause_us"`
	MutexWaitUS         float64 `json:"mutex_wait_us"` // sum of the times that goroutines waited for a mutex
	CoresBusy           float64 `json:"cores_busy"`    // share of its cores' time, whoever ran there; -1 where unknown
	CoresSteal          float64 `json:"cores_steal"`   // share taken by the hypervisor; -1 where unknown

	SchedulerLatency SchedulerLatency `json:"scheduler_latency_us"`
	Hardware         Hardware         `json:"hardware"`
	PerRequest       PerRequest       `json:"per_request"`
}

// SchedulerLatency is how long goroutines were ready to run before they ran, of those that the runtime samples. It counts by ranges, so each
// figure is the end of the range in which the percentile lies: the percentile is at most that, and less by a quarter at most from 0.5 µs on.
type SchedulerLatency struct {
	Count uint64   `json:"count"`
	P50   *float64 `json:"p50"` // null where there are none
	P99   *float64 `json:"p99"`
}

func newSchedulerLatency(h machine.Histogram) SchedulerLatency {
	at := func(q float64) *float64 {
		d, ok := h.AtMost(q)
		if !ok {
			return nil
		}
		us := microseconds(d)
		return &us
	}
	return SchedulerLatency{Count: h.Count(), P50: at(0.5), P99: at(0.99)}
}

// Hardware is what the processor counted for the process, or why there is nothing.
type Hardware struct {
	NotAvailable string `json:"not_available,omitempty"`
	*HardwareCounts
}

// HardwareCounts are hardware counters over the interval.
type HardwareCounts struct {
	Cycles       uint64  `json:"cycles"`
	Instructions uint64  `json:"instructions"`
	CacheMisses  uint64  `json:"cache_misses"`
	BranchMisses uint64  `json:"branch_misses"`
	UserOnly     bool    `json:"user_only"` // the kernel's mode is not in them
	Counted      float64 `json:"counted"`   // share of the time for which the counters ran; the rest is extrapolated

	PerRequest HardwarePerRequest `json:"per_request"`
}

// HardwarePerRequest is what a request cost on average.
type HardwarePerRequest struct {
	Cycles       float64 `json:"cycles"`
	Instructions float64 `json:"instructions"`
	CacheMisses  float64 `json:"cache_misses"`
	BranchMisses float64 `json:"branch_misses"`
}

func newHardware(r hardware.Reading, requests float64) Hardware {
	if r.NotAvailable != "" {
		return Hardware{NotAvailable: r.NotAvailable}
	}
	c := &HardwareCounts{
		Cycles: r.Cycles, Instructions: r.Instructions, CacheMisses: r.CacheMisses, BranchMisses: r.BranchMisses, UserOnly: r.UserOnly, Counted: r.Counted,
	}
	if requests > 0 {
		c.PerRequest = HardwarePerRequest{
			Cycles: float64(r.Cycles) / requests, Instructions: float64(r.Instructions) / requests,
			CacheMisses: float64(r.CacheMisses) / requests, BranchMisses: float64(r.BranchMisses) / requests,
		}
	}
	return Hardware{HardwareCounts: c}
}

// TCP is what TCP did at both ends of the cell's connections over the interval.
type TCP struct {
	Client TCPEnd `json:"client"`
	Server TCPEnd `json:"server"`
}

// TCPEnd is one end, or why there is nothing.
type TCPEnd struct {
	NotAvailable string `json:"not_available,omitempty"`
	*TCPCounts
}

// TCPCounts are sums over the connections. Times are as the kernel keeps them for each connection: those of many at the same time add up.
type TCPCounts struct {
	Connections       int     `json:"connections"`
	Gone              int     `json:"gone"`        // closed in the interval: their figures are not known
	Retransmits       uint64  `json:"retransmits"` // segments sent again
	BusyUS            float64 `json:"busy_us"`     // with data under way or waiting to be sent
	ReceiverLimitedUS float64 `json:"receiver_limited_us"`
	BufferLimitedUS   float64 `json:"buffer_limited_us"` // the send buffer was too small
	BytesSent         uint64  `json:"bytes_sent"`        // payload, what was sent again included
	BytesReceived     uint64  `json:"bytes_received"`
	SegmentsSent      uint64  `json:"segments_sent"` // with payload or without
	SegmentsReceived  uint64  `json:"segments_received"`

	PerRequest TCPPerRequest `json:"per_request"`
}

// TCPPerRequest is what a request took on average.
type TCPPerRequest struct {
	BytesSent    float64 `json:"bytes_sent"`
	SegmentsSent float64 `json:"segments_sent"`
}

func newTCPEnd(e sockets.End, requests float64) TCPEnd {
	if e.NotAvailable != "" {
		return TCPEnd{NotAvailable: e.NotAvailable}
	}
	c := &TCPCounts{
		Connections: e.Connections, Gone: e.Gone, Retransmits: e.Retransmits, BusyUS: microseconds(e.Busy),
		ReceiverLimitedUS: microseconds(e.ReceiverLimited), BufferLimitedUS: microseconds(e.BufferLimited),
		BytesSent: e.BytesSent, BytesReceived: e.BytesReceived, SegmentsSent: e.SegmentsSent, SegmentsReceived: e.SegmentsReceived,
	}
	if requests > 0 {
		c.PerRequest = TCPPerRequest{BytesSent: float64(e.BytesSent) / requests, SegmentsSent: float64(e.SegmentsSent) / requests}
	}
	return TCPEnd{TCPCounts: c}
}

// PerRequest is what a request cost one side on average.
type PerRequest struct {
	UserCPUUS           float64 `json:"user_cpu_us"`
	SystemCPUUS         float64 `json:"system_cpu_us"`
	VoluntarySwitches   float64 `json:"voluntary_switches"`
	InvoluntarySwitches float64 `json:"involuntary_switches"`
	MinorFaults         float64 `json:"minor_faults"`
	AllocatedBytes      float64 `json:"allocated_bytes"`
	AllocatedObjects    float64 `json:"allocated_objects"`
}

// newUse converts a side's use; rate is the offered requests a second.
func newUse(u runner.Use, rate float64) *Use {
	out := &Use{
		Seconds: u.At.Seconds(), CPUShare: u.Share, UserCPUSeconds: u.UserCPU.Seconds(), SystemCPUSeconds: u.SystemCPU.Seconds(),
		VoluntarySwitches: u.VoluntarySwitches, InvoluntarySwitches: u.InvoluntarySwitches, MinorFaults: u.MinorFaults, MajorFaults: u.MajorFaults,
		PeakRSSBytes: u.PeakRSS, AllocatedBytes: u.AllocatedBytes, AllocatedObjects: u.AllocatedObjects,
		GCCycles: u.GCCycles, GCPauseUS: microseconds(u.GCPause), MutexWaitUS: microseconds(u.MutexWait),
		SchedulerLatency: newSchedulerLatency(u.SchedulerLatency), CoresBusy: -1, CoresSteal: -1,
	}
	if total := u.Cores.Total(); u.CoresKnown && total > 0 {
		out.CoresBusy, out.CoresSteal = float64(u.Cores.Busy)/float64(total), float64(u.Cores.Steal)/float64(total)
	}
	// The readings lie a little beside the interval's edges, so the requests between them are taken from the rate.
	n := rate * u.At.Seconds()
	out.Hardware = newHardware(u.Hardware, n)
	if n > 0 {
		out.PerRequest = PerRequest{
			UserCPUUS: microseconds(u.UserCPU) / n, SystemCPUUS: microseconds(u.SystemCPU) / n,
			VoluntarySwitches: float64(u.VoluntarySwitches) / n, InvoluntarySwitches: float64(u.InvoluntarySwitches) / n,
			MinorFaults: float64(u.MinorFaults) / n, AllocatedBytes: float64(u.AllocatedBytes) / n, AllocatedObjects: float64(u.AllocatedObjects) / n,
		}
	}
	return out
}
