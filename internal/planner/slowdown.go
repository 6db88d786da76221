package planner

import "slices"

const (
	slowdownWeight = 0.1 // of a new window
	slowdownMost   = 8.0
)

// slowdown learns by how much workers are slower than Performance says. Unlike Dynamo's correction
// factors it may exceed 1, and waiting is no part of it: queues are the evaluator's.
type slowdown struct{ prefill, decode float64 } // 0: nothing seen

// learnSlowdown takes the median over the workers of a window: one slow worker is not the role.
func (p *Planner) learnSlowdown(o Observation) {
	if len(p.sample) == 0 {
		return
	}
	isl, context := p.isl(), p.context()
	var prefill, decode []float64
	for _, w := range o.Prefill.Workers {
		if expected := float64(w.PromptTokens) / p.perf.PrefillThroughput(isl); w.State == WorkerReady && expected > 0 && w.PromptBusy > 0 {
			prefill = append(prefill, w.PromptBusy.Seconds()/expected)
		}
	}
	for _, w := range o.Decode.Workers {
		// Steps beside prompts take longer by what the evaluator counts.
		if w.State == WorkerReady && w.Step > 0 && w.KVTokens > 0 && w.PromptTokens == 0 {
			decode = append(decode, w.Step.Seconds()/p.perf.ITL(float64(w.KVTokens), context))
		}
	}
	follow(&p.slow.prefill, prefill)
	follow(&p.slow.decode, decode)
}

func follow(value *float64, seen []float64) {
	if len(seen) == 0 {
		return
	}
	slices.Sort(seen)
	v := min(max(seen[len(seen)/2], 1/slowdownMost), slowdownMost)
	if *value == 0 {
		*value = 1
	}
	*value += slowdownWeight * (v - *value)
}
