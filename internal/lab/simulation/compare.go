package simulation

import (
	"context"
	"fmt"
	"io"
	"time"

	autoscalers "github.com/dynctl/dynctl/internal/lab/planner"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/simulate"
)

// Comparison plays one load under autoscalers and under topologies that stay as they are.
type Comparison struct {
	Name    string
	Config  simulate.Config // without Load and Controller; Prefill and Decode are the workers at the beginning
	Load    func() simulate.Source
	Planner planner.Config
	// Arrivals are those of Load for an autoscaler that knows them, of which so many seconds are planned. Nil: it is
	// left out.
	Arrivals []autoscalers.Arrival
	Seconds  float64
	Mean     planner.Forecast // where the search for a topology begins
}

// Setup returns what autoscalers know of a simulated cluster.
func Setup(c simulate.Config, cfg planner.Config) autoscalers.Setup {
	perf := profile.Performance{Prefill: c.PrefillProfile, Decode: c.Profile}
	if perf.Prefill == nil {
		perf.Prefill = c.Profile
	}
	return autoscalers.Setup{
		Config: cfg, Hardware: perf, Evaluator: Evaluator(perf, cfg.Target, c.Disagg.Conditional.ComparesSpeeds()),
		Times:   autoscalers.Times{Start: c.Profile.Overheads.Startup, Flip: c.Profile.Overheads.Flip, Drain: cfg.DrainEstimate.Seconds()},
		Initial: planner.Plan{Prefill: c.Prefill, Decode: c.Decode, MaxLocalPrefill: c.Disagg.MaxLocalTokens},
	}
}

// PlannerConfig returns the planner's defaults for a simulation: its targets, the devices of its workers, and
// how long they take to start.
func PlannerConfig(c simulate.Config, budget int) planner.Config {
	cfg := planner.Defaults()
	cfg.Target.TTFT, cfg.Target.ITL = c.TTFT, c.ITL
	cfg.Devices = budget
	cfg.Decode.DevicesPerWorker, cfg.Prefill.DevicesPerWorker = c.Profile.Devices, c.Profile.Devices
	if c.PrefillProfile != nil {
		cfg.Prefill.DevicesPerWorker = c.PrefillProfile.Devices
	}
	cfg.StartEstimate = max(time.Second, profile.Seconds(c.Profile.Overheads.Startup))
	cfg.FlipEstimate = max(time.Second, profile.Seconds(c.Profile.Overheads.Flip))
	return cfg
}

// Under plays a load under a policy.
func Under(ctx context.Context, c simulate.Config, load simulate.Source, cfg planner.Config, policy autoscalers.Policy) (*simulate.Result, *Autoscaler, error) {
	a := &Autoscaler{Policy: policy, Config: cfg, MaxLocalPrefill: c.Disagg.MaxLocalTokens}
	c.Load, c.Controller, c.Tick = load, a, cfg.LoadInterval
	r, err := simulate.Run(ctx, c)
	return r, a, err
}

// Missed returns the share of requests that were refused or missed a target.
func Missed(r *simulate.Result) float64 { return 1 - r.Goodput.Share }

// Static finds the topology with the fewest devices within the budget that misses no more than the target allows; where none
// does, the one that misses least of those tried. It climbs from the plan that the evaluator names for the mean load.
func (c *Comparison) Static(ctx context.Context) (planner.Plan, *simulate.Result, error) {
	seen := map[planner.Plan]*simulate.Result{}
	play := func(p planner.Plan) (*simulate.Result, error) {
		if r := seen[p]; r != nil {
			return r, nil
		}
		cfg := c.Config
		cfg.Prefill, cfg.Decode, cfg.Load = p.Prefill, p.Decode, c.Load()
		r, err := simulate.Run(ctx, cfg)
		seen[p] = r
		return r, err
	}
	setup := Setup(c.Config, c.Planner)
	allowed := 1 - c.Planner.Target.Percentile
	first, _, err := planner.Cheapest(c.Planner, setup.Evaluator, c.Mean, setup.Initial)
	if err != nil {
		return planner.Plan{}, nil, err
	}
	best := planner.Plan{Prefill: first.Plan.Prefill, Decode: first.Plan.Decode}
	r, err := play(best)
	if err != nil {
		return best, nil, err
	}
	better := func(a, b *simulate.Result) bool { // a than b
		switch holds := Missed(a) <= allowed; {
		case holds != (Missed(b) <= allowed):
			return holds
		case holds && a.DeviceHours != b.DeviceHours:
			return a.DeviceHours < b.DeviceHours
		}
		return Missed(a) < Missed(b)
	}
	for {
		at := best
		for _, step := range [][2]int{{1, 0}, {0, 1}, {-1, 0}, {0, -1}, {1, -1}, {-1, 1}} {
			next := planner.Plan{Prefill: at.Prefill + step[0], Decode: at.Decode + step[1]}
			grows := step[0]+step[1] > 0
			if next.Prefill < 0 || next.Decode < 1 || !c.Planner.Fits(next) || grows == (Missed(seen[at]) <= allowed) && step[0]+step[1] != 0 {
				continue
			}
			s, err := play(next)
			if err != nil {
				return best, nil, err
			}
			if better(s, r) {
				best, r = next, s
			}
		}
		if best == at {
			return best, r, nil
		}
	}
}

// Compare plays the comparison and prints a row for each run. Ratios are of device-hours to those of the best topology
// that stays as it is.
func (c *Comparison) Compare(ctx context.Context, w io.Writer) error {
	plan, static, err := c.Static(ctx)
	if err != nil {
		return err
	}
	row := func(name string, r *simulate.Result, a *Autoscaler) error {
		_, err := fmt.Fprintf(w, "%-16s %-22s %8d %6.1f%% %9.2f %6.2f %5d %8d %8d\n", c.Name, name, r.Requests, 100*Missed(r), r.DeviceHours, r.DeviceHours/static.DeviceHours, a.Held, a.Breaches, len(a.Changes))
		return err
	}
	if err := row("static "+plan.String(), static, &Autoscaler{Held: c.Planner.DevicesOf(plan)}); err != nil {
		return err
	}
	setup := Setup(c.Config, c.Planner)
	var policies []autoscalers.Policy
	if c.Arrivals != nil {
		knows, err := autoscalers.NewClairvoyant(setup, c.Arrivals, c.Seconds, 1)
		if err != nil {
			return err
		}
		policies = append(policies, knows)
	}
	ours, err := autoscalers.NewOurs(setup)
	if err != nil {
		return err
	}
	for _, policy := range append(append(policies, ours), autoscalers.Opponents(setup)...) {
		r, a, err := Under(ctx, c.Config, c.Load(), c.Planner, policy)
		if err != nil {
			return fmt.Errorf("%s under %s: %w", c.Name, policy.Name(), err)
		}
		if err := row(policy.Name(), r, a); err != nil {
			return err
		}
	}
	return nil
}

// Header is the line above the rows of [Comparison.Compare].
func Header() string {
	return fmt.Sprintf("%-16s %-22s %8s %7s %9s %6s %5s %8s %8s\n", "load", "policy", "requests", "missed", "device-h", "ratio", "most", "breaches", "changes")
}
