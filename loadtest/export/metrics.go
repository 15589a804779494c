package export

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
)

// MetricsFile is the name of the metrics in the output folder.
const MetricsFile = "metrics.prom"

// Metrics is the run in OpenMetrics' text format 1.0: for a collector that reads files, so that results stand beside a gateway's own. Latencies are
// seconds. A percentile that is too few is left out, one that is infinite is +Inf. INVALID cells have their validity and accounts, and no figures.
func Metrics(r report.Run) []byte {
	var m metrics
	m.family("tailgate_loadtest_requests", "counter", "", "Requests that were due in the measured interval, by how they ended.")
	for i := range r.Cells {
		c := &r.Cells[i]
		for _, f := range []struct {
			fate string
			n    int64
		}{{"ok", c.OK}, {"rejected", c.Rejected}, {"refused", c.Refused}, {"timed_out", c.TimedOut}, {"errors", c.Errors}, {"unsent", c.Unsent}} {
			m.sample("tailgate_loadtest_requests_total", c, float64(f.n), "fate", f.fate)
		}
	}
	m.family("tailgate_loadtest_valid", "gauge", "", "1 where the measurement is VALID, 0.5 where it is SUSPECT, 0 where it is INVALID.")
	for i := range r.Cells {
		m.sample("tailgate_loadtest_valid", &r.Cells[i], map[runner.Verdict]float64{runner.Valid: 1, runner.Suspect: 0.5}[r.Cells[i].Validity])
	}
	m.family("tailgate_loadtest_answers_per_second", "gauge", "", "Answers a second.")
	for c := range counted(r) {
		m.sample("tailgate_loadtest_answers_per_second", c, c.Throughput)
	}
	for _, l := range []struct {
		name, help string
		of         func(*report.Cell) report.Latency
	}{
		{"response", "From the intended time to the answer; lost requests are infinitely late.", func(c *report.Cell) report.Latency { return c.Response }},
		{"service", "From the call of the transport to the answer, less the wait for credit.", func(c *report.Cell) report.Latency { return c.Service }},
		{"lag", "From the intended time to the call: the tester's own.", func(c *report.Cell) report.Latency { return c.Lag }},
	} {
		name := "tailgate_loadtest_" + l.name + "_seconds"
		m.family(name, "summary", "seconds", l.help)
		for c := range counted(r) {
			m.latency(name, c, l.of(c))
		}
	}
	m.family("tailgate_loadtest_cores_slow_ratio", "gauge", "", "Share of the time that a measured core ran below two thirds of its speed.")
	for i := range r.Cells {
		if s := r.Cells[i].Speed; s != nil {
			m.sample("tailgate_loadtest_cores_slow_ratio", &r.Cells[i], s.SlowShare)
		}
	}
	m.family("tailgate_loadtest_full_speed_response_seconds", "summary", "seconds", "Response time of the requests that met no slow core.")
	for c := range counted(r) {
		if c.Speed != nil && c.Speed.Response != nil {
			m.latency("tailgate_loadtest_full_speed_response_seconds", c, *c.Speed.Response)
		}
	}
	m.sides(r)
	m.out.WriteString("# EOF\n")
	return []byte(m.out.String())
}

// counted are the cells whose figures are results.
func counted(r report.Run) func(yield func(*report.Cell) bool) {
	return func(yield func(*report.Cell) bool) {
		for i := range r.Cells {
			if r.Cells[i].Validity != runner.Invalid && !yield(&r.Cells[i]) {
				return
			}
		}
	}
}

type metrics struct{ out strings.Builder }

func (m *metrics) family(name, kind, unit, help string) {
	fmt.Fprintf(&m.out, "# TYPE %s %s\n", name, kind)
	if unit != "" {
		fmt.Fprintf(&m.out, "# UNIT %s %s\n", name, unit)
	}
	fmt.Fprintf(&m.out, "# HELP %s %s\n", name, help)
}

func (m *metrics) sample(name string, c *report.Cell, value float64, labels ...string) {
	pairs := []string{"transport", c.Spec}
	if c.Orders() {
		pairs = append(pairs, "size", c.SizeName())
	}
	pairs = append(pairs, "clients", strconv.Itoa(c.Clients), "mode", c.Mode, "run", strconv.Itoa(c.Run))
	if c.OfferedRate != nil {
		pairs = append(pairs, "rate", strconv.FormatFloat(*c.OfferedRate, 'f', -1, 64), "arrivals", c.Arrivals)
	}
	if c.InFlight > 0 {
		pairs = append(pairs, "inflight", strconv.Itoa(c.InFlight))
	}
	if c.Operation != "" {
		pairs = append(pairs, "operation", c.Operation)
	}
	if c.Ack != "" {
		pairs = append(pairs, "ack", c.Ack)
	}
	var text []string
	for pair := range slices.Chunk(append(pairs, labels...), 2) {
		text = append(text, fmt.Sprintf("%s=%s", pair[0], quote(pair[1])))
	}
	fmt.Fprintf(&m.out, "%s{%s} %s\n", name, strings.Join(text, ","), strconv.FormatFloat(value, 'g', -1, 64))
}

// quote escapes a label's value as the format asks for.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}

func (m *metrics) latency(name string, c *report.Cell, l report.Latency) {
	for _, p := range stats.Percentiles {
		quantile := strconv.FormatFloat(float64(p)/1e6, 'f', -1, 64)
		if v, ok := l.Values[p.String()]; ok {
			m.sample(name, c, v/1e6, "quantile", quantile)
		} else if slices.Contains(l.Infinite, p.String()) {
			m.sample(name, c, math.Inf(1), "quantile", quantile) // written as +Inf
		}
	}
	m.sample(name+"_count", c, float64(l.Count))
	if mean, ok := l.Values["mean"]; ok {
		m.sample(name+"_sum", c, mean/1e6*float64(l.Count))
	}
}
