// Package stats turns counted latencies into percentiles and verdicts that say when they cannot be known.
//
// It holds the rules of the load tester's arithmetic: nearest-rank percentiles over integers, requests without an answer as
// infinitely late, "too few" instead of a number that the samples cannot carry, and service-level objectives written as
// expressions such as p99<10ms. It must never know where a latency came from: no clock, no transport, no file.
package stats
