package stats_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tailgate/loadtest/stats"
)

// TestMannWhitney: values that can be counted by hand, or stand in the tables of Mann and Whitney.
func TestMannWhitney(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		u, p float64
	}{
		{[]float64{1, 2, 3}, []float64{4, 5, 6}, 0, 0.1}, // 2 of C(6,3) = 20
		{[]float64{4, 5, 6}, []float64{1, 2, 3}, 9, 0.1},
		{[]float64{1, 2, 3, 4, 5}, []float64{6, 7, 8, 9, 10}, 0, 2.0 / 252},
		{[]float64{1, 4}, []float64{2, 3}, 2, 1},
		{[]float64{1, 1, 1}, []float64{1, 1, 1}, 4.5, 1},
		{[]float64{1, 1, 2}, []float64{2, 3, 3}, 0.5, 0.2}, // {1,1,2} with either 2, and their mirror images: 4 of 20
		{nil, []float64{1}, 0, 1},
	} {
		if u, p := stats.MannWhitney(c.a, c.b); u != c.u || math.Abs(p-c.p) > 1e-12 {
			t.Errorf("%v and %v: U = %v, p = %v; want %v and %v", c.a, c.b, u, p, c.u, c.p)
		}
	}
	// The approximation takes over where the exact test ends; for the same values the two differ little.
	var a, b []float64
	rng := rand.New(rand.NewPCG(1, 1))
	for range 40 {
		a, b = append(a, rng.NormFloat64()), append(b, rng.NormFloat64()+0.6)
	}
	_, exact := stats.MannWhitney(a[:10], b[:10])
	_, approximate := stats.MannWhitney(a, b)
	if exact < 0.001 || approximate > 0.05 {
		t.Errorf("p = %v of 10, %v of 40; want the greater sample to be surer", exact, approximate)
	}
}

// TestFalseAlarms: of equal groups one in twenty is called different, at most.
func TestFalseAlarms(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	alarms := 0
	const trials = 1000
	for range trials {
		var a, b []float64
		for range 5 {
			a, b = append(a, math.Round(rng.ExpFloat64()*20)), append(b, math.Round(rng.ExpFloat64()*20)) // with ties
		}
		if _, p := stats.MannWhitney(a, b); p < 0.05 {
			alarms++
		}
	}
	if share := float64(alarms) / trials; share > 0.05+3*math.Sqrt(0.05*0.95/trials) || share < 0.01 {
		t.Errorf("%.3f of the equal groups are called different, want at most 0.05 and not none", share)
	}
}

// TestShift: the interval holds the true shift in 95 of 100 trials, and excludes zero exactly where the test says so.
func TestShift(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	const trials, shift = 300, 1.0
	held := 0
	for range trials {
		var a, b []float64
		for range 6 {
			a, b = append(a, rng.NormFloat64()), append(b, rng.NormFloat64()+shift)
		}
		estimate, low, high, ok := stats.Shift(a, b)
		if !ok || low > estimate || estimate > high {
			t.Fatalf("[%v, %v] around %v, %t", low, high, estimate, ok)
		}
		if low <= shift && shift <= high {
			held++
		}
		if _, p := stats.MannWhitney(a, b); (p <= 0.05) != (low > 0 || high < 0) {
			t.Fatalf("p = %v, but the interval is [%v, %v]", p, low, high)
		}
	}
	if share := float64(held) / trials; share < 0.91 || share > 0.99 {
		t.Errorf("%.3f of the intervals hold the shift, want 0.95", share)
	}
	if _, _, _, ok := stats.Shift([]float64{1, 2, 3}, []float64{4, 5, 6}); ok {
		t.Error("an interval of 95 % from three values of each, whose least p is 0.1")
	}
}

func TestHolm(t *testing.T) {
	got := stats.Holm([]float64{0.04, 0.01, 0.03, 0.5})
	for i, want := range []float64{0.09, 0.04, 0.09, 0.5} {
		if math.Abs(got[i]-want) > 1e-12 {
			t.Errorf("%v, want 0.09 0.04 0.09 0.5", got)
			break
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 20).Draw(t, "p")
		adjusted := stats.Holm(p)
		for i := range p {
			if adjusted[i] < p[i] || adjusted[i] > 1 || p[i] == slices.Min(p) && adjusted[i] != min(p[i]*float64(len(p)), 1) {
				t.Fatalf("%v becomes %v", p, adjusted)
			}
			for j := range p {
				if p[i] < p[j] && adjusted[i] > adjusted[j] {
					t.Fatalf("%v becomes %v: the order has changed", p, adjusted)
				}
			}
		}
	})
}
