package tcp

import (
	"time"

	"tailgate/transports"
)

// counts are totals since the dialing, under the client's lock.
type counts struct {
	waits    uint64        // requests that waited for permission and were sent
	waited   time.Duration // their waits together
	refused  uint64        // calls refused for want of permission
	reclaims uint64
	demands  uint64
}

// Metrics implements transports.Metered.
func (c *client) Metrics() []transports.Metric {
	c.mu.Lock()
	n, a := c.counts, c.credit
	queued, calls := c.urgent.cost+c.waiting.cost, len(c.inFlight)
	c.mu.Unlock()
	free := 0.0
	if a.on {
		free = float64(a.free())
	}
	return []transports.Metric{
		{Name: "client_requests_in_flight", Help: "Requests sent and not answered.", Value: float64(calls)},
		{Name: "client_credit_free_units", Help: "Credit that may be spent now.", Value: free},
		{Name: "client_credit_queued_units", Help: "Cost of the requests that wait for credit in this client.", Value: float64(queued)},
		{Name: "client_credit_waits_total", Help: "Requests that waited for permission before they were sent.", Counter: true, Value: float64(n.waits)},
		{Name: "client_credit_wait_seconds_total", Help: "Time that those requests waited, together.", Counter: true, Value: n.waited.Seconds()},
		{Name: "client_credit_refusals_total", Help: "Calls refused because they would have had to wait, or to wait too long.", Counter: true, Value: float64(n.refused)},
		{Name: "client_credit_reclaims_total", Help: "RECLAIM frames of the gateway.", Counter: true, Value: float64(n.reclaims)},
		{Name: "client_credit_demand_frames_total", Help: "DEMAND frames sent.", Counter: true, Value: float64(n.demands)},
	}
}
