package planner

import "time"

const (
	// thresholdShare is by how much of the requests two thresholds must differ to be considered both.
	thresholdShare = 1.0 / 8
	// clearly is under how much more load another threshold must hold, so that two of them do not take turns.
	clearly = 1.1
	// clearMiss is by how much it must lower the share of misses where no plan holds.
	clearMiss = 0.02
)

// thresholds returns the values of MaxLocalPrefill to consider beside the present one: 0, and powers of two between
// the shortest and the longest prompt that was seen. Each keeps an eighth more of the requests on decode workers than
// the one before, and not just those that the present one keeps there.
func thresholds(lengths []Length, present int) []int {
	share := func(tokens int) float64 {
		n := 0
		for _, l := range lengths {
			if l.uncached() <= tokens {
				n++
			}
		}
		return float64(n) / float64(len(lengths))
	}
	if len(lengths) == 0 {
		return nil
	}
	var out []int
	last, now := -1.0, share(present)
	for tokens := 0; share(tokens) < 1; tokens = max(1, 2*tokens) {
		s := share(tokens)
		if s < last+thresholdShare {
			continue
		}
		if last = s; s != now {
			out = append(out, tokens)
		}
	}
	return out
}

// rethreshold returns the best plan with another threshold, under a tenth more load, if it pays clearly beside the best one
// with the present threshold: it needs fewer devices, or holds where none does, or misses clearly less.
func (s *search) rethreshold(from Plan, same Candidate) (Candidate, bool) {
	if s.err != nil {
		return Candidate{}, false
	}
	f := s.forecast
	f.Rate *= clearly
	under := s.under(f)
	for _, tokens := range s.thresholds {
		under.disaggregated(tokens)
	}
	best, ok := under.best(from, func(p Plan) bool { return p.MaxLocalPrefill != from.MaxLocalPrefill && !p.Aggregated() })
	if s.err = under.err; !ok || s.err != nil {
		return Candidate{}, false
	}
	if other := s.try(best.Plan); best.Holds && (!same.Holds || other.Devices < same.Devices) || !same.Holds && other.Outcome.Miss < same.Outcome.Miss-clearMiss {
		return other, true
	}
	return Candidate{}, false
}

// inTurn returns what one decision may propose of a plan with another threshold. The threshold alone is changed where the
// workers of now carry the load with it, so that it is seen before workers go. It is changed last where workers start.
// Only what neither way leads to is changed together.
func (s *search) inTurn(from, target Plan) Plan {
	if target.MaxLocalPrefill == from.MaxLocalPrefill || from.Aggregated() {
		return target
	}
	alone := from
	alone.MaxLocalPrefill = target.MaxLocalPrefill
	switch {
	case s.try(alone).Holds:
		return alone
	case count(s.cfg.Actions(from, target), ActionStart) > 0:
		target.MaxLocalPrefill = from.MaxLocalPrefill
	}
	return target
}

// unsettled returns how long the threshold has been another one for less than the cool-down; 0 if it has not.
func (p *Planner) unsettled(now time.Time) time.Duration {
	if p.rethresholded.IsZero() {
		return 0
	}
	return max(0, p.cfg.CoolDown-now.Sub(p.rethresholded))
}
