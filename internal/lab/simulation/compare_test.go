package simulation

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	autoscalers "github.com/dynctl/dynctl/internal/lab/planner"
	"github.com/dynctl/dynctl/internal/mooncake"
	"github.com/dynctl/dynctl/internal/planner"
)

func compared(t *testing.T, c Comparison, budget int) Comparison {
	t.Helper()
	c.Config, _ = declared(t, "model: {name: m, path: /m}\nprefill: {workers: 1}\ndecode: 1\n")
	c.Config.TTFT, c.Config.ITL = time.Second, 25*time.Millisecond
	c.Planner = PlannerConfig(c.Config, budget)
	return c
}

// The topology that stays as it is holds the target, and none with a device less does. All policies play the same
// load.
func TestCompare(t *testing.T) {
	load := autoscalers.Load{Name: "constant", Seconds: 60, ISL: 3000, OSL: 100, Spread: 0.4, Rate: func(float64) float64 { return 12 }}
	c := compared(t, OfLoad(load, 1), 5)
	best, r, err := c.Static(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if Missed(r) > 0.05 || c.Planner.DevicesOf(best) > 5 {
		t.Errorf("%s misses %.1f %%", best, 100*Missed(r))
	}
	fewer := c
	fewer.Planner.Devices = c.Planner.DevicesOf(best) - 1
	if plan, r, err := fewer.Static(t.Context()); err != nil || Missed(r) <= 0.05 {
		t.Errorf("%s misses %.1f %% with fewer devices than %s; %v", plan, 100*Missed(r), best, err)
	}
	var out bytes.Buffer
	if err := c.Compare(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, name := range []string{"static " + best.String(), "clairvoyant 1.00", "ours", "dynamo 0.8 constant", "dynamo 1.5 constant", "dynamo 0.8 arima", "dynamo 1.5 arima"} {
		if i >= len(lines) || !strings.Contains(lines[i], " "+name+" ") || !strings.Contains(lines[i], fmt.Sprintf(" %d ", r.Requests)) {
			t.Errorf("no row of %s with all requests in\n%s", name, out.String())
		}
	}
}

// A profile of a worker with more devices makes workers that cost more, and its times are the first estimates.
func TestPlannerConfig(t *testing.T) {
	c := compared(t, Comparison{}, 8).Config
	decode, prefill := *c.Profile, *c.Profile
	decode.Devices, prefill.Devices, decode.Overheads.Startup, decode.Overheads.Flip = 2, 4, 90, 7
	c.Profile, c.PrefillProfile = &decode, &prefill
	cfg := PlannerConfig(c, 8)
	if err := cfg.Validate(); err != nil || cfg.DevicesOf(planner.Plan{Prefill: 1, Decode: 2}) != 8 || cfg.StartEstimate != 90*time.Second || cfg.FlipEstimate != 7*time.Second ||
		cfg.Target.TTFT != time.Second || cfg.Target.ITL != 25*time.Millisecond {
		t.Errorf("%+v, %v", cfg, err)
	}
	s := Setup(c, cfg)
	if s.Hardware.KVCapacity() != float64(decode.Limits.KVTokens()) || s.Initial != (planner.Plan{Prefill: 1, Decode: 1, MaxLocalPrefill: c.Disagg.MaxLocalTokens}) || s.Times.Start != 90 {
		t.Errorf("%+v", s)
	}
}

func TestOfTrace(t *testing.T) {
	c := OfTrace("t", []mooncake.Request{{At: 0, Input: 600, Output: 5, Blocks: []uint64{1, 2}}, {At: 2 * time.Second, Input: 512, Output: 7, Blocks: []uint64{1}}})
	if c.Arrivals != nil || math.Abs(c.Mean.Rate-0.5) > 0.01 || len(c.Mean.Lengths) != 2 || c.Mean.Lengths[0] != (planner.Length{ISL: 600, OSL: 5}) {
		t.Errorf("%+v", c)
	}
}
