//go:build !race

package journal_test

var every = 1
