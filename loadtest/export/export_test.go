package export_test

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"tailgate/loadtest/export"
	"tailgate/loadtest/hardware"
	"tailgate/loadtest/machine"
	"tailgate/loadtest/record"
	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/sockets"
	"tailgate/loadtest/stats"
)

// result has n requests, one every 10 ms, that took 1, 2, ... n times 10 µs, and some that were lost.
func result(t *testing.T, n, lost int) record.Result {
	t.Helper()
	r := record.New(1, 1)
	for i := range n {
		r.Client(0).Answered(record.OK, record.Times{Due: time.Duration(i) * 10 * time.Millisecond, Response: time.Duration(i+1) * 10 * time.Microsecond}, "")
	}
	for range lost {
		r.Client(0).Lost(record.TimedOut, 0, time.Second, "")
	}
	r.Client(0).Flush()
	out, err := r.Result()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// run is a run of a good cell, one with losses, and one that is INVALID.
func run(t *testing.T) report.Run {
	t.Helper()
	slo, err := stats.ParseSLO("p99<10ms")
	if err != nil {
		t.Fatal(err)
	}
	rate := 100.0
	r := report.Run{Schema: report.Schema, Method: report.Method{SLO: []string{"p99<10ms"}}}
	for i, c := range []struct {
		n, lost int
		verdict runner.Verdict
	}{{2000, 0, runner.Valid}, {2000, 30, runner.Suspect}, {100, 0, runner.Invalid}} {
		cell := report.Cell{Transport: "tcp", Spec: "tcp", Size: 64, Clients: i + 1, Run: 1, Mode: "open", OfferedRate: &rate, Arrivals: "constant", Started: time.Unix(1_800_000_000, 5e8)}
		cell.Fill(runner.Outcome{
			Result: result(t, c.n, c.lost), Started: cell.Started, Seconds: 20, Throughput: 100,
			ClientUse: runner.Use{Counters: machine.Counters{
				At: 20 * time.Second, UserCPU: 4 * time.Millisecond, MutexWait: 3 * time.Millisecond, GCCycles: 7, Hardware: hardware.Reading{NotAvailable: "none here"},
				SchedulerLatency: machine.Histogram{{From: 0, Until: 64, Count: 90}, {From: 1024, Until: 2000, Count: 10}},
			}},
			ClientTCP: sockets.End{Connections: 1, Retransmits: 5, ReceiverLimited: time.Second, SegmentsSent: 4000}, ServerTCP: sockets.End{NotAvailable: "elsewhere"},
		}, runner.Validity{Verdict: c.verdict, Reasons: []string{`a "reason"; with | and, commas`}}, []stats.SLO{slo})
		if c.verdict != runner.Suspect { // of one of the two whose figures are results nobody knows the cores' speed
			throughput, ratio := 123.0, 1.125
			cell.Speed = &report.Speed{
				SlowShare: 0.125, Slowest: 12, KeptShare: 0.75, Throughput: &throughput, Amplification: &ratio,
				Response: &report.Latency{Count: 1500, Values: map[string]float64{"p50": 8000, "p99": 9000}, TooFew: []string{"p99.9"}},
			}
		}
		r.Cells = append(r.Cells, cell)
	}
	return r
}

// TestHistograms: what other tools read in the files is what was recorded.
func TestHistograms(t *testing.T) {
	folder, r := t.TempDir(), run(t)
	res := result(t, 2000, 30)
	if err := export.Histograms(folder, r.Cells[1], res); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(folder, "tcp-64B-x2-100ps-constant-run1")
	log, err := os.ReadFile(name + ".hlog")
	if err != nil {
		t.Fatal(err)
	}
	reader := hdrhistogram.NewHistogramLogReader(bytes.NewReader(log))
	var total, blocks int64
	for {
		h, err := reader.NextIntervalHistogram()
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if h == nil {
			break
		}
		// Block i holds the requests that were due in it, which took as much longer as they were later.
		first := time.Duration(h.Min())
		if want := time.Duration(total+1) * 10 * time.Microsecond; blocks > 0 && math.Abs(float64(first-want)) > 0.006*float64(want) {
			t.Errorf("block %d begins with %v, want %v", blocks, first, want)
		}
		n := h.TotalCount()
		if blocks == 0 {
			n -= 30 // the lost ones
		}
		total += n
		blocks++
	}
	if total != 2000 || blocks < 64 || blocks > 128 {
		t.Errorf("%d requests in %d blocks, want 2000 in 64 to 128", total, blocks)
	}

	text, err := os.ReadFile(name + ".hgrm")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`^ *([0-9.]+) +([0-9.]+) +([0-9]+) +([0-9.]+|inf)$`)
	last, lines := 0.0, 0
	scanner := bufio.NewScanner(bytes.NewReader(text))
	for scanner.Scan() {
		m := line.FindStringSubmatch(scanner.Text())
		if m == nil {
			continue
		}
		lines++
		us, _ := strconv.ParseFloat(m[1], 64)
		percentile, _ := strconv.ParseFloat(m[2], 64)
		count, _ := strconv.ParseFloat(m[3], 64)
		if us < last || math.Abs(count/2030-percentile) > 0.03 && percentile < 1 {
			t.Errorf("%q: values fall, or the count is not the percentile's", m[0])
		}
		// The n-th smallest is n times 10 µs, and the lost ones stand at the end.
		if want := 10 * count; count <= 2000 && math.Abs(us-want) > 0.002*want || count > 2000 && us < 3.5e9 {
			t.Errorf("%q: want %v µs", m[0], want)
		}
		last = us
	}
	if lines < 20 || !strings.HasPrefix(strings.TrimSpace(string(text)), "Value") || !strings.Contains(string(text), "Total count    =         2030") {
		t.Errorf("%d lines of\n%s", lines, text)
	}
}

// TestMetrics holds the text to OpenMetrics' own rules: families in one piece, samples that belong to them, labels that can be read, an end.
func TestMetrics(t *testing.T) {
	text := string(export.Metrics(run(t)))
	if !strings.HasSuffix(text, "\n# EOF\n") {
		t.Error("it has no end")
	}
	sample := regexp.MustCompile(`^([a-z][a-z0-9_]*)\{((?:[a-z]+="(?:[^"\\\n]|\\.)*",?)+)\} ([-+0-9.eInf]+)$`)
	family, seen := "", map[string]bool{}
	values := map[string]float64{}
	for line := range strings.Lines(strings.TrimSuffix(text, "# EOF\n")) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			family, _, _ = strings.Cut(rest, " ")
			if seen[family] {
				t.Errorf("family %s comes twice", family)
			}
			seen[family] = true
			continue
		}
		if strings.HasPrefix(line, "# HELP "+family+" ") || strings.HasPrefix(line, "# UNIT "+family+" ") {
			continue
		}
		m := sample.FindStringSubmatch(line)
		if len(m) != 4 || !strings.HasPrefix(m[1], family) {
			t.Errorf("%q is no sample of %s", line, family)
			continue
		}
		v, err := strconv.ParseFloat(m[3], 64)
		key := m[1] + "{" + m[2] + "}"
		if _, twice := values[key]; err != nil || twice {
			t.Errorf("%q: %v, twice: %t", line, err, twice)
		}
		values[key] = v
	}
	labels := func(clients int) string {
		return fmt.Sprintf(`transport="tcp",size="64 B",clients="%d",mode="open",run="1",rate="100",arrivals="constant"`, clients)
	}
	for key, want := range map[string]float64{
		"tailgate_loadtest_requests_total{" + labels(2) + `,fate="timed_out"}`:  30,
		"tailgate_loadtest_requests_total{" + labels(3) + `,fate="ok"}`:         100,
		"tailgate_loadtest_valid{" + labels(1) + "}":                            1,
		"tailgate_loadtest_valid{" + labels(3) + "}":                            0,
		"tailgate_loadtest_answers_per_second{" + labels(1) + "}":               100,
		"tailgate_loadtest_response_seconds{" + labels(2) + `,quantile="0.99"}`: math.Inf(1),
		"tailgate_loadtest_response_seconds_count{" + labels(1) + "}":           2000,
		"tailgate_loadtest_response_seconds_sum{" + labels(1) + "}":             20.01,

		"tailgate_loadtest_cores_slow_ratio{" + labels(3) + "}":                            0.125,
		"tailgate_loadtest_full_speed_response_seconds{" + labels(1) + `,quantile="0.99"}`: 0.009,

		"tailgate_loadtest_user_cpu_request_seconds{" + labels(1) + `,side="client"}`:      2e-6,
		"tailgate_loadtest_mutex_wait_seconds{" + labels(1) + `,side="client"}`:            0.003,
		"tailgate_loadtest_gc_cycles{" + labels(1) + `,side="client"}`:                     7,
		"tailgate_loadtest_scheduler_latency_p99_seconds{" + labels(1) + `,side="client"}`: 2e-6,
		"tailgate_loadtest_tcp_retransmits{" + labels(1) + `,side="client"}`:               5,
		"tailgate_loadtest_tcp_receiver_limited_seconds{" + labels(2) + `,side="client"}`:  1,
	} {
		if got, ok := values[key]; !ok || got != want && math.Abs(got-want) > 1e-6*math.Abs(want) {
			t.Errorf("%s is %v (%t), want %v", key, got, ok, want)
		}
	}
	for key := range values {
		if strings.Contains(key, "cycles_per_request") || strings.Contains(key, `side="server"`) {
			t.Errorf("%s is shown, but nobody counted it", key)
		}
		if strings.Contains(key, "_seconds") && strings.Contains(key, `clients="3"`) || strings.Contains(key, `quantile="0.999"`) && strings.Contains(key, `clients="1"`) {
			t.Errorf("%s is shown, but is INVALID or too few", key)
		}
	}
}

func TestCSV(t *testing.T) {
	var out strings.Builder
	if err := export.CSV(&out, run(t)); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
	if err != nil || len(rows) != 4 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	for _, c := range []struct {
		row          int
		column, want string
	}{
		{1, "cores_slow_share", "0.125"}, {1, "full_speed_response_us_p99", "9000"}, {1, "full_speed_response_us_p99.9", ""}, {1, "full_speed_throughput", "123"}, {2, "cores_slow_share", ""}, {3, "cores_slow_share", "0.125"}, {3, "full_speed_throughput", ""},
		{1, "requests", "2000"}, {2, "timed_out", "30"}, {2, "response_us_p99", "inf"}, {1, "response_us_p99.9", ""}, {1, "offered_rate", "100"},
		{3, "validity", "INVALID"}, {3, "response_us_p50", ""}, {3, "throughput", ""}, {3, "ok", "100"}, {1, "client_user_cpu_us_per_request", "2"}, {1, "client_tcp_retransmits", "5"}, {1, "client_scheduler_latency_us_p50", "0.064"}, {1, "client_cycles_per_request", ""},
		{1, "server_user_cpu_us_per_request", ""}, {1, "server_tcp_retransmits", ""}, {3, "client_gc_cycles", ""}, {1, "reasons", `a "reason"; with | and, commas`},
	} {
		if got := rows[c.row][column[c.column]]; got != c.want {
			t.Errorf("row %d, %s: %q, want %q", c.row, c.column, got, c.want)
		}
	}
	if p50, _ := strconv.ParseFloat(rows[1][column["response_us_p50"]], 64); math.Abs(p50-10_000) > 10 {
		t.Errorf("p50 %v, want 10000 µs", p50)
	}
}

func TestMarkdown(t *testing.T) {
	var out strings.Builder
	if err := export.Markdown(&out, run(t)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if want := "| tcp, cores at full speed | 64 B | 1 | 1 | 8 ms | 9 ms | too few | 1.13x | 123 |  | 75 % of it |"; lines[3] != want {
		t.Errorf("%q, want %q", lines[3], want)
	}
	for i, line := range lines[:6] {
		if strings.Count(line, " | ") != 10 && i != 1 {
			t.Errorf("%q has not the columns of the heading", line)
		}
	}
	for _, want := range []string{"| tcp | 64 B | 1 | 1 | 10 ms |", "| inf |", "| INVALID |", "\n| tcp | 64 B | 1 | 1 | client | 2 | 0 | 0 | 0 | 0 | 0 | 0 | 2 | 5 | 7 | 2 | 0 |\n| tcp | 64 B | 1 | 1 | server | - |", "- INVALID, tcp, 64 B x 3 at 100/s constant, run 1: a \"reason\""} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
}

// TestSchemaIsJSON: it can be read, and names what it is for.
func TestSchemaIsJSON(t *testing.T) {
	var schema struct {
		Properties map[string]struct{ Const string } `json:"properties"`
	}
	if err := json.Unmarshal(export.Schema, &schema); err != nil || schema.Properties["schema"].Const != report.Schema {
		t.Errorf("%v, for %q", err, schema.Properties["schema"].Const)
	}
}
