package planner

import (
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner/predict"
)

// Mode says what becomes of decisions.
type Mode string

// Modes.
const (
	ModeOff    Mode = "off"    // none are made
	ModeAdvise Mode = "advise" // they are made and told
	ModeAct    Mode = "act"    // and carried out, by whoever holds the Planner
)

// Goal is what a plan must hold.
type Goal string

// Goals.
const (
	GoalSLA        Goal = "sla"        // TTFT and ITL at a percentile
	GoalThroughput Goal = "throughput" // no role is loaded beyond 80 % of its capacity
	GoalCost       Goal = "cost"       // no role is loaded beyond 95 %: queues end, and that is all
)

// Shares of a role's capacity that goals without latencies allow.
const (
	throughputLoad = 0.80
	costLoad       = 0.95
)

// Target is a goal with its figures. TTFT, ITL and Percentile are for GoalSLA.
type Target struct {
	Goal       Goal
	TTFT, ITL  time.Duration
	Percentile float64 // in (0, 1); 0.95: at most 5 % of requests may miss TTFT or ITL
}

// RoleConfig bounds the workers of one role.
type RoleConfig struct {
	DevicesPerWorker int
	Min, Max         int // workers; Max 0: no bound but devices
	Devices          int // budget of the role; 0: the budget of all
	// Fixed says that no worker of the role can start: the role has attached servers only, or none.
	Fixed bool
	// Own is how many workers the role keeps at least beside attached servers.
	Own int

	attached int // of the workers that serve or will
	others   int // devices of Devices that other pools keep
}

// Config is all that an operator decides. Start with [Defaults].
type Config struct {
	Mode   Mode
	Target Target

	Devices         int // budget of all roles; no proposal exceeds it
	Prefill, Decode RoleConfig
	KeepRoles       bool // whether a worker keeps its role, or restarts for another one: nothing is gained by a flip
	Aggregate       bool // whether 0 prefill workers is a plan
	// Thresholds has plans with other values of disagg.max_local_prefill_tokens considered. It is for routers that
	// follow that setting: disagg.conditional is threshold.
	Thresholds bool

	LoadInterval       time.Duration // time between observations
	ThroughputInterval time.Duration // time between forecasts; a load that breaks one brings the next forward
	ForecastStep       time.Duration // resolution of the series that is forecast
	Predictor          string        // predict.Names

	Sensitivity float64       // share of the capacity that a smaller plan may be loaded to; in (0, 1)
	CoolDown    time.Duration // time from a role's growth to its next decrease
	StepUp      int           // workers of a role that one decision may add
	StepDown    int           // and remove
	ClearWithin time.Duration // time in which a backlog of prompts should end

	MinRequests   int           // requests whose lengths must be known before a decision
	StaleAfter    time.Duration // age of an observation that no decision is made on
	NodeLossHold  time.Duration // time after the loss of a node in which nothing is decided
	ActionTimeout time.Duration // time after which an unfinished action counts as failed
	StartEstimate time.Duration // durations of actions before any was seen
	FlipEstimate  time.Duration
	DrainEstimate time.Duration

	others   int    // devices of Devices that other pools keep
	draining int    // devices of workers of other pools that are about to stop
	holders  string // which pools that are, in words
}

// Defaults returns the configuration for one device a worker and a budget of 8 devices.
// Intervals, budget and targets are those of Dynamo.
func Defaults() Config {
	return Config{
		Mode:    ModeAdvise,
		Target:  Target{Goal: GoalSLA, TTFT: 500 * time.Millisecond, ITL: 50 * time.Millisecond, Percentile: 0.95},
		Devices: 8,
		Prefill: RoleConfig{DevicesPerWorker: 1}, Decode: RoleConfig{DevicesPerWorker: 1, Min: 1},
		Aggregate:    true,
		LoadInterval: 5 * time.Second, ThroughputInterval: 180 * time.Second, ForecastStep: 20 * time.Second,
		Predictor:   predict.AutoName,
		Sensitivity: 0.9, CoolDown: time.Minute, StepUp: 4, StepDown: 1, ClearWithin: 15 * time.Second,
		MinRequests: 20, StaleAfter: 20 * time.Second, NodeLossHold: time.Minute, ActionTimeout: 10 * time.Minute,
		StartEstimate: 30 * time.Second, FlipEstimate: time.Second, DrainEstimate: 5 * time.Second,
	}
}

// Role returns the bounds of one role.
func (c Config) Role(role cluster.Role) RoleConfig {
	if role == cluster.RolePrefill {
		return c.Prefill
	}
	return c.Decode
}

// Validate returns an error that names every field that is wrong.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, field string, value any, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %v, want %s", field, value, want))
		}
	}
	positive := func(field string, d time.Duration) { check(d > 0, field, d, "more than 0") }
	check(c.Mode == ModeOff || c.Mode == ModeAdvise || c.Mode == ModeAct, "mode", c.Mode, "off, advise or act")
	switch c.Target.Goal {
	case GoalSLA:
		positive("target.ttft", c.Target.TTFT)
		positive("target.itl", c.Target.ITL)
		check(c.Target.Percentile > 0 && c.Target.Percentile < 1, "target.percentile", c.Target.Percentile, "more than 0 and less than 1")
	case GoalThroughput, GoalCost:
	default:
		check(false, "target.goal", c.Target.Goal, "sla, throughput or cost")
	}
	check(c.Devices > 0, "devices", c.Devices, "at least 1")
	least := 0
	for _, role := range Roles {
		r, name := c.Role(role), string(role)
		check(r.DevicesPerWorker > 0, name+".devices_per_worker", r.DevicesPerWorker, "at least 1")
		check(r.Min >= 0, name+".min", r.Min, "at least 0")
		check(r.Max == 0 || r.Max >= max(r.Min, 1), name+".max", r.Max, fmt.Sprintf("0 or at least %d", max(r.Min, 1)))
		check(r.Own >= 0, name+".own", r.Own, "at least 0")
		check(r.Devices >= 0, name+".devices", r.Devices, "at least 0")
		check(r.Devices == 0 || r.Min*r.DevicesPerWorker <= r.Devices, name+".min", r.Min, fmt.Sprintf("at most what %d devices hold", r.Devices))
		least += max(r.Min, 0) * max(r.DevicesPerWorker, 0)
	}
	check(least <= c.Devices, "devices", c.Devices, fmt.Sprintf("at least the %d of the minimum workers", least))
	check(c.Aggregate || c.Prefill.Min > 0 || c.Decode.Min == 0, "prefill.min", c.Prefill.Min, "at least 1 where decode workers compute no prompts")
	positive("load_interval", c.LoadInterval)
	check(c.ThroughputInterval >= c.LoadInterval, "throughput_interval", c.ThroughputInterval, "at least load_interval")
	check(c.ForecastStep >= c.LoadInterval && c.ForecastStep > 0, "forecast_step", c.ForecastStep, "at least load_interval")
	if _, err := predict.Named(c.Predictor); err != nil {
		errs = append(errs, fmt.Errorf("predictor: %w", err))
	}
	check(c.Sensitivity > 0 && c.Sensitivity < 1, "sensitivity", c.Sensitivity, "more than 0 and less than 1")
	check(c.CoolDown >= 0, "cool_down", c.CoolDown, "at least 0")
	check(c.StepUp > 0, "step_up", c.StepUp, "at least 1")
	check(c.StepDown > 0, "step_down", c.StepDown, "at least 1")
	positive("clear_within", c.ClearWithin)
	check(c.MinRequests > 0, "min_requests", c.MinRequests, "at least 1")
	check(c.StaleAfter >= c.LoadInterval, "stale_after", c.StaleAfter, "at least load_interval")
	check(c.NodeLossHold >= 0, "node_loss_hold", c.NodeLossHold, "at least 0")
	positive("action_timeout", c.ActionTimeout)
	positive("start_estimate", c.StartEstimate)
	positive("flip_estimate", c.FlipEstimate)
	positive("drain_estimate", c.DrainEstimate)
	return errors.Join(errs...)
}
