package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"tailgate/loadtest/runner"
)

// Width is the number of columns that the table keeps to.
const Width = 100

// maxSuspectNotes bounds how many suspect cells are explained below the table; run.json has all reasons.
const maxSuspectNotes = 6

// layout is one line of the table: transport, p50, p99, p99.9, P99/P50, answers a second, SLO, bound by, measurement.
const layout = "  %-20s %8s %8s %8s %8s %9s  %-11s %-8s %s"

// Table writes the run for a person: cells grouped by size and clients, so that transports stand beside each other, then what was lost, what
// speaks against the measurement, and what it comes to.
func Table(w io.Writer, r Run) error {
	t := table{run: r, all: slices.Clone(r.Cells)}
	slices.SortStableFunc(t.all, func(a, b Cell) int {
		return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Clients, b.Clients))
	})
	t.cells = summarize(t.all)
	t.heading()
	t.terms()
	t.groups()
	t.spread()
	t.why()
	t.flow()
	t.lost()
	t.validity()
	t.closing()
	_, err := io.WriteString(w, t.out.String())
	return err
}

type table struct {
	run   Run
	all   []Cell // every run
	cells []Cell // one for all runs of a cell
	out   strings.Builder
}

func (t *table) line(format string, args ...any) {
	text := strings.TrimRight(fmt.Sprintf(format, args...), " ")
	if indent := "    "; len([]rune(text)) > Width {
		text = wrap(text, indent)
	}
	t.out.WriteString(text + "\n")
}

// wrap breaks a line at spaces so that it keeps to Width; following lines are indented.
func wrap(text, indent string) string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "" && len(lines) == 0:
			line = text[:len(text)-len(strings.TrimLeft(text, " "))] + word
		case len([]rune(line))+1+len([]rune(word)) > Width:
			lines = append(lines, line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	return strings.Join(append(lines, line), "\n")
}

func (t *table) heading() {
	m := t.run.Method
	where := "gateway hosted, fresh for every cell, journal " + m.Journal
	if t.run.Timer != nil {
		where = "no gateway, a server hosted afresh for every cell"
	}
	if m.Target != "" {
		where = "gateway at " + m.Target
	}
	cores := "not pinned"
	switch {
	case m.Pinned && len(m.ServerCores) > 0:
		cores = fmt.Sprintf("server on core %s, clients on core %s", list(m.ServerCores), list(m.ClientCores))
	case m.Pinned:
		cores = "clients on core " + list(m.ClientCores)
	}
	loop := "Closed loop, response time from the moment a client became free"
	if m.Loop == "open" {
		loop = "Open loop" + t.pace() + ", response time from the scheduled time of sending"
	}
	t.line("%s; %s; %s.", loop, where, cores)
	e := t.run.Environment
	t.line("%s, %d cores, kernel %s, %s, %s.", orUnknown(e.CPU), e.OnlineCores, orUnknown(e.Kernel), e.GoVersion, orUnknown(e.CongestionControl))
	if len(t.cells) > 0 && len(t.cells[0].SizeMix) > 0 {
		t.line("Sizes by weight: %s.", t.cells[0].SizeName())
	}
	if t.run.Interrupted {
		t.line("INTERRUPTED: %s", t.interrupted())
	}
}

// interrupted says what there is of a run that was stopped early.
func (t *table) interrupted() string {
	if t.run.Planned == 0 {
		return "what follows is what was known by then."
	}
	whole, part := 0, 0
	for _, c := range t.run.Cells {
		switch {
		case c.Client == nil: // not measured
		case c.Interrupted:
			part++
		default:
			whole++
		}
	}
	return fmt.Sprintf("%d of %d cells were measured whole, %d in part, %d not at all.", whole, t.run.Planned, part, t.run.Planned-whole-part)
}

// pace is the rate of an open loop, the same for every cell.
func (t *table) pace() string {
	if len(t.cells) == 0 || t.cells[0].OfferedRate == nil {
		return ""
	}
	return fmt.Sprintf(" at %s (%s)", t.cells[0].rates(), t.cells[0].Arrivals)
}

// rates is the rate that was asked for, with its steps.
func (c *Cell) rates() string {
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	parts := []string{number(*c.OfferedRate) + "/s"}
	for _, step := range c.Steps {
		parts = append(parts, fmt.Sprintf("from %s s on %s/s", number(step.Seconds), number(step.Rate)))
	}
	return strings.Join(parts, ", ")
}

// sizeShort fits the heading of a group.
func (c *Cell) sizeShort() string {
	if len(c.SizeMix) > 0 {
		return "mix"
	}
	return c.SizeName()
}

// SizeName is the cell's size, or its mix of sizes, or the operation that has none.
func (c *Cell) SizeName() string {
	if !c.Orders() {
		return c.Operation
	}
	if len(c.SizeMix) == 0 {
		return SizeText(c.Size)
	}
	var parts []string
	for _, share := range c.SizeMix {
		parts = append(parts, SizeText(share.Size)+":"+strconv.FormatFloat(share.Weight, 'f', -1, 64))
	}
	return strings.Join(parts, " ")
}

func orUnknown(text string) string { return cmp.Or(text, "unknown") }

func list(cores []int) string {
	text := make([]string, len(cores))
	for i, c := range cores {
		text[i] = strconv.Itoa(c)
	}
	return strings.Join(text, ",")
}

func (t *table) groups() {
	for i := 0; i < len(t.cells); {
		first := t.cells[i]
		t.line("")
		t.line(layout, fmt.Sprintf("%s x %s", first.sizeShort(), count(int64(first.Clients), "client")),
			"p50", "p99", "p99.9", "P99/P50", "answers/s", t.sloHeading(), "bound by", "measured")
		for ; i < len(t.cells) && t.cells[i].Size == first.Size && t.cells[i].Clients == first.Clients; i++ {
			t.row(t.cells[i])
		}
	}
}

func (t *table) sloHeading() string {
	if len(t.run.Method.SLO) == 1 && len(t.run.Method.SLO[0]) <= 11 {
		return t.run.Method.SLO[0]
	}
	return "SLOs"
}

func (t *table) row(c Cell) {
	if c.Validity == runner.Invalid {
		t.line(layout, cut(c.Name(), 20), "-", "-", "-", "-", "-", "-", cmp.Or(c.BoundBy, "-"), c.Validity)
		return
	}
	row := c.Row()
	t.line(layout, cut(c.Name(), 20), row.P50, row.P99, row.P999, row.Amplification, row.Throughput, row.SLO, cmp.Or(c.BoundBy, "-"), c.Validity)
	if c.Speed.matters() {
		full := c.Speed.Row()
		t.line(layout, "  at full speed", full.P50, full.P99, full.P999, full.Amplification, full.Throughput, fmt.Sprintf("%.0f %% of it", 100*c.Speed.KeptShare), "", "")
	}
}

// Row is the figures of a cell for a person.
type Row struct{ P50, P99, P999, Amplification, Throughput, SLO string }

// Row returns them.
func (c *Cell) Row() Row {
	return Row{
		P50: c.Response.text("p50"), P99: c.Response.text("p99"), P999: c.Response.text("p99.9"), Amplification: amplificationText(c.Amplification),
		Throughput: thousands(int64(c.Throughput + 0.5)), SLO: c.sloText(),
	}
}

func amplificationText(ratio *float64) string {
	if ratio == nil {
		return "-"
	}
	return strconv.FormatFloat(round(*ratio), 'f', -1, 64) + "x"
}

// Row returns the figures of the full speed for a person.
func (s *Speed) Row() Row {
	return Row{
		P50: s.Response.text("p50"), P99: s.Response.text("p99"), P999: s.Response.text("p99.9"), Amplification: amplificationText(s.Amplification),
		Throughput: thousands(int64(*s.Throughput + 0.5)),
	}
}

// matters says whether there are figures of the full speed that are not those of the whole interval.
func (s *Speed) matters() bool {
	return s != nil && s.Response != nil && s.SlowShare >= runner.SuspectSlow
}

// Name is how the table calls the cell.
func (c *Cell) Name() string {
	name := cmp.Or(c.Spec, c.Transport)
	switch c.Peer {
	case PeerNull:
		name += " (null)"
	case PeerSpin:
		name += " (spinning)"
	case PeerTurn:
		name += " (in turn)"
	}
	if c.InFlight > 0 {
		name += fmt.Sprintf(" <=%d", c.InFlight)
	}
	return name
}

func (c *Cell) sloText() string {
	if c.IsFloor() || c.Peer == PeerNull || len(c.SLO) == 0 {
		return "-"
	}
	met, decided := 0, 0
	for _, o := range c.SLO {
		if o.Met != nil {
			decided++
			if *o.Met {
				met++
			}
		}
	}
	switch {
	case met < decided && len(c.SLO) == 1:
		return "MISSED"
	case met < decided:
		return fmt.Sprintf("MISSED %d/%d", decided-met, len(c.SLO))
	case decided < len(c.SLO):
		return "too few"
	default:
		return "met"
	}
}

// text is a figure of the latency for a person.
func (l Latency) text(name string) string {
	if v, ok := l.Values[name]; ok {
		return Microseconds(v)
	}
	if slices.Contains(l.Infinite, name) {
		return "inf"
	}
	return "too few"
}

// Microseconds is a time in the unit that suits it, to three digits.
func Microseconds(us float64) string {
	switch v := round(us); {
	case v < 1:
		return strconv.FormatFloat(round(us*1000), 'f', -1, 64) + " ns"
	case v < 1000:
		return strconv.FormatFloat(v, 'f', -1, 64) + " µs"
	case v < 1e6:
		return strconv.FormatFloat(round(us/1000), 'f', -1, 64) + " ms"
	default:
		return strconv.FormatFloat(round(us/1e6), 'f', -1, 64) + " s"
	}
}

// SizeText writes a size as --size takes it.
func SizeText(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + " MB"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + " KB"
	default:
		return strconv.Itoa(n) + " B"
	}
}

func thousands(n int64) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(n) + " " + what + "s"
}

func cut(text string, width int) string {
	if r := []rune(text); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return text
}

// where names a cell in a sentence.
func (c *Cell) where() string {
	return fmt.Sprintf("%s, %s x %d", c.Name(), c.SizeName(), c.Clients)
}

func (t *table) whereRun(c *Cell) string {
	if t.run.Method.Repeat > 1 {
		return fmt.Sprintf("%s, run %d", c.where(), c.Run)
	}
	return c.where()
}

// lost tells of requests without an answer, and of rejected ones.
func (t *table) lost() {
	first := true
	for _, c := range t.all {
		var parts []string
		for _, p := range []struct {
			name string
			n    int64
		}{{"rejected", c.Rejected}, {"refused", c.Refused}, {"timed out", c.TimedOut}, {"errors", c.Errors}, {"unsent", c.Unsent}} {
			if p.n > 0 {
				parts = append(parts, fmt.Sprintf("%s %s", thousands(p.n), p.name))
			}
		}
		if len(parts) == 0 {
			continue
		}
		if first {
			t.line("")
			t.line("Not simply acknowledged (all but the rejected count as infinitely late):")
			first = false
		}
		t.line("  %s: %s of %s%s", t.whereRun(&c), strings.Join(parts, ", "), count(c.Requests, "request"), notes(c.Notes))
	}
}

func notes(counts map[string]int64) string {
	if len(counts) == 0 {
		return ""
	}
	type note struct {
		text string
		n    int64
	}
	var all []note
	for text, n := range counts {
		all = append(all, note{text, n})
	}
	slices.SortFunc(all, func(a, b note) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.text, b.text)) })
	var texts []string
	for _, n := range all[:min(len(all), 3)] {
		texts = append(texts, strings.TrimPrefix(n.text, "REASON_"))
	}
	return " (" + strings.Join(texts, ", ") + ")"
}

// validity tells what speaks against measurements: of every invalid cell, of some suspect ones.
func (t *table) validity() {
	suspect, told := 0, 0
	var lines []string
	for _, c := range t.all {
		if c.Validity == runner.Suspect {
			if suspect++; suspect > maxSuspectNotes {
				continue
			}
			told++
		}
		if c.Validity != runner.Valid {
			lines = append(lines, fmt.Sprintf("  %s, %s: %s", c.Validity, t.whereRun(&c), strings.Join(c.Reasons, "; ")))
		}
	}
	if len(lines) == 0 {
		return
	}
	t.line("")
	t.line("What speaks against these measurements:")
	for _, line := range lines {
		t.line("%s", line)
	}
	if suspect > told {
		t.line("  SUSPECT: %d more cells, with their reasons in %s", suspect-told, FileName)
	}
}

// closing is what the run comes to: the objective by transport, the multiple of the floor, the lowest and the highest tail.
func (t *table) closing() {
	t.line("")
	if t.run.Timer == nil {
		for _, name := range t.names() {
			t.line("%s", t.objective(name))
		}
	} else {
		t.line("(null): the transport's own server with nothing behind it. A sleep of 500 µs ends %s too late at p50, %s at p99: the floor of an open loop's lag.", t.run.Timer.text("p50"), t.run.Timer.text("p99"))
	}
	t.floor()
	t.tail()
}

// names lists the transports in the order in which they were asked for.
func (t *table) names() []string {
	var names []string
	for _, c := range t.run.Cells {
		if !c.IsFloor() && !slices.Contains(names, c.Name()) {
			names = append(names, c.Name())
		}
	}
	return names
}

func (t *table) objective(name string) string {
	met, missed, unknown := 0, []string{}, 0
	for _, c := range t.cells {
		if c.Name() != name {
			continue
		}
		switch text := c.sloText(); {
		case c.Validity == runner.Invalid || text == "too few" || text == "-":
			unknown++
		case text == "met":
			met++
		default:
			missed = append(missed, fmt.Sprintf("%s x %d", c.SizeName(), c.Clients))
		}
	}
	total := met + len(missed) + unknown
	text := fmt.Sprintf("%s: %s met in %d of %s", name, strings.Join(t.run.Method.SLO, " and "), met, count(int64(total), "cell"))
	if len(missed) > 0 {
		text += ", missed at " + strings.Join(missed, ", ")
	}
	if unknown > 0 {
		text += fmt.Sprintf(", %d without a verdict", unknown)
	}
	return text + "."
}

func (t *table) floor() {
	for _, f := range t.cells {
		if !f.isEcho() || f.Validity == runner.Invalid {
			continue
		}
		var parts []string
		for _, c := range t.cells {
			if c.FloorMultiple != nil && !c.IsFloor() && c.Validity != runner.Invalid && c.Size == f.Size && c.Clients == f.Clients {
				parts = append(parts, fmt.Sprintf("%s %sx", c.Name(), strconv.FormatFloat(round(*c.FloorMultiple), 'f', -1, 64)))
			}
		}
		if _, known := f.Response.Values["p50"]; known && len(parts) > 0 {
			t.line("A bare echo takes %s at p50 (%s x %d); as a multiple of it: %s.", f.Response.text("p50"), SizeText(f.Size), f.Clients, strings.Join(parts, ", "))
		}
	}
}
