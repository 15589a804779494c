package report

import (
	"fmt"
	"slices"

	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
)

// summarize makes one cell of all runs of one, for the table: medians over the runs whose measurement counts. The run is the unit;
// percentiles are never averaged within one, nor their samples thrown together over several.
func summarize(cells []Cell) []Cell {
	var out []Cell
	var keys []string
	groups := map[string][]Cell{}
	for i := range cells {
		key := cells[i].Key()
		if groups[key] == nil {
			keys = append(keys, key)
		}
		groups[key] = append(groups[key], cells[i])
	}
	for _, key := range keys {
		out = append(out, summary(groups[key]))
	}
	return out
}

func summary(runs []Cell) Cell {
	if len(runs) == 1 {
		return runs[0]
	}
	counted := slices.DeleteFunc(slices.Clone(runs), func(c Cell) bool { return c.Validity == runner.Invalid })
	if len(counted) == 0 {
		return runs[0]
	}
	c := counted[0]
	c.Response = medians(counted, false)
	c.Speed = medianSpeed(counted)
	c.Amplification, c.FloorMultiple = medianOf(counted, func(c Cell) *float64 { return c.Amplification }), medianOf(counted, func(c Cell) *float64 { return c.FloorMultiple })
	c.Throughput = *medianOf(counted, func(c Cell) *float64 { return &c.Throughput })
	c.SLO = slices.Clone(c.SLO)
	for i := range c.SLO {
		c.SLO[i].Met = agreed(counted, i)
	}
	for _, run := range runs { // the worst decides
		if run.Validity != runner.Valid {
			c.Validity = runner.Suspect
		}
		if run.BoundBy != c.BoundBy {
			c.BoundBy = "varies"
		}
	}
	return c
}

// medians are those of the runs' response times, of the whole interval or of the cores' full speed.
func medians(runs []Cell, full bool) Latency {
	l := Latency{Count: runs[0].Response.Count, Values: map[string]float64{}}
	for _, name := range figures {
		var values []float64
		for i := range runs {
			if v, ok := runs[i].figure(name, full); ok {
				values = append(values, v)
			}
		}
		switch {
		case 2*len(values) <= len(runs):
			l.TooFew = append(l.TooFew, name)
		case finite(stats.Median(values)) == nil:
			l.Infinite = append(l.Infinite, name)
		default:
			l.Values[name] = stats.Median(values)
		}
	}
	return l
}

// medianSpeed is of the runs that have figures of the cores' full speed; nil where half of them have none.
func medianSpeed(runs []Cell) *Speed {
	with := slices.DeleteFunc(slices.Clone(runs), func(c Cell) bool { return c.Speed == nil || c.Speed.Response == nil })
	if 2*len(with) <= len(runs) {
		return nil
	}
	l := medians(with, true)
	return &Speed{
		SlowShare: *medianOf(with, func(c Cell) *float64 { return &c.Speed.SlowShare }), Slowest: *medianOf(with, func(c Cell) *float64 { return &c.Speed.Slowest }),
		KeptShare: *medianOf(with, func(c Cell) *float64 { return &c.Speed.KeptShare }), Response: &l,
		Throughput: medianOf(with, func(c Cell) *float64 { return c.Speed.Throughput }), Amplification: medianOf(with, func(c Cell) *float64 { return c.Speed.Amplification }),
	}
}

func medianOf(cells []Cell, of func(Cell) *float64) *float64 {
	var values []float64
	for _, c := range cells {
		if v := of(c); v != nil {
			values = append(values, *v)
		}
	}
	if len(values) == 0 {
		return nil
	}
	m := stats.Median(values)
	return &m
}

// agreed is whether an objective was met: in every run, or not in one; nil where a run has no verdict and none missed it.
func agreed(runs []Cell, i int) *bool {
	met := new(true)
	for _, run := range runs {
		switch {
		case len(run.SLO) <= i || run.SLO[i].Met == nil:
			if *met {
				return nil
			}
		case !*run.SLO[i].Met:
			return new(false)
		}
	}
	return met
}

// spread tells how far the runs of a cell lie apart.
func (t *table) spread() {
	if t.run.Method.Repeat <= 1 {
		return
	}
	t.line("")
	t.line("Rows are medians over runs; lowest to highest of them:")
	for i := range t.cells {
		text, n := "", 0
		for _, name := range []string{"p50", "p99", "p99.9"} {
			var values []float64
			for j := range t.all {
				if v, ok := t.all[j].Response.Values[name]; ok && t.all[j].Key() == t.cells[i].Key() && t.all[j].Validity != runner.Invalid {
					values = append(values, v)
				}
			}
			if n = max(n, len(values)); len(values) > 1 {
				text += fmt.Sprintf("; %s %s to %s", name, Microseconds(slices.Min(values)), Microseconds(slices.Max(values)))
			}
		}
		if text != "" {
			t.line("  %s, %s%s", t.cells[i].where(), count(int64(n), "run"), text)
		}
	}
}
