package report

import (
	"fmt"
	"slices"
	"strings"

	"tailgate/transports/all"
)

// byHand tells which transports encode or decode by hand-written code what the others leave to the protobuf library. It is a choice of each
// transport and so a part of what is measured, but a reader has to know of it.
var byHand = map[string]string{
	"tcp":  "new orders and their answers, at both ends",
	"rest": "decoding of new orders, at the gateway",
	// The API of rest in other frameworks.
	"fasthttp": "decoding of new orders, at the gateway",
	"fiber":    "decoding of new orders, at the gateway",
	"echo":     "decoding of new orders, at the gateway",
}

// terms tells in which respects the transports of the table do not stand alike, above it: METHOD.md says why for each.
func (t *table) terms() {
	t.caps()
	t.encodings()
	t.codecs()
	t.connections()
}

// caps explains the mark in the names of cells with a cap.
func (t *table) caps() {
	var caps []int
	for _, c := range t.cells {
		if c.InFlight > 0 && !slices.Contains(caps, c.InFlight) {
			caps = append(caps, c.InFlight)
		}
	}
	slices.Sort(caps)
	for _, n := range caps {
		t.line("<=%d: at most %s in flight over all clients (--inflight); the wait for a place is in the response time.", n, count(int64(n), "request"))
	}
}

// encodings lists what the messages were written in, and where the same transport could have been measured with another.
func (t *table) encodings() {
	var g groups
	var others []string
	for _, name := range t.names() {
		c := t.first(name)
		g.add(orUnknown(c.Encoding), name)
		spec, err := all.Parse(c.Transport)
		if err != nil {
			continue // a run of another version may have transports that this one does not know
		}
		for _, encoding := range spec.Transport.Encodings {
			other := c.Transport + ":" + encoding
			measured := slices.ContainsFunc(t.run.Cells, func(o Cell) bool { return o.Transport == c.Transport && o.Encoding == encoding })
			if !measured && !slices.Contains(others, other) {
				others = append(others, other)
			}
		}
	}
	if text := g.text("%s on %s"); text != "" {
		if len(others) > 0 {
			text += " (there is also --transport " + strings.Join(others, ", ") + ")"
		}
		t.line("Messages: %s.", text)
	}
}

func (t *table) codecs() {
	var g groups
	for _, name := range t.names() {
		if c := t.first(name); byHand[c.Transport] != "" && c.Encoding == "protobuf" {
			g.add(byHand[c.Transport], name)
		}
	}
	if text := g.text("%[2]s (%[1]s)"); text != "" {
		t.line("Hand-written codecs: %s; all else is the protobuf library's.", text)
	}
}

// connections tells who shares one, by cells in which that makes a difference.
func (t *table) connections() {
	var g groups
	for _, name := range t.names() {
		for _, c := range t.cells {
			if asked := c.Connections.Asked; c.Name() == name && c.Clients > 1 && asked > 0 {
				how := fmt.Sprintf("%d for all clients", asked)
				if asked == c.Clients {
					how = "one for each client"
				}
				g.add(how, name)
			}
		}
	}
	if text := g.text("%s on %s"); text != "" {
		t.line("Connections: %s.", text)
	}
}

// first is the first cell with the name.
func (t *table) first(name string) *Cell {
	i := slices.IndexFunc(t.run.Cells, func(c Cell) bool { return c.Name() == name })
	return &t.run.Cells[i]
}

// groups collects names that have something in common, in the order in which they came.
type groups struct {
	common []string
	names  [][]string
}

func (g *groups) add(common, name string) {
	i := slices.Index(g.common, common)
	if i < 0 {
		i = len(g.common)
		g.common, g.names = append(g.common, common), append(g.names, nil)
	}
	if !slices.Contains(g.names[i], name) {
		g.names[i] = append(g.names[i], name)
	}
}

func (g *groups) text(format string) string {
	var parts []string
	for i, common := range g.common {
		parts = append(parts, fmt.Sprintf(format, common, strings.Join(g.names[i], ", ")))
	}
	return strings.Join(parts, "; ")
}
