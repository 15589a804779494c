// Package capacity finds the highest rate at which objectives are kept, by Multiple Loss Ratio search (RFC 9971).
//
// An objective p99<=X is a goal of that search: at most 1 % of the requests may be late, failed or unsent. A rate is tried, for some time and again if
// need be, until it is known for the goal as a lower bound (kept in more than the exceed ratio allows to miss) or as an upper bound; until then it
// is undecided. Bounds close in until they are as near as asked for. All goals share their trials: a rate that was tried for one is known to the others.
//
// The package knows rates and shares of late requests. It must never know what a request is or how a trial is run.
package capacity
