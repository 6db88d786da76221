package planner

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/planner/predict"
)

// still is a policy that changes nothing.
type still core.Plan

func (still) Name() string                                   { return "still" }
func (s still) Decide(time.Time, core.Observation) core.Plan { return core.Plan(s) }

func constantLoad(rate, seconds, spread float64) Load {
	return Load{Name: "constant", Seconds: seconds, Rate: func(float64) float64 { return rate }, ISL: 3000, OSL: 300, Spread: spread}
}

// Our planner holds the target on every load at no more than 1.15 times the device-hours of one that knows the
// future, and none of Dynamo's has fewer device-hours without missing more.
func TestOursOnLoads(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hours of load")
	}
	for _, load := range Loads() {
		t.Run(load.Name, func(t *testing.T) {
			t.Parallel()
			s := Example()
			arrivals := load.Arrivals(1)
			ideal, err := Ideal(s, arrivals, load.Seconds)
			if err != nil {
				t.Fatal(err)
			}
			policy, err := NewOurs(s)
			if err != nil {
				t.Fatal(err)
			}
			ours := Run(s, arrivals, load.Seconds, policy)
			if ours.Share() > AllowedMisses || ours.DeviceHours > 1.15*ideal.DeviceHours || ours.Breaches > 0 {
				t.Errorf("%.2f %% missed, %.2f device-hours, %d breaches; ideal %.2f %% and %.2f", 100*ours.Share(), ours.DeviceHours, ours.Breaches, 100*ideal.Share(), ideal.DeviceHours)
			}
			for _, p := range []Policy{NewDynamo08(s, predict.Constant{}), NewDynamo15(s, predict.Constant{})} {
				r := Run(s, arrivals, load.Seconds, p)
				if r.Share() < ours.Share() || r.Share() <= AllowedMisses && r.DeviceHours < ours.DeviceHours-0.01 {
					t.Errorf("%s: %.2f %% missed and %.2f device-hours; ours %.2f %% and %.2f", r.Policy, 100*r.Share(), r.DeviceHours, 100*ours.Share(), ours.DeviceHours)
				}
			}
		})
	}
}

// What the evaluator predicts is what the cluster does.
func TestEvaluatorAgainstCluster(t *testing.T) {
	for _, tc := range []struct {
		plan   core.Plan
		rate   float64
		spread float64
	}{
		{core.Plan{Prefill: 1, Decode: 1}, 8, 0},
		{core.Plan{Prefill: 1, Decode: 1}, 12, 0.4},
		{core.Plan{Prefill: 2, Decode: 2}, 26, 0.4},
		{core.Plan{Prefill: 3, Decode: 4}, 40, 0.4},
		{core.Plan{Prefill: 1, Decode: 3, MaxLocalPrefill: 2500}, 12, 0.4},
		{core.Plan{Decode: 3}, 12, 0.4},
	} {
		s := Example()
		s.Initial = tc.plan
		arrivals := constantLoad(tc.rate, 1200, tc.spread).Arrivals(3)
		var sample []core.Length
		var ttft, itl []float64
		for _, a := range arrivals {
			sample = append(sample, a.Length)
		}
		seen := func(o core.Observation) {
			for _, r := range o.Requests {
				ttft = append(ttft, r.TTFT.Seconds())
				itl = append(itl, r.ITL.Seconds())
			}
		}
		Run(s, arrivals, 1200, watching{still(tc.plan), seen})
		slices.Sort(ttft)
		slices.Sort(itl)
		o, err := core.Queueing{Performance: s.Hardware, Target: s.Config.Target}.Evaluate(tc.plan,
			core.Forecast{Rate: float64(len(arrivals)) / 1200, Lengths: sample, Horizon: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		compare := func(what string, predicted time.Duration, sorted []float64) {
			got := sorted[len(sorted)*95/100]
			if off := predicted.Seconds()/got - 1; math.Abs(off) > 0.12 {
				t.Errorf("%v at %v requests/s: %s at p95 %.4f s, predicted %.4f s", tc.plan, tc.rate, what, got, predicted.Seconds())
			} else {
				t.Logf("%v at %v requests/s: %s at p95 %.4f s, predicted %+.0f %%", tc.plan, tc.rate, what, got, 100*off)
			}
		}
		compare("TTFT", o.TTFT, ttft)
		compare("ITL", o.ITL, itl)
	}
}

type watching struct {
	Policy
	seen func(core.Observation)
}

func (w watching) Decide(now time.Time, o core.Observation) core.Plan {
	w.seen(o)
	return w.Policy.Decide(now, o)
}

// A request alone takes what the hardware says, and every request ends whatever changes meanwhile.
func TestClusterByHand(t *testing.T) {
	s := Example()
	one := []Arrival{{At: 1, Length: core.Length{ISL: 3000, OSL: 3}}}
	var got []core.Request
	r := Run(s, one, 10, watching{still(s.Initial), func(o core.Observation) { got = append(got, o.Requests...) }})
	step := H100.ITL(3000, 0)
	if len(got) != 1 || r.Missed != 0 || math.Abs(r.DeviceHours-2*10.0/3600) > 1e-9 {
		t.Fatalf("%+v, %+v", got, r)
	}
	if want := 3000/H100.PromptRate + H100.PromptFixed + step; math.Abs(got[0].TTFT.Seconds()-want) > 1e-6 {
		t.Errorf("TTFT %v, want %v s", got[0].TTFT, want)
	}
	if math.Abs(got[0].ITL.Seconds()-step) > 1e-5 {
		t.Errorf("ITL %v, want %v s", got[0].ITL, step)
	}

	plans := []core.Plan{{Prefill: 3, Decode: 2}, {Prefill: 1, Decode: 4}, {Decode: 3}, {Prefill: 2, Decode: 1}, {Decode: 1}, {Prefill: 4, Decode: 4}}
	done := 0
	arrivals := constantLoad(12, 600, 0.4).Arrivals(2)
	r = Run(s, arrivals, 600, watching{&turning{plans: plans}, func(o core.Observation) { done += len(o.Requests) }})
	if r.Breaches > 0 || r.Missed > r.Requests || r.Requests != len(arrivals) || done < len(arrivals)*9/10 {
		t.Errorf("%d of %d done within the time, %+v", done, len(arrivals), r)
	}
	if r.MissedTTFT > r.Missed || r.MissedITL > r.Missed || r.Missed > r.MissedTTFT+r.MissedITL {
		t.Errorf("not all requests ended: %+v", r)
	}
}

// turning changes its plan every minute.
type turning struct {
	plans []core.Plan
	n     int
}

func (*turning) Name() string { return "turning" }

func (p *turning) Decide(time.Time, core.Observation) core.Plan {
	p.n++
	return p.plans[p.n/12%len(p.plans)]
}

func TestCompare(t *testing.T) {
	var out strings.Builder
	if err := Compare(&out, []Load{constantLoad(8, 120, 0)}, 1); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 7 || !strings.Contains(lines[2], "ours") {
		t.Errorf("got\n%s", out.String())
	}
	heavy := constantLoad(500, 30, 0)
	if err := Compare(&out, []Load{heavy}, 1); err == nil {
		t.Error("a load that no plan holds has an ideal one")
	}
}
