package main

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"tailgate/loadtest/pacer"
	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
)

// pacingEnv asks for the test below.
const pacingEnv = "LOADTEST_PACING"

const (
	// mostLag is what the p99 of the lag at half load may be, or lagMultiple times that of the bare timer, whichever is more.
	mostLag     = 100 * time.Microsecond
	lagMultiple = 1.5
	// A rate is sustained when the generator sent all but sustainedBehind of what was due in the interval, and as many answers came within it: a server that is not
	// up to it would leave the generator without places in flight, so with nothing to do.
	sustainedBehind = 0.01
	// The search for the highest such rate stops when it is known to sustainedWidth.
	sustainedWidth = 0.05
	// halfRuns is how many runs at half load there are; the median counts.
	halfRuns = 7
)

// TestPacing measures how late the generator is at half of what the pair can do, while its cores are at full speed, since a core of a twelfth of it is not at half load, and the highest constant rate that it sustains on the clients' core, against
// a server that answers at once. Asked for ten times as much, a load tester of its own says INVALID and ends with 3.
func TestPacing(t *testing.T) {
	if testing.Short() || os.Getenv(pacingEnv) == "" {
		t.Skip("takes some 40 s a transport and a quiet machine: set " + pacingEnv + "=1")
	}
	p := bench(t, "--rate", "1000", "--arrivals", "constant", "--duration", "2s", "--warmup", "200ms", "--size", "64")
	timer, err := lateness()
	if err != nil {
		t.Fatal(err)
	}
	floor := time.Duration(timer.Values["p99"] * 1e3)
	allowed := max(mostLag, time.Duration(lagMultiple*float64(floor)))
	fmt.Fprintf(t.Output(), "a sleep of %v ends %v too late (p99), so %v of lag are allowed at half load; clients on %v, server on %v\n", sleepLength, floor, allowed, p.cores.Clients, p.cores.Server)
	rows := ""
	for _, c := range p.cells {
		if c.floor {
			continue
		}
		closed, err := p.scout(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		null := c
		null.peer = report.PeerNull
		highest, last := sustained(t, p, null)
		// Half of what a closed loop reaches (scout halves it), or of what the generator can send, whichever is less.
		load := min(closed, highest/2)
		var lags, medians, kept, wholes []float64
		for range halfRuns {
			half := pacedAt(t, p, c, load, 2*time.Second)
			if half.Speed == nil || half.Speed.Kept == 0 {
				continue
			}
			lags, medians = append(lags, float64(half.Speed.Lag.At(stats.P99).Duration)), append(medians, float64(half.Speed.Lag.At(stats.P50).Duration))
			kept, wholes = append(kept, half.Speed.Kept), append(wholes, float64(half.Lag.At(stats.P99).Duration))
		}
		if 2*len(lags) <= halfRuns {
			t.Errorf("%s: at %.0f/s the cores were at full speed in %d of %d runs", c.spec, load, len(lags), halfRuns)
			continue
		}
		lag := time.Duration(stats.Median(lags))
		rows += fmt.Sprintf("| %s | %.0f | %v (%v to %v) | %v | %.0f %% | %v | %.0f | %s | %.0f %% |\n", c.spec, load, lag, time.Duration(slices.Min(lags)), time.Duration(slices.Max(lags)),
			time.Duration(stats.Median(medians)), 100*stats.Median(kept), time.Duration(stats.Median(wholes)), highest, runner.Bound(last), 100*last.ClientUse.Share)
		if lag > allowed {
			t.Errorf("%s: at %.0f/s the lag has a p99 of %v, %v are allowed", c.spec, load, lag, allowed)
		}
		if highest < pacer.MaxRate/10 {
			ten := loadtest(t, "--transport", c.spec.Transport.Name, "--rate", fmt.Sprintf("%.0f", 10*highest), "--arrivals", "constant", "--duration", "500ms", "--warmup", "10ms", "--max-wait", "500ms", "--timeout", "2s")
			if cell := ten.run(t).Cells[0]; ten.status != exitInvalid || cell.Validity != runner.Invalid {
				t.Errorf("%s at %.0f/s, ten times what is sustained: status %d, %s because of %q", c.spec, 10*highest, ten.status, cell.Validity, cell.Reasons)
			}
		}
	}
	fmt.Fprintf(t.Output(), "\n| transport | half load, requests/s | its lag p99, cores at full speed | p50 | share of the time | p99 of the whole interval | highest rate of one generator core against a null server | bound by there | client core |\n|---|---|---|---|---|---|---|---|---|\n%s", rows)
}

// pacedAt runs the cell at a rate.
func pacedAt(t *testing.T, p *plan, c cell, rate float64, length time.Duration) runner.Outcome {
	t.Helper()
	rc, out, err := p.try(t.Context(), c, rate, length, 0)
	if err != nil {
		t.Fatal(err)
	}
	if out.Wrong > 0 {
		t.Errorf("%s at %.0f/s: %d wrong answers: %s", rc.Spec, rate, out.Wrong, out.FirstWrong)
	}
	return out
}

// sustained doubles the rate until the generator falls behind, and closes in. A rate that fails is tried once more: what is looked for is what the generator can do,
// and a machine that stood still says nothing of it.
func sustained(t *testing.T, p *plan, c cell) (rate float64, at runner.Outcome) {
	t.Helper()
	low, high := 0.0, 0.0
	for next := 4000.0; high == 0 || high > low*(1+sustainedWidth); {
		kept := false
		for try := 0; try < 2 && !kept; try++ {
			out := pacedAt(t, p, c, next, time.Second)
			behind := float64(out.Behind) / float64(max(out.Scheduled, 1))
			kept = behind < sustainedBehind && out.Throughput >= (1-sustainedBehind)*next
			fmt.Fprintf(t.Output(), "%s: %.0f/s: %.2f %% behind, %.0f/s answered, lag p99 %v\n", c.spec, next, 100*behind, out.Throughput, out.Lag.At(stats.P99).Duration)
			if kept {
				low, at = next, out
			}
		}
		if !kept {
			high = next
		}
		switch {
		case low == 0 && high < 100:
			t.Errorf("%s: not even %.0f/s can be sent", c.spec, high)
			return 0, at
		case low == 0:
			next /= 2
		case low >= pacer.MaxRate:
			return low, at
		case high == 0:
			next = min(2*next, pacer.MaxRate)
		default:
			next = (low + high) / 2
		}
	}
	return low, at
}
