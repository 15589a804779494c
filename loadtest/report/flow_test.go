package report_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tailgate/loadtest/record"
	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
	"tailgate/transports"
)

// TestFlowMetrics: what the server's flow control did stands in the view of a single cell: states as they are, counters also for each request.
func TestFlowMetrics(t *testing.T) {
	result, err := record.New(1, 1).Result()
	if err != nil {
		t.Fatal(err)
	}
	result.Counts[record.OK] = 2000
	out := runner.Outcome{
		Result: result, Seconds: 1,
		Metrics: []transports.Metric{
			{Name: "credit_float_units", Help: "What is granted in turn.", Value: 65_536},
			{Name: "credit_grants_total", Help: "Grants.", Counter: true, Value: 500},
			{Name: "credit_violations_total", Help: "Peers past their grant.", Counter: true},
		},
		Fairness: []runner.Fairness{{Size: 64, Clients: 3, Jain: 0.75, Min: 1.25, Mean: 2, Max: 1500}},
	}
	c := report.Cell{Transport: "tcp", Size: 64, Clients: 3, Mode: "closed", MixBy: "client", Run: 1}
	c.Response = report.NewLatency(stats.Distribution{})
	c.Fill(out, runner.Validity{Verdict: runner.Valid}, nil)
	kinds := make([]string, len(c.Metrics))
	for i, m := range c.Metrics {
		kinds[i] = m.Kind
	}
	if !slices.Equal(kinds, []string{"gauge", "counter", "counter"}) || c.Metrics[0].PerRequest != nil || c.Metrics[1].Value != 500 || *c.Metrics[1].PerRequest != 0.25 {
		t.Errorf("%+v", c.Metrics)
	}
	text := func(cells ...report.Cell) string {
		var b strings.Builder
		if err := report.Table(&b, report.Run{Started: time.Now(), Cells: cells}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	one := text(c)
	for _, want := range []string{
		"credit_float_units 65,536, credit_grants_total 500 (0.25), credit_violations_total 0",
		"clients of 64 B: Jain's index 0.7500 over 3 clients, 1.25 to 1,500 answers/s each",
	} {
		if !strings.Contains(strings.Join(strings.Fields(one), " "), want) {
			t.Errorf("%q is not in\n%s", want, one)
		}
	}
	if strings.Contains(text(c, c), "credit_") {
		t.Error("the metrics of every cell in a table of several")
	}
}
