// Package host runs the gateway for a load test, in a child process of the load tester's own binary, on cores of its own.
//
// The child is the same service path as in production: gateway/server with its limits, journal and matching. It is bound to its cores before
// its first instruction, so that its runtime sizes itself for them. It reads its task as one line of JSON from its standard
// input, prints one line when it is ready, answers requests for its counters, and ends when its standard input is closed: by the parent, or
// by the system when the parent has died. Its journal stands in a temporary folder that is removed whichever way it ends.
//
// One file imports gateway/server; nothing else here may know what a gateway is made of.
package host
