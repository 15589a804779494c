package stats

import (
	"cmp"
	"math"
	"slices"
)

// mostExact bounds the values of both groups of the exact test: its work grows with the fourth power of them, and beyond them the approximation is good.
const mostExact = 40

// MannWhitney is the two-sided test of Mann and Whitney (1947) whether values of one group tend to be greater than those of the other; it
// supposes nothing of their distribution. It returns U of the first group and p. Up to 40 values in all, p is exact, with ties too (all ways to divide the values into
// groups of these sizes are counted); beyond, it is the normal approximation with the corrections for ties and continuity. An empty group gives p = 1.
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
	if n+m <= mostExact {
		away := math.Abs(u - middle)
		extreme, all := 0.0, 0.0
		for doubled, ways := range groupSums(ranks, n) {
			all += ways
			if math.Abs(float64(doubled)/2-base-middle) >= away-1e-9 {
				extreme += ways
			}
		}
		return u, extreme / all
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

// groupSums is in how many ways n of the ranks, which are whole or halves, have each sum; the sums are doubled.
func groupSums(ranks []float64, n int) []float64 {
	total := 0
	for _, r := range ranks {
		total += int(2 * r)
	}
	ways := make([][]float64, n+1) // by how many were taken
	for i := range ways {
		ways[i] = make([]float64, total+1)
	}
	ways[0][0] = 1
	for _, r := range ranks {
		r := int(2 * r)
		for taken := n; taken >= 1; taken-- {
			for sum := r; sum <= total; sum++ {
				ways[taken][sum] += ways[taken-1][sum-r]
			}
		}
	}
	return ways[n]
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
