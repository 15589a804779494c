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
	heading = append(heading, speedHeading()...)
	heading = append(heading, sideColumns()...)
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
		row = append(row, speedColumns(c.Speed, valid)...)
		row = append(row, sideValues(c, valid)...)
		rows = append(rows, append(row, strings.Join(c.Reasons, "; ")))
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("export: CSV: %w", err)
	}
	return nil
}

func speedHeading() []string {
	heading := []string{"cores_slow_share", "cores_slowest", "full_speed_kept_share", "full_speed_throughput", "full_speed_amplification"}
	for _, f := range csvFigures {
		heading = append(heading, "full_speed_response_us_"+f)
	}
	return heading
}

// speedColumns are empty where nobody looked at the cores, or the rest is too little.
func speedColumns(s *report.Speed, valid bool) []string {
	row := make([]string, len(speedHeading()))
	if s == nil {
		return row
	}
	row[0], row[1], row[2] = number(s.SlowShare), number(s.Slowest), number(s.KeptShare)
	if s.Response == nil || !valid {
		return row
	}
	row[3], row[4] = optional(s.Throughput), optional(s.Amplification)
	for i, f := range csvFigures {
		row[5+i] = figure(*s.Response, f, valid)
	}
	return row
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

// Markdown writes one table with a row for every run of every cell, one with a row for each side of those that are results, and the reasons below them.
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
		out.WriteString(markdownRow(cells))
		if s := c.Speed; s != nil && s.Response != nil && c.Validity != runner.Invalid {
			row := s.Row()
			out.WriteString(markdownRow([]string{c.Name() + ", cores at full speed", c.SizeName(), strconv.Itoa(c.Clients), strconv.Itoa(c.Run), row.P50, row.P99, row.P999, row.Amplification, row.Throughput, "", fmt.Sprintf("%.0f %% of it", 100*s.KeptShare)}))
		}
		if c.Validity != runner.Valid {
			reasons = append(reasons, fmt.Sprintf("- %s, %s, run %d: %s", c.Validity, c.Key(), c.Run, strings.Join(c.Reasons, "; ")))
		}
	}
	sidesTable(&out, r)
	if len(reasons) > 0 {
		out.WriteString("\n" + strings.Join(reasons, "\n") + "\n")
	}
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("export: Markdown: %w", err)
	}
	return nil
}

// sidesTable writes what both sides used.
func sidesTable(out *strings.Builder, r report.Run) {
	columns := []struct{ heading, column string }{
		{"user CPU µs", "user_cpu_us_per_request"}, {"system CPU µs", "system_cpu_us_per_request"},
		{"switches, voluntary", "voluntary_switches_per_request"}, {"involuntary", "involuntary_switches_per_request"},
		{"minor faults", "minor_faults_per_request"}, {"bytes", "allocated_bytes_per_request"}, {"objects", "allocated_objects_per_request"},
		{"TCP segments", "tcp_segments_per_request"}, {"sent again, in all", "tcp_retransmits"}, {"collections, in all", "gc_cycles"},
		{"scheduler p99 µs", "scheduler_latency_us_p99"}, {"peak MiB", "peak_rss_bytes"},
	}
	var rows strings.Builder
	for c := range counted(r) {
		for _, side := range c.Sides() {
			cells := []string{c.Name(), c.SizeName(), strconv.Itoa(c.Clients), strconv.Itoa(c.Run), side.Name}
			for _, column := range columns {
				cells = append(cells, sideText(side, column.column))
			}
			rows.WriteString(markdownRow(cells))
		}
	}
	if rows.Len() == 0 {
		return
	}
	out.WriteString("\nWhat each side used, for each request unless said otherwise:\n\n| transport | size | clients | run | side |")
	for _, column := range columns {
		out.WriteString(" " + column.heading + " |")
	}
	out.WriteString("\n|---|---|---:|---:|---|" + strings.Repeat("---:|", len(columns)) + "\n" + rows.String())
}

// sideText is a figure to three digits, "-" where it is not known.
func sideText(side report.Side, column string) string {
	for _, f := range sideFigures {
		if f.column != column {
			continue
		}
		v, ok := f.of(side)
		switch {
		case !ok:
			return "-"
		case column == "peak_rss_bytes":
			return strconv.FormatFloat(v/(1<<20), 'f', 0, 64)
		default:
			return report.Figure(v)
		}
	}
	panic("export: no side has the figure " + column)
}

// markdownRow is one line of a table.
func markdownRow(cells []string) string {
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}
