package stats

import (
	"math/bits"
	"strconv"
	"strings"
)

// Percentile is a share of all samples in parts per million, 1 to 999,999: 990,000 is p99. Whole numbers keep ranks exact where a
// binary fraction such as 0.999 would be off by one sample.
type Percentile int64

// The percentiles that reports and objectives use.
const (
	P50   Percentile = 500_000
	P90   Percentile = 900_000
	P95   Percentile = 950_000
	P99   Percentile = 990_000
	P999  Percentile = 999_000
	P9999 Percentile = 999_900

	whole = 1_000_000
)

// Percentiles lists them in rising order.
var Percentiles = []Percentile{P50, P90, P95, P99, P999, P9999}

// MinBeyond is how many samples must lie beyond a percentile before it is printed as a number. The count beyond the true percentile is
// binomial with mean n(1-q), so its relative standard deviation is about 1/sqrt(n(1-q)): with ten samples 32 %. With fewer, the
// share of slower requests that the number stands for is not known to a third, and one stall decides it.
const MinBeyond = 10

// String is "p50", "p99.9".
func (p Percentile) String() string {
	text := strconv.FormatInt(int64(p)/10_000, 10)
	if rest := int64(p) % 10_000; rest != 0 {
		fraction := strconv.FormatInt(10_000+rest, 10)[1:]
		text += "." + strings.TrimRight(fraction, "0")
	}
	return "p" + text
}

// Rank is the nearest rank of the percentile among n samples sorted upwards, 1 to n: the smallest rank that leaves at most the share
// beyond the percentile behind it (ceil(n*q)). It is 0 for n < 1.
func (p Percentile) Rank(n int64) int64 {
	if n < 1 {
		return 0
	}
	high, low := bits.Mul64(uint64(n), uint64(p))
	quotient, remainder := bits.Div64(high, low, whole)
	if remainder > 0 {
		quotient++
	}
	return max(int64(quotient), 1)
}

// Enough reports whether n samples carry the percentile: at least [MinBeyond] of them lie beyond it.
func (p Percentile) Enough(n int64) bool { return n >= p.MinSamples() }

// MinSamples is the smallest number of samples that carries the percentile.
func (p Percentile) MinSamples() int64 {
	return (MinBeyond*whole + int64(whole-p) - 1) / int64(whole-p)
}
