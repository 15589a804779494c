package stats_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tailgate/loadtest/stats"
)

// series makes blocks of samples, each the exponential of a slow wave, which all samples of a block share, and of noise of their own.
func series(rng *rand.Rand, blocks, each int, drift float64) stats.Series {
	s := stats.Series{Width: time.Second}
	wave := 0.0
	for b := range blocks {
		wave = 0.6*wave + 0.1*rng.NormFloat64()
		var values []time.Duration
		for range each {
			values = append(values, time.Duration(1e6*math.Exp(wave+0.5*rng.NormFloat64()+drift*float64(b)/float64(blocks))))
		}
		slices.Sort(values)
		var block stats.Block
		for _, v := range values {
			if n := len(block.Buckets); n > 0 && block.Buckets[n-1].Value == v {
				block.Buckets[n-1].Count++
				continue
			}
			block.Buckets = append(block.Buckets, stats.Bucket{Value: v, Count: 1})
		}
		s.Blocks = append(s.Blocks, block)
	}
	return s
}

// TestIntervalsHoldTheTruth: of autocorrelated series, the intervals of the median and of p99 hold the true value nearly as often as they say.
func TestIntervalsHoldTheTruth(t *testing.T) {
	const trials = 40
	// The logarithm of a sample is normal with the variance of noise and wave together.
	deviation := math.Sqrt(0.25 + 0.01/(1-0.36))
	truth := map[stats.Percentile]float64{stats.P50: 1e6, stats.P99: 1e6 * math.Exp(2.3263*deviation)}
	held := map[stats.Percentile]int{}
	ratios := 0
	for seed := range uint64(trials) {
		s := series(rand.New(rand.NewPCG(seed, 9)), 100, 30, 0)
		intervals, ratio := s.Intervals([]stats.Percentile{stats.P50, stats.P99, stats.P999}, seed)
		for p, want := range truth {
			if i := intervals[p]; float64(i.Low.Duration) <= want && want <= float64(i.High.Duration) {
				held[p]++
			}
		}
		if _, ok := intervals[stats.P999]; ok {
			t.Fatal("an interval of p99.9 from 3,000 samples")
		}
		if want := truth[stats.P99] / truth[stats.P50]; ratio.Low <= want && want <= ratio.High {
			ratios++
		}
	}
	for name, n := range map[string]int{"p50": held[stats.P50], "p99": held[stats.P99], "P99/P50": ratios} {
		// The block bootstrap is known to be a little too sure of itself with series this short.
		if n < trials*80/100 {
			t.Errorf("%d of %d intervals of %s hold the true value, want about 95 %%", n, trials, name)
		}
	}
}

func TestIntervalsNeedBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	if intervals, ratio := series(rng, 19, 1000, 0).Intervals([]stats.Percentile{stats.P50}, 1); len(intervals) > 0 || ratio != nil {
		t.Error("an interval from 19 blocks")
	}
	s := series(rng, 100, 30, 0)
	a, _ := s.Intervals([]stats.Percentile{stats.P50}, 1)
	b, _ := s.Intervals([]stats.Percentile{stats.P50}, 1)
	if a[stats.P50] != b[stats.P50] || a[stats.P50].Low.Duration >= a[stats.P50].High.Duration {
		t.Errorf("%v and %v from the same seed", a, b)
	}
	for i := range s.Blocks {
		s.Blocks[i].Lost = 30
	}
	intervals, _ := s.Intervals([]stats.Percentile{stats.P50, stats.P90}, 1)
	if i := intervals[stats.P90]; i.Low.State != stats.Infinite || i.High.State != stats.Infinite {
		t.Errorf("with half of the requests lost, p90 is in %+v", i)
	}
}

// TestTrends: a series that rises by a half is found, a steady one seldom.
func TestTrends(t *testing.T) {
	const trials = 20
	found, alarms := 0, 0
	for seed := range uint64(trials) {
		for _, trend := range series(rand.New(rand.NewPCG(seed, 4)), 100, 200, math.Log(1.5)).Trends() {
			if trend.Percentile == stats.P50 && trend.Z > 2.58 && math.Abs(trend.Change-0.4) < 0.3 {
				found++
			}
		}
		for _, trend := range series(rand.New(rand.NewPCG(seed, 5)), 100, 200, 0).Trends() {
			if math.Abs(trend.Z) > 2.58 && math.Abs(trend.Change) > 0.1 {
				alarms++
			}
		}
	}
	if found < trials*95/100 || alarms > 2*trials/10 {
		t.Errorf("%d of %d rises found, %d alarms in %d steady percentiles", found, trials, alarms, 2*trials)
	}
	if trends := series(rand.New(rand.NewPCG(1, 1)), 7, 5000, 0).Trends(); len(trends) > 0 {
		t.Errorf("%+v from 7 blocks", trends)
	}
}
