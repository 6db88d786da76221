package planner

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

func TestValidateNamesTheField(t *testing.T) {
	if err := Defaults().Validate(); err != nil {
		t.Fatalf("the defaults: %v", err)
	}
	for field, spoil := range map[string]func(*Config){
		"mode":                       func(c *Config) { c.Mode = "on" },
		"target.goal":                func(c *Config) { c.Target.Goal = "speed" },
		"target.ttft":                func(c *Config) { c.Target.TTFT = 0 },
		"target.itl":                 func(c *Config) { c.Target.ITL = -1 },
		"target.percentile":          func(c *Config) { c.Target.Percentile = 1 },
		"devices":                    func(c *Config) { c.Devices = 0 },
		"prefill.devices_per_worker": func(c *Config) { c.Prefill.DevicesPerWorker = 0 },
		"decode.min":                 func(c *Config) { c.Decode.Min = -1 },
		"decode.max":                 func(c *Config) { c.Decode.Min, c.Decode.Max = 3, 2 },
		"prefill.devices":            func(c *Config) { c.Prefill.Devices = -1 },
		"prefill.min":                func(c *Config) { c.Aggregate = false },
		"load_interval":              func(c *Config) { c.LoadInterval = 0 },
		"throughput_interval":        func(c *Config) { c.ThroughputInterval = 1 },
		"forecast_step":              func(c *Config) { c.ForecastStep = 1 },
		"predictor":                  func(c *Config) { c.Predictor = "prophet" },
		"sensitivity":                func(c *Config) { c.Sensitivity = 1 },
		"cool_down":                  func(c *Config) { c.CoolDown = -1 },
		"step_up":                    func(c *Config) { c.StepUp = 0 },
		"step_down":                  func(c *Config) { c.StepDown = 0 },
		"clear_within":               func(c *Config) { c.ClearWithin = 0 },
		"min_requests":               func(c *Config) { c.MinRequests = 0 },
		"stale_after":                func(c *Config) { c.StaleAfter = 1 },
		"node_loss_hold":             func(c *Config) { c.NodeLossHold = -1 },
		"action_timeout":             func(c *Config) { c.ActionTimeout = 0 },
		"start_estimate":             func(c *Config) { c.StartEstimate = 0 },
		"flip_estimate":              func(c *Config) { c.FlipEstimate = 0 },
		"drain_estimate":             func(c *Config) { c.DrainEstimate = 0 },
	} {
		cfg := Defaults()
		spoil(&cfg)
		err := cfg.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), field+": ") {
			t.Errorf("%s: %v", field, err)
		}
		if _, err := New(cfg, machine{}, nil); err == nil {
			t.Errorf("%s: New accepts it", field)
		}
	}
	minima := Defaults()
	minima.Prefill.Min, minima.Decode.Min = 5, 5
	if err := minima.Validate(); err == nil || !strings.Contains(err.Error(), "minimum workers") {
		t.Errorf("minima above the budget: %v", err)
	}
	if _, err := New(Defaults(), nil, nil); err == nil {
		t.Error("New accepts no performance")
	}
}

// randomConfig returns a valid configuration of budgets.
func randomConfig(r *rand.Rand) Config {
	for {
		cfg := config()
		cfg.Devices = 1 + r.IntN(20)
		for _, role := range []*RoleConfig{&cfg.Prefill, &cfg.Decode} {
			*role = RoleConfig{DevicesPerWorker: 1 + r.IntN(4), Min: r.IntN(3)}
			if r.IntN(3) == 0 {
				role.Devices = r.IntN(12)
			}
			if r.IntN(3) == 0 {
				role.Max = max(role.Min, 1) + r.IntN(5)
			}
		}
		cfg.Aggregate = r.IntN(2) == 0
		cfg.Thresholds = r.IntN(3) == 0
		if cfg.Validate() == nil {
			return cfg
		}
	}
}

// Whatever is asked for, the search and the reduction keep the budget, whatever devices a worker needs.
func TestBudgetIsNeverExceeded(t *testing.T) {
	const seed = 5
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 300 {
		cfg := randomConfig(r)
		evaluator := Queueing{Performance: machine{}, Target: cfg.Target}
		f := Forecast{Rate: 100 * r.Float64() * r.Float64(), Lengths: lengths(3, 200+r.IntN(6000), 1+r.IntN(600)), Horizon: 180e9}
		best, ok, err := Cheapest(cfg, evaluator, f, Plan{Prefill: r.IntN(5), Decode: r.IntN(5)})
		if err != nil {
			t.Fatal(err)
		}
		if !cfg.Fits(best.Plan) || ok && !cfg.keepsMinimum(best.Plan) {
			t.Fatalf("seed %d, round %d: %v does not fit %+v", seed, round, best.Plan, cfg)
		}
		if ok && !cfg.Target.holds(best.Outcome) {
			t.Fatalf("seed %d, round %d: %v does not hold: %+v", seed, round, best.Plan, best.Outcome)
		}
		wild := Plan{Prefill: r.IntN(40), Decode: r.IntN(40)}
		got := cfg.reduce(wild)
		if !cfg.Fits(got) || got.Prefill > wild.Prefill || got.Decode > wild.Decode || cfg.Fits(wild) && got != wild {
			t.Fatalf("seed %d, round %d: %v reduced to %v for %+v", seed, round, wild, got, cfg)
		}
		if cfg.keepsMinimum(wild) && !cfg.keepsMinimum(got) {
			t.Fatalf("seed %d, round %d: %v reduced to %v below the minimum of %+v", seed, round, wild, got, cfg)
		}
	}
}

// The search finds what trying every plan finds.
func TestCheapestAgainstAll(t *testing.T) {
	const seed = 9
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 60 {
		cfg := randomConfig(r)
		cfg.Thresholds = false
		evaluator := Queueing{Performance: machine{}, Target: cfg.Target}
		f := Forecast{Rate: 60 * r.Float64(), Lengths: lengths(3, 200+r.IntN(6000), 10+r.IntN(400)), Horizon: 180e9}
		best, ok, err := Cheapest(cfg, evaluator, f, Plan{Decode: 1})
		if err != nil {
			t.Fatal(err)
		}
		least := 0
		for p := range 21 {
			for d := 1; d < 21; d++ {
				plan := Plan{Prefill: p, Decode: d}
				if !cfg.Fits(plan) || !cfg.keepsMinimum(plan) || p == 0 && !cfg.Aggregate {
					continue
				}
				o, err := evaluator.Evaluate(plan, f)
				if err != nil {
					t.Fatal(err)
				}
				if cfg.Target.holds(o) && (least == 0 || cfg.DevicesOf(plan) < least) {
					least = cfg.DevicesOf(plan)
				}
			}
		}
		if ok != (least > 0) || ok && best.Devices != least {
			t.Errorf("seed %d, round %d: %v with %d devices (%v), the cheapest has %d; %+v", seed, round, best.Plan, best.Devices, ok, least, cfg)
		}
	}
}

func TestActions(t *testing.T) {
	cfg := config()
	two := cfg
	two.Decode.DevicesPerWorker = 2
	p, d := cluster.RolePrefill, cluster.RoleDecode
	for _, tc := range []struct {
		name     string
		cfg      Config
		from, to Plan
		want     []Action
	}{
		{"nothing", cfg, Plan{1, 1, 0}, Plan{1, 1, 0}, nil},
		{"starts", cfg, Plan{1, 1, 0}, Plan{2, 3, 0}, []Action{{ActionStart, p, 1}, {ActionStart, d, 2}}},
		{"a flip", cfg, Plan{1, 3, 0}, Plan{2, 2, 0}, []Action{{ActionFlip, p, 1}}},
		{"flips and a start", cfg, Plan{3, 1, 0}, Plan{1, 4, 0}, []Action{{ActionFlip, d, 2}, {ActionStart, d, 1}}},
		{"a flip and a drain", cfg, Plan{3, 1, 0}, Plan{1, 2, 0}, []Action{{ActionFlip, d, 1}, {ActionDrain, p, 1}}},
		{"no flip between sizes", two, Plan{1, 3, 0}, Plan{2, 2, 0}, []Action{{ActionStart, p, 1}, {ActionDrain, d, 1}}},
	} {
		got := tc.cfg.Actions(tc.from, tc.to)
		if len(got) != len(tc.want) {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
			continue
		}
		for i := range got {
			if got[i] != tc.want[i] {
				t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
			}
		}
	}
}
