//go:build !race

package journal_test

const every = 1
