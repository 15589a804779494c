//go:build race

package orders_test

// usualOperations is shorter under the race detector, which finds nothing here: a state has one goroutine.
const usualOperations = 5_000
