package simulation

import (
	"math"
	"testing"

	autoscalers "github.com/dynctl/dynctl/internal/lab/planner"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/simulate"
)

// What the evaluator predicts for a plan is near what a simulation shows, also where prompts are too many for the
// prefill workers and decode workers compute the rest.
func TestPredictionsAreNear(t *testing.T) {
	for _, tc := range []struct {
		prefill, decode int
		rate            float64
		shared          bool // the prefill workers alone could not do it
	}{{2, 1, 12, false}, {1, 2, 12, true}, {1, 3, 18, true}, {0, 3, 12, false}} {
		load := autoscalers.Load{Name: "constant", Seconds: 120, ISL: 3000, OSL: 100, Spread: 0.4, Rate: func(float64) float64 { return tc.rate }}
		c := compared(t, OfLoad(load, 1), 8)
		cfg := c.Config
		cfg.Prefill, cfg.Decode, cfg.Load = tc.prefill, tc.decode, c.Load()
		r, err := simulate.Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		evaluator := Setup(cfg, c.Planner).Evaluator.(planner.Queueing)
		plan := planner.Plan{Prefill: tc.prefill, Decode: tc.decode, MaxLocalPrefill: 64}
		o, err := evaluator.Evaluate(plan, c.Mean)
		if err != nil {
			t.Fatal(err)
		}
		evaluator.LeastDelay = false
		by, err := evaluator.Evaluate(plan, c.Mean)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s at %v: %.3f miss, %.3f predicted, %.3f by the threshold; prefill load %.2f, %.2f by the threshold", plan, tc.rate, Missed(r), o.Miss, by.Miss, o.PrefillLoad, by.PrefillLoad)
		if math.Abs(o.Miss-Missed(r)) > 0.15 {
			t.Errorf("%s at %v: %.3f of the requests miss, %.3f are predicted", plan, tc.rate, Missed(r), o.Miss)
		}
		if tc.shared != (by.PrefillLoad > 1) || o.PrefillLoad >= 1 || tc.shared && r.Local == 0 {
			t.Errorf("%s at %v: %d prompts computed by decode workers; prefill load %v, %v by the threshold", plan, tc.rate, r.Local, o.PrefillLoad, by.PrefillLoad)
		}
	}
}
