// Package pacer says when the requests of an open loop are due, and waits for it.
//
// The schedule is a function of rate, arrivals and seed alone: nothing that happens in a run moves a due time, so a server that stands still
// meets as many requests as one that does not, and the wait of each counts from the moment it was meant to be sent. The schedule
// takes no memory, however long it is: it can be walked from its start any number of times, and is the same each time. So it is also the
// queue of requests that are owed when their sender is late: none can be lost, and none has to be kept.
//
// It must never know what a request is, nor where it goes.
package pacer
