// Package runner drives one cell of a load test against one address over one transport: a closed loop of so many clients, each with one request at a
// time, or an open loop that sends on a schedule.
//
// It stamps every request, sorts its end into exactly one fate, reads the counters of both sides at the edges of the measured
// interval, and says what speaks against the measurement. The same code drives every transport through [transports.Client], and
// through [transports.AsyncClient] where an engine reads for all connections by itself, so what differs between two cells is the transport. It must never know how the server came to run, nor how results are shown.
//
// # The stamps of a request
//
//	intended   closed loop: the client became free: it had the answer to its previous request (or gave up on it); open loop: the scheduled time
//	call       the transport is called; intended to call is the lag, the tester's own work, and in an open loop the wait for a place in flight
//	done       the answer was there, decoded; call to done less the credit wait is the service time
//
// In a closed loop checking and recording an answer happen after done, so they fall into the lag of the next request, and so into its response time:
// nothing that the tester does between two requests is hidden.
package runner
