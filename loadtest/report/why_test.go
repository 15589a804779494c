package report_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"tailgate/loadtest/hardware"
	"tailgate/loadtest/machine"
	"tailgate/loadtest/record"
	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/sockets"
	"tailgate/loadtest/stats"
)

// explained is a run with one cell whose sides have these figures.
func explained(t *testing.T, change func(*runner.Outcome), validity runner.Validity) report.Run {
	t.Helper()
	r := sample(t, "p99<10ms")
	r.Cells = r.Cells[:1]
	r.Cells[0].ServerUse = nil
	result := requests(t)
	use := func(scale int64) runner.Use {
		return runner.Use{Share: 0.25 * float64(scale), Counters: machine.Counters{
			At: 2 * time.Second, UserCPU: time.Duration(60_000_000 * scale), SystemCPU: time.Duration(120_000_000 * scale), VoluntarySwitches: 6000, InvoluntarySwitches: 3, MinorFaults: 100,
			PeakRSS: 31 << 20, AllocatedBytes: 7_200_000, AllocatedObjects: 24_000, GCCycles: 3, GCPause: 300 * time.Microsecond, MutexWait: 1200 * time.Microsecond,
			SchedulerLatency: machine.Histogram{{From: 192, Until: 256, Count: 900}, {From: 10240, Until: 12288, Count: 99}, {From: time.Second, Until: machine.Endless, Count: 1}},
			Hardware:         hardware.Reading{Cycles: 120_000_000, Instructions: 240_000_000, CacheMisses: 60_000, BranchMisses: 1, Counted: 1},
		}}
	}
	server := use(2)
	out := runner.Outcome{
		Result: result, Seconds: 2, Throughput: 6000, ClientUse: use(1), ServerUse: &server,
		ClientTCP: sockets.End{Connections: 1, SegmentsSent: 12_012, BytesSent: 768_000, Busy: time.Second},
		ServerTCP: sockets.End{Connections: 1, Retransmits: 2, SegmentsSent: 12_000, BytesSent: 2_400_000, ReceiverLimited: 1500 * time.Microsecond},
	}
	change(&out)
	r.Cells[0].Fill(out, validity, []stats.SLO{})
	return r
}

// requests are 12,000 answered ones.
func requests(t *testing.T) record.Result {
	t.Helper()
	rec := record.New(1, 1)
	for range 12_000 {
		rec.Client(0).Answered(record.OK, record.Times{Response: time.Millisecond, Service: time.Millisecond}, "")
	}
	rec.Client(0).Flush()
	result, err := rec.Result()
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// TestWhy compares what a person sees below a single cell with what was looked at and found good.
func TestWhy(t *testing.T) {
	valid := runner.Validity{Verdict: runner.Valid}
	for name, r := range map[string]report.Run{
		"why-all": explained(t, func(*runner.Outcome) {}, valid),
		"why-little": explained(t, func(out *runner.Outcome) {
			none := "this machine shows no hardware counters, as most virtual machines do not"
			out.ClientUse.Hardware, out.ServerUse.Hardware = hardware.Reading{NotAvailable: none}, hardware.Reading{NotAvailable: none}
			out.ClientTCP, out.ServerTCP = sockets.End{NotAvailable: "the server has no TCP address"}, sockets.End{NotAvailable: "the server has no TCP address"}
			out.ClientUse.SchedulerLatency = nil
		}, valid),
		"why-elsewhere": func() report.Run {
			r := explained(t, func(out *runner.Outcome) {
				out.ServerUse, out.ServerUnknown = nil, errors.New("x")
				out.ServerTCP = sockets.End{NotAvailable: "the server's end is on another machine, or in another network namespace"}
				out.ClientUse.Hardware = hardware.Reading{NotAvailable: "none"}
			}, runner.Validity{Verdict: runner.Valid, Reasons: []string{"the gateway's counters at gw:9090: nobody answers there"}})
			r.Method.Target, r.Method.Admin, r.Method.Pinned, r.Method.ServerCores = "gw:7001", "gw:9090", true, nil
			return r
		}(),
		"why-not": func() report.Run {
			r := explained(t, func(out *runner.Outcome) { out.ServerUse = nil }, valid)
			r.Method.Target, r.Method.Pinned, r.Method.ServerCores = "gw:7001", true, nil
			return r
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			asPublished(t, name, r)
		})
	}

	// An INVALID cell has no figures here either.
	var out strings.Builder
	if err := report.Table(&out, explained(t, func(*runner.Outcome) {}, runner.Validity{Verdict: runner.Invalid, Reasons: []string{"x"}})); err != nil || strings.Contains(out.String(), "For each request") {
		t.Errorf("%v, %s", err, out.String())
	}
}

// TestNothingCounted: what was not counted has a reason in run.json and no zero, and reads back the same.
func TestNothingCounted(t *testing.T) {
	r := explained(t, func(out *runner.Outcome) {
		out.ClientUse.Hardware, out.ServerTCP = hardware.Reading{NotAvailable: "no counters"}, sockets.End{NotAvailable: "elsewhere"}
	}, runner.Validity{Verdict: runner.Valid})
	text, err := json.Marshal(r.Cells[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"hardware":{"not_available":"no counters"}`, `"server":{"not_available":"elsewhere"}`, `"hardware":{"cycles":120000000,`, `"tcp":{"client":{"connections":1,"gone":0,"retransmits":0,`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	var back report.Cell
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(back)
	if err != nil || string(again) != string(text) {
		t.Errorf("%v, it reads back as %s", err, again)
	}
}
