package stats_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tailgate/loadtest/stats"
)

// distribution builds one from plain samples, as a recorder without rounding would.
func distribution(t testing.TB, samples []time.Duration, lost int64) stats.Distribution {
	t.Helper()
	samples = slices.Sorted(slices.Values(samples))
	var buckets []stats.Bucket
	var exact stats.Exact
	for i, v := range samples {
		exact.Sum += float64(v)
		if i == 0 {
			exact.Min = v
		}
		exact.Max = v
		if n := len(buckets); n > 0 && buckets[n-1].Value == v {
			buckets[n-1].Count++
			continue
		}
		buckets = append(buckets, stats.Bucket{Value: v, Count: 1})
	}
	d, err := stats.NewDistribution(buckets, exact, lost)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// naive sorts everything, the lost ones as infinity, and counts from the front.
func naive(samples []time.Duration, lost int64, p stats.Percentile) (v float64, enough bool) {
	all := make([]float64, 0, len(samples)+int(lost))
	for _, s := range samples {
		all = append(all, float64(s))
	}
	for range lost {
		all = append(all, math.Inf(1))
	}
	slices.Sort(all)
	n := len(all)
	if n == 0 {
		return 0, false
	}
	for i, v := range all {
		// The first value with at most the share 1-q of all samples after it.
		if int64(n-i-1)*1_000_000 <= int64(n)*(1_000_000-int64(p)) {
			return v, int64(n)*(1_000_000-int64(p)) >= stats.MinBeyond*1_000_000
		}
	}
	panic("no rank")
}

func TestPercentilesAgainstSortedOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(1, 50), 0, 3000).Draw(t, "values")
		lost := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 200)).Draw(t, "lost")
		samples := make([]time.Duration, len(values))
		for i, v := range values {
			samples[i] = time.Duration(v)
		}
		d := build(t, samples, lost)
		if d.Count() != int64(len(samples))+lost {
			t.Fatalf("Count() = %d, want %d", d.Count(), int64(len(samples))+lost)
		}
		for _, p := range stats.Percentiles {
			want, enough := naive(samples, lost, p)
			got := d.At(p)
			switch {
			case !enough && got.State != stats.TooFew,
				enough && math.IsInf(want, 1) && got.State != stats.Infinite,
				enough && !math.IsInf(want, 1) && (got.State != stats.Known || float64(got.Duration) != want):
				t.Fatalf("%s of %d samples and %d lost: got %+v, want %v (enough: %t)", p, len(samples), lost, got, want, enough)
			}
		}
	})
}

// build is distribution for a rapid.T.
func build(t *rapid.T, samples []time.Duration, lost int64) stats.Distribution {
	counts := map[time.Duration]int64{}
	var exact stats.Exact
	for i, v := range samples {
		counts[v]++
		exact.Sum += float64(v)
		if i == 0 || v < exact.Min {
			exact.Min = v
		}
		exact.Max = max(exact.Max, v)
	}
	var buckets []stats.Bucket
	for v, n := range counts {
		buckets = append(buckets, stats.Bucket{Value: v, Count: n})
	}
	slices.SortFunc(buckets, func(a, b stats.Bucket) int { return int(a.Value - b.Value) })
	d, err := stats.NewDistribution(buckets, exact, lost)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTooFew(t *testing.T) {
	for p, samples := range map[stats.Percentile]int64{
		stats.P50: 20, stats.P90: 100, stats.P95: 200, stats.P99: 1000, stats.P999: 10_000, stats.P9999: 100_000,
	} {
		if p.Enough(samples-1) || !p.Enough(samples) || p.MinSamples() != samples {
			t.Errorf("%s: MinSamples() = %d, Enough(%d) = %t, Enough(%d) = %t; want %d, false, true",
				p, p.MinSamples(), samples-1, p.Enough(samples-1), samples, p.Enough(samples), samples)
		}
	}
}

func TestRankOfMany(t *testing.T) {
	// ceil(0.999 * n) in floating point is off by one for many n; and n*q must not overflow.
	for _, c := range []struct {
		p       stats.Percentile
		n, want int64
	}{
		{stats.P999, 1000, 999},
		{stats.P999, 1001, 1000},
		{stats.P999, 10_000, 9990},
		{stats.P50, 1, 1},
		{stats.P50, 2, 1},
		{stats.P50, 3, 2},
		{stats.P99, math.MaxInt64, 9131138316486228049},
		{stats.P99, 0, 0},
	} {
		if got := c.p.Rank(c.n); got != c.want {
			t.Errorf("%s.Rank(%d) = %d, want %d", c.p, c.n, got, c.want)
		}
	}
}

func TestExtremes(t *testing.T) {
	samples := []time.Duration{1, 2, 6}
	for _, c := range []struct {
		samples        []time.Duration
		lost           int64
		min, max, mean stats.Value
	}{
		{nil, 0, stats.Value{}, stats.Value{}, stats.Value{}},
		{nil, 2, stats.Value{}, stats.Value{State: stats.Infinite}, stats.Value{State: stats.Infinite}},
		{samples, 0, stats.Value{State: stats.Known, Duration: 1}, stats.Value{State: stats.Known, Duration: 6}, stats.Value{State: stats.Known, Duration: 3}},
		{samples, 1, stats.Value{State: stats.Known, Duration: 1}, stats.Value{State: stats.Infinite}, stats.Value{State: stats.Infinite}},
	} {
		d := distribution(t, c.samples, c.lost)
		if d.Min() != c.min || d.Max() != c.max || d.Mean() != c.mean {
			t.Errorf("%v with %d lost: min %+v max %+v mean %+v, want %+v %+v %+v", c.samples, c.lost, d.Min(), d.Max(), d.Mean(), c.min, c.max, c.mean)
		}
	}
}

func TestDistributionRefusesNonsense(t *testing.T) {
	for name, build := range map[string]func() error{
		"unsorted": func() error {
			_, err := stats.NewDistribution([]stats.Bucket{{2, 1}, {1, 1}}, stats.Exact{Min: 1, Max: 2}, 0)
			return err
		},
		"negative count": func() error {
			_, err := stats.NewDistribution([]stats.Bucket{{2, -1}}, stats.Exact{Min: 1, Max: 2}, 0)
			return err
		},
		"negative lost":   func() error { _, err := stats.NewDistribution(nil, stats.Exact{}, -1); return err },
		"min above max":   func() error { _, err := stats.NewDistribution(nil, stats.Exact{Min: 2, Max: 1}, 0); return err },
		"negative values": func() error { _, err := stats.NewDistribution(nil, stats.Exact{Min: -2, Max: 1}, 0); return err },
	} {
		if build() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestParseSLO(t *testing.T) {
	for _, c := range []struct{ text, want, wrong string }{
		{text: "p99<10ms", want: "p99<10ms"},
		{text: " p99.9 <= 1.5 s ", want: "p99.9<=1500ms"},
		{text: "p50<15us", want: "p50<15us"},
		{text: "p50<15µs", want: "p50<15us"},
		{text: "p50<15μs", want: "p50<15us"},
		{text: "p99.99<0.250ms", want: "p99.99<250us"},
		{text: "p90<1500ns", want: "p90<1500ns"},
		{text: "p95<1000ms", want: "p95<1s"},
		{text: "max<=1s", want: "max<=1s"},
		{text: "mean<3600s", want: "mean<3600s"},

		{text: "", wrong: `no < or <=`},
		{text: "p99", wrong: `no < or <=`},
		{text: "p99>10ms", wrong: `no < or <=`},
		{text: "p99=10ms", wrong: `no < or <=`},
		{text: "p98<10ms", wrong: `unknown statistic "p98"; allowed are p50, p90, p95, p99, p99.9, p99.99, max or mean`},
		{text: "P99<10ms", wrong: `unknown statistic "P99"`},
		{text: "<10ms", wrong: `unknown statistic ""`},
		{text: "p99<10", wrong: `bound "10": needs a number with one of the units ns, us, µs, ms, s`},
		{text: "p99<", wrong: `bound "": needs a number`},
		{text: "p99<ms", wrong: `"" is not a decimal number`},
		{text: "p99<10m", wrong: `needs a number with one of the units`},
		{text: "p99<10 hours", wrong: `needs a number with one of the units`},
		{text: "p99<-10ms", wrong: `"-10" is not a decimal number`},
		{text: "p99<1e3ms", wrong: `"1e3" is not a decimal number`},
		{text: "p99<1.ms", wrong: `"1." is not a decimal number`},
		{text: "p99<.5ms", wrong: `".5" is not a decimal number`},
		{text: "p99<1.2.3ms", wrong: `"1.2.3" is not a decimal number`},
		{text: "p99<0ms", wrong: `must be above 0`},
		{text: "p99<0.5ns", wrong: `finer than a nanosecond`},
		{text: "p99<3601s", wrong: `above the greatest bound of 3600 s`},
		{text: "p99<99999999999999999999s", wrong: `above the greatest bound`},
		{text: "p99<==10ms", wrong: `"=10" is not a decimal number`},
	} {
		slo, err := stats.ParseSLO(c.text)
		switch {
		case c.wrong == "" && err != nil:
			t.Errorf("%q: %v", c.text, err)
		case c.wrong == "" && slo.String() != c.want:
			t.Errorf("%q: got %s, want %s", c.text, slo, c.want)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong) || !strings.Contains(err.Error(), fmt.Sprintf("%q", c.text))):
			t.Errorf("%q: got %v, want an error that quotes it and says %q", c.text, err, c.wrong)
		}
	}
}

func FuzzParseSLO(f *testing.F) {
	for _, seed := range []string{"p99<10ms", "p99.9<=1.5s", "max<1us", "mean < 3 µs", "p50<=0.000001s", "p99<", "<<", "p99<1\xb5s"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		slo, err := stats.ParseSLO(text)
		if err != nil {
			return
		}
		if slo.Bound <= 0 || slo.Bound > stats.MaxBound {
			t.Fatalf("%q: bound %v is out of range", text, slo.Bound)
		}
		again, err := stats.ParseSLO(slo.String())
		if err != nil || again != slo {
			t.Fatalf("%q: %s reads back as %s, %v", text, slo, again, err)
		}
	})
}

func TestJudge(t *testing.T) {
	const ms = time.Millisecond
	many := func(n int, v time.Duration) []time.Duration { return slices.Repeat([]time.Duration{v}, n) }
	for _, c := range []struct {
		name    string
		slo     string
		samples []time.Duration
		lost    int64
		want    stats.Outcome
		good    int64
	}{
		{"fast", "p99<10ms", many(1000, ms), 0, stats.Met, 1000},
		{"at the bound, exclusive", "p99<10ms", many(1000, 10*ms), 0, stats.Missed, 0},
		{"at the bound, inclusive", "p99<=10ms", many(1000, 10*ms), 0, stats.Met, 1000},
		{"one percent lost exactly", "p99<10ms", many(990, ms), 10, stats.Met, 990},
		{"one more", "p99<10ms", many(990, ms), 11, stats.Missed, 990},
		{"slow tail", "p99<10ms", append(many(980, ms), many(20, time.Second)...), 0, stats.Missed, 980},
		{"too few", "p99<10ms", many(999, ms), 0, stats.Undecided, 999},
		{"too few, nine lost", "p99.9<10ms", many(990, ms), 9, stats.Undecided, 990},
		{"too few, ten lost", "p99.9<10ms", many(990, ms), 10, stats.Missed, 990},
		{"max", "max<10ms", many(3, ms), 0, stats.Met, 3},
		{"max with a loss", "max<10ms", many(3, ms), 1, stats.Missed, 3},
		{"mean", "mean<=3ms", []time.Duration{ms, 5 * ms}, 0, stats.Met, 1},
		{"nothing", "p50<10ms", nil, 0, stats.Undecided, 0},
		{"nothing, max", "max<10ms", nil, 0, stats.Undecided, 0},
	} {
		slo, err := stats.ParseSLO(c.slo)
		if err != nil {
			t.Fatal(err)
		}
		d := distribution(t, c.samples, c.lost)
		if got := slo.Judge(d); got.Outcome != c.want {
			t.Errorf("%s: %s is %s (%+v), want %s", c.name, c.slo, got.Outcome, got.Observed, c.want)
		}
		if got := stats.Good([]stats.SLO{slo}, d); got != c.good {
			t.Errorf("%s: %d good, want %d", c.name, got, c.good)
		}
	}
}
