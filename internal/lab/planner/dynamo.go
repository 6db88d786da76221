package planner

import (
	"math"
	"time"

	core "github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/planner/predict"
)

// totals are what Dynamo's planners read over an adjustment interval: means, without their
// distribution.
type totals struct {
	requests, ttft, itl, duration, isl, osl float64
	ttfts, itls                             float64 // how many were measured
}

func (t *totals) add(o core.Observation) {
	t.requests += float64(o.Arrived)
	for _, r := range o.Requests {
		t.ttfts++
		t.ttft += r.TTFT.Seconds()
		t.isl += float64(r.ISL)
		t.osl += float64(r.OSL)
		t.duration += r.TTFT.Seconds() + r.ITL.Seconds()*float64(r.OSL-1)
		if r.ITL > 0 {
			t.itls++
			t.itl += r.ITL.Seconds()
		}
	}
}

func (t *totals) means() totals {
	m := *t
	m.ttft, m.isl, m.osl, m.duration = t.ttft/t.ttfts, t.isl/t.ttfts, t.osl/t.ttfts, t.duration/t.ttfts
	m.itl = t.itl / t.itls
	return m
}

// Dynamo08 is the SLA planner of Dynamo 0.8, formula by formula.
type Dynamo08 struct {
	setup     Setup
	interval  float64 // seconds
	predictor predict.Predictor
	seen      totals
	until     float64
	history   [3][]float64 // requests, ISL, OSL
	plan      core.Plan
}

// NewDynamo08 returns the planner with its default interval of 180 s.
func NewDynamo08(setup Setup, predictor predict.Predictor) *Dynamo08 {
	return &Dynamo08{setup: setup, interval: 180, until: 180, predictor: predictor, plan: disaggregated(setup.Initial)}
}

// disaggregated is the plan that planners begin with who know no aggregated workers.
func disaggregated(p core.Plan) core.Plan {
	return core.Plan{Prefill: max(p.Prefill, 1), Decode: max(p.Decode, 1)}
}

// Name implements Policy.
func (d *Dynamo08) Name() string { return "dynamo 0.8 " + d.predictor.Name() }

// Decide implements Policy.
func (d *Dynamo08) Decide(now time.Time, o core.Observation) core.Plan {
	d.seen.add(o)
	if now.Sub(epoch).Seconds() < d.until-1e-6 {
		return d.plan
	}
	d.until += d.interval
	m := d.seen.means()
	d.seen = totals{}
	if math.IsNaN(m.ttft) || math.IsNaN(m.itl) {
		return d.plan
	}
	next := [3]float64{}
	for i, v := range []float64{m.requests, m.isl, m.osl} {
		d.history[i] = append(d.history[i], v)
		if ahead := d.predictor.Forecast(d.history[i], 1); ahead != nil {
			next[i] = ahead[0]
		} else {
			next[i] = v
		}
	}
	h := d.setup.Hardware
	prefillCorrection := m.ttft / h.TTFT(m.isl)
	context := m.isl + m.osl/2
	concurrency := m.requests / float64(d.plan.Decode) * m.duration / d.interval
	decodeCorrection := m.itl / h.ITL(concurrency*context, context)
	d.plan = d.Replicas(next[0], next[1], next[2], prefillCorrection, decodeCorrection)
	return d.plan
}

// Replicas is its calculation of workers, with its mistakes: min(1, correction) can only lower the
// demand, and rounding can exceed the budget.
func (d *Dynamo08) Replicas(requests, isl, osl, prefillCorrection, decodeCorrection float64) core.Plan {
	cfg, h := d.setup.Config, d.setup.Hardware
	perP, perD := float64(cfg.Prefill.DevicesPerWorker), float64(cfg.Decode.DevicesPerWorker)
	prompts := requests * isl / d.interval * min(1, prefillCorrection)
	itl := cfg.Target.ITL.Seconds()
	if decodeCorrection > 0 {
		itl /= decodeCorrection
	}
	p := ceilDiv(prompts, h.PrefillThroughput(isl)*perP)
	g := ceilDiv(requests*osl/d.interval, h.DecodeThroughput(itl, isl+osl/2)*perD)
	p, g = max(p, 1), max(g, 1)
	if total := float64(p)*perP + float64(g)*perD; total > float64(cfg.Devices) {
		p = max(1, int(math.RoundToEven(float64(p)*float64(cfg.Devices)/total)))
		g = max(1, int(math.RoundToEven((float64(cfg.Devices)-float64(p)*perP)/perD)))
	}
	return core.Plan{Prefill: p, Decode: g}
}

// Dynamo15 is the planner of Dynamo 1.5 with the target sla: a load loop of one worker at a time
// above a floor that the throughput loop sets from averages.
type Dynamo15 struct {
	floor *Dynamo08
	low   core.Plan
	plan  core.Plan
}

// NewDynamo15 returns the planner with its default intervals of 5 s and 180 s.
func NewDynamo15(setup Setup, predictor predict.Predictor) *Dynamo15 {
	f := NewDynamo08(setup, predictor)
	return &Dynamo15{floor: f, low: core.Plan{Prefill: 1, Decode: 1}, plan: f.plan}
}

// Name implements Policy.
func (d *Dynamo15) Name() string { return "dynamo 1.5 " + d.floor.predictor.Name() }

// consolidated is the share of a target that fewer workers may reach.
const consolidated = 0.8

// Decide implements Policy.
func (d *Dynamo15) Decide(now time.Time, o core.Observation) core.Plan {
	d.throughput(now, o)
	if len(o.Pending) > 0 {
		return d.plan // observes only while a change is unfinished
	}
	cfg, h := d.floor.setup.Config, d.floor.setup.Hardware
	var isl, context float64
	for _, r := range o.Requests {
		isl += float64(r.ISL) / float64(len(o.Requests))
		context += (float64(r.ISL) + float64(r.OSL)/2) / float64(len(o.Requests))
	}
	next := d.plan
	if isl > 0 {
		n := float64(d.plan.Prefill)
		queued := o.Prefill.QueuedTokens // that no worker has, and those that workers have
		for _, w := range o.Prefill.Workers {
			queued += w.QueuedTokens
		}
		ttft := func(scale float64) float64 {
			return float64(queued)/n*scale/h.PrefillThroughput(isl) + h.TTFT(isl)
		}
		next.Prefill = ruled(d.plan.Prefill, []float64{ttft(1)}, []float64{ttft(n / max(n-1, 1))}, cfg.Target.TTFT.Seconds())
		var steps, fewer []float64
		n = float64(d.plan.Decode)
		for _, w := range o.Decode.Workers {
			steps = append(steps, h.ITL(float64(w.KVTokens), context))
			fewer = append(fewer, h.ITL(float64(w.KVTokens)*n/max(n-1, 1), context))
		}
		next.Decode = ruled(d.plan.Decode, steps, fewer, cfg.Target.ITL.Seconds())
	}
	next.Prefill, next.Decode = max(next.Prefill, d.low.Prefill), max(next.Decode, d.low.Decode)
	if !cfg.Fits(next) { // no budget for what is new
		return d.plan
	}
	d.plan = next
	return d.plan
}

// throughput sets the floor.
func (d *Dynamo15) throughput(now time.Time, o core.Observation) {
	f := d.floor
	f.seen.add(o)
	if now.Sub(epoch).Seconds() < f.until-1e-6 {
		return
	}
	f.until += f.interval
	m := f.seen.means()
	f.seen = totals{}
	if math.IsNaN(m.isl) {
		return
	}
	next := [3]float64{}
	for i, v := range []float64{m.requests, m.isl, m.osl} {
		f.history[i] = append(f.history[i], v)
		next[i] = v
		if ahead := f.predictor.Forecast(f.history[i], 1); ahead != nil {
			next[i] = ahead[0]
		}
	}
	d.low = f.Replicas(next[0], next[1], next[2], 1, 1)
}

// ruled is the load rule: one more when all miss, one less when all would be far from it.
func ruled(n int, now, fewer []float64, target float64) int {
	up, down := true, n > 1
	for i := range now {
		up = up && now[i] > target
		down = down && fewer[i] < consolidated*target
	}
	switch {
	case len(now) == 0:
		return n
	case up:
		return n + 1
	case down:
		return n - 1
	}
	return n
}
