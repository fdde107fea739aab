package bucketing

import (
	"math"
	"slices"
	"sort"
)

// EqualCount is the bounds, tokens, of classes that hold equally many of the lengths each; fewer where lengths repeat.
func EqualCount(lengths []int, classes int) []int {
	sorted := slices.Sorted(slices.Values(lengths))
	var bounds []int
	for k := 1; k < classes && len(sorted) > 0; k++ {
		bounds = append(bounds, sorted[(k*len(sorted)+classes-1)/classes-1])
	}
	return slices.Compact(bounds)
}

// LeastPadding is the bounds, tokens, of at most so many classes for which the lengths, each padded to the longest of its class, sum up
// to the least: dynamic programming over the distinct lengths, of which at most 1,024 quantiles are considered.
func LeastPadding(lengths []int, classes int) []int {
	sorted := slices.Sorted(slices.Values(lengths))
	edges := EqualCount(lengths, min(1024, len(lengths))) // candidates: a class may end at any of them, or at the longest
	if len(sorted) == 0 {
		return nil
	}
	edges = slices.Compact(append(edges, sorted[len(sorted)-1]))
	upTo := make([]int, len(edges)+1) // lengths within the first k edges
	for k, e := range edges {
		upTo[k+1] = sort.SearchInts(sorted, e+1)
	}
	// least[c][k]: tokens, padding included, of the first k edges in c classes.
	least, from := make([][]float64, classes+1), make([][]int, classes+1)
	for c := range least {
		least[c], from[c] = make([]float64, len(edges)+1), make([]int, len(edges)+1)
		for k := range least[c] {
			least[c][k] = math.Inf(1)
		}
	}
	least[0][0] = 0
	for c := 1; c <= classes; c++ {
		for k := 1; k <= len(edges); k++ {
			for j := range k {
				if t := least[c-1][j] + float64(edges[k-1]*(upTo[k]-upTo[j])); t < least[c][k] {
					least[c][k], from[c][k] = t, j
				}
			}
		}
	}
	var bounds []int
	c := min(classes, len(edges))
	for k := from[c][len(edges)]; c > 1 && k > 0; k = from[c][k] {
		bounds = append(bounds, edges[k-1])
		c--
	}
	slices.Reverse(bounds)
	return bounds
}
