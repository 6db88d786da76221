package planner

import "time"

// What is seen of a plan counts for more than what is predicted for it, once enough requests finished under it.
const (
	evidenceSpan     = time.Minute
	evidenceRequests = 30   // fewer prove nothing
	evidenceRate     = 1.1  // how much higher than the rate that was seen a load may be
	evidenceLoad     = 0.95 // nearer to the limit, queues have only not grown yet
	doubt            = 2.0  // a prediction of so many times the misses allowed is not believed without evidence
)

// evidence is what was seen of the plan as it is.
type evidence struct{ arrived, seconds, finished, missed float64 }

// seen sums the newest windows in which the plan was as it is, without those in which what waited before ended.
func (p *Planner) seen(now time.Time) (e evidence) {
	for i := len(p.history.windows) - 1; i >= 0; i-- {
		w := p.history.windows[i]
		if now.Sub(w.end) >= evidenceSpan || w.end.Sub(p.changed) < p.cfg.ClearWithin {
			break
		}
		e.arrived += w.arrived
		e.seconds += w.seconds
		e.finished += w.finished
		e.missed += w.missed
	}
	return e
}

// share returns the share of the requests that missed.
func (e evidence) share() float64 { return e.missed / max(e.finished, 1) }

// doubtful reports whether the evidence speaks against a prediction that the plan as it is does not hold the
// target under a rate. With too few requests it is doubtful while it is near; else if the plan holds the target as
// it is seen, and the rate is no higher than that was seen.
func (p *Planner) doubtful(e evidence, rate float64, current Candidate) bool {
	allowed := 1 - p.cfg.Target.Percentile
	switch {
	case p.cfg.Target.Goal != GoalSLA || load(current) >= evidenceLoad:
		return false
	case e.finished < evidenceRequests:
		return !p.changed.IsZero() && current.Outcome.Miss <= doubt*allowed
	}
	return e.share() <= allowed && (rate <= evidenceRate*e.arrived/e.seconds || current.Outcome.Miss <= doubt*allowed)
}

// missed counts the requests of an observation that missed a target.
func (t Target) missed(requests []Request) float64 {
	n := 0.0
	for _, r := range requests {
		if r.TTFT > t.TTFT || r.ITL > t.ITL {
			n++
		}
	}
	return n
}
