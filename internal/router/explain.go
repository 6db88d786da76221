package router

import (
	"cmp"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Explained is the most candidates that a decision lists: more would flood the event plane.
const Explained = 16

// scratch is memory that decisions use one after the other.
type scratch struct {
	terms Terms
	cost  []float64   // of the candidates that may be chosen
	free  []Candidate // these candidates, if others are excluded
	best  []int       // of which these are listed
}

// eligible returns the candidates that may be chosen.
func (s *scratch) eligible(candidates []Candidate) ([]Candidate, error) {
	if len(candidates) == 0 {
		return nil, ErrNoWorkers
	}
	excluded, err := 0, ErrAllExcluded
	for i := range candidates {
		if candidates[i].Excluded != "" {
			excluded++
		}
		if candidates[i].busy {
			err = ErrAllBusy
		}
	}
	switch excluded {
	case 0:
		return candidates, nil
	case len(candidates):
		return nil, err
	}
	s.free = s.free[:0]
	for i := range candidates {
		if candidates[i].Excluded == "" {
			s.free = append(s.free, candidates[i])
		}
	}
	return s.free, nil
}

// explain describes the best candidates: the chosen first, then by cost, excluded last.
// free are those that have a cost, of which chosen is one; -1 for none.
func (s *scratch) explain(all, free []Candidate, chosen int) []cluster.RouteCandidate {
	out := make([]cluster.RouteCandidate, 0, min(len(all), Explained))
	add := func(i int) {
		c := described(&free[i])
		c.Terms, c.Cost = s.terms.of(i), s.cost[i]
		out = append(out, c)
	}
	s.best = s.best[:0]
	if chosen >= 0 {
		add(chosen)
		s.listBest(free, chosen)
	}
	for _, i := range s.best {
		add(i)
	}
	if len(free) < len(all) {
		s.listExcluded(all, Explained-len(out))
		for _, i := range s.best {
			out = append(out, described(&all[i]))
		}
	}
	rank(out, chosen >= 0)
	return out
}

// listBest sets s.best to the candidates with the lowest costs, but for the chosen one.
// Of equals, those with the lowest ids are listed.
func (s *scratch) listBest(free []Candidate, chosen int) {
	const most = Explained - 1
	best := s.best[:0]
	for i, cost := range s.cost {
		if i == chosen {
			continue
		}
		before := func(o int) bool { return cost < s.cost[o] || cost == s.cost[o] && free[i].ID < free[o].ID }
		if len(best) == most {
			if !before(best[most-1]) {
				continue
			}
			best = best[:most-1]
		}
		best = insert(best, i, before)
	}
	s.best = best
}

// listExcluded sets s.best to at most n excluded candidates, those with the lowest ids.
func (s *scratch) listExcluded(all []Candidate, n int) {
	s.best = s.best[:0]
	for i := range all {
		if all[i].Excluded != "" {
			s.best = insert(s.best, i, func(o int) bool { return all[i].ID < all[o].ID })
			s.best = s.best[:min(len(s.best), n)]
		}
	}
}

// insert puts i before those of list that it comes before, which stand at its end.
func insert(list []int, i int, before func(int) bool) []int {
	at := len(list)
	for at > 0 && before(list[at-1]) {
		at--
	}
	return slices.Insert(list, at, i)
}

func described(c *Candidate) cluster.RouteCandidate {
	return cluster.RouteCandidate{Worker: c.Worker, ID: c.ID, Load: c.InFlight, Overlap: c.Overlap.Blocks(), Excluded: c.Excluded}
}

// rank sorts what is listed by cost and name, the excluded last. The first one stays where
// it is if it was chosen.
func rank(list []cluster.RouteCandidate, chosen bool) {
	if chosen {
		list = list[1:]
	}
	slices.SortStableFunc(list, func(a, b cluster.RouteCandidate) int {
		if out := a.Excluded != ""; out != (b.Excluded != "") {
			if out {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), cluster.CompareNames(a.Worker, b.Worker))
	})
}
