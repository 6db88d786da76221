package planner

import (
	"math"
	"testing"
	"time"

	core "github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/planner/predict"
)

// fixed is hardware whose decode throughput is the same at any ITL from 1 ms on, at a context.
func fixed(prompts, tokens, context float64) Linear {
	return Linear{PromptRate: prompts, StepFixed: 0.001, Capacity: tokens * context * 0.001}
}

// The examples are those of Dynamo's tests of its replica calculation, with an interval of 60 s.
func TestDynamo08Replicas(t *testing.T) {
	const context = 3000 + 150.0/2
	for _, tc := range []struct {
		name            string
		hardware        Linear
		edit            func(*core.Config)
		requests        float64
		prefill, decode float64 // correction factors
		want            core.Plan
		breach          bool
	}{
		{"low load", fixed(49481, 4555, context), nil, 10, 1, 1, core.Plan{Prefill: 1, Decode: 1}, false},
		{"500 requests and 1,000 tokens/s", fixed(49481, 1000, context), nil, 500, 1, 1, core.Plan{Prefill: 1, Decode: 2}, false},
		{"prefill by its ceiling", fixed(10_000, 4555, context), nil, 500, 1, 1, core.Plan{Prefill: 3, Decode: 1}, false},
		{"a prefill correction above 1 is lost", fixed(10_000, 4555, context), nil, 500, 3, 1, core.Plan{Prefill: 3, Decode: 1}, false},
		{"one below 1 lowers the demand", fixed(10_000, 4555, context), nil, 500, 0.3, 1, core.Plan{Prefill: 1, Decode: 1}, false},
		{"a decode correction of 0 is none", fixed(49481, 1000, context), nil, 500, 1, 0, core.Plan{Prefill: 1, Decode: 2}, false},
		{"engines of several GPUs", fixed(10_000, 1000, context), func(c *core.Config) { c.Prefill.DevicesPerWorker, c.Decode.DevicesPerWorker = 2, 2 }, 500, 1, 1, core.Plan{Prefill: 2, Decode: 1}, false},
		{"the budget", fixed(5_000, 500, context), nil, 1000, 1, 1, core.Plan{Prefill: 5, Decode: 3}, false},
		{"rounding exceeds the budget", fixed(5_500, 400, context), func(c *core.Config) { c.Prefill.DevicesPerWorker, c.Decode.DevicesPerWorker = 2, 4 }, 300, 1, 1, core.Plan{Prefill: 2, Decode: 1}, false},
		{"and so it does with two", fixed(5_500, 150, context), func(c *core.Config) { c.Prefill.DevicesPerWorker, c.Decode.DevicesPerWorker = 2, 4 }, 300, 1, 1, core.Plan{Prefill: 1, Decode: 2}, true},
	} {
		s := Example()
		s.Hardware = tc.hardware
		if tc.edit != nil {
			tc.edit(&s.Config)
		}
		d := NewDynamo08(s, predict.Constant{})
		d.interval = 60
		got := d.Replicas(tc.requests, 3000, 150, tc.prefill, tc.decode)
		if got != tc.want || s.Config.Fits(got) == tc.breach {
			t.Errorf("%s: %v with %d of %d devices, want %v", tc.name, got, s.Config.DevicesOf(got), s.Config.Devices, tc.want)
		}
		if !tc.breach {
			continue
		}
		best, _, err := core.Cheapest(s.Config, core.Queueing{Performance: s.Hardware, Target: s.Config.Target},
			core.Forecast{Rate: tc.requests / 60, Lengths: []core.Length{{ISL: 3000, OSL: 150}}, Horizon: time.Minute}, core.Plan{Prefill: 1, Decode: 1})
		if err != nil || !s.Config.Fits(best.Plan) {
			t.Errorf("%s: ours %v, %v", tc.name, best.Plan, err)
		}
	}
}

// tabulated is H100 with a row of Dynamo's table at exactly 4,555 tokens/s.
func tabulated() Linear {
	h := H100
	h.Capacity = 2.5 * 4555 * ExampleITL * 3150
	return h
}

// The figures of its interpolation are those of the hardware that policies are compared on.
func TestHardwareFigures(t *testing.T) {
	if got := H100.PrefillThroughput(3000); got != 49481 {
		t.Errorf("%v prompt tokens/s", got)
	}
	kv := 4555 * ExampleITL * 3150
	if step := H100.ITL(kv, 3150); math.Abs(step-ExampleITL) > 1e-12 {
		t.Errorf("a step of %v s", step)
	}
	if got := tabulated().DecodeThroughput(ExampleITL, 3150); math.Abs(got-4555) > 1e-6 {
		t.Errorf("%v tokens/s", got)
	}
	if got := H100.DecodeThroughput(0.001, 3150); got <= 0 {
		t.Errorf("an ITL that no row has: %v tokens/s", got)
	}
	if got := H100.slower(2); got.TTFT(3000) != 2*H100.TTFT(3000) || got.ITL(kv, 0) != 2*H100.ITL(kv, 0) {
		t.Errorf("twice as slow: %+v", got)
	}
}

func TestDynamo15LoadRule(t *testing.T) {
	for _, tc := range []struct {
		name       string
		n          int
		now, fewer []float64
		want       int
	}{
		{"all miss", 2, []float64{11, 12}, []float64{20, 20}, 3},
		{"one does not", 2, []float64{11, 9}, []float64{20, 20}, 2},
		{"all would be far below", 2, []float64{4, 4}, []float64{7.9, 7.9}, 1},
		{"fewer would be near", 2, []float64{4, 4}, []float64{8, 8}, 2},
		{"the last one stays", 1, []float64{1}, []float64{1}, 1},
		{"nothing seen", 3, nil, nil, 3},
	} {
		if got := ruled(tc.n, tc.now, tc.fewer, 10); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// Published runs: 8 requests/s of 3,000 and 150 tokens keep 1P1D, 18 need 2P1D; the sine needs 3P3D at the most.
func TestPublishedRuns(t *testing.T) {
	for _, tc := range []struct {
		rate float64
		osl  int
		want core.Plan
	}{
		{8, 150, core.Plan{Prefill: 1, Decode: 1}},
		{18, 150, core.Plan{Prefill: 2, Decode: 1}},
		{5, 300, core.Plan{Prefill: 1, Decode: 1}},
		{45, 300, core.Plan{Prefill: 3, Decode: 3}},
	} {
		s := Example()
		s.Hardware = tabulated()
		d := NewDynamo08(s, predict.Constant{})
		if got := d.Replicas(tc.rate*180, 3000, float64(tc.osl), 1, 1); got != tc.want {
			t.Errorf("dynamo 0.8 at %v requests/s: %v, want %v", tc.rate, got, tc.want)
		}
	}
}
