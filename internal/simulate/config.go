package simulate

import (
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

// Config describes a simulation. Zero fields have the defaults of the product.
type Config struct {
	// Decode is the performance of decode workers, and of prefill workers unless PrefillProfile
	// is set. KV blocks must have the same size.
	Profile        *profile.Profile
	PrefillProfile *profile.Profile
	// Prefill and Decode are the numbers of workers at the beginning; they are ready then.
	// Without prefill workers the cluster is aggregated.
	Prefill, Decode int

	// SharedDevices is how many devices the workers share, in turns, as CPU workers of a machine do;
	// 0: each has its own. Workers take them one after the other.
	SharedDevices int

	Policy string // of the router, one of router.Policies; default kv
	// Strategy is protocol.StrategyDecodeFirst or StrategyPrefillFirst, the default here.
	Strategy string
	// Sequential turns off what disagg.overlap_kv_transfer turns on: with prefill-first the
	// decode worker is then called when the prompt is computed, and reads its KV.
	Sequential bool
	Disagg     router.PrefillLimits
	Busy       router.BusyLimits
	// RemoteTimeout is disagg.remote_prefill_timeout.
	RemoteTimeout time.Duration
	// MaxQueued bounds the requests that wait in the frontend; default 16384.
	MaxQueued int

	// EventDelay is how long a KV event takes from an engine to the router, StatusPeriod the
	// time between two statuses of a worker.
	EventDelay, StatusPeriod time.Duration

	Load Source
	// Targets are those that a good answer keeps; 0 is no limit. ITL is that of the mean of an
	// answer.
	TTFT, ITL time.Duration
	Seed      uint64 // of the result's description; the Source has drawn by it

	// Controller, if set, is called each Tick; see [Controller].
	Controller Controller
	Tick       time.Duration
	// MaxWorkers bounds the workers that exist at a time; default 1024.
	MaxWorkers int

	// Observe, if set, is told each step of a worker.
	Observe func(worker string, r engine.StepReport)

	Interval time.Duration // of the series; default a minute
	Records  bool          // keep a record of each request
}

// Defaults of Config.
const (
	DefaultEventDelay    = 5 * time.Millisecond
	DefaultStatusPeriod  = time.Second
	DefaultRemoteTimeout = 30 * time.Second
	DefaultInterval      = time.Minute
	DefaultTick          = 10 * time.Second
	defaultMaxQueued     = 16 << 10
	defaultMaxWorkers    = 1024
)

// DefaultDisagg returns the limits of conditional disaggregation with the product's defaults.
func DefaultDisagg() router.PrefillLimits {
	c, _ := cluster.ParseConditional("") // the empty text is the default rule
	return router.PrefillLimits{MaxLocalTokens: 64, MaxQueueDepth: 64, Conditional: c}
}

func (c Config) withDefaults() (Config, router.Policy, error) {
	or := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	or(&c.EventDelay, DefaultEventDelay)
	or(&c.StatusPeriod, DefaultStatusPeriod)
	or(&c.RemoteTimeout, DefaultRemoteTimeout)
	or(&c.Interval, DefaultInterval)
	or(&c.Tick, DefaultTick)
	if c.MaxQueued == 0 {
		c.MaxQueued = defaultMaxQueued
	}
	if c.MaxWorkers == 0 {
		c.MaxWorkers = defaultMaxWorkers
	}
	if c.Policy == "" {
		c.Policy = router.KV
	}
	if c.Strategy == "" {
		c.Strategy = protocol.StrategyPrefillFirst
	}
	if c.Disagg == (router.PrefillLimits{}) {
		c.Disagg = DefaultDisagg()
	}
	if c.PrefillProfile == nil {
		c.PrefillProfile = c.Profile
	}
	policy, err := router.NewPolicy(c.Policy)
	if err != nil {
		return c, nil, err
	}
	switch {
	case c.Profile == nil:
		return c, nil, errors.New("simulate: no profile of workers")
	case c.Load == nil:
		return c, nil, errors.New("simulate: no load")
	case c.Policy == router.Direct:
		return c, nil, fmt.Errorf("simulate: with the policy %s requests name their workers", router.Direct)
	case c.Strategy != protocol.StrategyPrefillFirst && c.Strategy != protocol.StrategyDecodeFirst:
		return c, nil, fmt.Errorf("simulate: strategy %q is not %s or %s", c.Strategy, protocol.StrategyPrefillFirst, protocol.StrategyDecodeFirst)
	case c.Prefill < 0 || c.Decode < 0 || c.Prefill+c.Decode > c.MaxWorkers:
		return c, nil, fmt.Errorf("simulate: %d prefill and %d decode workers are not between 0 and %d together", c.Prefill, c.Decode, c.MaxWorkers)
	case c.SharedDevices < 0 || c.SharedDevices > c.MaxWorkers:
		return c, nil, fmt.Errorf("simulate: %d shared devices are not between 0 and %d", c.SharedDevices, c.MaxWorkers)
	case c.Decode == 0 && c.Controller == nil:
		return c, nil, errors.New("simulate: no decode worker")
	}
	for _, d := range []time.Duration{c.EventDelay, c.StatusPeriod, c.RemoteTimeout, c.Interval, c.Tick, c.TTFT, c.ITL} {
		if d < 0 {
			return c, nil, fmt.Errorf("simulate: a time of %s", d)
		}
	}
	for _, p := range []*profile.Profile{c.Profile, c.PrefillProfile} {
		if err := p.Validate(); err != nil {
			return c, nil, fmt.Errorf("simulate: %w", err)
		}
	}
	if a, b := c.Profile.Limits.BlockSize, c.PrefillProfile.Limits.BlockSize; a != b {
		return c, nil, fmt.Errorf("simulate: blocks of %d tokens at prefill workers and of %d at decode workers", b, a)
	}
	return c, policy, nil
}

// Sample makes of what an engine reports of a step what [profile.Fit] finds costs from.
func Sample(r engine.StepReport) profile.Sample {
	return profile.Sample{Work: profile.Work{Decodes: r.Decodes, DecodeContext: r.DecodeContext, Tokens: r.PrefillTokens, ChunkContext: r.ChunkContext}, Seconds: r.Busy.Seconds()}
}
