// Package runner drives one cell of a load test: so many clients, each with one request at a time, against one address over one transport.
//
// It stamps every request, sorts its end into exactly one fate, reads the counters of both sides at the edges of the measured
// interval, and says what speaks against the measurement. The same code drives every transport through [transports.Client], so what
// differs between two cells is the transport. It must never know how the server came to run, nor how results are shown.
//
// # The stamps of a request
//
//	intended   the client became free: it had the answer to its previous request (or gave up on it)
//	call       the request was drawn and ready; intended to call is the lag, the tester's own work
//	done       the answer was there, decoded; call to done less the credit wait is the service time
//
// Checking and recording an answer happen after done, so they fall into the lag of the next request, and so into its response time: nothing that
// the tester does between two requests is hidden.
package runner
