package router

import (
	"cmp"
	"math"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// priceTurn takes the candidates in turn, in the order of their ids: the cost is the
// distance from the candidate whose turn it is.
func priceTurn(_ Request, v View, free []Candidate) [][]cluster.CostTerm {
	order := make([]int, len(free))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(free[a].ID, free[b].ID) })
	out := make([][]cluster.CostTerm, len(free))
	turn := int(v.Turn % uint64(len(free)))
	for place, i := range order {
		out[i] = []cluster.CostTerm{{Name: cluster.TermTurn, Value: float64((place - turn + len(free)) % len(free))}}
	}
	return out
}

// priceLoad takes the candidate with the fewest requests in flight.
func priceLoad(_ Request, _ View, free []Candidate) [][]cluster.CostTerm {
	out := make([][]cluster.CostTerm, len(free))
	for i, c := range free {
		out[i] = []cluster.CostTerm{{Name: cluster.TermLoad, Value: float64(c.InFlight)}}
	}
	return out
}

// priceRandom draws: the cost is the hash of request and worker, as a number below 1.
func priceRandom(r Request, _ View, free []Candidate) [][]cluster.CostTerm {
	out := make([][]cluster.CostTerm, len(free))
	for i, c := range free {
		out[i] = []cluster.CostTerm{{Name: cluster.TermDraw, Value: draw(r, c)}}
	}
	return out
}

func draw(r Request, c Candidate) float64 { return float64(tieHash(r.ID, c.ID)) / math.MaxUint64 }

// priceTwo draws two candidates and takes the one with fewer requests in flight. The worker
// of the request's session is considered, too.
func priceTwo(r Request, _ View, free []Candidate) [][]cluster.CostTerm {
	draws := make([]float64, len(free))
	for i, c := range free {
		draws[i] = draw(r, c)
	}
	second := slices.Sorted(slices.Values(draws))[min(1, len(free)-1)]
	most := 0
	for _, c := range free {
		most = max(most, c.InFlight)
	}
	out := make([][]cluster.CostTerm, len(free))
	for i, c := range free {
		passed := 0.0
		if draws[i] > second && c.ID != r.Session {
			passed = float64(most + 1) // dearer than each of the two
		}
		out[i] = []cluster.CostTerm{{Name: cluster.TermLoad, Value: float64(c.InFlight)}, {Name: cluster.TermPassed, Value: passed}}
	}
	return out
}
