package stats

import (
	"cmp"
	"math"
	"slices"
)

// mostArrangements bounds the exact test: two times ten runs have 184,756 arrangements.
const mostArrangements = 200_000

// MannWhitney is the two-sided test of Mann and Whitney (1947) whether values of one group tend to be greater than those of the other; it
// supposes nothing of their distribution. It returns U of the first group and p. Where there are at most 200,000 ways to divide the values into groups of these
// sizes, p is exact, with ties too (all divisions are looked at); beyond, it is the normal approximation with the corrections for ties and
// continuity. An empty group gives p = 1.
func MannWhitney(a, b []float64) (u, p float64) {
	n, m := len(a), len(b)
	if n == 0 || m == 0 {
		return 0, 1
	}
	ranks, ties := midranks(a, b)
	sum := 0.0
	for _, r := range ranks[:n] {
		sum += r
	}
	base := float64(n*(n+1)) / 2
	u = sum - base
	middle := float64(n*m) / 2
	if ways := binomial(n+m, n); ways <= mostArrangements {
		away := math.Abs(u - middle)
		extreme := 0.0
		arrangements(ranks, n, 0, func(sum float64) {
			if math.Abs(sum-base-middle) >= away-1e-9 {
				extreme++
			}
		})
		return u, extreme / ways
	}
	total := float64(n + m)
	variance := float64(n*m) / 12 * (total + 1 - ties/(total*(total-1)))
	if variance <= 0 {
		return u, 1
	}
	z := (math.Abs(u-middle) - 0.5) / math.Sqrt(variance)
	return u, math.Erfc(max(z, 0) / math.Sqrt2)
}

// LeastP is the smallest p that groups of these sizes can have.
func LeastP(n, m int) float64 { return min(2/binomial(n+m, n), 1) }

// midranks are the ranks of all values from 1, equal ones sharing their mean, and the sum of t^3-t over ties of t.
func midranks(a, b []float64) (ranks []float64, ties float64) {
	all := slices.Concat(a, b)
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(all[i], all[j]) })
	ranks = make([]float64, len(all))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && all[order[j]] == all[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			ranks[order[k]] = float64(i+j+1) / 2
		}
		t := float64(j - i)
		ties += t*t*t - t
		i = j
	}
	return ranks, ties
}

// arrangements calls do with the sum of every choice of n ranks, each added to what is there already.
func arrangements(ranks []float64, n int, sum float64, do func(sum float64)) {
	if n == 0 {
		do(sum)
		return
	}
	for i := 0; i+n <= len(ranks); i++ {
		arrangements(ranks[i+1:], n-1, sum+ranks[i], do)
	}
}

func binomial(n, k int) float64 {
	ways := 1.0
	for i := 1; i <= min(k, n-k); i++ {
		ways = ways * float64(n-min(k, n-k)+i) / float64(i)
	}
	return math.Round(ways)
}

// Shift is by how much the second group is above the first: the estimate of Hodges and Lehmann (the median of all differences) with its 95 %
// interval from the same distribution of U as the test, so that the two agree. ok is false where the groups are too small for one, or
// have more than 10,000 differences.
func Shift(a, b []float64) (estimate, low, high float64, ok bool) {
	n, m := len(a), len(b)
	if n == 0 || m == 0 || n*m > 10_000 {
		return 0, 0, 0, false
	}
	var differences []float64
	for _, x := range a {
		for _, y := range b {
			differences = append(differences, y-x)
		}
	}
	slices.Sort(differences)
	estimate = Median(differences)
	// The interval leaves out k differences at each end, with the greatest k for which P(U < k) is at most 2.5 %.
	below, total := 0.0, binomial(n+m, n)
	k := 0
	for i, ways := range uCounts(n, m) {
		if below += ways; below/total > (1-confidence)/2 {
			break
		}
		k = i + 1
	}
	if k == 0 {
		return estimate, 0, 0, false
	}
	return estimate, differences[k-1], differences[len(differences)-k], true
}

// uCounts is in how many arrangements without ties U has the values from 0 to n*m: the coefficients of the Gaussian binomial.
func uCounts(n, m int) []float64 {
	counts := make([]float64, n*m+1)
	counts[0] = 1
	for i := 1; i <= n; i++ {
		for u := n * m; u >= m+i; u-- { // times 1 - q^(m+i)
			counts[u] -= counts[u-m-i]
		}
		for u := i; u <= n*m; u++ { // by 1 - q^i
			counts[u] += counts[u-i]
		}
	}
	return counts
}

// Holm adjusts the p values of several tests made at once (Holm 1979): those that are below a level then are all right together with at
// least that level's confidence. The order stays.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p[i], p[j]) })
	adjusted := make([]float64, len(p))
	last := 0.0
	for rank, i := range order {
		last = max(last, min(p[i]*float64(len(p)-rank), 1))
		adjusted[i] = last
	}
	return adjusted
}
