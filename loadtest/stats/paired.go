package stats

import (
	"cmp"
	"math"
	"slices"
)

// MostPairs bounds the pairs that SignedRank and PairedShift look at: their work grows with the third power of it, and more tell nothing new.
const MostPairs = 200

// SignedRank is the two-sided test of Wilcoxon (1945) whether differences within pairs tend to one side of nothing: p, exact, with ties too, for up to MostPairs
// differences that are not 0; of more, the first MostPairs are taken. Differences of 0 say nothing and are left out. Without any it is 1. It supposes that
// which of a pair came first was left to chance, and nothing of what is common to both.
func SignedRank(differences []float64) (p float64) {
	ranks, positive := signedRanks(differences)
	if len(ranks) == 0 {
		return 1
	}
	total := 0
	for _, r := range ranks {
		total += r
	}
	ways := rankSums(ranks, total)
	away := max(positive, total-positive)
	extreme, all := 0.0, 0.0
	for sum, n := range ways {
		all += n
		if sum >= away || sum <= total-away {
			extreme += n
		}
	}
	return min(extreme/all, 1)
}

// signedRanks are twice the ranks of the absolute differences from 1, equal ones sharing their mean, and the sum of those of positive ones.
func signedRanks(differences []float64) (ranks []int, positive int) {
	var used []float64
	for _, d := range differences {
		if d != 0 && len(used) < MostPairs {
			used = append(used, d)
		}
	}
	slices.SortFunc(used, func(a, b float64) int { return cmp.Compare(math.Abs(a), math.Abs(b)) })
	for i := 0; i < len(used); {
		j := i
		for j < len(used) && math.Abs(used[j]) == math.Abs(used[i]) {
			j++
		}
		for k := i; k < j; k++ {
			ranks = append(ranks, i+j+1)
			if used[k] > 0 {
				positive += i + j + 1
			}
		}
		i = j
	}
	return ranks, positive
}

// rankSums is in how many choices of signs the positive ranks have each sum.
func rankSums(ranks []int, total int) []float64 {
	ways := make([]float64, total+1)
	ways[0] = 1
	for _, r := range ranks {
		for sum := total; sum >= r; sum-- {
			ways[sum] += ways[sum-r]
		}
	}
	return ways
}

// LeastPairedP is the smallest p that so many pairs can have.
func LeastPairedP(pairs int) float64 { return min(math.Ldexp(2, -min(pairs, MostPairs)), 1) }

// PairedShift is by how much the second of a pair is above the first: the estimate of Hodges and Lehmann (the median of all means of two differences, of a
// difference with itself too) with its 95 % interval from the same distribution as SignedRank. ok is false where there are too few pairs for one.
func PairedShift(differences []float64) (estimate, low, high float64, ok bool) {
	n := min(len(differences), MostPairs)
	if n == 0 {
		return 0, 0, 0, false
	}
	var means []float64
	for i := range n {
		for j := i; j < n; j++ {
			means = append(means, (differences[i]+differences[j])/2)
		}
	}
	slices.Sort(means)
	estimate = Median(means)
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i + 1
	}
	below, total := 0.0, math.Ldexp(1, n)
	k := 0
	for i, ways := range rankSums(ranks, n*(n+1)/2) {
		if below += ways; below/total > (1-confidence)/2 {
			break
		}
		k = i + 1
	}
	if k == 0 {
		return estimate, 0, 0, false
	}
	return estimate, means[k-1], means[len(means)-k], true
}
