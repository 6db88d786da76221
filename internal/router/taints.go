package router

import (
	"maps"
	"math"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Constraints are the demands of a request on the taints of its workers: Dynamo's
// routing_constraints. The zero value demands nothing.
type Constraints struct {
	// Required are the taints that a worker must have.
	Required []string
	// Preferred has a weight for each taint: above 0 attracts the request, below 0 repels it.
	Preferred map[string]float64
}

// Lacks returns the first required taint that a worker with these taints does not have.
func (c Constraints) Lacks(taints []string) (taint string, lacks bool) {
	for _, t := range c.Required {
		if !slices.Contains(taints, t) {
			return t, true
		}
	}
	return "", false
}

// Preference returns the sum of the weights of the preferred taints that a worker has.
func (c Constraints) Preference(taints []string) (sum float64) {
	for _, t := range slices.Sorted(maps.Keys(c.Preferred)) { // in one order, so that sums are equal everywhere
		if slices.Contains(taints, t) {
			sum += c.Preferred[t]
		}
	}
	return sum
}

// addPreference adds the term of the preferred taints to those of every candidate. It
// multiplies the cost by exp(-tanh(preference)), which is between 0.37 and 2.72, as Dynamo
// 1.5 does. The cost counts as one more than it is, so that idle workers differ, too.
// Nothing is added if the request prefers none of the candidates.
func addPreference(free []Candidate, terms *Terms) {
	prefers := false
	for i := range free {
		prefers = prefers || free[i].Preference != 0
	}
	if !prefers {
		return
	}
	sums := terms.sums(nil)
	cost := terms.Add(cluster.TermTaints)
	for i := range free {
		cost[i] = (1 + sums[i]) * (math.Exp(-math.Tanh(free[i].Preference)) - 1)
	}
}
