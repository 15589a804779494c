package credit

import "time"

// Stats are a pool's present values, in units where nothing else is said. The fields from Grants on are totals since the start.
type Stats struct {
	Capacity   uint32
	Floors     uint32        // floors and urgent reserves that connections hold, and small answers on their way that extend them
	Float      uint32        // what the controller lets float beside them
	Hoarded    uint32        // granted, and unused for long while others wait: it is no part of the float any more
	Granted    uint32        // granted, not given back, not completed
	Used       uint32        // of that, in service
	Demand     uint32        // queued with clients and not covered
	Queue      int           // connections that wait for their turn
	QueueDelay time.Duration // from a grant to its request's completion, less service and base round trip: the quantile that the controller steers by

	Grants     uint64 // turns
	Renewals   uint64 // grants that came with an answer, without a turn
	Refusals   uint64 // answers that could carry no grant, because the pool was short
	Reclaims   uint64 // RECLAIMs
	Violations uint64 // clients that sent past their grant, gave back what they did not have, or did not answer a RECLAIM
}

type totals struct{ grants, renewals, refusals, reclaims, violations uint64 }

// Stats returns the present values, all of one moment.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		Capacity: p.config.Capacity, Floors: p.floors, Float: p.controller.float, Hoarded: p.hoarded, Granted: p.outstanding, Used: p.inService,
		Demand: p.unmet, Queue: p.waiting, QueueDelay: time.Duration(p.controller.delay),
		Grants: p.totals.grants, Renewals: p.totals.renewals, Refusals: p.totals.refusals, Reclaims: p.totals.reclaims, Violations: p.totals.violations,
	}
}
