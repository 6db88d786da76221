package planner

import (
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner/predict"
)

// Planner makes decisions from observations. It is not safe for concurrent use.
type Planner struct {
	cfg       Config
	perf      Performance
	evaluator Evaluator
	predictor predict.Predictor

	history   history
	days      days
	slow      slowdown
	durations Durations
	path      *path
	sample    []Length // of history.lengths

	newest   time.Time                  // end of the newest observation
	nodeLost time.Time                  // of the last loss
	last     Plan                       // current plan of the newest observation
	changed  time.Time                  // when it, or the workers that serve, last were others
	served   Plan                       // by workers that were ready
	grew     map[cluster.Role]time.Time // when a role last got a worker
	// rethresholded is when MaxLocalPrefill last became another one, thresholds its other values to consider now.
	rethresholded time.Time
	thresholds    []int
	advised       Plan                 // in mode advise, for the plan as it is; zero: nothing
	missing       map[cluster.Role]int // windows in a row in which all workers of a role missed
	failures      failures
}

// New returns a planner. Without an evaluator it uses Queueing over the same Performance. The error of a
// configuration names its fields.
func New(cfg Config, perf Performance, evaluator Evaluator) (*Planner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if perf == nil {
		return nil, errors.New("a planner needs the performance of a worker")
	}
	predictor, err := predict.Named(cfg.Predictor)
	if err != nil {
		return nil, err
	}
	if evaluator == nil {
		evaluator = Queueing{Performance: perf, Target: cfg.Target}
	}
	return &Planner{
		cfg: cfg, perf: perf, evaluator: evaluator, predictor: predictor,
		history: history{stepped: stepped{step: cfg.ForecastStep, most: rememberedSteps}}, days: newDays(),
		grew: map[cluster.Role]time.Time{}, missing: map[cluster.Role]int{},
	}, nil
}

// Configure replaces the configuration, at once and with everything learned kept. What the new
// forecast step cannot use of the series is forgotten.
func (p *Planner) Configure(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	predictor, err := predict.Named(cfg.Predictor)
	if err != nil {
		return err
	}
	if cfg.ForecastStep != p.cfg.ForecastStep {
		p.history.steps, p.history.step = nil, cfg.ForecastStep
	}
	if q, ok := p.evaluator.(Queueing); ok {
		q.Target = cfg.Target
		p.evaluator = q
	}
	p.cfg, p.predictor, p.path = cfg, predictor, nil
	return nil
}

// Recall takes in a change that a planner before this one ordered: its cool-down goes on.
func (p *Planner) Recall(c Change) {
	for _, role := range Roles {
		if c.To.Workers(role) > c.From.Workers(role) && c.Time.After(p.grew[role]) {
			p.grew[role] = c.Time
		}
	}
	if c.To.MaxLocalPrefill != c.From.MaxLocalPrefill && c.Cause != "" && c.Time.After(p.rethresholded) {
		p.rethresholded = c.Time
	}
}

// Tick takes what was seen and decides. An observation that is stale or not newer than the last one
// is not learned from, and nothing is decided on it.
func (p *Planner) Tick(now time.Time, o Observation) Decision {
	d := Decision{Time: now, Mode: p.cfg.Mode, Current: o.current(), NextCheck: now.Add(p.cfg.LoadInterval)}
	d.Proposal = d.Current
	if p.cfg.Mode == ModeOff {
		d.Refusal, d.Detail = RefusedOff, o.Hold.Why
		return d
	}
	if o.NodesLost > 0 {
		p.nodeLost = now // also by a window that says nothing else of now
	}
	if why := p.stale(now, o); why != "" {
		d.Refusal, d.Detail = RefusedStaleData, why
		return d
	}
	if p.cfg.Prefill.Fixed && p.cfg.Decode.Fixed {
		p.learn(o)
		d.Refusal = RefusedAttached
		return d
	}
	if o.Unknown != "" {
		p.learn(o)
		d.Refusal, d.Detail = RefusedInsufficientData, o.Unknown
		return d
	}
	d.Current = p.observe(now, o)
	d.Proposal, d.Late = d.Current, p.failures.late
	p.decide(now, o, &d)
	p.backOff(now, &d)
	if d.Proposal == d.Current && d.Refusal == "" { // what must be does not fit
		d.Refusal = RefusedBudget
	}
	p.explainBudget(&d)
	if d.Proposal == d.Current {
		d.Cause = ""
		return d
	}
	d.Actions = p.cfg.Actions(d.Current, d.Proposal)
	for _, role := range Roles {
		if d.Proposal.Workers(role) > d.Current.Workers(role) && p.cfg.Mode == ModeAct {
			p.grew[role] = now
		}
	}
	if d.Proposal.MaxLocalPrefill != d.Current.MaxLocalPrefill && p.cfg.Mode == ModeAct {
		p.rethresholded = now
	}
	return d
}

// stale returns why an observation says nothing of now, or nothing.
func (p *Planner) stale(now time.Time, o Observation) string {
	switch age := now.Sub(o.End); {
	case o.Stale != "":
		return o.Stale
	case age > p.cfg.StaleAfter:
		return fmt.Sprintf("the observation is %s old, older than %s", age.Round(time.Millisecond), p.cfg.StaleAfter)
	case o.End.After(now):
		return fmt.Sprintf("the observation ends %s from now", o.End.Sub(now).Round(time.Millisecond))
	case !o.End.After(o.Start):
		return "the observation's window is empty"
	case o.Start.Before(p.newest):
		return "the observation's window began before the last one ended"
	case o.Arrived < 0:
		return "the observation counts fewer than no requests"
	}
	return ""
}

// learn takes in the load of an observation.
func (p *Planner) learn(o Observation) {
	p.newest = o.End
	p.history.add(o, p.cfg.Target)
	p.days.spread(o)
	if len(o.Requests) > 0 {
		p.sample = bins(p.history.lengths, lengthBins)
	}
}

// observe learns from an observation and returns the current plan: ready workers, and those that
// start and are not overdue.
func (p *Planner) observe(now time.Time, o Observation) Plan {
	p.learn(o)
	p.learnSlowdown(o)
	for _, f := range o.Finished {
		p.durations.Add(f.Kind, f.Took)
	}
	p.failures.learn(o, p.cfg.ActionTimeout)
	current := p.present(o)
	for _, role := range Roles {
		if current.Workers(role) > p.last.Workers(role) && p.last != (Plan{}) {
			p.grew[role] = now
		}
		if p.allMiss(o, role) {
			p.missing[role]++
		} else {
			p.missing[role] = 0
		}
	}
	if ready := o.ready(); current != p.last || ready != p.served {
		p.changed, p.served = o.End, ready
	}
	if current != p.last {
		p.advised = Plan{}
		if p.last != (Plan{}) && current.MaxLocalPrefill != p.last.MaxLocalPrefill {
			p.rethresholded = now
		}
	}
	p.last, p.thresholds = current, nil
	if p.cfg.Thresholds && p.unsettled(now) == 0 {
		p.thresholds = thresholds(p.sample, current.MaxLocalPrefill)
	}
	return current
}

// decide goes from what must be to what would be better: limits, then guards, then the loops.
func (p *Planner) decide(now time.Time, o Observation, d *Decision) {
	unfinished, overdue := p.pending(now, o)
	if overdue > 0 {
		d.reason(ReasonOverdue, float64(overdue), "")
	}
	switch {
	case o.NotLeader:
		d.Refusal = RefusedNotLeader
	case o.Hold.Refusal != "":
		d.Refusal, d.Detail = o.Hold.Refusal, o.Hold.Why
	case !p.nodeLost.IsZero() && now.Sub(p.nodeLost) < p.cfg.NodeLossHold:
		d.Refusal = RefusedNodeLost
		d.NextCheck = p.nodeLost.Add(p.cfg.NodeLossHold)
	case !p.cfg.Fits(d.Current):
		d.Proposal, d.Cause = p.cfg.reduce(d.Current), CauseBudget
		d.reason(ReasonDevices, float64(p.cfg.DevicesOf(d.Current)), "")
		d.reason(ReasonBudget, float64(p.cfg.Devices), "")
	case len(unfinished) > 0:
		p.takeBack(now, o, unfinished, d)
	case !p.cfg.keepsMinimum(d.Current):
		d.Proposal, d.Cause = p.cfg.reduce(p.cfg.minimum(d.Current)), CauseMinimum
	case d.Current.Decode == 0 && (o.Arrived > 0 || o.Decode.Queued+o.Prefill.Queued > 0):
		d.Proposal, d.Cause = p.cfg.reduce(p.awake(d.Current)), CauseWake
	default:
		p.loops(now, o, d)
	}
}

// awake returns the least plan that serves.
func (p *Planner) awake(from Plan) Plan {
	plan := p.cfg.minimum(from)
	plan.Decode = max(plan.Decode, 1)
	if !p.cfg.Aggregate {
		plan.Prefill = max(plan.Prefill, 1)
	}
	return plan
}

// pending parts actions into those under way and those that take longer than they may: an
// overdue action does not hold the planner up.
func (p *Planner) pending(now time.Time, o Observation) (unfinished []Pending, overdue int) {
	for _, a := range o.Pending {
		if now.Sub(a.Since) > p.cfg.ActionTimeout {
			overdue++
		} else {
			unfinished = append(unfinished, a)
		}
	}
	return unfinished, overdue
}

// demand is the load that decisions are made for, in requests a second.
type demand struct {
	expected float64 // highest forecast for as long as a plan must last
	daily    daily   // which may have raised it
	later    float64 // and until a stopped worker would have paid for its return
	proven   measured
	possible measured
}

// up is what a plan must carry: above it, the plan must grow.
func (d demand) up() float64 { return max(d.expected, d.proven.rate) }

// size is what a plan that grows is made for: what was measured, in place of what is proven.
func (d demand) size() float64 { return max(d.expected, d.proven.mean()) }

// down is what fewer workers must carry.
func (d demand) down() float64 { return max(d.later, d.possible.rate, d.up()) }

func (p *Planner) demand(now time.Time) demand {
	p.forecastRate(now)
	ahead := p.lookAhead()
	p.days.tell(now, ahead, p.cfg.LoadInterval, func(at time.Time) float64 { return p.path.most(at, at.Add(1)) })
	d := demand{
		expected: p.path.most(now, now.Add(ahead)),
		later:    p.path.most(now, now.Add(ahead+p.payback())),
		proven:   p.history.proven(now, p.cfg.LoadInterval),
		possible: p.history.possible(now, p.cfg.LoadInterval),
	}
	if _, automatic := p.predictor.(predict.Auto); automatic {
		if d.daily = p.daily(now); d.daily.pays {
			d.expected, d.later = raised(d.expected, d.daily.rate), raised(d.later, d.daily.later)
		}
	}
	return d
}

// forecastOf returns the load for an evaluator.
func (p *Planner) forecastOf(rate float64) Forecast {
	return Forecast{
		Rate: rate, Lengths: p.sample, Horizon: p.cfg.ThroughputInterval,
		PrefillSlowdown: p.slow.prefill, DecodeSlowdown: p.slow.decode,
	}
}

// explain puts the numbers behind a decision into it.
func (p *Planner) explain(load demand, d *Decision) {
	d.Predictor = p.path.predictor.Name()
	if load.daily.days > 0 {
		d.reason(ReasonDailyRate, load.daily.rate, "requests/s")
		d.reason(ReasonDailyDays, float64(load.daily.days), "days")
		if load.daily.ratio > 0 {
			d.reason(ReasonDailyError, load.daily.ratio, "")
		}
	}
	d.reason(ReasonForecastRate, load.expected, "requests/s")
	d.reason(ReasonLookAhead, p.lookAhead().Seconds(), "s")
	d.reason(ReasonProvenArrivals, load.proven.arrived, "requests")
	d.reason(ReasonProvenSeconds, load.proven.seconds, "s")
	d.reason(ReasonProvenRate, load.proven.rate, "requests/s")
	d.reason(ReasonPlannedRate, load.up(), "requests/s")
	d.reason(ReasonLaterRate, load.later, "requests/s")
	d.reason(ReasonPayback, (p.lookAhead() + p.payback()).Seconds(), "s")
	d.reason(ReasonPossibleArrivals, load.possible.arrived, "requests")
	d.reason(ReasonPossibleSeconds, load.possible.seconds, "s")
	d.reason(ReasonPossibleRate, load.possible.rate, "requests/s")
	d.reason(ReasonDownRate, load.down(), "requests/s")
	d.reason(ReasonSensitivity, p.cfg.Sensitivity, "")
	if n := float64(len(p.sample)); n > 0 {
		osl := 0.0
		for _, l := range p.sample {
			osl += float64(l.OSL) / n
		}
		d.reason(ReasonISL, p.isl(), "tokens")
		d.reason(ReasonOSL, osl, "tokens")
	}
}
