package export

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
)

// csvFigures are the latencies of a row and their figures.
var csvFigures = []string{"mean", "min", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"}

// CSV writes one row for every run of every cell, with a heading (RFC 4180). Times are microseconds; a figure that is too few is empty, one that is
// infinite is "inf". INVALID cells have their accounts and no figures.
func CSV(w io.Writer, r report.Run) error {
	out := csv.NewWriter(w)
	heading := []string{
		"transport", "spec", "encoding", "operation", "ack", "size", "clients", "inflight", "mode", "offered_rate", "arrivals", "run", "order", "validity", "seconds",
		"requests", "ok", "rejected", "refused", "timed_out", "errors", "unsent", "good", "throughput", "amplification", "floor_multiple",
	}
	latencies := []string{"response_us", "service_us", "lag_us", "server_us"}
	for _, l := range latencies {
		for _, f := range csvFigures {
			heading = append(heading, l+"_"+f)
		}
	}
	rows := [][]string{append(heading, "reasons")}
	for i := range r.Cells {
		c := &r.Cells[i]
		row := []string{
			c.Transport, c.Spec, c.Encoding, c.Operation, c.Ack, sizeColumn(c), strconv.Itoa(c.Clients), strconv.Itoa(c.InFlight), c.Mode, optional(c.OfferedRate), c.Arrivals,
			strconv.Itoa(c.Run), strconv.Itoa(c.Order), string(c.Validity), number(c.Seconds),
		}
		for _, n := range []int64{c.Requests, c.OK, c.Rejected, c.Refused, c.TimedOut, c.Errors, c.Unsent} {
			row = append(row, strconv.FormatInt(n, 10))
		}
		valid := c.Validity != runner.Invalid
		if valid {
			row = append(row, strconv.FormatInt(c.Good, 10), number(c.Throughput), optional(c.Amplification), optional(c.FloorMultiple))
		} else {
			row = append(row, "", "", "", "")
		}
		for _, l := range []report.Latency{c.Response, c.Service, c.Lag, c.Server} {
			for _, f := range csvFigures {
				row = append(row, figure(l, f, valid))
			}
		}
		rows = append(rows, append(row, strings.Join(c.Reasons, "; ")))
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("export: CSV: %w", err)
	}
	return nil
}

func sizeColumn(c *report.Cell) string {
	switch {
	case !c.Orders():
		return ""
	case len(c.SizeMix) > 0:
		return c.SizeName()
	}
	return strconv.Itoa(c.Size)
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func optional(v *float64) string {
	if v == nil {
		return ""
	}
	return number(*v)
}

func figure(l report.Latency, name string, valid bool) string {
	v, ok := l.Values[name]
	switch {
	case !valid:
		return ""
	case ok:
		return number(v)
	case slices.Contains(l.Infinite, name):
		return "inf"
	default:
		return ""
	}
}

// Markdown writes one table with a row for every run of every cell, and the reasons below it.
func Markdown(w io.Writer, r report.Run) error {
	var out strings.Builder
	out.WriteString("| transport | size | clients | run | p50 | p99 | p99.9 | P99/P50 | answers/s | " + strings.Join(r.Method.SLO, ", ") + " | measured |\n")
	out.WriteString("|---|---|---:|---:|---:|---:|---:|---:|---:|---|---|\n")
	var reasons []string
	for i := range r.Cells {
		c := &r.Cells[i]
		cells := []string{c.Name(), c.SizeName(), strconv.Itoa(c.Clients), strconv.Itoa(c.Run)}
		if c.Validity == runner.Invalid {
			cells = append(cells, "-", "-", "-", "-", "-", "-", string(c.Validity))
		} else {
			row := c.Row()
			cells = append(cells, row.P50, row.P99, row.P999, row.Amplification, row.Throughput, row.SLO, string(c.Validity))
		}
		for j := range cells {
			cells[j] = strings.ReplaceAll(cells[j], "|", `\|`)
		}
		out.WriteString("| " + strings.Join(cells, " | ") + " |\n")
		if c.Validity != runner.Valid {
			reasons = append(reasons, fmt.Sprintf("- %s, %s, run %d: %s", c.Validity, c.Key(), c.Run, strings.Join(c.Reasons, "; ")))
		}
	}
	if len(reasons) > 0 {
		out.WriteString("\n" + strings.Join(reasons, "\n") + "\n")
	}
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("export: Markdown: %w", err)
	}
	return nil
}
