package planner

import (
	"cmp"
	"slices"
	"sort"

	"github.com/dynctl/dynctl/internal/cluster"
)

// search finds the cheapest plan under one forecast. It evaluates each plan once.
type search struct {
	cfg        Config
	evaluator  Evaluator
	forecast   Forecast
	thresholds []int // values of MaxLocalPrefill to consider beside the present one
	advised    Plan  // that is kept while no other is cheaper; zero: none
	seen       map[Plan]Candidate
	order      []Plan
	err        error
}

func (p *Planner) newSearch(f Forecast) *search {
	return &search{cfg: p.cfg, evaluator: p.evaluator, forecast: f, thresholds: p.thresholds, advised: p.advised, seen: map[Plan]Candidate{}}
}

// under returns the same search under another forecast.
func (s *search) under(f Forecast) *search {
	return &search{cfg: s.cfg, evaluator: s.evaluator, forecast: f, thresholds: s.thresholds, advised: s.advised, seen: map[Plan]Candidate{}}
}

// try evaluates a plan. After an error it returns zero candidates.
func (s *search) try(plan Plan) Candidate {
	if c, ok := s.seen[plan]; ok || s.err != nil {
		return c
	}
	c := Candidate{Plan: plan, Devices: s.cfg.DevicesOf(plan)}
	switch {
	case plan.Decode == 0 && s.forecast.Rate > 0:
		c.Outcome = Outcome{Miss: 1, MissTTFT: 1, MissITL: 1}
	case plan.Decode > 0:
		if c.Outcome, s.err = s.evaluator.Evaluate(plan, s.forecast); s.err != nil {
			return Candidate{}
		}
	}
	c.Holds = (plan.Decode > 0 || s.forecast.Rate <= 0) && s.cfg.Target.holds(c.Outcome)
	s.seen[plan] = c
	s.order = append(s.order, plan)
	return c
}

// holds reports whether an outcome is good enough.
func (t Target) holds(o Outcome) bool {
	switch t.Goal {
	case GoalThroughput:
		return max(o.PrefillLoad, o.DecodeLoad) <= throughputLoad
	case GoalCost:
		return max(o.PrefillLoad, o.DecodeLoad) <= costLoad
	default:
		return o.Miss <= 1-t.Percentile
	}
}

// cheapest returns the best plan from where the cluster stands: one that holds the target with the
// fewest devices; of equal ones, that with the fewest starts, then changes, then misses.
// Where none holds, it is the one with the fewest misses, and ok is false. The plan that was advised last stays the
// best one while no other is cheaper, or misses clearly less where none holds.
func (s *search) cheapest(from Plan) (best Candidate, ok bool, err error) {
	s.disaggregated(from.MaxLocalPrefill)
	if s.cfg.Aggregate && s.cfg.least(cluster.RolePrefill) == 0 {
		s.aggregated(from.MaxLocalPrefill)
	}
	best, ok = s.best(from, func(p Plan) bool { return p.MaxLocalPrefill == from.MaxLocalPrefill })
	if !ok && s.err == nil {
		best = s.try(s.cfg.reduce(s.cfg.minimum(Plan{MaxLocalPrefill: from.MaxLocalPrefill})))
		return best, false, s.err
	}
	if other, pays := s.rethreshold(from, best); pays {
		best = other
	}
	if s.advised != (Plan{}) && s.may(s.advised) {
		if a := s.try(s.advised); a.Holds == best.Holds && a.Devices <= best.Devices && (a.Holds || !better(best, a)) {
			best = a
		}
	}
	if s.err != nil {
		return Candidate{}, false, s.err
	}
	return best, best.Holds, nil
}

// best returns the best one of the evaluated plans that may be proposed and are wanted.
func (s *search) best(from Plan, wanted func(Plan) bool) (Candidate, bool) {
	var all []Candidate
	for _, plan := range s.order {
		if s.may(plan) && wanted(plan) {
			all = append(all, s.seen[plan])
		}
	}
	if len(all) == 0 || s.err != nil {
		return Candidate{}, false
	}
	return slices.MinFunc(all, func(a, b Candidate) int {
		if a.Holds != b.Holds {
			return cmp.Compare(bit(b.Holds), bit(a.Holds))
		}
		if !a.Holds {
			if c := cmp.Or(cmp.Compare(a.Outcome.Miss, b.Outcome.Miss), cmp.Compare(load(a), load(b))); c != 0 {
				return c
			}
		}
		actA, actB := s.cfg.Actions(from, a.Plan), s.cfg.Actions(from, b.Plan)
		return cmp.Or(
			cmp.Compare(a.Devices, b.Devices),
			cmp.Compare(count(actA, ActionStart), count(actB, ActionStart)),
			cmp.Compare(workers(actA), workers(actB)),
			cmp.Compare(a.Outcome.Miss, b.Outcome.Miss),
			cmp.Compare(load(a), load(b)),
		)
	}), true
}

func load(c Candidate) float64 { return max(c.Outcome.PrefillLoad, c.Outcome.DecodeLoad) }

func workers(actions []Action) int {
	n := 0
	for _, a := range actions {
		n += a.Workers
	}
	return n
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// may reports whether a plan may be proposed.
func (s *search) may(plan Plan) bool {
	return s.cfg.Fits(plan) && s.cfg.keepsMinimum(plan) && plan.Decode > 0 && (plan.Prefill > 0 || s.cfg.Aggregate)
}

// aggregated finds the fewest decode workers that do everything.
func (s *search) aggregated(tokens int) {
	low, high := max(s.cfg.least(cluster.RoleDecode), 1), s.cfg.most(cluster.RoleDecode)
	if low > high {
		return
	}
	n := low + sort.Search(high-low, func(i int) bool { return s.try(Plan{0, low + i, tokens}).Holds })
	s.try(Plan{0, n, tokens})
}

// disaggregated finds the fewest workers of both roles: the fewest of each that its own target
// needs, and then more of the one that helps more. Where the budget ends before that, all
// ways to divide it around the proportion of the load are tried.
func (s *search) disaggregated(tokens int) {
	mostP, mostD := s.cfg.most(cluster.RolePrefill), s.cfg.most(cluster.RoleDecode)
	lowP, lowD := max(s.cfg.least(cluster.RolePrefill), 1), max(s.cfg.least(cluster.RoleDecode), 1)
	if lowP > mostP || lowD > mostD {
		return
	}
	// Each role is judged beside as many of the other as there could be.
	p := lowP + sort.Search(mostP-lowP, func(i int) bool {
		return s.enough(Plan{lowP + i, mostD, tokens}, cluster.RolePrefill)
	})
	d := lowD + sort.Search(mostD-lowD, func(i int) bool {
		return s.enough(Plan{mostP, lowD + i, tokens}, cluster.RoleDecode)
	})
	plan := Plan{p, d, tokens}
	for s.cfg.Fits(plan) && !s.try(plan).Holds && s.err == nil {
		more := plan.With(cluster.RolePrefill, plan.Prefill+1)
		other := plan.With(cluster.RoleDecode, plan.Decode+1)
		if a, b := s.try(more), s.try(other); b.Outcome.Miss < a.Outcome.Miss || b.Outcome.Miss == a.Outcome.Miss && load(b) < load(a) {
			more = other
		}
		plan = more
	}
	if !s.cfg.Fits(plan) {
		s.divide(plan, tokens)
	}
}

// divisions is how many ways to divide a budget are tried to each side of the proportion.
const divisions = 4

// divide tries the ways to use the whole budget near the proportion of a plan that exceeds it.
func (s *search) divide(plan Plan, tokens int) {
	costP, costD := s.cfg.Prefill.DevicesPerWorker, s.cfg.Decode.DevicesPerWorker
	mostP, mostD := s.cfg.most(cluster.RolePrefill), s.cfg.most(cluster.RoleDecode)
	attached := Plan{Prefill: s.cfg.Prefill.attached, Decode: s.cfg.Decode.attached}
	middle := attached.Prefill + s.cfg.own(plan, cluster.RolePrefill)*s.cfg.room()/max(s.cfg.DevicesOf(plan), 1)
	for p := max(middle-divisions, s.cfg.least(cluster.RolePrefill), 1); p <= min(middle+divisions, mostP); p++ {
		if d := min(attached.Decode+(s.cfg.room()-(p-attached.Prefill)*costP)/costD, mostD); d >= max(s.cfg.least(cluster.RoleDecode), 1) {
			s.try(Plan{p, d, tokens})
		}
	}
}

// enough reports whether a role alone does not miss its target.
func (s *search) enough(plan Plan, role cluster.Role) bool {
	o := s.try(plan).Outcome
	missed, load := o.MissTTFT, o.PrefillLoad
	if role == cluster.RoleDecode {
		missed, load = o.MissITL, o.DecodeLoad
	}
	return s.cfg.Target.holds(Outcome{Miss: missed, PrefillLoad: load})
}

// Cheapest returns the plan that holds the target of cfg under a forecast with the fewest devices, and
// among those the one nearest to from. When no plan within the budget does, it returns the one with
// the fewest misses, and false.
func Cheapest(cfg Config, evaluator Evaluator, f Forecast, from Plan) (Candidate, bool, error) {
	f.Lengths = bins(f.Lengths, lengthBins)
	s := &search{cfg: cfg, evaluator: evaluator, forecast: f, seen: map[Plan]Candidate{}}
	if cfg.Thresholds {
		s.thresholds = thresholds(f.Lengths, from.MaxLocalPrefill)
	}
	s.try(from)
	return s.cheapest(from)
}
