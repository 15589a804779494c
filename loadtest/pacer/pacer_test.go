package pacer_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tailgate/loadtest/pacer"
)

func schedule(t interface{ Fatal(...any) }, config pacer.Config) *pacer.Schedule {
	s, err := pacer.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func take(w *pacer.Walk, n int) (numbers []int64, dues []time.Duration) {
	for range n {
		number, due := w.Next()
		numbers, dues = append(numbers, number), append(dues, due)
	}
	return numbers, dues
}

// TestConstant: equal gaps, exact for ever.
func TestConstant(t *testing.T) {
	w := schedule(t, pacer.Config{Rate: 3000, Arrivals: pacer.Constant}).Walk(0, 1)
	for i := range int64(1_000_000) {
		number, due := w.Next()
		if want := float64(i) * 1e9 / 3000; number != i || math.Abs(float64(due)-want) > 1.5 {
			t.Fatalf("arrival %d is number %d, due at %v, want %v ns", i, number, due, want)
		}
	}
}

// TestSteps: the rate changes at the step's very moment, and both processes keep to it.
func TestSteps(t *testing.T) {
	steps := []pacer.Step{{At: 2 * time.Second, Rate: 5000}, {At: 3 * time.Second, Rate: 100}}
	for _, arrivals := range []pacer.Arrivals{pacer.Constant, pacer.Poisson} {
		s := schedule(t, pacer.Config{Rate: 1000, Steps: steps, Arrivals: arrivals, Seed: 1})
		for _, c := range []struct {
			from, until time.Duration
			want        int64
		}{{0, 2 * time.Second, 2000}, {2 * time.Second, 3 * time.Second, 5000}, {3 * time.Second, 13 * time.Second, 1000}} {
			tolerance := 0.0
			if arrivals == pacer.Poisson {
				tolerance = 4 * math.Sqrt(float64(c.want)) // four standard deviations of a Poisson count
			}
			if got := s.Count(c.from, c.until); math.Abs(float64(got-c.want)) > tolerance {
				t.Errorf("%s: %d from %v to %v, want %d", arrivals, got, c.from, c.until, c.want)
			}
			if got := s.Expected(c.from, c.until); math.Abs(got-float64(c.want)) > 1e-6 {
				t.Errorf("%v expected from %v to %v, want %d", got, c.from, c.until, c.want)
			}
		}
	}
}

// TestPoissonGaps: the gaps are exponential (Kolmogorov's and Smirnov's distance, whose 99.9 % quantile is 1.95/sqrt(n)) and not correlated.
func TestPoissonGaps(t *testing.T) {
	const n, rate = 100_000, 1000.0
	_, dues := take(schedule(t, pacer.Config{Rate: rate, Seed: 7}).Walk(0, 1), n+1)
	gaps := make([]float64, n)
	for i := range gaps {
		gaps[i] = (dues[i+1] - dues[i]).Seconds()
	}
	product := 0.0
	for i := 1; i < n; i++ {
		product += (gaps[i]*rate - 1) * (gaps[i-1]*rate - 1)
	}
	if r := product / n; math.Abs(r) > 4/math.Sqrt(n) {
		t.Errorf("neighbouring gaps have a correlation of %v", r)
	}
	slices.Sort(gaps)
	distance := 0.0
	for i, g := range gaps {
		distance = max(distance, math.Abs(1-math.Exp(-g*rate)-float64(i)/n))
	}
	if distance > 1.95/math.Sqrt(n) {
		t.Errorf("the gaps are %v from an exponential distribution", distance)
	}
}

// TestSharesAreTheSchedule: however many generators walk it, they send the same requests at the same times.
func TestSharesAreTheSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := pacer.Config{
			Rate: rapid.Float64Range(pacer.MinRate, pacer.MaxRate).Draw(t, "rate"), Seed: rapid.Uint64().Draw(t, "seed"),
			Arrivals: pacer.Arrivals(rapid.IntRange(0, 1).Draw(t, "arrivals")),
		}
		at := time.Duration(0)
		for range rapid.IntRange(0, 3).Draw(t, "steps") {
			at += time.Duration(rapid.Int64Range(1, int64(10/config.Rate*1e9)+1).Draw(t, "at"))
			config.Steps = append(config.Steps, pacer.Step{At: at, Rate: rapid.Float64Range(pacer.MinRate, pacer.MaxRate).Draw(t, "step")})
		}
		s := schedule(t, config)
		n, shares := rapid.IntRange(1, 60).Draw(t, "n"), rapid.IntRange(1, 9).Draw(t, "shares")
		numbers, dues := take(s.Walk(0, 1), n)
		for i := 1; i < n; i++ {
			if dues[i] < dues[i-1] {
				t.Fatalf("due times fall: %v after %v", dues[i], dues[i-1])
			}
		}
		for share := range shares {
			w := s.Walk(int64(share), int64(shares))
			for i := share; i < n; i += shares {
				if number, due := w.Next(); number != numbers[i] || due != dues[i] {
					t.Fatalf("share %d of %d: number %d at %v, want %d at %v", share, shares, number, due, numbers[i], dues[i])
				}
			}
		}
		from := dues[rapid.IntRange(0, n-1).Draw(t, "from")]
		count := rapid.Int64Range(1, 50).Draw(t, "count")
		if end := s.End(from, count); s.Count(from, end) > count || s.Count(from, end+1) <= count-1 {
			t.Fatalf("[%v, %v) holds %d, want %d", from, end, s.Count(from, end), count)
		}
	})
}

// TestSeeds: same seed, same schedule; another seed, another.
func TestSeeds(t *testing.T) {
	first := func(seed uint64) []time.Duration {
		_, dues := take(schedule(t, pacer.Config{Rate: 1000, Seed: seed}).Walk(0, 1), 100)
		return dues
	}
	if !slices.Equal(first(1), first(1)) || slices.Equal(first(1), first(2)) {
		t.Error("the schedule is not a function of its seed")
	}
}

func TestBounds(t *testing.T) {
	for _, c := range []struct {
		config pacer.Config
		want   string
	}{
		{pacer.Config{}, "rate 0: 0.1 to 10000000 requests a second are allowed"},
		{pacer.Config{Rate: -5}, "rate -5"},
		{pacer.Config{Rate: math.NaN()}, "rate NaN"},
		{pacer.Config{Rate: math.Inf(1)}, "rate +Inf"},
		{pacer.Config{Rate: 1e12}, "rate 1e+12"},
		{pacer.Config{Rate: 1, Steps: []pacer.Step{{At: time.Second}}}, "step 1: rate 0"},
		{pacer.Config{Rate: 1, Steps: []pacer.Step{{Rate: 1}}}, "step 1 at 0s: above 0"},
		{pacer.Config{Rate: 1, Steps: []pacer.Step{{At: 2, Rate: 1}, {At: 2, Rate: 1}}}, "step 2 at 2ns: above 0, later"},
		{pacer.Config{Rate: 1, Steps: make([]pacer.Step, pacer.MaxSteps+1)}, "1001 steps"},
	} {
		if _, err := pacer.New(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
	}
}

// TestSleeper: it never comes back much too early, and it can be used again.
func TestSleeper(t *testing.T) {
	s, err := pacer.NewSleeper()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []time.Duration{-1, 0, time.Microsecond, 300 * time.Microsecond, 20 * time.Millisecond} {
		begun := time.Now()
		s.Sleep(d)
		if took := time.Since(begun); took < d-50*time.Microsecond {
			t.Errorf("a sleep of %v took %v", d, took)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func BenchmarkNext(b *testing.B) {
	for _, arrivals := range []pacer.Arrivals{pacer.Constant, pacer.Poisson} {
		b.Run(arrivals.String(), func(b *testing.B) {
			w := schedule(b, pacer.Config{Rate: 1e6, Arrivals: arrivals}).Walk(0, 1)
			b.ReportAllocs()
			for b.Loop() {
				w.Next()
			}
		})
	}
}
