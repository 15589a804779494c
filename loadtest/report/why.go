package report

import (
	"cmp"
	"fmt"
	"math"
	"strconv"

	"tailgate/loadtest/runner"
)

// Side is one side of a cell with what is known of it.
type Side struct {
	Name string // client or server
	Use  *Use   // nil where its counters are not known
	TCP  TCPEnd
}

// Sides returns both sides of a cell that was measured, none of one that was not.
func (c *Cell) Sides() []Side {
	if c.Client == nil {
		return nil
	}
	sides := []Side{{Name: "client", Use: c.Client}, {Name: "server", Use: c.ServerUse}}
	if c.TCP != nil {
		sides[0].TCP, sides[1].TCP = c.TCP.Client, c.TCP.Server
	}
	return sides
}

// whyLayout is one line of what both sides used: what, client, server.
const whyLayout = "  %-44s %24s %24s"

// why tells what both sides of a run with one cell used, so that its response times have an explanation.
func (t *table) why() {
	if len(t.all) != 1 || t.all[0].Validity == runner.Invalid {
		return
	}
	c := &t.all[0]
	sides := c.Sides()
	if len(sides) == 0 {
		return
	}
	row := func(name string, text func(Side) string) {
		t.line(whyLayout, name, cmp.Or(text(sides[0]), "-"), cmp.Or(text(sides[1]), "-"))
	}
	used := func(name string, text func(*Use) string) {
		row(name, func(s Side) string {
			if s.Use == nil {
				return ""
			}
			return text(s.Use)
		})
	}
	tcp := func(name string, text func(*TCPCounts) string) {
		if sides[0].TCP.TCPCounts == nil && sides[1].TCP.TCPCounts == nil {
			return
		}
		row(name, func(s Side) string {
			if s.TCP.TCPCounts == nil {
				return ""
			}
			return text(s.TCP.TCPCounts)
		})
	}
	counted := func(name string, text func(*HardwareCounts) string) {
		if c.Client.Hardware.HardwareCounts == nil && (c.ServerUse == nil || c.ServerUse.Hardware.HardwareCounts == nil) {
			return
		}
		used(name, func(u *Use) string {
			if u.Hardware.HardwareCounts == nil {
				return ""
			}
			return text(u.Hardware.HardwareCounts)
		})
	}
	t.line("")
	t.line(whyLayout, "For each request", "client", "server")
	used("CPU time, user + system", func(u *Use) string {
		return Microseconds(u.PerRequest.UserCPUUS) + " + " + Microseconds(u.PerRequest.SystemCPUUS)
	})
	used("context switches, voluntary + involuntary", func(u *Use) string {
		return Figure(u.PerRequest.VoluntarySwitches) + " + " + Figure(u.PerRequest.InvoluntarySwitches)
	})
	used("minor page faults", func(u *Use) string { return Figure(u.PerRequest.MinorFaults) })
	used("allocated", func(u *Use) string {
		return fmt.Sprintf("%s B, %s objects", Figure(u.PerRequest.AllocatedBytes), Figure(u.PerRequest.AllocatedObjects))
	})
	tcp("TCP segments sent, payload", func(e *TCPCounts) string {
		return fmt.Sprintf("%s, %s B", Figure(e.PerRequest.SegmentsSent), Figure(e.PerRequest.BytesSent))
	})
	counted("cycles, instructions", func(h *HardwareCounts) string {
		return Figure(h.PerRequest.Cycles) + ", " + Figure(h.PerRequest.Instructions)
	})
	counted("cache misses, branch misses", func(h *HardwareCounts) string {
		return Figure(h.PerRequest.CacheMisses) + ", " + Figure(h.PerRequest.BranchMisses)
	})
	t.line("  In the whole interval")
	used("share of its cores' time", func(u *Use) string { return strconv.FormatFloat(100*u.CPUShare, 'f', 1, 64) + " %" })
	used("scheduler latency, p50 and p99 at most", func(u *Use) string {
		if u.SchedulerLatency.P50 == nil || u.SchedulerLatency.P99 == nil {
			return ""
		}
		return Microseconds(*u.SchedulerLatency.P50) + ", " + Microseconds(*u.SchedulerLatency.P99)
	})
	used("waited for mutexes, all goroutines together", func(u *Use) string { return Microseconds(u.MutexWaitUS) })
	used("collections, program stopped for", func(u *Use) string {
		return fmt.Sprintf("%s, %s", thousands(u.GCCycles), Microseconds(u.GCPauseUS))
	})
	used("major page faults", func(u *Use) string { return thousands(u.MajorFaults) })
	used("peak memory", func(u *Use) string { return fmt.Sprintf("%s MiB", thousands(u.PeakRSSBytes>>20)) })
	tcp("TCP segments sent again", func(e *TCPCounts) string { return thousands(int64(e.Retransmits)) })
	tcp("TCP held up by the receiver, the send buffer", func(e *TCPCounts) string {
		return Microseconds(e.ReceiverLimitedUS) + ", " + Microseconds(e.BufferLimitedUS)
	})
	t.missing(c, sides)
}

// missing says why there are gaps.
func (t *table) missing(c *Cell, sides []Side) {
	if c.ServerUse == nil && t.run.Method.Target != "" && t.run.Method.Admin == "" {
		t.line("  The server's counters are those of a running gateway: --admin HOST:PORT reads them on its admin listener.")
	}
	if c.Validity == runner.Valid { // otherwise they are told below
		for _, reason := range c.Reasons {
			t.line("  Not known: %s.", reason)
		}
	}
	tell := func(what string, reasons [2]string) {
		if reasons[0] == reasons[1] && reasons[0] != "" {
			t.line("  %s: not available; %s.", what, reasons[0])
			return
		}
		for i, reason := range reasons {
			if reason != "" {
				t.line("  %s of the %s: not available; %s.", what, sides[i].Name, reason)
			}
		}
	}
	tell("TCP's figures", [2]string{sides[0].TCP.NotAvailable, sides[1].TCP.NotAvailable})
	var reasons [2]string
	for i, s := range sides {
		if s.Use != nil {
			reasons[i] = s.Use.Hardware.NotAvailable
		}
	}
	tell("Hardware counters", reasons)
}

// Figure is a figure that is no time, for a person: whole from 1,000 on, with its thousands told apart, otherwise to three digits.
func Figure(v float64) string {
	switch {
	case v >= 1000 || v == math.Trunc(v):
		return thousands(int64(math.Round(v)))
	case v > 0 && v < 0.001:
		return "<0.001"
	default:
		return strconv.FormatFloat(math.Round(round(v)*1000)/1000, 'f', -1, 64)
	}
}
