//go:build !race

package record_test

// residentCounts says whether what is resident is the recorder's.
const residentCounts = true
