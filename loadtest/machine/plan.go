package machine

import (
	"fmt"
	"slices"
)

// Core is one logical processor that this process may use.
type Core struct {
	ID       int
	Siblings []int // hardware threads of the same physical core, itself included; empty where unknown
	Capacity int   // relative performance on hybrid machines; the same everywhere, or 0, where all are equal
}

// Plan says who runs where.
type Plan struct {
	Pinned  bool   // the clients are bound to cores that the server does not run on; false: they share, or may share
	Server  []int  // core ids; empty where the server is not ours: on another machine, or Beside
	Clients []int  // core ids, disjoint from Server when Pinned
	Beside  bool   // the server is not ours and runs on this machine, on cores that are not known
	Note    string // what could not be had, empty where all could; never empty when not Pinned
}

// PlanFor is the plan for a server that is not ours: the clients have all cores that this process may use. On another machine it cannot
// take them; beside the clients it can, and nobody here may say where it runs.
func PlanFor(cores []Core, address string, beside bool) Plan {
	plan := Plan{Pinned: !beside, Beside: beside}
	for _, c := range cores {
		plan.Clients = append(plan.Clients, c.ID)
	}
	slices.Sort(plan.Clients)
	if beside {
		plan.Note = "not pinned: the gateway at " + address + " runs on this machine and may share the clients' cores"
	}
	return plan
}

// NewPlan gives the server its own cores and the clients the others. The server takes the strongest cores, the last ones among equals,
// since the first one usually serves interrupts. A hardware thread beside one of the server's is left idle where the clients still have
// another core. With too few cores nothing is pinned, and the plan says so.
func NewPlan(cores []Core, serverCores int) Plan {
	all := make([]int, len(cores))
	for i, c := range cores {
		all[i] = c.ID
	}
	slices.Sort(all)
	if len(cores) <= serverCores {
		return Plan{Server: all, Clients: all, Note: fmt.Sprintf("not pinned: %d core(s) for %d of the server and at least one of the clients", len(cores), serverCores)}
	}
	ranked := slices.Clone(cores)
	slices.SortStableFunc(ranked, func(a, b Core) int {
		if a.Capacity != b.Capacity {
			return b.Capacity - a.Capacity
		}
		return b.ID - a.ID
	})
	plan := Plan{Pinned: true}
	var beside []int
	for _, c := range ranked[:serverCores] {
		plan.Server = append(plan.Server, c.ID)
		beside = append(beside, c.Siblings...)
	}
	var shared []int
	for _, c := range ranked[serverCores:] {
		if slices.Contains(beside, c.ID) {
			shared = append(shared, c.ID)
		} else {
			plan.Clients = append(plan.Clients, c.ID)
		}
	}
	switch {
	case len(plan.Clients) == 0:
		plan.Clients = shared
		plan.Note = "server and clients share a physical core (its hardware threads)"
	case len(shared) > 0:
		plan.Note = fmt.Sprintf("left idle: %v, hardware threads beside the server's", shared)
	}
	slices.Sort(plan.Server)
	slices.Sort(plan.Clients)
	return plan
}
