package runner

import (
	"cmp"
	"context"
	"errors"

	"tailgate/loadtest/machine"
	"tailgate/loadtest/sockets"
	"tailgate/transports"
)

// Reading is what is known of the server at one moment.
type Reading struct {
	machine.Counters
	Process string // names the process, since what two of them have used cannot be subtracted; empty where it cannot change
	Cores   int    // that the process may use at the same time; 0 = those of Cell.Plan
}

// Use is what one side used during the measured interval.
type Use struct {
	machine.Counters                   // differences; PeakRSS is absolute
	Cores            machine.CoreTimes // what its cores did, whoever ran there
	CoresKnown       bool
	Share            float64 // CPU time of the process by the time of its cores, 0 to 1
}

// edge is what is known of both sides at an edge of the measured interval.
type edge struct {
	client     machine.Counters
	cores      [2]machine.CoreTimes // client's, server's
	coresKnown bool
	server     *Reading // nil where nobody asked
	unknown    error    // why server means nothing
	metrics    []transports.Metric
	tcp        sockets.Look
}

var errAnew = errors.New("the server was started anew in mid-cell, so that its counters cannot be subtracted")

// readEdge reads all. The client's own counters are read nearest to the interval, so that the rest of the reading is outside of what they show.
func (r *run) readEdge(ctx context.Context, last bool) (e edge, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), countersTimeout)
	defer cancel()
	if !last {
		e.readOthers(ctx, r)
	}
	if len(r.cell.Plan.Clients) > 0 {
		clients, errClients := machine.ReadCoreTimes(r.cell.Plan.Clients)
		server, errServer := machine.ReadCoreTimes(r.cell.Plan.Server)
		e.cores, e.coresKnown = [2]machine.CoreTimes{clients, server}, errClients == nil && errServer == nil
	}
	if e.client, err = machine.ReadCounters(); err != nil {
		return edge{}, err
	}
	if last {
		e.readOthers(ctx, r)
	}
	return e, nil
}

// readOthers reads what is known of the server and of the connections.
func (e *edge) readOthers(ctx context.Context, r *run) {
	if r.cell.ServerCounters != nil {
		var counters Reading
		counters, e.unknown = r.cell.ServerCounters(ctx)
		e.server = &counters
	}
	if r.cell.ServerMetrics != nil {
		e.metrics, _ = r.cell.ServerMetrics(ctx) // they are missing then; a server that has gone is told by its counters and by the cell's end
	}
	e.tcp = r.sockets.Look()
}

// use writes what both sides used between the edges.
func (r *run) use(out *Outcome, edges [2]edge) {
	first, last := &edges[0], &edges[1]
	coresKnown := first.coresKnown && last.coresKnown
	out.ClientUse = Use{Counters: last.client.Since(first.client), CoresKnown: coresKnown}
	out.ClientUse.Cores = last.cores[0].Since(first.cores[0])
	out.ClientUse.Share = share(out.ClientUse.Counters, len(r.cell.Plan.Clients))
	out.Metrics = differences(first.metrics, last.metrics)
	out.ClientTCP, out.ServerTCP = r.sockets.Between(first.tcp, last.tcp)

	switch {
	case first.server == nil || last.server == nil:
		return
	case first.unknown != nil || last.unknown != nil:
		out.ServerUnknown = cmp.Or(first.unknown, last.unknown)
		return
	case first.server.Process != last.server.Process:
		out.Metrics, out.ServerUnknown = nil, errAnew
		return
	}
	server := Use{Counters: last.server.Since(first.server.Counters), CoresKnown: coresKnown && len(r.cell.Plan.Server) > 0}
	server.Cores = last.cores[1].Since(first.cores[1])
	cores := len(r.cell.Plan.Server)
	if last.server.Cores > 0 {
		cores = last.server.Cores
	}
	server.Share = share(server.Counters, cores)
	out.ServerUse = &server
}

// share is CPU time by the time of the cores.
func share(c machine.Counters, cores int) float64 {
	if cores == 0 || c.At <= 0 {
		return 0
	}
	return float64(c.UserCPU+c.SystemCPU) / (float64(c.At) * float64(cores))
}

// differences are the metrics of an interval by its edges: a counter's difference, a state at the end. What only one edge has is left out: it was no part of
// the whole interval.
func differences(from, until []transports.Metric) []transports.Metric {
	var list []transports.Metric
	for _, m := range until {
		for _, earlier := range from {
			if earlier.Name != m.Name {
				continue
			}
			if m.Counter {
				m.Value -= earlier.Value
			}
			list = append(list, m)
			break
		}
	}
	return list
}
