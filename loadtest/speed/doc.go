// Package speed watches how fast the measured cores themselves run while a cell is measured.
//
// A core can be slow without anybody having taken it: a host that throttles for heat or power, a neighbour on the same physical core, a hypervisor that
// serves something else between two instructions. None of it is stolen time by the kernel's account, no process uses it, and no hardware counter of a
// virtual machine tells it, but each such moment is a tail latency of whatever was measured. So a small process beside the load tester runs the same few
// microseconds of arithmetic on each core every Every, and notes when it took how long. The arithmetic touches no memory and makes no call, so that what is
// measured beside it cannot slow it down, other than by being on the same physical core.
//
// What it must never know: transports, requests, figures. It knows cores and time.
package speed
