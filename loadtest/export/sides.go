package export

import (
	"strings"

	"tailgate/loadtest/report"
)

// sideFigure is what one side of a cell used, as one column, and one family of metrics.
type sideFigure struct {
	column string // of the CSV file, after "client_" or "server_"
	metric string // after "tailgate_loadtest_"; one that ends in _seconds is written in seconds, its column in microseconds
	help   string
	of     func(report.Side) (value float64, ok bool)
}

// used makes a figure of a side's counters.
func used(value func(*report.Use) float64) func(report.Side) (float64, bool) {
	return func(s report.Side) (float64, bool) {
		if s.Use == nil {
			return 0, false
		}
		return value(s.Use), true
	}
}

// hardware makes a figure of a side's hardware counters.
func hardware(value func(*report.HardwareCounts) float64) func(report.Side) (float64, bool) {
	return func(s report.Side) (float64, bool) {
		if s.Use == nil || s.Use.Hardware.HardwareCounts == nil {
			return 0, false
		}
		return value(s.Use.Hardware.HardwareCounts), true
	}
}

// sent makes a figure of a side's end of the connections.
func sent(value func(*report.TCPCounts) float64) func(report.Side) (float64, bool) {
	return func(s report.Side) (float64, bool) {
		if s.TCP.TCPCounts == nil {
			return 0, false
		}
		return value(s.TCP.TCPCounts), true
	}
}

func pointed(v func(*report.Use) *float64) func(report.Side) (float64, bool) {
	return func(s report.Side) (float64, bool) {
		if s.Use == nil || v(s.Use) == nil {
			return 0, false
		}
		return *v(s.Use), true
	}
}

// sideFigures are all of them. Of a request on average where the column says so, otherwise of the whole interval.
var sideFigures = []sideFigure{
	{"user_cpu_us_per_request", "user_cpu_request_seconds", "CPU time in user mode for each request.", used(func(u *report.Use) float64 { return u.PerRequest.UserCPUUS })},
	{"system_cpu_us_per_request", "system_cpu_request_seconds", "CPU time in the kernel for each request.", used(func(u *report.Use) float64 { return u.PerRequest.SystemCPUUS })},
	{"voluntary_switches_per_request", "voluntary_switches_per_request", "Times that a thread gave its core up, for each request.", used(func(u *report.Use) float64 { return u.PerRequest.VoluntarySwitches })},
	{"involuntary_switches_per_request", "involuntary_switches_per_request", "Times that a thread's core was taken away, for each request.", used(func(u *report.Use) float64 { return u.PerRequest.InvoluntarySwitches })},
	{"minor_faults_per_request", "minor_faults_per_request", "Pages mapped without reading a disk, for each request.", used(func(u *report.Use) float64 { return u.PerRequest.MinorFaults })},
	{"allocated_bytes_per_request", "allocated_request_bytes", "Bytes allocated on the heap for each request.", used(func(u *report.Use) float64 { return u.PerRequest.AllocatedBytes })},
	{"allocated_objects_per_request", "allocated_objects_per_request", "Objects allocated on the heap for each request.", used(func(u *report.Use) float64 { return u.PerRequest.AllocatedObjects })},
	{"major_faults", "major_faults", "Pages read from a disk in the interval.", used(func(u *report.Use) float64 { return float64(u.MajorFaults) })},
	{"gc_cycles", "gc_cycles", "Collections in the interval.", used(func(u *report.Use) float64 { return float64(u.GCCycles) })},
	{"gc_pause_us", "gc_pause_seconds", "Sum of the times in the interval when the collector stopped the program.", used(func(u *report.Use) float64 { return u.GCPauseUS })},
	{"mutex_wait_us", "mutex_wait_seconds", "Sum of the times in the interval that goroutines waited for a mutex.", used(func(u *report.Use) float64 { return u.MutexWaitUS })},
	{"scheduler_latency_us_p50", "scheduler_latency_p50_seconds", "What half of the sampled goroutines waited at most from ready to running.", pointed(func(u *report.Use) *float64 { return u.SchedulerLatency.P50 })},
	{"scheduler_latency_us_p99", "scheduler_latency_p99_seconds", "What 99 % of the sampled goroutines waited at most from ready to running.", pointed(func(u *report.Use) *float64 { return u.SchedulerLatency.P99 })},
	{"peak_rss_bytes", "peak_resident_bytes", "Greatest resident memory.", used(func(u *report.Use) float64 { return float64(u.PeakRSSBytes) })},
	{"cpu_share", "cpu_share", "CPU time by the time of the side's cores.", used(func(u *report.Use) float64 { return u.CPUShare })},
	{"tcp_segments_per_request", "tcp_segments_per_request", "TCP segments sent for each request.", sent(func(e *report.TCPCounts) float64 { return e.PerRequest.SegmentsSent })},
	{"tcp_retransmits", "tcp_retransmits", "TCP segments sent again in the interval.", sent(func(e *report.TCPCounts) float64 { return float64(e.Retransmits) })},
	{"tcp_receiver_limited_us", "tcp_receiver_limited_seconds", "Time in the interval that the peer's window held senders up, summed over the connections.", sent(func(e *report.TCPCounts) float64 { return e.ReceiverLimitedUS })},
	{"tcp_buffer_limited_us", "tcp_buffer_limited_seconds", "Time in the interval that the send buffer held senders up, summed over the connections.", sent(func(e *report.TCPCounts) float64 { return e.BufferLimitedUS })},
	{"cycles_per_request", "cycles_per_request", "Processor cycles for each request.", hardware(func(h *report.HardwareCounts) float64 { return h.PerRequest.Cycles })},
	{"instructions_per_request", "instructions_per_request", "Instructions for each request.", hardware(func(h *report.HardwareCounts) float64 { return h.PerRequest.Instructions })},
	{"cache_misses_per_request", "cache_misses_per_request", "Cache misses for each request.", hardware(func(h *report.HardwareCounts) float64 { return h.PerRequest.CacheMisses })},
	{"branch_misses_per_request", "branch_misses_per_request", "Branch misses for each request.", hardware(func(h *report.HardwareCounts) float64 { return h.PerRequest.BranchMisses })},
}

// sideColumns are the headings of both sides.
func sideColumns() (list []string) {
	for _, side := range []string{"client_", "server_"} {
		for _, f := range sideFigures {
			list = append(list, side+f.column)
		}
	}
	return list
}

// sideValues are the figures of both sides, empty where they are not known or the cell is no result.
func sideValues(c *report.Cell, valid bool) (list []string) {
	sides := c.Sides()
	for i := range 2 {
		for _, f := range sideFigures {
			text := ""
			if valid && i < len(sides) {
				if v, ok := f.of(sides[i]); ok {
					text = number(v)
				}
			}
			list = append(list, text)
		}
	}
	return list
}

// sides writes a family for each figure.
func (m *metrics) sides(r report.Run) {
	for _, f := range sideFigures {
		name, unit, factor := "tailgate_loadtest_"+f.metric, "", 1.0
		switch {
		case strings.HasSuffix(name, "_seconds"):
			unit, factor = "seconds", 1e-6
		case strings.HasSuffix(name, "_bytes"):
			unit = "bytes"
		}
		m.family(name, "gauge", unit, f.help)
		for c := range counted(r) {
			for _, side := range c.Sides() {
				if v, ok := f.of(side); ok {
					m.sample(name, c, v*factor, "side", side.Name)
				}
			}
		}
	}
}
