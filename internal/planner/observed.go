package planner

import "github.com/dynctl/dynctl/internal/cluster"

// backlog returns the requests a second that must be served beside rate to end the backlog of
// prompts in time. It is 0 while waiting is ordinary, or when it ends before new workers could help.
func (p *Planner) backlog(o Observation, rate float64, current Candidate) float64 {
	tokens, isl := waiting(o), p.isl()
	capacity := limitRate(current.Outcome, rate)
	if tokens == 0 || capacity <= 0 {
		return 0
	}
	requests := tokens / isl
	if requests/capacity <= p.cfg.Target.TTFT.Seconds() && p.cfg.Target.Goal == GoalSLA {
		return 0
	}
	ahead := p.lookAhead().Seconds()
	left := requests + (rate-capacity)*ahead
	if left <= 0 {
		return 0
	}
	return left / p.cfg.ClearWithin.Seconds()
}

// limitRate returns the rate at which the prompts of an outcome's plan are at their limit.
func limitRate(o Outcome, rate float64) float64 {
	load := o.PrefillLoad
	if load == 0 {
		load = o.DecodeLoad
	}
	if load == 0 {
		return 0
	}
	return rate / load
}

// waiting returns the prompt tokens that wait anywhere.
func waiting(o Observation) float64 {
	tokens := 0
	for _, role := range Roles {
		r := o.Role(role)
		tokens += r.QueuedTokens
		for _, w := range r.Workers {
			tokens += w.QueuedTokens
		}
	}
	return float64(tokens)
}

// allMiss reports whether every ready worker of a role misses its latency by itself.
func (p *Planner) allMiss(o Observation, role cluster.Role) bool {
	ready := o.Role(role).In(WorkerReady)
	if ready == 0 || p.cfg.Target.Goal != GoalSLA || len(p.sample) == 0 {
		return false
	}
	isl := p.isl()
	shared := float64(o.Role(role).QueuedTokens) / float64(ready)
	for _, w := range o.Role(role).Workers {
		if w.State != WorkerReady {
			continue
		}
		misses := w.Step > p.cfg.Target.ITL
		if role == cluster.RolePrefill {
			wait := orOne(p.slow.prefill) * (float64(w.QueuedTokens) + shared) / p.perf.PrefillThroughput(isl)
			misses = wait+p.perf.TTFT(isl) > p.cfg.Target.TTFT.Seconds()
		}
		if !misses {
			return false
		}
	}
	return true
}

// consolidates is the test that does not trust the evaluator: what the workers of a role show, times
// N / N', must fit on the N' that are left. Decode workers would hold their KV at an ITL within the
// target, prefill workers would be busy for less than all of the time.
func (p *Planner) consolidates(o Observation, target Plan) bool {
	if p.missing[cluster.RolePrefill]+p.missing[cluster.RoleDecode] > 0 {
		return false
	}
	if p.cfg.Target.Goal != GoalSLA || len(p.sample) == 0 {
		return true
	}
	ready := o.ready()
	if left := float64(target.Decode); target.Decode < ready.Decode && left > 0 {
		kv := 0.0
		for _, w := range o.Decode.Workers {
			if w.State == WorkerReady {
				kv += float64(w.KVTokens)
			}
		}
		if orOne(p.slow.decode)*p.perf.ITL(kv/left, p.context()) > p.cfg.Target.ITL.Seconds() {
			return false
		}
	}
	if left := float64(target.Prefill); target.Prefill < ready.Prefill && left > 0 {
		busy := 0.0
		for _, w := range o.Prefill.Workers {
			if w.State == WorkerReady {
				busy += w.PromptBusy.Seconds() / o.End.Sub(o.Start).Seconds()
			}
		}
		if busy/left >= 1 {
			return false
		}
	}
	return true
}

// context returns the tokens that a running sequence holds on average.
func (p *Planner) context() float64 {
	var out, kvSeconds float64
	for _, l := range p.sample {
		osl := float64(max(l.OSL, 1))
		out += osl
		kvSeconds += osl * (float64(l.ISL) + osl/2)
	}
	return kvSeconds / out
}

// isl returns the prompt tokens that are computed for a request, on average.
func (p *Planner) isl() float64 {
	sum := 0.0
	for _, l := range p.sample {
		sum += float64(l.uncached()) / float64(len(p.sample))
	}
	return sum
}
