package router

import (
	"cmp"
	"math"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// priceTurn takes the candidates in turn, in the order of their ids: the cost is the
// distance from the candidate whose turn it is.
func priceTurn(_ Request, v View, free []Candidate, terms *Terms) {
	order := make([]int, len(free))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(free[a].ID, free[b].ID) })
	cost, turn := terms.Add(cluster.TermTurn), int(v.Turn%uint64(len(free)))
	for place, i := range order {
		cost[i] = float64((place - turn + len(free)) % len(free))
	}
}

// priceLoad takes the candidate with the fewest requests in flight.
func priceLoad(_ Request, _ View, free []Candidate, terms *Terms) {
	load := terms.Add(cluster.TermLoad)
	for i := range free {
		load[i] = float64(free[i].InFlight)
	}
}

// priceRandom draws: the cost is the hash of request and worker, as a number below 1.
func priceRandom(r Request, _ View, free []Candidate, terms *Terms) {
	cost, request := terms.Add(cluster.TermDraw), startTie(r.ID)
	for i := range free {
		cost[i] = request.draw(free[i].ID)
	}
}

func (t tie) draw(worker cluster.InstanceID) float64 { return float64(t.with(worker)) / math.MaxUint64 }

// priceTwo draws two candidates and takes the one with fewer requests in flight. The worker
// of the request's session is considered, too.
func priceTwo(r Request, v View, free []Candidate, terms *Terms) {
	priceLoad(r, v, free, terms)
	passed, request := terms.Add(cluster.TermPassed), startTie(r.ID)
	first, second, most := math.Inf(1), math.Inf(1), 0
	for i := range free {
		passed[i] = request.draw(free[i].ID)
		first, second = min(first, passed[i]), min(second, max(first, passed[i]))
		most = max(most, free[i].InFlight)
	}
	for i := range free {
		if passed[i] > second && free[i].ID != r.Session {
			passed[i] = float64(most + 1) // dearer than each of the two
		} else {
			passed[i] = 0
		}
	}
}
