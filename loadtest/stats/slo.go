package stats

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Statistic is what an objective bounds: a percentile, the maximum or the mean of the response time.
type Statistic struct {
	Percentile Percentile // 0 for max and mean
	Name       string     // "p99", "max", "mean"
}

// SLO is a service-level objective on the response time, e.g. p99<10ms.
type SLO struct {
	Statistic Statistic
	Inclusive bool          // <= instead of <
	Bound     time.Duration // above 0, at most MaxBound
}

// MaxBound is the greatest bound of an objective: what a recorder can hold.
const MaxBound = time.Hour

// units of a bound, longest spelling first where one ends like another.
var units = []struct {
	name string
	size time.Duration
}{{"ns", 1}, {"us", time.Microsecond}, {"µs", time.Microsecond}, {"μs", time.Microsecond}, {"ms", time.Millisecond}, {"s", time.Second}}

// allowedStatistics is told to whoever gave another.
const allowedStatistics = "p50, p90, p95, p99, p99.9, p99.99, max or mean"

// ParseSLO reads STATISTIC<BOUND or STATISTIC<=BOUND: a statistic is p50, p90, p95, p99, p99.9, p99.99, max or mean, a bound a decimal
// number with ns, us, µs, ms or s. Spaces around the parts are ignored. The error says which part is wrong and what is allowed.
func ParseSLO(text string) (SLO, error) {
	name, rest, found := strings.Cut(text, "<")
	if !found {
		return SLO{}, fmt.Errorf("objective %q: no < or <=; write it like p99<10ms", text)
	}
	var slo SLO
	name = strings.TrimSpace(name)
	switch name {
	case "max", "mean":
		slo.Statistic.Name = name
	default:
		for _, p := range Percentiles {
			if p.String() == name {
				slo.Statistic = Statistic{Percentile: p, Name: name}
			}
		}
		if slo.Statistic.Name == "" {
			return SLO{}, fmt.Errorf("objective %q: unknown statistic %q; allowed are %s", text, name, allowedStatistics)
		}
	}
	bound := rest
	if after, ok := strings.CutPrefix(rest, "="); ok {
		slo.Inclusive, bound = true, after
	}
	d, err := parseBound(strings.TrimSpace(bound))
	if err != nil {
		return SLO{}, fmt.Errorf("objective %q: %w", text, err)
	}
	slo.Bound = d
	return slo, nil
}

func parseBound(text string) (time.Duration, error) {
	for _, unit := range units {
		number, ok := strings.CutSuffix(text, unit.name)
		if !ok || number != "" && !strings.ContainsAny(number[len(number)-1:], "0123456789. ") {
			continue
		}
		number = strings.TrimSpace(number)
		whole, fraction, _ := strings.Cut(number, ".")
		if !digits(whole) || strings.Contains(number, ".") && !digits(fraction) {
			return 0, fmt.Errorf("bound %q: %q is not a decimal number", text, number)
		}
		nanos, err := nanoseconds(whole, fraction, unit.size)
		if err != nil {
			return 0, fmt.Errorf("bound %q: %w", text, err)
		}
		return nanos, nil
	}
	return 0, fmt.Errorf("bound %q: needs a number with one of the units ns, us, µs, ms, s", text)
}

// nanoseconds converts whole.fraction units without rounding.
func nanoseconds(whole, fraction string, unit time.Duration) (time.Duration, error) {
	fraction = strings.TrimRight(fraction, "0")
	scale := int64(unit)
	for range fraction {
		if scale%10 != 0 {
			return 0, fmt.Errorf("finer than a nanosecond")
		}
		scale /= 10
	}
	n, err := strconv.ParseInt(whole+fraction, 10, 64)
	if err != nil || n > math.MaxInt64/scale || time.Duration(n*scale) > MaxBound {
		return 0, fmt.Errorf("above the greatest bound of %d s", MaxBound/time.Second)
	}
	if n == 0 {
		return 0, fmt.Errorf("must be above 0")
	}
	return time.Duration(n * scale), nil
}

func digits(text string) bool {
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return text != ""
}

// String is the shortest text that ParseSLO reads back to the same objective.
func (s SLO) String() string {
	operator := "<"
	if s.Inclusive {
		operator = "<="
	}
	return s.Statistic.Name + operator + boundText(s.Bound)
}

func boundText(d time.Duration) string {
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}} {
		if d%unit.size == 0 {
			return strconv.FormatInt(int64(d/unit.size), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(d), 10) + "ns"
}

// Outcome is how an objective fared.
type Outcome uint8

// The outcomes.
const (
	Undecided Outcome = iota // the samples carry no verdict
	Met
	Missed
)

// String is "met", "missed" or "undecided".
func (o Outcome) String() string { return [...]string{"undecided", "met", "missed"}[o] }

// Verdict is an objective held against a distribution.
type Verdict struct {
	SLO      SLO
	Observed Value
	Outcome  Outcome
}

// Judge holds the objective against a distribution. Where the samples are too few for the percentile, it is still missed when
// [MinBeyond] of them are late or lost: that many beyond the bound are evidence enough, while their absence is not.
func (s SLO) Judge(d Distribution) Verdict {
	v := Verdict{SLO: s}
	switch s.Statistic.Name {
	case "max":
		v.Observed = d.Max()
	case "mean":
		v.Observed = d.Mean()
	default:
		v.Observed = d.At(s.Statistic.Percentile)
	}
	switch {
	case v.Observed.State == Infinite:
		v.Outcome = Missed
	case v.Observed.State == Known && s.within(v.Observed.Duration):
		v.Outcome = Met
	case v.Observed.State == Known:
		v.Outcome = Missed
	case s.Statistic.Percentile > 0 && d.Count()-d.CountBelow(s.Bound, s.Inclusive) >= MinBeyond:
		v.Outcome = Missed
	}
	return v
}

func (s SLO) within(d time.Duration) bool { return d < s.Bound || s.Inclusive && d == s.Bound }

// Good counts the requests that were answered within every one of the objectives' bounds; all answers where there is none.
func Good(slos []SLO, d Distribution) int64 {
	good := d.Answered()
	for _, s := range slos {
		good = min(good, d.CountBelow(s.Bound, s.Inclusive))
	}
	return good
}
