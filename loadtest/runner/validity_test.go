package runner_test

import (
	"strings"
	"testing"
	"time"

	"tailgate/loadtest/machine"
	"tailgate/loadtest/record"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
)

// outcome is a clean cell of 2 clients over 10 s on pinned cores, as changed.
func outcome(t *testing.T, requests int, times record.Times, change func(*runner.Cell, *runner.Outcome)) (runner.Cell, runner.Outcome) {
	t.Helper()
	r := record.New(1, 1)
	for range requests {
		r.Client(0).Answered(record.OK, times, "")
	}
	r.Client(0).Flush()
	result, err := r.Result()
	if err != nil {
		t.Fatal(err)
	}
	c := runner.Cell{Clients: 2, Duration: 10 * time.Second, Plan: machine.Plan{Pinned: true, Server: []int{1}, Clients: []int{0}}}
	use := func() runner.Use {
		return runner.Use{
			Counters:   machine.Counters{At: 10 * time.Second, UserCPU: 2 * time.Second, SystemCPU: 3 * time.Second},
			Cores:      machine.CoreTimes{Busy: 5 * time.Second, Idle: 5 * time.Second},
			CoresKnown: true, Share: 0.5,
		}
	}
	server := use()
	out := runner.Outcome{Result: result, Seconds: 10, ClientUse: use(), ServerUse: &server, Connections: runner.Connections{Asked: 2, Open: 2}}
	if change != nil {
		change(&c, &out)
	}
	return c, out
}

// TestJudge: each thing that can speak against a measurement does, at its threshold, with a reason that names the figure.
func TestJudge(t *testing.T) {
	usual := record.Times{Response: 10 * time.Millisecond, Service: 9 * time.Millisecond, Lag: 50 * time.Microsecond}
	for _, c := range []struct {
		name     string
		requests int // 2 clients x 10 s / 10 ms = 2000
		times    record.Times
		change   func(*runner.Cell, *runner.Outcome)
		want     runner.Verdict
		reason   string
		first    string // with what the reasons begin
		not      string // must not be said; empty = anything may
	}{
		{name: "clean", want: runner.Valid},
		{name: "nothing measured", requests: -2000, want: runner.Invalid, reason: "no request was measured"},
		{name: "offered and accounted differ", change: func(_ *runner.Cell, o *runner.Outcome) { o.Counts[record.OK]++ }, want: runner.Invalid, reason: "2001 requests offered, 2000 accounted for"},
		{name: "fewer than asked for", change: func(c *runner.Cell, _ *runner.Outcome) { c.Requests = 2001 }, want: runner.Invalid, reason: "2001 requests asked for, 2000 offered"},
		{name: "wrong answers", change: func(_ *runner.Cell, o *runner.Outcome) { o.Wrong, o.FirstWrong = 1, "bad id" }, want: runner.Invalid, reason: "1 answers were wrong: bad id"},
		{name: "interrupted", change: func(_ *runner.Cell, o *runner.Outcome) { o.Interrupted = true }, want: runner.Suspect, reason: "interrupted after 10.0 s"},
		{name: "rejected", change: func(_ *runner.Cell, o *runner.Outcome) {
			o.Counts[record.OK] -= 20
			o.Counts[record.Rejected] += 20
		}, want: runner.Suspect, reason: "1.0 % of the orders were rejected"},
		{name: "rejected in a flow with cancels", change: func(c *runner.Cell, o *runner.Outcome) {
			c.Flow.CancelShare = 0.1
			o.Counts[record.OK] -= 20
			o.Counts[record.Rejected] += 20
		}, want: runner.Valid},
		{name: "idle clients", requests: -200, want: runner.Suspect, reason: "1.8 requests were under way on average, not 2 (residual 10 %)"},
		{name: "mostly idle clients", requests: -600, want: runner.Invalid, reason: "residual 30 %"},
		{name: "too busy clients", requests: 200, want: runner.Suspect, reason: "residual -10 %"},
		{name: "responses as long as the interval", requests: -1996, times: record.Times{Response: 4600 * time.Millisecond}, want: runner.Suspect, reason: "measure longer"},
		{name: "nothing was sent", change: func(c *runner.Cell, o *runner.Outcome) {
			c.Open, o.Scheduled = &runner.OpenLoop{}, 2000
			o.Counts[record.OK], o.Counts[record.Unsent] = 0, 2000
		}, want: runner.Invalid, reason: "not one of 2000 requests that were due was sent"},
		{name: "nothing was sent by the tester's own fault", change: func(c *runner.Cell, o *runner.Outcome) {
			c.Open, o.Scheduled, o.Behind = &runner.OpenLoop{}, 2000, 2000
			o.Counts[record.OK], o.Counts[record.Unsent] = 0, 2000
		}, want: runner.Invalid, reason: "the generator cannot keep up", not: "not one of"},
		{name: "almost nothing was sent", change: func(c *runner.Cell, o *runner.Outcome) {
			c.Open, o.Scheduled = &runner.OpenLoop{}, 2000
			o.Counts[record.OK], o.Counts[record.Unsent] = 1, 1999
		}, want: runner.Valid},
		{name: "a connection missing", change: func(_ *runner.Cell, o *runner.Outcome) { o.Connections.Open = 1 }, want: runner.Invalid, reason: "1 of 2 connections were open at the end"},
		{name: "the gateway has ended", requests: 600, change: func(_ *runner.Cell, o *runner.Outcome) { o.Connections.Open = 0 }, want: runner.Invalid, first: "none of 2 connections was open at the end", reason: "Little's law"},
		{name: "connections unknown", change: func(_ *runner.Cell, o *runner.Outcome) {
			o.Connections.Open, o.Connections.Unknown = -1, "no such host"
		}, want: runner.Suspect, reason: "how many of 2 connections were open at the end could not be checked: no such host"},
		{name: "opened again", change: func(_ *runner.Cell, o *runner.Outcome) { o.Connections.Redials = 3 }, want: runner.Suspect, reason: "3 times a connection was lost"},
		{name: "a gap at the end", change: func(_ *runner.Cell, o *runner.Outcome) { o.Silence = time.Second }, want: runner.Valid},
		{name: "silent at the end", change: func(_ *runner.Cell, o *runner.Outcome) { o.Silence = 1100 * time.Millisecond }, want: runner.Invalid, reason: "no answer came in the last 1.1 s of 10 s"},
		{name: "no answer at all", change: func(_ *runner.Cell, o *runner.Outcome) {
			o.Counts, o.Silence = record.Counts{record.TimedOut: 2000}, 10*time.Second
		}, want: runner.Invalid, reason: "no answer came in the whole interval of 10 s"},
		{name: "an open loop that nobody answers any more, slow as the answers were", requests: -1970, times: record.Times{Response: 600 * time.Millisecond}, change: func(c *runner.Cell, o *runner.Outcome) {
			c.Open, o.Scheduled, o.Silence = &runner.OpenLoop{}, 2000, 5*time.Second
			o.Counts[record.TimedOut] = 1000
		}, want: runner.Invalid, reason: "no answer came in the last 5 s of 10 s"},
		{name: "an open loop whose last answers come late", requests: -1970, times: record.Times{Response: 600 * time.Millisecond}, change: func(c *runner.Cell, o *runner.Outcome) {
			c.Open, o.Scheduled, o.Silence = &runner.OpenLoop{}, 30, 5*time.Second
		}, want: runner.Valid, not: "no answer"},
		{name: "silent at the end, as it is between answers", requests: -1970, times: record.Times{Response: 600 * time.Millisecond}, change: func(_ *runner.Cell, o *runner.Outcome) { o.Silence = 5 * time.Second }, want: runner.Suspect, not: "no answer"},
		{name: "deserted", change: func(_ *runner.Cell, o *runner.Outcome) { o.Deserted = true }, want: runner.Invalid, reason: "every client's last request ended without an answer"},
		{name: "not pinned", change: func(c *runner.Cell, _ *runner.Outcome) { c.Plan.Pinned = false }, want: runner.Suspect, reason: "not pinned"},
		{name: "not pinned, and why", change: func(c *runner.Cell, _ *runner.Outcome) { c.Plan = machine.NewPlan([]machine.Core{{ID: 0}}, 1) }, want: runner.Suspect, reason: "not pinned: 1 core(s) for 1 of the server"},
		{name: "not pinned, own work is no neighbour", change: func(c *runner.Cell, o *runner.Outcome) {
			// Both sides look at the same cores: 5 s of each are 10 s of busy cores.
			c.Plan = machine.NewPlan([]machine.Core{{ID: 0}}, 1)
			o.ClientUse.Cores, o.ServerUse.Cores = machine.CoreTimes{Busy: 10 * time.Second}, machine.CoreTimes{Busy: 10 * time.Second}
		}, want: runner.Suspect, not: "other processes"},
		{name: "not pinned, neighbours", change: func(c *runner.Cell, o *runner.Outcome) {
			c.Plan = machine.NewPlan([]machine.Core{{ID: 0}}, 1)
			o.ClientUse.Cores, o.ServerUse.Cores = machine.CoreTimes{Busy: 11 * time.Second, Idle: 9 * time.Second}, machine.CoreTimes{Busy: 11 * time.Second, Idle: 9 * time.Second}
		}, want: runner.Suspect, reason: "other processes used 5.0 % (shared) of the cores"},
		{name: "elsewhere", change: func(c *runner.Cell, o *runner.Outcome) {
			c.Plan, o.ServerUse = machine.PlanFor([]machine.Core{{ID: 0}}, "gw:1", false), nil
		}, want: runner.Valid},
		{name: "elsewhere, neighbours of the clients", change: func(c *runner.Cell, o *runner.Outcome) {
			c.Plan, o.ServerUse = machine.PlanFor([]machine.Core{{ID: 0}}, "gw:1", false), nil
			o.ClientUse.Cores = machine.CoreTimes{Busy: 6 * time.Second, Idle: 4 * time.Second}
		}, want: runner.Suspect, reason: "other processes used 10.0 % (client) of the cores", not: "under test"},
		{name: "beside the clients", change: func(c *runner.Cell, o *runner.Outcome) {
			c.Plan, o.ServerUse = machine.PlanFor([]machine.Core{{ID: 0}}, "127.0.0.1:1", true), nil
		}, want: runner.Suspect, reason: "not pinned: the gateway at 127.0.0.1:1 runs on this machine"},
		{name: "beside the clients, at work", change: func(c *runner.Cell, o *runner.Outcome) {
			c.Plan, o.ServerUse = machine.PlanFor([]machine.Core{{ID: 0}}, "127.0.0.1:1", true), nil
			o.ClientUse.Cores = machine.CoreTimes{Busy: 9 * time.Second, Idle: time.Second}
		}, want: runner.Suspect, reason: "other processes used 40.0 % (client) of the cores, the gateway under test among them"},
		{name: "steal", change: func(_ *runner.Cell, o *runner.Outcome) {
			o.ServerUse.Cores = machine.CoreTimes{Busy: 5000 * time.Millisecond, Idle: 4900 * time.Millisecond, Steal: 100 * time.Millisecond}
			o.ServerUse.Counters = machine.Counters{At: 10 * time.Second, UserCPU: 5 * time.Second}
		}, want: runner.Suspect, reason: "the hypervisor took 0.0 % (client) and 1.0 % (server) of the cores"},
		{name: "too short for the kernel's ticks", change: func(_ *runner.Cell, o *runner.Outcome) {
			o.ClientUse.Cores = machine.CoreTimes{Busy: 30 * time.Millisecond, Steal: 40 * time.Millisecond}
		}, want: runner.Suspect, reason: "too short to tell what else ran on the cores", not: "hypervisor"},
		{name: "a single tick of steal", change: func(c *runner.Cell, o *runner.Outcome) {
			c.Duration, o.Seconds = time.Second, 1
			for _, use := range []*runner.Use{&o.ClientUse, o.ServerUse} {
				use.Cores = machine.CoreTimes{Busy: 500 * time.Millisecond, Idle: 480 * time.Millisecond, Steal: 10 * time.Millisecond}
				use.Counters = machine.Counters{At: time.Second, UserCPU: 500 * time.Millisecond}
			}
		}, requests: -1800, want: runner.Valid},
		{name: "much steal", change: func(_ *runner.Cell, o *runner.Outcome) {
			o.ClientUse.Cores = machine.CoreTimes{Busy: 4 * time.Second, Idle: time.Second, Steal: 5 * time.Second}
			o.ClientUse.Counters = machine.Counters{At: 10 * time.Second, UserCPU: 4 * time.Second}
		}, want: runner.Invalid, reason: "the hypervisor took 50.0 % (client) and 0.0 % (server) of the cores"},
		{name: "neighbours", change: func(_ *runner.Cell, o *runner.Outcome) {
			o.ServerUse.Cores = machine.CoreTimes{Busy: 6 * time.Second, Idle: 4 * time.Second}
		}, want: runner.Suspect, reason: "other processes used 0.0 % (client) and 10.0 % (server) of the cores"},
		{name: "small lag", times: record.Times{Response: 10 * time.Millisecond, Lag: 99 * time.Microsecond}, want: runner.Valid},
		{name: "lag", times: record.Times{Response: 10 * time.Millisecond, Lag: 1100 * time.Microsecond}, want: runner.Suspect, reason: "lag has a p99 of 1.1ms, 11 %"},
		{name: "great lag", times: record.Times{Response: 10 * time.Millisecond, Lag: 5100 * time.Microsecond}, want: runner.Invalid, reason: "51 %"},
		{name: "a small trend", change: func(_ *runner.Cell, o *runner.Outcome) {
			o.Trends = []stats.Trend{{Percentile: stats.P50, Z: 4, Change: 0.49}, {Percentile: stats.P99, Z: 2, Change: 0.9}}
		}, want: runner.Valid},
		{name: "not steady", change: func(_ *runner.Cell, o *runner.Outcome) {
			o.Trends = []stats.Trend{{Percentile: stats.P50, Z: 0, Change: 0}, {Percentile: stats.P99, Z: -3, Change: -0.64}}
		}, want: runner.Suspect, reason: "not steady: p99 fell by 64 % over the interval (z = -3.0)"},
		{name: "open loop, offered less than was due", change: func(c *runner.Cell, o *runner.Outcome) {
			c.Open, o.Scheduled = &runner.OpenLoop{}, 2001
		}, want: runner.Invalid, reason: "2001 requests were due by the schedule, 2000 offered"},
		{name: "open loop, a generator a little behind", change: func(c *runner.Cell, o *runner.Outcome) {
			c.Open, o.Scheduled, o.Behind = &runner.OpenLoop{}, 2000, 20
		}, want: runner.Suspect, reason: "the generator cannot keep up: 200/s were due, it sent 198/s"},
		{name: "open loop, a generator behind", change: func(c *runner.Cell, o *runner.Outcome) {
			c.Open, o.Scheduled, o.Behind = &runner.OpenLoop{}, 2000, 100
		}, want: runner.Invalid, reason: "it sent 190/s"},
		{name: "own collector", change: func(_ *runner.Cell, o *runner.Outcome) { o.ClientUse.GCPause = 100 * time.Millisecond }, want: runner.Suspect, reason: "stopped it for 1.0 %"},
	} {
		times := c.times
		if times.Response == 0 {
			times = usual
		}
		cell, out := outcome(t, 2000+c.requests, times, c.change)
		got := runner.Judge(cell, out)
		reasons := strings.Join(got.Reasons, "; ")
		silent := c.reason == "" && c.not == ""
		if got.Verdict != c.want || silent && reasons != "" || !strings.Contains(reasons, c.reason) || !strings.HasPrefix(reasons, c.first) || c.not != "" && strings.Contains(reasons, c.not) {
			t.Errorf("%s: %s because of %q, want %s because of %q", c.name, got.Verdict, reasons, c.want, c.reason)
		}
	}
}

func TestBound(t *testing.T) {
	for _, c := range []struct {
		client, server float64
		unknown        bool
		want           string
	}{
		{0.5, 0.5, false, "neither"},
		{0.95, 0.5, false, "client"},
		{0.5, 0.9, false, "server"},
		{0.95, 0.95, false, "both"},
		{0.95, 0, true, ""},
	} {
		_, out := outcome(t, 1, record.Times{}, func(_ *runner.Cell, o *runner.Outcome) {
			o.ClientUse.Share, o.ServerUse.Share = c.client, c.server
			if c.unknown {
				o.ServerUse = nil
			}
		})
		if got := runner.Bound(out); got != c.want {
			t.Errorf("client %v, server %v: %q, want %q", c.client, c.server, got, c.want)
		}
	}
}
