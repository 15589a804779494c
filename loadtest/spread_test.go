package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tailgate/loadtest/floor"
	"tailgate/loadtest/report"
	"tailgate/loadtest/stats"
	"tailgate/transports/all"
)

// capacityEnv asks for the test below: 1, or the transports that it is to look at, with commas.
const capacityEnv = "LOADTEST_CAPACITY"

const (
	// searches is how often the capacity of each transport is looked for.
	searches = 5
	// mostSpread is how far the results may lie apart, (max-min)/median, unless those of the bare echo lie further apart in the same rounds.
	mostSpread = 0.07
)

// TestCapacitySpread looks for the capacity of every transport, and of the bare echo, five times each, round by round, as loadtest capacity does unless
// told otherwise. It takes about a minute a search.
func TestCapacitySpread(t *testing.T) {
	asked := os.Getenv(capacityEnv)
	if testing.Short() || asked == "" {
		t.Skip("takes some five minutes a transport and a quiet machine: set " + capacityEnv + "=1")
	}
	p := bench(t, "capacity")
	if asked != "1" {
		p.cells = slices.DeleteFunc(p.cells, func(c cell) bool { return !slices.Contains(strings.Split(asked, ","), c.spec.Transport.Name) })
	}
	goals, err := p.goals()
	if err != nil {
		t.Fatal(err)
	}
	cells := append(slices.Clone(p.cells), cell{spec: echoSpec(), size: p.cells[0].size, clients: p.cells[0].clients, floor: true, peer: report.PeerEcho})
	found := make([][]report.Capacity, len(cells))
	for round := range searches {
		for i, c := range cells {
			begun, result := time.Now(), p.newRun(nil)
			if err := p.searchCell(t.Context(), c, goals, &result, newProgress(io.Discard)); err != nil {
				t.Fatal(err)
			}
			found[i] = append(found[i], result.Capacity[0])
			fmt.Fprintf(t.Output(), "round %d of %d: %s in %.0f s: %s\n", round+1, searches, c.spec, time.Since(begun).Seconds(), searched(result))
		}
	}
	fmt.Fprintf(t.Output(), "\n| transport | rates kept | (max-min)/median | limits |\n|---|---|---|---|\n")
	spreads := make([]float64, len(cells))
	for i, c := range cells {
		var rates []float64
		var texts, limits []string
		for _, f := range found[i] {
			rate := 0.0
			if f.Rate != nil {
				rate = *f.Rate
			}
			rates, texts = append(rates, rate), append(texts, fmt.Sprintf("%.0f", rate))
			if f.Limit != "" && !slices.Contains(limits, f.Limit) {
				limits = append(limits, f.Limit)
			}
		}
		spreads[i] = (slices.Max(rates) - slices.Min(rates)) / stats.Median(rates)
		fmt.Fprintf(t.Output(), "| %s | %s | %.1f %% | %s |\n", c.spec, strings.Join(texts, ", "), 100*spreads[i], strings.Join(limits, ", "))
	}
	allowed := max(mostSpread, spreads[len(spreads)-1])
	for i, c := range p.cells {
		if !(spreads[i] <= allowed) {
			t.Errorf("%s: the results of %d searches lie %.1f %% apart, %.1f %% are allowed", c.spec, searches, 100*spreads[i], 100*allowed)
		}
	}
}

func echoSpec() all.Spec { return all.Spec{Transport: floor.Transport()} }

// searched tells a search's result and the trials that led to it.
func searched(r report.Run) string {
	c := r.Capacity[0]
	text := fmt.Sprintf("%d trials, limit %q:", len(r.Cells), c.Limit)
	for i := range r.Cells {
		cell := &r.Cells[i]
		text += fmt.Sprintf(" %.0f/s", *cell.OfferedRate)
		if p99, ok := cell.Response.Values["p99"]; ok {
			text += fmt.Sprintf(" p99 %.1f ms", p99/1e3)
		}
		if cell.Schedule.Behind > 0 {
			text += fmt.Sprintf(" (%d behind)", cell.Schedule.Behind)
		}
		if i < len(r.Cells)-1 {
			text += ","
		}
	}
	if c.Rate != nil {
		text += fmt.Sprintf("; kept at %.0f/s", *c.Rate)
	}
	return text
}
