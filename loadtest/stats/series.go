package stats

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Series is the latencies of a cell by the time at which their requests were due: blocks of equal width, in order.
type Series struct {
	Width  time.Duration
	Blocks []Block
}

// Block is one of them.
type Block struct {
	Buckets []Bucket // sorted upwards
	Lost    int64
}

// count is the number of its requests.
func (b Block) count() int64 {
	n := b.Lost
	for _, bucket := range b.Buckets {
		n += bucket.Count
	}
	return n
}

// Only is the distribution of the requests that were due in some of the blocks, to the resolution of the series. keep is as long as Blocks, or longer.
func (s Series) Only(keep []bool) Distribution {
	counts := map[time.Duration]int64{}
	var lost int64
	for i, b := range s.Blocks {
		if !keep[i] {
			continue
		}
		lost += b.Lost
		for _, bucket := range b.Buckets {
			counts[bucket.Value] += bucket.Count
		}
	}
	var exact Exact
	buckets := make([]Bucket, 0, len(counts))
	for _, v := range slices.Sorted(maps.Keys(counts)) {
		buckets = append(buckets, Bucket{v, counts[v]})
		exact.Sum += float64(v) * float64(counts[v])
	}
	if len(buckets) > 0 {
		exact.Min, exact.Max = buckets[0].Value, buckets[len(buckets)-1].Value
	}
	d, err := NewDistribution(buckets, exact, lost)
	if err != nil {
		panic(err) // sorted, counted upwards from 0
	}
	return d
}

// Bounds of the bootstrap.
const (
	// leastBlocks is how many blocks with requests an interval needs: resampling fewer does not show how they vary.
	leastBlocks = 20
	// resamples decides how well the ends of an interval are known: with 1,000, 25 lie beyond each of them.
	resamples = 1000
	// confidence of an interval.
	confidence = 0.95
)

// Interval is a 95 % confidence interval.
type Interval struct{ Low, High Value }

// Ratio is the interval of a quotient; infinite ends are +Inf.
type Ratio struct{ Low, High float64 }

// Intervals returns the intervals of percentiles, and of P99/P50, by the circular block bootstrap (Politis and Romano 1992): latencies are
// autocorrelated, so not single ones are drawn, but stretches of neighbouring blocks, about the cube root of their number long. Percentiles that
// the samples do not carry, and series of fewer than 20 blocks, have none. The same seed gives the same result.
func (s Series) Intervals(percentiles []Percentile, seed uint64) (map[Percentile]Interval, *Ratio) {
	var total int64
	used := 0
	for _, b := range s.Blocks {
		if n := b.count(); n > 0 {
			total += n
			used++
		}
	}
	var carried []Percentile
	for _, p := range percentiles {
		if p.Enough(total) {
			carried = append(carried, p)
		}
	}
	intervals := map[Percentile]Interval{}
	if used < leastBlocks || len(carried) == 0 {
		return intervals, nil
	}
	table := newTable(s.Blocks)
	rng := rand.New(rand.NewPCG(seed, 0x626f6f74))
	draws := make([][]float64, len(carried)) // in nanoseconds
	var ratios []float64
	at50, at99 := slices.Index(carried, P50), slices.Index(carried, P99)
	for range resamples {
		for i, v := range table.draw(rng, carried) {
			draws[i] = append(draws[i], v)
		}
		if at50 >= 0 && at99 >= 0 {
			ratios = append(ratios, draws[at99][len(draws[at99])-1]/draws[at50][len(draws[at50])-1])
		}
	}
	for i, p := range carried {
		low, high := ends(draws[i])
		intervals[p] = Interval{value(low), value(high)}
	}
	if ratios == nil || slices.ContainsFunc(ratios, math.IsNaN) {
		return intervals, nil
	}
	low, high := ends(ratios)
	return intervals, &Ratio{low, high}
}

func value(v float64) Value {
	if math.IsInf(v, 1) {
		return Value{State: Infinite}
	}
	return Value{State: Known, Duration: time.Duration(v)}
}

// ends are those of the middle of the values that the confidence asks for.
func ends(values []float64) (low, high float64) {
	slices.Sort(values)
	beyond := int(math.Floor(float64(len(values)) * (1 - confidence) / 2))
	return values[beyond], values[len(values)-1-beyond]
}

// table is the blocks over one list of values.
type table struct {
	values []time.Duration
	blocks [][]cell
	lost   []int64
	sum    []int64
}

type cell struct {
	value int
	count int64
}

func newTable(blocks []Block) *table {
	t := &table{}
	for _, b := range blocks {
		for _, bucket := range b.Buckets {
			t.values = append(t.values, bucket.Value)
		}
	}
	slices.Sort(t.values)
	t.values = slices.Compact(t.values)
	for _, b := range blocks {
		var cells []cell
		for _, bucket := range b.Buckets {
			at, _ := slices.BinarySearch(t.values, bucket.Value)
			cells = append(cells, cell{at, bucket.Count})
		}
		t.blocks, t.lost = append(t.blocks, cells), append(t.lost, b.Lost)
	}
	t.sum = make([]int64, len(t.values))
	return t
}

// draw makes one resample and returns its percentiles in nanoseconds, +Inf for infinite.
func (t *table) draw(rng *rand.Rand, percentiles []Percentile) []float64 {
	clear(t.sum)
	n := len(t.blocks)
	stretch := max(int(math.Round(math.Cbrt(float64(n)))), 1)
	var answered, lost int64
	for taken := 0; taken < n; {
		first := rng.IntN(n)
		for i := 0; i < stretch && taken < n; i++ {
			at := (first + i) % n
			for _, c := range t.blocks[at] {
				t.sum[c.value] += c.count
				answered += c.count
			}
			lost += t.lost[at]
			taken++
		}
	}
	out := make([]float64, len(percentiles))
	var below int64
	at := 0
	for i, p := range percentiles { // rising
		rank := p.Rank(answered + lost)
		for at < len(t.values) && below+t.sum[at] < rank {
			below += t.sum[at]
			at++
		}
		if out[i] = math.Inf(1); at < len(t.values) {
			out[i] = float64(t.values[at])
		}
	}
	return out
}

// Trend is how a percentile moved over the interval.
type Trend struct {
	Percentile Percentile
	Windows    int     // in which it was looked at
	Z          float64 // Mann and Kendall's: beyond 2.58 on either side, one in a hundred steady series is
	Change     float64 // by Sen's slope from the first window to the last, as a share of the median
}

// Windows of a trend test.
const (
	mostWindows  = 20
	leastWindows = 8
)

// Trends tests p50 and p99 for a trend (Mann and Kendall's test, Sen's slope) over up to 20 windows of equal length, each of which carries the
// percentile. Where fewer than 8 do, there is none.
func (s Series) Trends() []Trend {
	var list []Trend
	for _, p := range []Percentile{P50, P99} {
		for windows := min(mostWindows, len(s.Blocks)); windows >= leastWindows; windows-- {
			if values := s.windows(p, windows); values != nil {
				list = append(list, trend(p, values))
				break
			}
		}
	}
	return list
}

// windows returns the percentile by window; nil where one does not carry it or has it infinite.
func (s Series) windows(p Percentile, windows int) []float64 {
	var values []float64
	for w := range windows {
		from, until := w*len(s.Blocks)/windows, (w+1)*len(s.Blocks)/windows
		counts := map[time.Duration]int64{}
		var n, lost int64
		for _, b := range s.Blocks[from:until] {
			n += b.count()
			lost += b.Lost
			for _, bucket := range b.Buckets {
				counts[bucket.Value] += bucket.Count
			}
		}
		rank := p.Rank(n)
		if !p.Enough(n) || rank > n-lost {
			return nil
		}
		buckets := make([]Bucket, 0, len(counts))
		for v, c := range counts {
			buckets = append(buckets, Bucket{v, c})
		}
		slices.SortFunc(buckets, func(a, b Bucket) int { return cmp.Compare(a.Value, b.Value) })
		for _, b := range buckets {
			if rank -= b.Count; rank <= 0 {
				values = append(values, float64(b.Value))
				break
			}
		}
	}
	return values
}

func trend(p Percentile, values []float64) Trend {
	n := len(values)
	s := 0
	var slopes []float64
	ties := map[float64]int{}
	for i, v := range values {
		ties[v]++
		for j := range i {
			s += cmp.Compare(v, values[j])
			slopes = append(slopes, (v-values[j])/float64(i-j))
		}
	}
	variance := float64(n * (n - 1) * (2*n + 5))
	for _, t := range ties {
		variance -= float64(t * (t - 1) * (2*t + 5))
	}
	out := Trend{Percentile: p, Windows: n}
	if variance > 0 && s != 0 {
		continuity := 1.0
		if s < 0 {
			continuity = -1
		}
		out.Z = (float64(s) - continuity) / math.Sqrt(variance/18)
	}
	if middle := Median(values); middle > 0 {
		out.Change = Median(slopes) * float64(n-1) / middle
	}
	return out
}

// Median is the middle of some values, at least one; of an even number, the mean of the two in the middle.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}
