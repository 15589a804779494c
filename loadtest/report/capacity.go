package report

import (
	"fmt"
	"io"
	"strings"

	"tailgate/loadtest/capacity"
)

// Capacity is the highest rate at which an objective is kept, by RFC 9971.
type Capacity struct {
	Transport     string   `json:"transport"`
	Spec          string   `json:"spec"`
	Operation     string   `json:"operation"`
	Size          int      `json:"size"` // 0 where it is mixed, or where there are no orders
	Clients       int      `json:"clients"`
	SLO           string   `json:"slo"`
	LossRatio     float64  `json:"goal_loss_ratio"`           // share of requests that may be late, failed or unsent
	FinalDuration float64  `json:"goal_final_seconds"`        // of a full-length trial
	DurationSum   float64  `json:"goal_duration_sum_seconds"` // of trials that decide on a rate
	ExceedRatio   float64  `json:"goal_exceed_ratio"`         // share of that time that may lose more
	Width         float64  `json:"goal_width"`                // how near the bounds have to come: upper / lower - 1
	Arrivals      string   `json:"arrivals"`                  // of every trial: poisson or constant
	Rate          *float64 `json:"rate"`                      // the result: the relevant lower bound, requests a second; null where none was found
	Upper         *float64 `json:"upper"`                     // relevant upper bound; null where none was reached
	Conditional   *float64 `json:"conditional_throughput"`    // of requests in time, at the lower bound
	Limit         string   `json:"limit"`                     // why the bounds are not as near as asked for, an irregular result by the RFC: tester, maximum, minimum, trials, interrupted; empty where they are
	Trials        int      `json:"trials"`
}

// NewCapacity describes a result of the search; the cell says of what.
func NewCapacity(c Cell, r capacity.Result) Capacity {
	positive := func(v float64) *float64 {
		if v <= 0 {
			return nil
		}
		return &v
	}
	return Capacity{
		Transport: c.Transport, Spec: c.Spec, Operation: c.Operation, Size: c.Size, Clients: c.Clients, SLO: r.Goal.Name,
		LossRatio: r.Goal.LossRatio, FinalDuration: r.Goal.FinalDuration.Seconds(), DurationSum: r.Goal.DurationSum.Seconds(), ExceedRatio: r.Goal.ExceedRatio, Width: r.Width, Arrivals: c.Arrivals,
		Rate: positive(r.Lower), Upper: positive(r.Upper), Conditional: positive(r.Conditional), Limit: r.Limit, Trials: r.Trials,
	}
}

// limits explains them to a person.
var limits = map[string]string{
	"tester":      "at least this: more could not be offered by this tester",
	"maximum":     "at least this: no higher rate was tried (--max-rate)",
	"minimum":     "not even at the lowest rate (--min-rate)",
	"trials":      "the trials were used up (--max-trials)",
	"interrupted": "interrupted",
}

// CapacityTable writes the results of a capacity search for a person.
func CapacityTable(w io.Writer, r Run) error {
	t := table{run: r}
	t.heading()
	const layout = "  %-20s %-14s %10s %10s %10s %7s%s"
	t.line("")
	t.line(layout, "capacity", "SLO", "rate/s", "not kept", "in time/s", "trials", "")
	rate := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return thousands(int64(*v))
	}
	for _, c := range r.Capacity {
		t.line("%s", fmt.Sprintf(layout, cut(c.Spec, 20), cut(c.SLO, 14), rate(c.Rate), rate(c.Upper), rate(c.Conditional), thousands(int64(c.Trials)), ""))
	}
	var told []string
	for _, c := range r.Capacity {
		if c.Limit != "" {
			told = append(told, fmt.Sprintf("%s, %s: %s", c.Spec, c.SLO, limits[c.Limit]))
		}
		if c.Width < c.LossRatio { // RFC 9971, Section 5.6.2
			told = append(told, fmt.Sprintf("%s, %s: the width of %v is below the share of %v that may be late, so less in time than at a stricter SLO is no contradiction", c.Spec, c.SLO, c.Width, c.LossRatio))
		}
	}
	t.line("")
	if len(told) > 0 {
		t.line("%s.", strings.Join(told, "; "))
	}
	if len(r.Capacity) > 0 {
		c := r.Capacity[0]
		t.line("The rate is the highest at which trials of %v s with %s arrivals keep the SLO for %.0f %% of %v s, below all at which they do not (RFC 9971); every trial stands in %s.",
			c.FinalDuration, c.Arrivals, 100*(1-c.ExceedRatio), c.DurationSum, FileName)
	}
	_, err := io.WriteString(w, t.out.String())
	return err
}
