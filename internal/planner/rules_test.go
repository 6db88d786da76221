package planner

import (
	"math/rand/v2"
	"testing"
)

// Why the planner leaves disagg.conditional: to its evaluator, least-delay is one more threshold. What it predicts of that
// rule lies between what it predicts of two neighboring thresholds, so that it could never find the rule better than all.
func TestLeastDelayIsAThresholdToTheEvaluator(t *testing.T) {
	const seed = 21
	r := rand.New(rand.NewPCG(seed, 0))
	better := 0
	for round := range 40 {
		sample := make([]Length, lengthBins)
		for i := range sample {
			sample[i] = Length{ISL: 50 + int(6000*r.Float64()*r.Float64()), OSL: 20 + r.IntN(300)}
		}
		plan, rate := Plan{Prefill: 1 + r.IntN(3), Decode: 1 + r.IntN(3)}, 4+20*r.Float64()
		by := evaluateBy(t, Queueing{Performance: machine{}, Target: target(), LeastDelay: true}, plan, rate, sample)
		least := 1.0
		between := false
		var last Outcome
		for i, l := range append([]Length{{}}, bins(sample, lengthBins)...) {
			plan.MaxLocalPrefill = l.ISL
			o := evaluateBy(t, Queueing{Performance: machine{}, Target: target()}, plan, rate, sample)
			between = between || i > 0 && by.PrefillLoad <= last.PrefillLoad+1e-9 && by.PrefillLoad >= o.PrefillLoad-1e-9
			least, last = min(least, o.Miss), o
		}
		if !between {
			t.Errorf("seed %d, round %d: a prefill load of %v is that of no threshold", seed, round, by.PrefillLoad)
		}
		if by.Miss < least-0.02 {
			better++
			t.Logf("seed %d, round %d: %v of misses, of the best threshold %v", seed, round, by.Miss, least)
		}
	}
	if better > 0 {
		t.Errorf("%d of 40 loads", better)
	}
}
