package planner

import (
	"fmt"
	"time"

	core "github.com/dynctl/dynctl/internal/planner"
)

// Ours is the planner of this project.
type Ours struct {
	Planner *core.Planner
	// Seen is called with every decision, where it is set.
	Seen func(core.Decision)
}

// NewOurs returns our planner for a setup.
func NewOurs(setup Setup) (*Ours, error) {
	cfg := setup.Config
	cfg.Mode = core.ModeAct
	p, err := core.New(cfg, setup.Hardware, setup.Evaluator)
	if err != nil {
		return nil, err
	}
	return &Ours{Planner: p}, nil
}

// Name implements Policy.
func (*Ours) Name() string { return "ours" }

// Decide implements Policy.
func (o *Ours) Decide(now time.Time, seen core.Observation) core.Plan {
	d := o.Planner.Tick(now, seen)
	if o.Seen != nil {
		o.Seen(d)
	}
	return d.Proposal
}

// Clairvoyant knows all arrivals. For every slot it has the cheapest plan for the requests that
// will arrive, times a factor, and orders it as early as a start takes.
type Clairvoyant struct {
	setup  Setup
	plans  []core.Plan // one a slot
	factor float64
}

// slot is for how many seconds a clairvoyant plan stands.
const slot = 30.0

// NewClairvoyant plans all slots. A smaller factor has fewer devices and more misses.
func NewClairvoyant(setup Setup, arrivals []Arrival, seconds, factor float64) (*Clairvoyant, error) {
	c := &Clairvoyant{setup: setup, factor: factor}
	evaluator := setup.Evaluator
	if evaluator == nil {
		evaluator = core.Queueing{Performance: setup.Hardware, Target: setup.Config.Target}
	}
	slots := make([][]core.Length, int(seconds/slot)+1)
	for _, a := range arrivals {
		i := int(a.At / slot)
		slots[i] = append(slots[i], a.Length)
	}
	last := setup.Initial
	for _, lengths := range slots {
		f := core.Forecast{Rate: factor * float64(len(lengths)) / slot, Lengths: lengths, Horizon: duration(slot)}
		best, _, err := core.Cheapest(setup.Config, evaluator, f, last)
		if err != nil {
			return nil, err
		}
		c.plans = append(c.plans, best.Plan)
		last = best.Plan
	}
	return c, nil
}

// Name implements Policy.
func (c *Clairvoyant) Name() string { return fmt.Sprintf("clairvoyant %.2f", c.factor) }

// Decide implements Policy: what is needed from now on until what is ordered now would be ready.
func (c *Clairvoyant) Decide(now time.Time, _ core.Observation) core.Plan {
	at := now.Sub(epoch).Seconds()
	first, last := int(at/slot), int((at+c.setup.Times.Start+c.setup.Config.LoadInterval.Seconds())/slot)
	best := c.plans[min(first, len(c.plans)-1)]
	for i := first + 1; i <= last && i < len(c.plans); i++ {
		next := c.plans[i]
		both := core.Plan{Prefill: max(best.Prefill, next.Prefill), Decode: max(best.Decode, next.Decode), MaxLocalPrefill: best.MaxLocalPrefill}
		if c.setup.Config.Fits(both) {
			best = both
		} else {
			best = next
		}
	}
	return best
}
