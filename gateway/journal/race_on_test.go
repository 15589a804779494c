//go:build race

package journal_test

// every is which part of their many crashes and damages the tests play: one of so
// many. Under the race detector, which makes the copies of whole file systems ten
// times as slow and finds nothing in them, a part is enough: every one is played
// without it.
var every = 15
