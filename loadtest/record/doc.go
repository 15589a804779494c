// Package record keeps the latencies and the fate of every request of a load-test cell.
//
// Nothing is dropped: each request that was due ends in exactly one of six ways, and the ones without an answer count as infinitely late
// in every percentile. Times go into HdrHistograms, one set a shard, merged when the cell has ended and never averaged, so memory
// does not grow with the length of a run. The package must never know a transport, an order or a clock.
package record
