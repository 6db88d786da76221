package planner

import "time"

// missingWindows is how many windows in a row all workers of a role must miss before the load loop
// adds one: one window above the target is chance.
const missingWindows = 3

// loops is what both loops decide: the forecast sets a floor, observed misses raise it, and what is
// above both goes when its load fits on fewer workers.
func (p *Planner) loops(now time.Time, o Observation, d *Decision) {
	load := p.demand(now)
	p.explain(load, d)
	if load.down() <= 0 {
		p.idle(now, d)
		return
	}
	if n := len(p.history.lengths); n < p.cfg.MinRequests {
		d.Refusal = RefusedInsufficientData
		d.reason(ReasonRequestsSeen, float64(n), "")
		return
	}
	for _, step := range []func(time.Time, Observation, demand, *Decision) bool{p.grow, p.react, p.shrink} {
		if step(now, o, load, d) {
			return
		}
	}
}

// idle goes to the minimum, step by step.
func (p *Planner) idle(now time.Time, d *Decision) {
	target := p.cfg.minimum(Plan{MaxLocalPrefill: d.Current.MaxLocalPrefill})
	d.Refusal = RefusedNoChange
	if target != d.Current && !p.cooling(now, d, target) {
		d.Proposal, d.Cause, d.Refusal = p.limited(d.Current, target), CauseNoTraffic, ""
	}
}

// limited returns the plan nearest to target that one decision may propose: no more than the steps, and
// no more growth of one role than the budget allows before the other has shrunk.
func (p *Planner) limited(from, target Plan) Plan {
	for _, role := range Roles {
		have := from.Workers(role)
		target = target.With(role, min(max(target.Workers(role), have-p.cfg.StepDown), have+p.cfg.StepUp))
	}
	return p.cfg.lessGrowth(from, target)
}

// cooling reports whether a role that would lose workers grew within the cool-down, or works under a new threshold since
// then, and says so.
func (p *Planner) cooling(now time.Time, d *Decision, target Plan) bool {
	for _, role := range Roles {
		if target.Workers(role) >= d.Current.Workers(role) {
			continue
		}
		wait := p.unsettled(now)
		if grown := p.grew[role]; !grown.IsZero() {
			wait = max(wait, p.cfg.CoolDown-now.Sub(grown))
		}
		if wait > 0 {
			d.Refusal = RefusedCoolDown
			d.reason(ReasonCoolDownLeft, wait.Seconds(), "s")
			return true
		}
	}
	return false
}

// grow raises the plan to what the demand needs. It reports whether the decision is made.
func (p *Planner) grow(now time.Time, o Observation, load demand, d *Decision) bool {
	s := p.newSearch(p.forecastOf(load.up()))
	s.cfg = p.spare(o, d.Current)
	current := s.try(d.Current)
	extra := p.backlog(o, load.up(), current)
	if extra > 0 {
		s = s.under(p.forecastOf(load.up() + extra))
		current = s.try(d.Current)
	}
	if current.Holds || s.err != nil {
		return p.failed(s, d)
	}
	if e := p.seen(now); extra == 0 && p.doubtful(e, load.up(), current) {
		d.reason(ReasonSeenRequests, e.finished, "requests")
		d.reason(ReasonSeenMissed, e.missed, "requests")
		return false
	}
	s, best, ok := p.sized(s, load, extra, d)
	if s.err != nil {
		return p.failed(s, d)
	}
	current = s.try(d.Current)
	d.BestEffort = !ok
	target := p.keep(now, load, d, s.inTurn(d.Current, best.Plan), s.cfg)
	target = p.limited(d.Current, target)
	if !s.cfg.Fits(target) { // a device is not free yet
		target = d.Current
	}
	if !ok && !better(best, current) {
		d.Refusal, target = RefusedBudget, d.Current
	}
	if p.failed(s, d) {
		return true
	}
	s.explain(d, target)
	p.advise(best.Plan)
	switch d.Proposal, d.Cause = target, CauseForecast; {
	case p.cfg.DevicesOf(target) < p.cfg.DevicesOf(d.Current):
		d.Cause = CauseDivide
	case sameWorkers(target, d.Current):
		d.Cause = CauseThreshold
	}
	if target == d.Current && d.Refusal == "" && !p.cooling(now, d, best.Plan) {
		d.Refusal = RefusedBudget
	}
	return true
}

// sized searches the plan for what is measured and a backlog. A backlog that the budget cannot end in
// time ends as soon as it can.
func (p *Planner) sized(s *search, load demand, extra float64, d *Decision) (*search, Candidate, bool) {
	const halvings = 4
	for range halvings {
		s = s.under(p.forecastOf(load.size() + extra))
		s.try(d.Current)
		if best, ok, _ := s.cheapest(d.Current); ok || s.err != nil || extra == 0 {
			d.reason(ReasonBacklogRate, extra, "requests/s")
			d.reason(ReasonSizedRate, load.size()+extra, "requests/s")
			return s, best, ok
		}
		extra /= 2
	}
	return p.sized(s, load, 0, d)
}

// better reports whether a plan that does not hold the target either is worth the change: fewer
// requests miss, or where all do, the overload is less.
func better(best, current Candidate) bool {
	return best.Outcome.Miss < current.Outcome.Miss-0.01 || best.Outcome.Miss <= current.Outcome.Miss && load(best) < 0.95*load(current)
}

// keep returns target with the workers that a plan to grow must not take away: those of a role that grew
// within the cool-down, or that would not carry what is possible with fewer. Where the devices for
// that are not there, to divide them otherwise is all that can be done, but for the cool-down.
func (p *Planner) keep(now time.Time, load demand, d *Decision, target Plan, limits Config) Plan {
	kept := target
	high := p.newSearch(p.forecastOf(load.down() / p.cfg.Sensitivity))
	cooling := p.cooling(now, &Decision{Current: d.Current}, target)
	for i, role := range Roles {
		other := Roles[1-i]
		if target.Workers(role) >= d.Current.Workers(role) {
			continue
		}
		carries := high.try(target).Holds
		if !target.Aggregated() {
			carries = high.enough(target.With(other, p.cfg.most(other)), role)
		}
		if cooling || !carries {
			kept = kept.With(role, d.Current.Workers(role))
		}
	}
	switch {
	case limits.Fits(kept):
		return kept
	case cooling:
		return limits.lessGrowth(d.Current, kept)
	}
	return target
}

// spare is the configuration with the devices that workers about to stop still hold, of all pools, taken out
// of the budget.
func (p *Planner) spare(o Observation, current Plan) Config {
	cfg := p.cfg
	held := cfg.draining
	for _, role := range Roles {
		held += o.Role(role).draining() * cfg.Role(role).DevicesPerWorker
	}
	cfg.Devices = max(cfg.Devices-held, min(cfg.DevicesOf(current)+cfg.others, cfg.Devices))
	return cfg
}

// failed ends a decision when its search has an error. It reports whether it has.
func (p *Planner) failed(s *search, d *Decision) bool {
	if s.err == nil {
		return false
	}
	d.Refusal, d.Detail, d.Proposal = RefusedEvaluation, s.err.Error(), d.Current
	return true
}

// react is the load loop: one worker more for a role whose workers all miss, whatever the forecast says.
func (p *Planner) react(now time.Time, o Observation, load demand, d *Decision) bool {
	for _, role := range Roles {
		if p.missing[role] < missingWindows {
			continue
		}
		if grown := p.grew[role]; !grown.IsZero() && now.Sub(grown) < p.cfg.ClearWithin+p.lookAhead() {
			continue // what came last has not had the time to help
		}
		d.reason(ReasonWindowsMissed, float64(p.missing[role]), string(role))
		target := d.Current.With(role, d.Current.Workers(role)+1)
		s := p.newSearch(p.forecastOf(load.up()))
		s.cfg = p.spare(o, d.Current)
		if !s.cfg.Fits(target) {
			d.Refusal, d.BestEffort = RefusedBudget, true
			return true
		}
		s.try(d.Current)
		s.try(target)
		if p.failed(s, d) {
			return true
		}
		s.explain(d, target)
		d.Proposal, d.Cause = target, CauseLoad
		return true
	}
	return false
}

// shrink takes workers away whose load fits on the others.
func (p *Planner) shrink(now time.Time, o Observation, load demand, d *Decision) bool {
	s := p.newSearch(p.forecastOf(load.down() / p.cfg.Sensitivity))
	s.try(d.Current)
	for _, others := range [][]int{s.thresholds, nil} { // where another threshold leads to fewer workers, but is no way there
		s.thresholds = others
		best, ok, _ := s.cheapest(d.Current)
		if p.failed(s, d) {
			return true
		}
		target := p.limited(d.Current, s.inTurn(d.Current, best.Plan))
		cause := CauseDown
		if sameWorkers(target, d.Current) {
			cause = CauseThreshold
		}
		if ok && best.Devices < p.cfg.DevicesOf(d.Current) && target != d.Current && (cause == CauseThreshold || p.cfg.DevicesOf(target) < p.cfg.DevicesOf(d.Current)) &&
			s.try(target).Holds && p.consolidates(o, target) {
			s.explain(d, target)
			if !p.cooling(now, d, best.Plan) {
				d.Proposal, d.Cause = target, cause
				p.advise(best.Plan)
			}
			return true
		}
	}
	d.Refusal = p.whyNoFewer(load, d)
	s.explain(d, d.Current)
	return true
}

// whyNoFewer names what keeps the workers: the sensitivity, the minimum, or the load itself.
func (p *Planner) whyNoFewer(load demand, d *Decision) Refusal {
	fewer := func(cfg Config, rate float64) bool {
		s := p.newSearch(p.forecastOf(rate))
		s.cfg, s.thresholds = cfg, nil
		best, ok, err := s.cheapest(d.Current)
		return err == nil && ok && best.Devices < p.cfg.DevicesOf(d.Current)
	}
	if fewer(p.cfg, load.down()) || fewer(p.cfg, load.down()/p.cfg.Sensitivity) {
		return RefusedConsolidation // by the sensitivity, or by what workers show
	}
	free := p.cfg
	free.Prefill.Min, free.Decode.Min = 0, 0
	if p.cfg.Prefill.Min+p.cfg.Decode.Min > 0 && fewer(free, load.down()/p.cfg.Sensitivity) {
		return RefusedMinimum
	}
	return RefusedNoChange
}

// takeBack handles the time in which actions are under way: nothing is added, and starts
// are taken back when the ready workers carry what is possible.
func (p *Planner) takeBack(now time.Time, o Observation, unfinished []Pending, d *Decision) {
	d.Refusal, d.Detail = RefusedUnfinished, o.Waits
	d.reason(ReasonUnfinished, float64(len(unfinished)), "")
	for _, a := range unfinished {
		if a.Kind != ActionStart {
			return
		}
	}
	ready := o.ready()
	if ready == d.Current || !p.cfg.keepsMinimum(ready) {
		return
	}
	load := p.demand(now)
	if load.down() > 0 && len(p.history.lengths) < p.cfg.MinRequests {
		return
	}
	s := p.newSearch(p.forecastOf(load.down() / p.cfg.Sensitivity))
	holds := s.try(ready).Holds
	if p.failed(s, d) || !holds || !p.consolidates(o, ready) {
		return
	}
	p.explain(load, d)
	s.explain(d, ready)
	if p.cooling(now, d, ready) {
		d.Refusal = RefusedUnfinished
		return
	}
	d.Proposal, d.Cause, d.Refusal, d.Detail = ready, CauseTakeBack, "", ""
}

// advise remembers what a decision leads to: the same load must not lead to another plan of the same cost a moment later. A
// planner that acts needs no memory: what it wants is what there is.
func (p *Planner) advise(plan Plan) {
	if p.cfg.Mode == ModeAdvise {
		p.advised = plan
	}
}

// explain lists the candidates with why each was not chosen.
func (s *search) explain(d *Decision, chosen Plan) {
	devices := s.cfg.DevicesOf(chosen)
	for _, plan := range s.order {
		c := s.seen[plan]
		switch {
		case plan == chosen:
		case !s.cfg.Fits(plan):
			continue // only tells how much a role needs
		case !c.Holds:
			c.Rejected = "misses the target"
		case c.Devices > devices:
			c.Rejected = "needs more devices"
		case c.Devices < devices:
			c.Rejected = "is a further step"
		default:
			c.Rejected = "changes more"
		}
		d.Candidates = append(d.Candidates, c)
	}
}
