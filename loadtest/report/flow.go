package report

import (
	"strconv"
	"strings"

	"tailgate/transports"
)

// Fairness is how equally the clients of one size were served in a closed loop.
type Fairness struct {
	Size    int     `json:"size"` // of their orders; 0 where each order draws its own, or has none
	Clients int     `json:"clients"`
	Jain    float64 `json:"jain"` // 1 = all had the same, 1/clients = one had all; 0 where nobody had any
	Min     float64 `json:"min"`  // answers a second of a client
	Mean    float64 `json:"mean"`
	Max     float64 `json:"max"`
}

// Metric is a figure of the server's own flow control.
type Metric struct {
	Name       string   `json:"name"`
	Help       string   `json:"help"`
	Kind       string   `json:"kind"`                  // counter: by how much it grew in the measured interval; gauge: its state at the end
	Value      float64  `json:"value"`                 // in the unit that ends the name
	PerRequest *float64 `json:"per_request,omitempty"` // of a counter
}

func newMetrics(list []transports.Metric, requests int64) []Metric {
	var out []Metric
	for _, m := range list {
		metric := Metric{Name: m.Name, Help: m.Help, Kind: "gauge", Value: m.Value}
		if m.Counter {
			metric.Kind = "counter"
			if requests > 0 {
				per := m.Value / float64(requests)
				metric.PerRequest = &per
			}
		}
		out = append(out, metric)
	}
	return out
}

// flow tells what the server's flow control did, of a run with one cell, and how fair clients of fixed sizes were treated, of every cell.
func (t *table) flow() {
	for i := range t.all {
		c := &t.all[i]
		if c.MixBy == "client" {
			for _, f := range c.Fairness {
				t.line("%s, clients of %s: Jain's index %s over %s, %s to %s answers/s each.", t.whereRun(c), SizeText(f.Size),
					strconv.FormatFloat(f.Jain, 'f', 4, 64), count(int64(f.Clients), "client"), Figure(f.Min), Figure(f.Max))
			}
		}
	}
	if len(t.all) != 1 || len(t.all[0].Metrics) == 0 {
		return
	}
	t.line("")
	t.line("The server's flow control, states at the end and counters over the interval (for each request):")
	var parts []string
	for _, m := range t.all[0].Metrics {
		text := m.Name + " " + Figure(m.Value)
		if m.PerRequest != nil && m.Value != 0 {
			text += " (" + Figure(*m.PerRequest) + ")"
		}
		parts = append(parts, text)
	}
	t.line("  %s", strings.Join(parts, ", "))
}
