package stats_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"tailgate/loadtest/stats"
)

// TestSignedRank holds it against all choices of signs, counted one by one, and against the tables of Wilcoxon's test.
func TestSignedRank(t *testing.T) {
	for _, c := range []struct {
		differences []float64
		p           float64
	}{
		{nil, 1},
		{[]float64{0, 0}, 1},
		{[]float64{1, 2, 3, 4, 5}, 2.0 / 32},
		{[]float64{1, 2, 3, 4, 5, 6}, 2.0 / 64},
		{[]float64{-1, 2, 3, 4, 5, 6}, 4.0 / 64},
		{[]float64{0, -1, 2, 3, 4, 5, 6}, 4.0 / 64},
		// Two of the same size share the rank 1.5: sums of positive ranks of at least 8.5 or at most 1.5 of 10.
		{[]float64{-1, 1, 3, 4}, 6.0 / 16},
	} {
		if p := stats.SignedRank(c.differences); math.Abs(p-c.p) > 1e-12 {
			t.Errorf("%v: p %v, want %v", c.differences, p, c.p)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		d := make([]float64, 1+rng.IntN(10))
		for i := range d {
			d[i] = float64(rng.IntN(9)) - 3 // with ties and zeros
		}
		if got, want := stats.SignedRank(d), bySigns(d); math.Abs(got-want) > 1e-12 {
			t.Errorf("%v: p %v, by all signs %v", d, got, want)
		}
	}
	many := make([]float64, stats.MostPairs+10)
	for i := range many {
		many[i] = 1 + float64(i)
	}
	if p := stats.SignedRank(many); math.Abs(p/stats.LeastPairedP(stats.MostPairs)-1) > 1e-9 || stats.LeastPairedP(5) != 2.0/32 || stats.LeastPairedP(0) != 1 {
		t.Errorf("p of %d pairs %v", len(many), p)
	}
}

// bySigns is the definition: the share of all choices of signs whose sum of positive ranks is as far from the middle.
func bySigns(differences []float64) float64 {
	var abs, signed []float64
	for _, d := range differences {
		if d != 0 {
			abs, signed = append(abs, math.Abs(d)), append(signed, d)
		}
	}
	if len(abs) == 0 {
		return 1
	}
	ranks := make([]float64, len(abs))
	middle, observed := 0.0, 0.0
	for i := range abs {
		for j := range abs {
			if abs[j] < abs[i] {
				ranks[i]++
			} else if abs[j] == abs[i] {
				ranks[i] += 0.5
			}
		}
		ranks[i] += 0.5
		middle += ranks[i] / 2
		if signed[i] > 0 {
			observed += ranks[i]
		}
	}
	extreme := 0
	for signs := range 1 << len(abs) {
		sum := 0.0
		for i := range ranks {
			if signs>>i&1 == 1 {
				sum += ranks[i]
			}
		}
		if math.Abs(sum-middle) >= math.Abs(observed-middle)-1e-9 {
			extreme++
		}
	}
	return float64(extreme) / float64(int(1)<<len(abs))
}

// TestPairedShift: the interval holds the true shift about as often as it says, whatever pairs have in common.
func TestPairedShift(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	held := 0
	const trials, shift = 400, 0.3
	for range trials {
		d := make([]float64, 10)
		for i := range d {
			d[i] = shift + rng.NormFloat64()
		}
		estimate, low, high, ok := stats.PairedShift(d)
		if !ok || low > estimate || estimate > high {
			t.Fatalf("%v in [%v, %v], %v", estimate, low, high, ok)
		}
		if low <= shift && shift <= high {
			held++
		}
	}
	if share := float64(held) / trials; share < 0.92 || share > 0.985 {
		t.Errorf("%.1f %% of the 95 %% intervals hold the shift", 100*share)
	}
	if _, _, _, ok := stats.PairedShift([]float64{1, 2, 3, 4, 5}); ok {
		t.Error("five pairs have no 95 % interval: even all of one sign have p = 1/16")
	}
}
