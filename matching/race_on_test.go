//go:build race

package matching_test

// raceEnabled shortens what is slow under the race detector and finds nothing
// there, since the engine has one goroutine.
const raceEnabled = true
