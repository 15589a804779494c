package report_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tailgate/loadtest/machine"
	"tailgate/loadtest/record"
	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files; commit them only when each change is understood")

// made is a cell with a made-up outcome: n answers around a median, some lost, some rejected.
type made struct {
	transport, spec   string
	size, clients     int
	n                 int
	median            time.Duration
	spread            float64 // of the tail
	lost, rejected    int
	reasons           []string
	verdict           runner.Verdict
	clientUse, srvUse float64
	err               error
}

func (m made) cell(t *testing.T, slos []stats.SLO) report.Cell {
	t.Helper()
	c := report.Cell{
		Transport: m.transport, Spec: m.spec, Ack: "full", Size: m.size, Clients: m.clients, Mode: "closed", Run: 1, Order: 1,
		Intervals: map[string]report.Interval{}, SLO: []report.Objective{}, Reasons: []string{}, Notes: map[string]int64{},
	}
	asked := m.clients
	switch {
	case m.transport == "grpc":
		c.Encoding, asked = "protobuf", 1
	case strings.Contains(m.spec, "json"):
		c.Encoding = "json"
	case m.transport != "floor":
		c.Encoding = "protobuf"
	}
	if m.err != nil {
		c.Fail(m.err)
		return c
	}
	rng := rand.New(rand.NewPCG(uint64(m.size), uint64(m.clients)))
	r := record.New(1, 1)
	client := r.Client(0)
	for range m.n {
		d := time.Duration(float64(m.median) * (0.7 + rng.ExpFloat64()*m.spread))
		client.Answered(record.OK, record.Times{Response: d, Service: d - 100, Lag: 100, Server: d / 4, HasServer: true}, "")
	}
	for range m.rejected {
		client.Answered(record.Rejected, record.Times{Response: m.median}, "REASON_PRICE_COLLAR")
	}
	for range m.lost {
		client.Lost(record.TimedOut, 0, time.Second, "REASON_DEADLINE_EXCEEDED")
	}
	client.Flush()
	result, err := r.Result()
	if err != nil {
		t.Fatal(err)
	}
	use := func(share float64) runner.Use {
		return runner.Use{
			Counters: machine.Counters{At: 2 * time.Second, UserCPU: 500 * time.Millisecond, SystemCPU: time.Second, MinorFaults: 100, AllocatedBytes: 1 << 20, AllocatedObjects: 1000, GCCycles: 3, GCPause: 300 * time.Microsecond, PeakRSS: 30 << 20},
			Cores:    machine.CoreTimes{Busy: 3, Idle: 6, Steal: 1}, CoresKnown: true, Share: share,
		}
	}
	server := use(m.srvUse)
	out := runner.Outcome{
		IDPrefix: "prefix", WarmupFates: record.Counts{record.OK: 5, record.Rejected: 2},
		Result: result, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Seconds: 2, Throughput: float64(result.Counts.Answered()) / 2,
		Connections: runner.Connections{Asked: asked, Open: asked}, ClientUse: use(m.clientUse), ServerUse: &server,
	}
	verdict := m.verdict
	if verdict == "" {
		verdict = runner.Valid
	}
	c.Fill(out, runner.Validity{Verdict: verdict, Reasons: append([]string{}, m.reasons...)}, slos)
	return c
}

func sample(t *testing.T, slos ...string) report.Run {
	t.Helper()
	var parsed []stats.SLO
	for _, text := range slos {
		slo, err := stats.ParseSLO(text)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, slo)
	}
	r := report.Run{
		Schema: report.Schema, Started: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), Finished: time.Date(2026, 1, 2, 3, 6, 0, 0, time.UTC),
		Command:     []string{"matrix"},
		Environment: machine.Environment{CPU: "Example CPU @ 3.0 GHz", OnlineCores: 4, Kernel: "6.1.0", GoVersion: "go1.26", CongestionControl: "cubic"},
		Method:      report.Method{Loop: "closed", Seed: 1, Journal: "os", Pinned: true, ServerCores: []int{3}, ClientCores: []int{0, 1, 2}, SLO: slos, MinBeyond: stats.MinBeyond},
		Capacity:    []report.Capacity{},
	}
	for _, m := range []made{
		{transport: "tcp", spec: "tcp", size: 64, clients: 1, n: 12_000, median: 15 * time.Microsecond, spread: 0.2, clientUse: 0.95, srvUse: 0.5},
		{transport: "tcp", spec: "tcp", size: 64 << 10, clients: 500, n: 2000, median: 8 * time.Millisecond, spread: 9, clientUse: 0.95, srvUse: 0.97, lost: 3, rejected: 4},
		{transport: "rest", spec: "rest:json", size: 64, clients: 1, n: 6000, median: 36 * time.Microsecond, spread: 0.3, clientUse: 0.4, srvUse: 0.92, verdict: runner.Suspect, reasons: []string{"the hypervisor took 3.0 % (client) and 1.0 % (server) of the cores", "other processes used 12.0 % (client) and 7.5 % (server) of the cores"}},
		{transport: "rest", spec: "rest:json", size: 64 << 10, clients: 500, n: 1500, median: 17 * time.Millisecond, spread: 2, verdict: runner.Invalid, reasons: []string{"499 of 500 connections were open at the end"}},
		{transport: "grpc", spec: "grpc", size: 64, clients: 1, n: 900, median: 48 * time.Microsecond, spread: 0.1},
		{transport: "grpc", spec: "grpc", size: 64 << 10, clients: 500, n: 3000, median: 4 * time.Millisecond, spread: 0.2},
		{transport: "floor", spec: "floor", size: 64, clients: 1, n: 15_000, median: 12 * time.Microsecond, spread: 0.1, clientUse: 0.8, srvUse: 0.3},
	} {
		r.Cells = append(r.Cells, m.cell(t, parsed))
	}
	r.Finish()
	return r
}

// TestTable compares what a person sees with what was looked at and found good. -rewrite writes it anew.
func TestTable(t *testing.T) {
	for name, build := range map[string]func() report.Run{
		"default":    func() report.Run { return sample(t, "p99<10ms") },
		"objectives": func() report.Run { return sample(t, "p99<10ms", "p99.9<=50ms", "max<1s") },
		"troubles": func() report.Run {
			r := sample(t, "p99<10ms")
			r.Interrupted, r.Planned = true, len(r.Cells)+1
			r.Method.Pinned, r.Method.Target = false, "10.0.0.7:7001"
			for i := range r.Cells {
				r.Cells[i].InFlight = 50
				if i%2 == 0 {
					r.Cells[i].Validity, r.Cells[i].Reasons = runner.Suspect, []string{"server and clients share the cores: not pinned"}
				}
			}
			r.Cells[1] = made{transport: "tcp", spec: "tcp:none", size: 64 << 10, clients: 500, err: os.ErrDeadlineExceeded}.cell(t, nil)
			return r
		},
		"empty": func() report.Run { r := sample(t, "p99<10ms"); r.Cells, r.Interrupted = nil, true; return r },
	} {
		t.Run(name, func(t *testing.T) {
			asPublished(t, name, build())
		})
	}
}

// asPublished holds a run's table against testdata/NAME.txt, and to its width.
func asPublished(t *testing.T, name string, r report.Run) {
	t.Helper()
	var out strings.Builder
	if err := report.Table(&out, r); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > report.Width {
			t.Errorf("a line of %d columns, at most %d are wanted: %s", n, report.Width, line)
		}
	}
	path := filepath.Join("testdata", name+".txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("the table has changed (-rewrite takes it over):\n%s\nwant:\n%s", out.String(), want)
	}
}

// TestTail: the last sentence leads with p99. A transport that is slow throughout has a smaller P99/P50 and loses all the same; what is
// INVALID, infinite or too few takes no part.
func TestTail(t *testing.T) {
	ms := time.Millisecond
	tcp := made{transport: "tcp", spec: "tcp", size: 64, clients: 500, n: 2000, median: ms, spread: 1.5}
	grpc := made{transport: "grpc", spec: "grpc", size: 64, clients: 500, n: 2000, median: 20 * ms, spread: 0.6}
	rest := made{transport: "rest", spec: "rest", size: 64, clients: 500, n: 2000, median: 5 * ms, spread: 0.6}
	with := func(m made, change func(*made)) made { change(&m); return m }
	invalid := func(m *made) { m.verdict, m.reasons = runner.Invalid, []string{"wrong"} }
	for _, c := range []struct {
		name        string
		cells       []made
		best, worst string // empty: no such sentence
		without     string
	}{
		{"the wider ratio wins by its p99", []made{tcp, grpc}, "tcp", "grpc", ""},
		{"whatever the order", []made{grpc, rest, tcp}, "tcp", "grpc", ""},
		{"an invalid winner is left out", []made{with(tcp, invalid), grpc, rest}, "rest", "grpc", "tcp"},
		{"an infinite p99 is left out", []made{tcp, rest, with(grpc, func(m *made) { m.lost = 100 })}, "tcp", "rest", "grpc"},
		{"too few are left out", []made{with(tcp, func(m *made) { m.n = 900 }), rest, grpc}, "rest", "grpc", "tcp"},
		{"the floor takes no part", []made{tcp, rest, {transport: "floor", spec: "floor", size: 64, clients: 500, n: 2000, median: ms / 10}}, "tcp", "rest", ""},
		{"one alone is not compared", []made{tcp, with(grpc, invalid)}, "", "", ""},
		{"the heaviest cell that two have", []made{tcp, rest, with(grpc, func(m *made) { m.size = 4096 })}, "tcp", "rest", ""},
	} {
		r := sample(t, "p99<10ms")
		r.Cells = nil
		figures := map[string]report.Cell{}
		for _, m := range c.cells {
			made := m.cell(t, nil)
			r.Cells = append(r.Cells, made)
			figures[m.spec] = made
		}
		var out strings.Builder
		if err := report.Table(&out, r); err != nil {
			t.Fatal(err)
		}
		_, got, found := strings.Cut(strings.Join(strings.Fields(out.String()), " "), "At 64 B x 500 ")
		if c.best == "" {
			if found {
				t.Errorf("%s: it compares: %s", c.name, got)
			}
			continue
		}
		say := func(name string) string {
			f := figures[name]
			return fmt.Sprintf("%s (%s, P99/P50 %.3gx)", name, report.Microseconds(f.Response.Values["p99"]), *f.Amplification)
		}
		want := "p99 is lowest on " + say(c.best) + " and highest on " + say(c.worst)
		if c.without != "" {
			want += "; no p99 there: " + c.without
		}
		if got != want+"." {
			t.Errorf("%s:\n%s\nwant\n%s.", c.name, got, want)
		}
	}
	if a, b := tcp.cell(t, nil), grpc.cell(t, nil); *a.Amplification < *b.Amplification {
		t.Errorf("P99/P50 of %v and %v: the first case needs a winner by p99 that loses by the ratio", *a.Amplification, *b.Amplification)
	}
}

// TestTableOfAWideMatrix: names and figures of any length keep to the width.
func TestTableOfAWideMatrix(t *testing.T) {
	r := sample(t, "p99.99<=123456789ns")
	for i := range r.Cells {
		r.Cells[i].Spec, r.Cells[i].Clients, r.Cells[i].Size, r.Cells[i].Throughput = "tcp:semaphore=65536,spin", 65_536, 1<<20-1, 12_345_678
	}
	var out strings.Builder
	if err := report.Table(&out, r); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > report.Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// TestJSON: the sketch's field names are there, unknown figures are null with their reason, and the file reads back the same.
func TestJSON(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a", "b")
	r := sample(t, "p99<10ms", "p99.99<1s")
	path, err := r.Write(folder)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 || path != filepath.Join(folder, "run.json") {
		t.Errorf("%v in the folder, path %q, %v; want run.json alone", left, path, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var again report.Run
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again, r) {
		t.Errorf("the run reads back differently:\n%+v\nwant\n%+v", again, r)
	}

	var raw struct {
		Schema string           `json:"schema"`
		Cells  []map[string]any `json:"cells"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	if raw.Schema != "tailgate.loadtest/v1" {
		t.Errorf("schema %q", raw.Schema)
	}
	for _, c := range raw.Cells {
		for field := range strings.FieldsSeq(`transport flow engine encoding ack size clients inflight mode offered_rate run seconds requests ok rejected refused timed_out errors unsent
			good throughput response_us service_us lag_us server_us admitted_us amplification intervals slo validity reasons client server id_prefix warmup_requests silence_seconds`) {
			if _, ok := c[field]; !ok {
				t.Errorf("%v: no field %q", c["spec"], field)
			}
		}
		sum := 0.0
		for _, field := range []string{"ok", "rejected", "refused", "timed_out", "errors", "unsent"} {
			n, _ := c[field].(float64)
			sum += n
		}
		if sum != c["requests"] {
			t.Errorf("%v: %v requests, but the fates sum up to %v", c["spec"], c["requests"], sum)
		}
	}

	// tcp at 64 KB: 3 of 2007 lost, so p99 is a number, p99.99 too few, the maximum infinite.
	heavy := r.Cells[1]
	for name, want := range map[string]string{"p99": "known", "p99.9": "too few", "p99.99": "too few", "max": "infinite", "mean": "infinite"} {
		_, known := heavy.Response.Values[name]
		got := "nothing"
		switch {
		case known:
			got = "known"
		case slices.Contains(heavy.Response.Infinite, name):
			got = "infinite"
		case slices.Contains(heavy.Response.TooFew, name):
			got = "too few"
		}
		if got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if heavy.Requests != 2007 || heavy.OK != 2000 || heavy.Rejected != 4 || heavy.TimedOut != 3 || heavy.Admitted.Count != 2004 {
		t.Errorf("accounts: %+v", heavy)
	}
	if o := heavy.SLO[1]; o.Met != nil || o.ObservedUS != nil {
		t.Errorf("an objective without samples has a verdict: %+v", o)
	}
	if o := heavy.SLO[0]; o.Met == nil || *o.Met || o.ObservedUS == nil || *o.ObservedUS < 10_000 {
		t.Errorf("p99 of %v is held to be within 10 ms: %+v", heavy.Response.Values["p99"], o)
	}
	if o := r.Cells[6].SLO[0]; !r.Cells[6].IsFloor() || o.Met != nil || o.ObservedUS == nil {
		t.Errorf("the floor has a verdict: %+v", o)
	}
	if c := r.Cells[0]; c.WarmupFates != (report.Fates{Requests: 7, OK: 5, Rejected: 2}) || c.IDPrefix != "prefix" {
		t.Errorf("warm-up %+v, ids %q", c.WarmupFates, c.IDPrefix)
	}
	if f := r.Cells[0].FloorMultiple; f == nil || *f < 1.1 || *f > 1.6 {
		t.Errorf("multiple of the floor %v, want about 15/12", f)
	}
	if r.Cells[1].FloorMultiple != nil {
		t.Error("a cell without a floor of its size and clients has a multiple")
	}
	// 6,000 requests in 2 s took 1.5 s of the processor.
	if p := r.Cells[2].Client.PerRequest; p.UserCPUUS < 83.2 || p.UserCPUUS > 83.4 || p.SystemCPUUS < 166.5 || p.SystemCPUUS > 166.8 {
		t.Errorf("per request %+v, want 83.3 and 166.7 µs", p)
	}
}

// TestWriteFails: where the results cannot be kept, the error says where.
func TestWriteFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "not-a-folder")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run := sample(t, "p99<10ms")
	if _, err := run.Write(file); err == nil || !strings.Contains(err.Error(), "not-a-folder") {
		t.Errorf("a file is taken for a folder: %v", err)
	}
	if err := report.Probe(file); err == nil || !strings.Contains(err.Error(), "not-a-folder") {
		t.Errorf("probing takes a file for a folder: %v", err)
	}
	taken := t.TempDir()
	if err := os.Mkdir(filepath.Join(taken, report.FileName), 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Write(taken); err == nil || report.Probe(taken) == nil {
		t.Errorf("a folder is taken for the file: %v", err)
	}
	if left, err := os.ReadDir(taken); err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

// TestProbe makes the folder and leaves what is in it alone.
func TestProbe(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a", "b")
	run := sample(t, "p99<10ms")
	for range 2 {
		if err := report.Probe(folder); err != nil {
			t.Fatal(err)
		}
		if _, err := run.Write(folder); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 || left[0].Name() != report.FileName {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

// TestLatencyRefusesNonsense: a figure that is none is not read as zero.
func TestLatencyRefusesNonsense(t *testing.T) {
	var l report.Latency
	if err := json.Unmarshal([]byte(`{"p50":"fast"}`), &l); err == nil {
		t.Errorf("%+v", l)
	}
}

func TestFiguresForPeople(t *testing.T) {
	for us, want := range map[float64]string{
		0.0004: "0.4 ns", 0.25: "250 ns", 0.9996: "1 µs", 1: "1 µs", 12.345: "12.3 µs", 999.4: "999 µs", 999.6: "1 ms", 1083462: "1.08 s", 41999: "42 ms", 10000: "10 ms",
	} {
		if got := report.Microseconds(us); got != want {
			t.Errorf("%v µs is %q, want %q", us, got, want)
		}
	}
	for n, want := range map[int]string{64: "64 B", 1024: "1 KB", 1500: "1500 B", 65536: "64 KB", 1 << 20: "1 MB"} {
		if got := report.SizeText(n); got != want {
			t.Errorf("%d bytes are %q, want %q", n, got, want)
		}
	}
}
