package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"tailgate/loadtest/floor"
	"tailgate/loadtest/report"
	"tailgate/loadtest/runner"
	"tailgate/loadtest/stats"
)

// The figures of a measurement.

type tableFigure func(*tableResult) (float64, bool)

func percentile(name string) tableFigure {
	return func(r *tableResult) (float64, bool) {
		v, ok := r.Response.Values[name]
		return v, ok
	}
}

func amplification(r *tableResult) (float64, bool) {
	if r.Amplification == nil {
		return 0, false
	}
	return *r.Amplification, true
}

func throughput(r *tableResult) (float64, bool) { return r.Throughput, r.Throughput > 0 }

func serverObjects(r *tableResult) (float64, bool) {
	if r.ServerUse == nil {
		return 0, false
	}
	return r.ServerUse.PerRequest.AllocatedObjects, true
}

// of is a figure of one cell.
func of(cell string, figure tableFigure) func(tableRound) (float64, bool) {
	return func(round tableRound) (float64, bool) {
		r := round[cell]
		if r == nil {
			return 0, false
		}
		return figure(r)
	}
}

// ratio is a figure of one cell by the same of another, in the same round.
func ratio(a, b string, figure tableFigure) func(tableRound) (float64, bool) {
	return quotient(of(a, figure), of(b, figure))
}

func quotient(a, b func(tableRound) (float64, bool)) func(tableRound) (float64, bool) {
	return func(round tableRound) (float64, bool) {
		x, ok := a(round)
		y, ok2 := b(round)
		return x / y, ok && ok2 && y > 0
	}
}

// best is the greatest of several.
func best(figures ...func(tableRound) (float64, bool)) func(tableRound) (float64, bool) {
	return func(round tableRound) (most float64, ok bool) {
		for _, f := range figures {
			if v, has := f(round); has {
				most, ok = max(most, v), true
			}
		}
		return most, ok
	}
}

// tableGroups is the table.
func tableGroups() []tableGroup {
	return slices.Concat(
		[]tableGroup{tailGroup(), smallGroup(), loneGroup(), pipelinedGroup(), overloadGroup(), mixGroup()},
		matrixGroups(),
	)
}

func tcpCell(name, spec string, args ...string) tableCell {
	return tableCell{name: name, args: append([]string{"--transport", spec}, args...)}
}

// bothFlows are the default and what everybody has, on both engines.
func bothFlows(args ...string) []tableCell {
	return []tableCell{
		tcpCell("credit net", "tcp", args...), tcpCell("none net", "tcp:none", args...),
		tcpCell("credit spin", "tcp:spin", args...), tcpCell("none spin", "tcp:none,spin", args...),
	}
}

func tailGroup() tableGroup {
	load := []string{"--size", "64KB", "--clients", "500"}
	g := tableGroup{name: "tail", rounds: tableRounds, cells: append(bothFlows(load...),
		tcpCell("grpc", "grpc", load...),
		tableCell{name: "floor net", args: append([]string{"--transport", "tcp"}, load...), floor: report.PeerTurn, engine: floor.EnginePark},
		tableCell{name: "floor spin", args: append([]string{"--transport", "tcp"}, load...), floor: report.PeerTurn, engine: floor.EngineSpin},
	)}
	for _, engine := range []string{"net", "spin"} {
		credit, none, echo := "credit "+engine, "none "+engine, "floor "+engine
		atLeast, aim := 1.0, 1.2
		if engine == "net" {
			atLeast, aim = 0.9, 1.0
		}
		g.rows = append(g.rows,
			tableRow{
				measure: "P99/P50, 500 clients x 64 KiB", engine: engine, against: "1.5, or 1.1x the echo in turn", value: of(credit, amplification), aim: 1.2, atMost: true, digits: 2,
				must: func(rounds []tableRound) (text string, limit float64) {
					var floors []float64
					for _, round := range rounds {
						if v, ok := of(echo, amplification)(round); ok {
							floors = append(floors, v)
						}
					}
					if limit = 1.5; len(floors) > 0 {
						limit = max(limit, 1.1*stats.Median(floors))
						return fmt.Sprintf("at most %.2f (the echo's %.2f)", limit, stats.Median(floors)), limit
					}
					return "at most 1.5 (no echo)", limit
				},
			},
			tableRow{measure: "P99 there", engine: engine, against: "gRPC, one connection", value: ratio(credit, "grpc", percentile("p99")), mustBe: 0.25, aim: 0.08, atMost: true, digits: 3},
			tableRow{measure: "P99 there, by `none`'s", engine: engine, against: "`none`, same engine", value: ratio(credit, none, percentile("p99")), mustBe: 0.85, aim: 0.6, atMost: true, digits: 2},
			tableRow{measure: "answers/s there", engine: engine, against: "`none`, same engine", value: ratio(credit, none, throughput), mustBe: atLeast, aim: aim, digits: 2},
			tableRow{measure: "objects allocated on the server for a request, 64 KiB", engine: engine, against: "none", value: of(credit, serverObjects), mustBe: noAllocation, aim: noAllocation, atMost: true, digits: 3},
		)
	}
	return g
}

func smallGroup() tableGroup {
	g := tableGroup{name: "small", rounds: tableRounds, cells: bothFlows("--size", "64", "--clients", "500")}
	for _, engine := range []string{"net", "spin"} {
		g.rows = append(g.rows,
			tableRow{measure: "answers/s, 500 clients x 64 B", engine: engine, against: "`none`, same engine", value: ratio("credit "+engine, "none "+engine, throughput), mustBe: 0.95, aim: 1, digits: 2},
			tableRow{measure: "objects allocated on the server for a request, 64 B", engine: engine, against: "none", value: of("credit "+engine, serverObjects), mustBe: noAllocation, aim: noAllocation, atMost: true, digits: 3},
		)
	}
	return g
}

func loneGroup() tableGroup {
	load := []string{"--size", "64", "--clients", "1"}
	echo := append([]string{"--transport", "tcp"}, load...)
	return tableGroup{
		name: "lone", rounds: tableRounds,
		cells: []tableCell{
			tcpCell("net", "tcp", load...), tcpCell("spin", "tcp:spin", load...), tcpCell("grpc", "grpc", load...),
			{name: "echo", args: echo, floor: report.PeerEcho}, {name: "spinning echo", args: echo, floor: report.PeerSpin},
		},
		rows: []tableRow{
			{measure: "one client, 64 B, p50", engine: "net", against: "a bare framed echo on package net", value: ratio("net", "echo", percentile("p50")), mustBe: 1.15, aim: 1.05, atMost: true, digits: 2},
			{measure: "one client, 64 B, p50", engine: "spin", against: "a bare spinning echo", value: ratio("spin", "spinning echo", percentile("p50")), mustBe: 1.5, aim: 1.2, atMost: true, digits: 2},
			{measure: "one client, 64 B, p50, by gRPC's", engine: "spin", against: "gRPC", value: ratio("spin", "grpc", percentile("p50")), mustBe: 0.15, aim: 0.08, atMost: true, digits: 3},
		},
	}
}

// pipelinedGroup has one connection with so many requests in flight: on gRPC unary calls that share it, as its client library sends them.
func pipelinedGroup() tableGroup {
	load := []string{"--size", "64", "--clients", strconv.Itoa(tableDepth), "--connections", "1", "--accounts", "1"}
	fastest := best(of("net", throughput), of("spin", throughput))
	return tableGroup{
		name: "pipelined", rounds: tableRounds,
		cells: []tableCell{tcpCell("net", "tcp", load...), tcpCell("spin", "tcp:spin", load...), tcpCell("grpc", "grpc", load...)},
		rows: []tableRow{
			{measure: fmt.Sprintf("orders/s on one connection, %d in flight, 64 B, one server core", tableDepth), engine: "best", against: "gRPC unary, as many in flight on one connection", value: quotient(fastest, of("grpc", throughput)), mustBe: 5, aim: 10, digits: 1},
			{measure: "the same, orders/s", engine: "best", against: "itself", value: fastest, mustBe: 0, aim: 1_000_000},
		},
	}
}

// overloadGroup takes the closed loop's throughput for the capacity, in every round anew. One core of clients has to offer twice what the server's core does, so the handler
// asks the clock for overloadDelay first: it costs the server's core alone. Each connection has credit for one small order at any time, so 500 of them may have as much under way as
// the server works off in 35 ms, whatever it grants: an SLO of 10 ms is for 50.
func overloadGroup() tableGroup {
	load := []string{"--size", "64", "--clients", "50"}
	g := tableGroup{name: "overload", rounds: tableRounds}
	capacity := func(engine string, round tableRound) (float64, bool) {
		return of("capacity "+engine, throughput)(round)
	}
	var good, admitted, back []func(tableRound) (float64, bool)
	for _, e := range []struct{ name, spec string }{{"net", "tcp"}, {"spin", "tcp:spin"}} {
		open := append([]string{"--transport", e.spec, "--max-wait", tableSLO.String(), "--connections", "50"}, "--size", "64")
		g.cells = append(g.cells,
			tableCell{name: "capacity " + e.name, args: append([]string{"--transport", e.spec}, load...), delay: overloadDelay},
			tableCell{name: "twice " + e.name, args: open, delay: overloadDelay, rate: func(round tableRound) []string {
				c, ok := capacity(e.name, round)
				if !ok {
					return nil
				}
				return []string{"--rate", fmt.Sprintf("%.0f", 2*c)}
			}},
			tableCell{name: "step " + e.name, args: open, delay: overloadDelay, also: readStep, rate: func(round tableRound) []string {
				c, ok := capacity(e.name, round)
				if !ok {
					return nil
				}
				return []string{
					"--duration", stepCellLength.String(), "--rate", fmt.Sprintf("%.0f", stepBase*c),
					"--step", fmt.Sprintf("%v:%.0f", stepAt, stepTop*c), "--step", fmt.Sprintf("%v:%.0f", stepAt+stepLength, stepBase*c),
				}
			}},
		)
		inTime := of("twice "+e.name, func(r *tableResult) (float64, bool) { return r.inTime, true })
		good = append(good, quotient(inTime, of("capacity "+e.name, throughput)))
		admitted = append(admitted, of("twice "+e.name, func(r *tableResult) (float64, bool) {
			v, ok := r.Admitted.Values["p99"]
			return v / 1e3, ok
		}))
		back = append(back, of("step "+e.name, func(r *tableResult) (float64, bool) {
			if r.back < 0 {
				return math.Inf(1), true
			}
			return float64(r.back) / 1e6, true
		}))
	}
	for i, engine := range []string{"net", "spin"} {
		g.rows = append(g.rows,
			tableRow{measure: "open loop at twice the capacity, 64 B: answered within 10 ms, by capacity", engine: engine, against: "the closed loop's answers/s", value: good[i], mustBe: 0.9, aim: 0.95, digits: 2},
			tableRow{measure: "admitted p99 there, ms", engine: engine, against: "the SLO of 10 ms", value: admitted[i], mustBe: 10, aim: 5, atMost: true, digits: 1},
			tableRow{measure: "back to normal after a second at 1.4x the capacity, from 0.7x, ms", engine: engine, against: "p99 of 20 ms before it", value: back[i], mustBe: 200, aim: 50, atMost: true},
		)
	}
	return g
}

// readStep finds when, after the end of the step, the p99 of the recorder's blocks is back: from where on calm of them in a row are not above the greatest before
// the step. Blocks of the first tenth of a second are part of neither.
func readStep(c *tableResult, out runner.Outcome) {
	c.back = -1
	width := out.Series.Width
	if width <= 0 {
		return
	}
	before, streak := time.Duration(0), 0
	for i, block := range out.Series.Blocks {
		begins, ends := time.Duration(i)*width, time.Duration(i+1)*width
		p99 := blockP99(block)
		switch {
		case ends <= stepAt && begins >= stepAt/5:
			before = max(before, p99)
		case begins >= stepAt+stepLength:
			if streak++; p99 > before {
				streak = 0
			}
			if streak == calm {
				c.back = max(begins-time.Duration(calm-1)*width-stepAt-stepLength, 0)
				return
			}
		}
	}
}

// blockP99 is the nearest-rank p99 of a block; what was lost is later than anything.
func blockP99(b stats.Block) time.Duration {
	total := b.Lost
	for _, bucket := range b.Buckets {
		total += bucket.Count
	}
	rank := stats.P99.Rank(total)
	for _, bucket := range b.Buckets {
		if rank -= bucket.Count; rank <= 0 {
			return bucket.Value
		}
	}
	if total == 0 {
		return 0
	}
	return math.MaxInt64
}

func mixGroup() tableGroup {
	load := []string{"--client-mix", "64:50,64KB:50", "--clients", "500"}
	g := tableGroup{name: "mix", rounds: tableRounds, cells: []tableCell{tcpCell("net", "tcp", load...), tcpCell("spin", "tcp:spin", load...)}}
	for _, engine := range []string{"net", "spin"} {
		for class, size := range []string{"64 B", "64 KiB"} {
			g.rows = append(g.rows, tableRow{
				measure: "Jain's index of the " + size + " clients, 250 of 500", engine: engine, against: "1 = all alike", mustBe: 0.95, aim: 0.99, digits: 4,
				value: of(engine, func(r *tableResult) (float64, bool) {
					if class >= len(r.Fairness) {
						return 0, false
					}
					return r.Fairness[class].Jain, true
				}),
			})
		}
	}
	return g
}

// matrixGroups hold P99/P50 in each cell of the published matrix against `none`'s: by the least of the rounds, so that a cell counts as worse when it was so
// in every one.
func matrixGroups() []tableGroup {
	var groups []tableGroup
	for _, engine := range []string{"net", "spin"} {
		for _, size := range matrixSizes {
			for _, n := range matrixCounts {
				load := []string{"--size", strconv.Itoa(int(size)), "--clients", strconv.Itoa(n)}
				credit, none := "tcp", "tcp:none"
				if engine == "spin" {
					credit, none = "tcp:spin", "tcp:none,spin"
				}
				aim := 1.0
				if n < 50 {
					aim = math.Inf(1)
				}
				amplified := ratio("credit", "none", amplification)
				groups = append(groups, tableGroup{
					name: "matrix", rounds: matrixRounds, cells: []tableCell{tcpCell("credit", credit, load...), tcpCell("none", none, load...)},
					rows: []tableRow{{
						measure: fmt.Sprintf("P99/P50, %s x %d", report.SizeText(int(size)), n), engine: engine, against: "`none`, same engine", value: amplified, aim: aim, atMost: true, digits: 2,
						must: func(rounds []tableRound) (text string, limit float64) {
							for _, round := range rounds {
								if v, ok := amplified(round); ok && v <= 1 {
									return "not above 1 in every round", math.Inf(1)
								}
							}
							return "not above 1 in every round", 1
						},
					}},
				})
			}
		}
	}
	return groups
}
