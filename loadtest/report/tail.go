package report

import (
	"fmt"
	"slices"
	"strings"

	"tailgate/loadtest/runner"
)

// tail compares the tails of the transports in the heaviest cell in which at least two have a known p99. The lowest p99 wins: P99/P50 stands
// beside it, since a transport that is slow throughout has a small ratio and a long tail. Whoever has no p99 there is named.
func (t *table) tail() {
	for _, last := range slices.Backward(t.cells) {
		var best, worst *Cell
		known, without := 0, []string{}
		for j := range t.cells {
			c := &t.cells[j]
			if c.Size != last.Size || c.Clients != last.Clients || c.IsFloor() {
				continue
			}
			p99, ok := c.p99()
			if !ok {
				without = append(without, c.Name())
				continue
			}
			known++
			if best == nil {
				best, worst = c, c
			}
			if lowest, _ := best.p99(); p99 < lowest {
				best = c
			}
			if highest, _ := worst.p99(); p99 > highest {
				worst = c
			}
		}
		if known < 2 {
			continue
		}
		text := fmt.Sprintf("At %s x %d ", last.SizeName(), last.Clients)
		if best == worst {
			text += fmt.Sprintf("all %d have the same p99, %s", known, best.Response.text("p99"))
		} else {
			text += fmt.Sprintf("p99 is lowest on %s and highest on %s", best.tailText(), worst.tailText())
		}
		if len(without) > 0 {
			text += "; no p99 there: " + strings.Join(without, ", ")
		}
		t.line("%s.", text)
		return
	}
}

// p99 is the cell's in microseconds, where its measurement counts and the samples carry it.
func (c *Cell) p99() (float64, bool) {
	v, ok := c.Response.Values["p99"]
	return v, ok && c.Validity != runner.Invalid
}

func (c *Cell) tailText() string {
	return fmt.Sprintf("%s (%s, P99/P50 %s)", c.Name(), c.Response.text("p99"), amplificationText(c.Amplification))
}
