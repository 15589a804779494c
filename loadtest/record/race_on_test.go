//go:build race

package record_test

// residentCounts: the race detector keeps notes of its own on all memory that is touched.
const residentCounts = false
