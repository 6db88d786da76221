package planner

import (
	"fmt"
	"io"
	"time"

	core "github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/planner/predict"
)

// AllowedMisses is the share of requests that may miss TTFT or ITL.
const AllowedMisses = 0.05

// Example is the cluster of the comparison: at most 8 H100 whose workers start in 30 s, change their role in
// one and drain in three, and 1P1D at the beginning.
func Example() Setup {
	cfg := core.Defaults()
	cfg.Target = core.Target{Goal: core.GoalSLA, TTFT: 500 * time.Millisecond, ITL: duration(ExampleITL), Percentile: 1 - AllowedMisses}
	return Setup{
		Config: cfg, Hardware: H100, Workers: H100, Times: Times{Start: 30, Flip: 1, Drain: 3},
		Initial: core.Plan{Prefill: 1, Decode: 1},
	}
}

// Ideal returns the clairvoyant run with the fewest device-hours among those that hold the target, with
// factors of the load from 0.8 to 1.1.
func Ideal(s Setup, arrivals []Arrival, seconds float64) (Result, error) {
	var best *Result
	for tenths := 8; tenths <= 11; tenths++ {
		c, err := NewClairvoyant(s, arrivals, seconds, float64(tenths)/10)
		if err != nil {
			return Result{}, err
		}
		r := Run(s, arrivals, seconds, c)
		if r.Share() <= AllowedMisses && (best == nil || r.DeviceHours < best.DeviceHours) {
			best = &r
		}
	}
	if best == nil {
		return Result{}, fmt.Errorf("no clairvoyant holds the target within %d devices", s.Config.Devices)
	}
	return *best, nil
}

// Opponents are Dynamo's planners with two of its predictors.
func Opponents(s Setup) []Policy {
	var out []Policy
	for _, p := range []predict.Predictor{predict.Constant{}, predict.ARIMA{}} {
		out = append(out, NewDynamo08(s, p), NewDynamo15(s, p))
	}
	return out
}

// Compare plays the loads under all policies and prints a row for each run.
func Compare(w io.Writer, loads []Load, seed uint64) error {
	if _, err := fmt.Fprintf(w, "%-16s %-22s %8s %7s %7s %7s %9s %6s %8s %8s\n", "load", "policy", "requests", "missed", "TTFT", "ITL", "device-h", "ratio", "breaches", "changes"); err != nil {
		return err
	}
	for _, load := range loads {
		s := Example()
		arrivals := load.Arrivals(seed)
		ideal, err := Ideal(s, arrivals, load.Seconds)
		if err != nil {
			return fmt.Errorf("%s: %w", load.Name, err)
		}
		ours, err := NewOurs(s)
		if err != nil {
			return err
		}
		results := []Result{ideal}
		for _, p := range append([]Policy{ours}, Opponents(s)...) {
			results = append(results, Run(s, arrivals, load.Seconds, p))
		}
		for _, r := range results {
			n := float64(max(r.Requests, 1)) / 100
			if _, err := fmt.Fprintf(w, "%-16s %-22s %8d %6.1f%% %6.1f%% %6.1f%% %9.2f %6.2f %8d %8d\n", load.Name, r.Policy, r.Requests,
				100*r.Share(), float64(r.MissedTTFT)/n, float64(r.MissedITL)/n, r.DeviceHours, r.DeviceHours/ideal.DeviceHours, r.Breaches, r.Changes); err != nil {
				return err
			}
		}
	}
	return nil
}
