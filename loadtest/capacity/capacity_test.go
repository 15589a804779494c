package capacity_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tailgate/loadtest/capacity"
)

func goal(loss float64) capacity.Goal {
	return capacity.Goal{Name: "g", LossRatio: loss, FinalDuration: time.Second, DurationSum: 5 * time.Second, ExceedRatio: 0.5}
}

// TestClassify: RFC 9971's load classification, by cases that can be followed by hand: with five seconds to decide and an exceed ratio of a
// half, 2.5 s of loss are allowed.
func TestClassify(t *testing.T) {
	full, short := time.Second, 200*time.Millisecond
	type trials []struct {
		n    int
		d    time.Duration
		loss float64
	}
	for _, c := range []struct {
		name   string
		trials trials
		want   capacity.Class
	}{
		{"nothing", nil, capacity.Undecided},
		{"two good", trials{{2, full, 0.01}}, capacity.Undecided},
		{"three good", trials{{3, full, 0.01}}, capacity.Lower},
		{"two bad", trials{{2, full, 0.011}}, capacity.Undecided},
		{"three bad", trials{{3, full, 0.011}}, capacity.Upper},
		{"two good, two bad", trials{{2, full, 0}, {2, full, 1}}, capacity.Undecided},
		{"three good, two bad", trials{{3, full, 0}, {2, full, 1}}, capacity.Lower},
		{"two good, three bad", trials{{2, full, 0}, {3, full, 1}}, capacity.Upper},
		{"short good ones prove nothing", trials{{100, short, 0}}, capacity.Undecided},
		{"short bad ones do", trials{{13, short, 1}}, capacity.Upper},
		{"short bad ones, balanced by short good ones", trials{{13, short, 1}, {13, short, 0}}, capacity.Undecided},
		{"many good after bad", trials{{3, full, 0}, {3, full, 1}}, capacity.Lower},
	} {
		var list []capacity.Trial
		for _, tr := range c.trials {
			for range tr.n {
				list = append(list, capacity.Trial{Duration: tr.d, Loss: []float64{tr.loss}})
			}
		}
		if got := goal(0.01).Classify(0, list); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// system loses more the nearer it comes to its capacity, by goal: goal i may lose losses[i], which it does at capacities[i].
func system(capacities, losses []float64, noise float64, rng *rand.Rand) capacity.Measure {
	return func(_ context.Context, _ int, rate float64, d time.Duration) (capacity.Trial, error) {
		t := capacity.Trial{Duration: d}
		for i, c := range capacities {
			x := rate / (c * (1 + noise*rng.NormFloat64()))
			t.Loss = append(t.Loss, math.Min(losses[i]*math.Pow(x, 20), 1))
		}
		return t, nil
	}
}

// TestSearchFindsTheCapacity: of systems without noise, the bounds enclose the capacity of every goal and are as near as asked for.
func TestSearchFindsTheCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var config capacity.Config
		var capacities, losses []float64
		for range rapid.IntRange(1, 4).Draw(t, "goals") {
			loss := rapid.SampledFrom([]float64{0.5, 0.1, 0.01, 0.001}).Draw(t, "loss")
			losses = append(losses, loss)
			capacities = append(capacities, math.Exp(rapid.Float64Range(math.Log(30), math.Log(900_000)).Draw(t, "capacity")))
			config.Goals = append(config.Goals, goal(loss))
		}
		config.Min, config.Max, config.Width, config.MaxTrials = 10, 1e6, 0.05, 10_000
		config.Start = rapid.Float64Range(10, 1e6).Draw(t, "start")
		results, err := capacity.Search(t.Context(), config, system(capacities, losses, 0, rand.New(rand.NewPCG(1, 1))))
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if r.Limit != "" || r.Lower > capacities[i] || r.Upper <= capacities[i] || r.Upper > r.Lower*1.05*(1+1e-12) || r.Conditional > r.Lower || r.Conditional < r.Lower*(1-losses[i]) {
				t.Fatalf("capacity %v: %+v", capacities[i], r)
			}
		}
	})
}

// TestSearchRepeats: with noise of a few percent, five searches agree within the 7 % that are asked for.
func TestSearchRepeats(t *testing.T) {
	least, most := math.Inf(1), 0.0
	for seed := range uint64(5) {
		config := capacity.Config{Goals: []capacity.Goal{goal(0.01)}, Min: 10, Max: 1e6, Start: 1000, Width: 0.03, MaxTrials: 500}
		results, err := capacity.Search(t.Context(), config, system([]float64{20_000}, []float64{0.01}, 0.02, rand.New(rand.NewPCG(seed, 2))))
		if err != nil || results[0].Limit != "" {
			t.Fatalf("%+v, %v", results, err)
		}
		least, most = min(least, results[0].Lower), max(most, results[0].Lower)
	}
	if most/least > 1.07 {
		t.Errorf("from %v to %v", least, most)
	}
}

// TestLimits: a search that cannot end says why, and what it knows.
func TestLimits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	base := capacity.Config{Goals: []capacity.Goal{goal(0.01)}, Min: 10, Max: 1e6, Start: 1000, Width: 0.05, MaxTrials: 500}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name         string
		ctx          context.Context
		change       func(*capacity.Config)
		measure      capacity.Measure
		want         string
		lower, upper [2]float64 // from, to
	}{
		{"beyond the maximum", t.Context(), nil, system([]float64{1e9}, []float64{0.01}, 0, rng), "maximum", [2]float64{1e6, 1e6}, [2]float64{}},
		{"below the minimum", t.Context(), nil, system([]float64{1}, []float64{0.01}, 0, rng), "minimum", [2]float64{}, [2]float64{10, 11}},
		{"trials used up", t.Context(), func(c *capacity.Config) { c.MaxTrials = 7 }, system([]float64{20_000}, []float64{0.01}, 0, rng), "trials", [2]float64{2000, 4000}, [2]float64{}},
		{"interrupted", canceled, nil, system([]float64{20_000}, []float64{0.01}, 0, rng), "interrupted", [2]float64{}, [2]float64{}},
		{"the tester's own limit", t.Context(), nil, func(ctx context.Context, n int, rate float64, d time.Duration) (capacity.Trial, error) {
			if rate > 50_000 {
				return capacity.Trial{}, capacity.ErrBeyond
			}
			return system([]float64{1e9}, []float64{0.01}, 0, rng)(ctx, n, rate, d)
		}, "tester", [2]float64{47_000, 50_000}, [2]float64{}},
	} {
		config := base
		if c.change != nil {
			c.change(&config)
		}
		results, err := capacity.Search(c.ctx, config, c.measure)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if r := results[0]; r.Limit != c.want || r.Lower < c.lower[0] || r.Lower > c.lower[1] || r.Upper < c.upper[0] || r.Upper > c.upper[1] {
			t.Errorf("%s: %+v, want limit %q, lower %v, upper %v", c.name, r, c.want, c.lower, c.upper)
		}
	}
	broken := errors.New("broken")
	if _, err := capacity.Search(t.Context(), base, func(context.Context, int, float64, time.Duration) (capacity.Trial, error) {
		return capacity.Trial{}, broken
	}); !errors.Is(err, broken) {
		t.Errorf("%v, want the trial's own error", err)
	}
	for _, wrong := range []func(*capacity.Config){
		func(c *capacity.Config) { c.Goals = nil }, func(c *capacity.Config) { c.Min = 0 }, func(c *capacity.Config) { c.Start = 2e6 },
		func(c *capacity.Config) { c.Width = 0 }, func(c *capacity.Config) { c.MaxTrials = 0 },
		func(c *capacity.Config) { c.Goals = []capacity.Goal{{}} },
	} {
		config := base
		wrong(&config)
		if _, err := capacity.Search(t.Context(), config, nil); err == nil {
			t.Errorf("%+v is searched", config)
		}
	}
}
