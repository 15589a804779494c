// Package machine is what the operating system is asked and told: which cores there are and who runs on them, what a process has used, and
// what a reader has to know of the machine to judge a figure.
//
// It must never know what is measured: no transport, no order, no latency. Linux shows all of it; elsewhere the same functions say what
// they cannot do.
package machine
