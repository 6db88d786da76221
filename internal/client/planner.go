package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/store"
)

// PlannerReports returns the planner's newest decision on each pool, the main pool first. A pool has none while the
// planner is off, nobody leads, or too little was seen.
func (c *Cluster) PlannerReports(ctx context.Context) ([]planner.Report, error) {
	kvs, _, err := c.store.List(ctx, cluster.PlannerPrefix(c.Namespace))
	if err != nil {
		return nil, fmt.Errorf("read the planner's decisions: %w", err)
	}
	var out []planner.Report
	for _, kv := range kvs {
		r, err := store.DecodeJSON[planner.Report](kv)
		if err != nil {
			return nil, fmt.Errorf("read the planner's decisions: %w", err)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b planner.Report) int { return cmp.Compare(a.Pool, b.Pool) })
	return out, nil
}

// PlannerMode returns planner.mode in effect: what the cluster sets, or else the configuration of the node that
// leads; empty if neither says.
func (c *Cluster) PlannerMode(ctx context.Context, v View, leader string) (string, error) {
	const name = "planner.mode"
	settings, err := c.Settings(ctx)
	if err != nil {
		return "", err
	}
	var mode string
	if raw, set := settings[name]; set && json.Unmarshal(raw, &mode) == nil {
		return mode, nil
	}
	for _, n := range v.Nodes {
		if n.Name == leader {
			return n.Settings[name].Value, nil
		}
	}
	return "", nil
}

const (
	// askPlannerEvery is the time between two questions to the store about the planner. The event plane
	// is faster.
	askPlannerEvery = 5 * time.Second
	// storedEvery is how often the store has a decision, at the least.
	storedEvery = time.Minute
	// keepPlanned is how many samples and changes of the planner are kept.
	keepPlanned = 120
)

// plannerWatch follows the planner: its decisions on the event plane, and what the store has.
type plannerWatch struct {
	asked time.Time // only the maker of snapshots uses it

	mu    sync.Mutex
	mode  string              // of the cluster
	pools map[string]*planned // that have a decision
}

// planned is what is known of the planner of one pool.
type planned struct {
	view cluster.PlannerView
	last planner.Decision
}

// refresh asks the store, if it is time. What it does not answer stays as it was.
func (p *plannerWatch) refresh(ctx context.Context, c *Cluster, v View, leader string) {
	if time.Since(p.asked) < askPlannerEvery {
		return
	}
	p.asked = time.Now()
	if mode, err := c.PlannerMode(ctx, v, leader); err == nil && mode != "" {
		p.mu.Lock()
		p.mode = mode
		if main := p.pools[""]; main != nil {
			main.view.Mode = mode
		}
		p.mu.Unlock()
	}
	if all, err := c.PlannerReports(ctx); err == nil {
		for _, r := range all {
			p.take(r, r.Decision.Time, storedEvery, false)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.pools, func(pool string, _ *planned) bool {
		return pool != "" && (v.Topology == nil || !slices.Contains(v.Topology.PoolNames(), pool))
	})
}

// heard takes in a decision from the event plane.
func (p *plannerWatch) heard(e events.Event) {
	var r planner.Report
	if e.Decode(&r) == nil {
		p.take(r, time.Now(), r.Decision.NextCheck.Sub(r.Decision.Time), true)
	}
}

// take takes in a decision that is newer than the last one. That of another node is, if it was just heard:
// its clock may be another.
func (p *plannerWatch) take(r planner.Report, at time.Time, every time.Duration, now bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pools == nil {
		p.pools = map[string]*planned{}
	}
	known := p.pools[r.Pool]
	if known == nil {
		known = &planned{}
	}
	d, old := r.Decision, &known.view
	if !d.Time.After(old.Time) && (!now || r.Node == old.Node) {
		return
	}
	every = min(max(every, time.Second), time.Hour)
	v := viewOfPlanner(r)
	v.Mode, v.HeardAt, v.NextCheck, v.Every = string(d.Mode), at, at.Add(d.NextCheck.Sub(d.Time)), every
	gaps := 0
	if old.Node != "" {
		gaps = min(max(int(at.Sub(old.HeardAt).Round(every)/every)-1, 0), keepPlanned)
	}
	rate, forecast := v.Observed.Rate, v.Predicted.Rate
	if d.Refusal == planner.RefusedStaleData {
		rate = nil // of a part of the cluster, or of another time
	}
	v.Rates, v.Forecasts = appendSample(old.Rates, gaps, rate), appendSample(old.Forecasts, gaps, forecast)
	v.Changes = old.Changes
	if d.News(known.last) {
		v.Changes = append([]cluster.PlannerChange{{Time: d.Time, From: v.Current, To: v.Proposal, Why: d.Why(), Text: r.Headline()}}, old.Changes[:min(len(old.Changes), keepPlanned-1)]...)
	}
	known.view, known.last = v, d
	p.pools[r.Pool] = known
}

// appendSample returns the newest of the samples, gaps and one more. It shares nothing with what was
// handed out.
func appendSample(samples []*float64, gaps int, v *float64) []*float64 {
	out := append(append([]*float64{}, samples...), make([]*float64, gaps)...)
	out = append(out, v)
	return out[max(len(out)-keepPlanned, 0):]
}

// newest returns a copy of what is known of the main pool, and of the others in the order of their names.
func (p *plannerWatch) newest() (*cluster.PlannerView, []cluster.PlannerView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	main := cluster.PlannerView{Mode: p.mode}
	var others []cluster.PlannerView
	for _, pool := range slices.Sorted(maps.Keys(p.pools)) {
		if v := p.pools[pool].view; pool == "" {
			main = v
		} else {
			others = append(others, v)
		}
	}
	return &main, others
}

// viewOfPlanner returns what a report says.
func viewOfPlanner(r planner.Report) cluster.PlannerView {
	ms := func(d time.Duration) *float64 {
		if d <= 0 {
			return nil
		}
		v := float64(d) / float64(time.Millisecond)
		return &v
	}
	d, o := r.Decision, r.Observed
	plan := func(p planner.Plan) cluster.PlannerPlan { return cluster.PlannerPlan(p) }
	reason := func(name string) *float64 {
		if v, ok := d.Number(name); ok {
			return &v
		}
		return nil
	}
	v := cluster.PlannerView{
		Pool: r.Pool, Node: r.Node, Time: d.Time,
		Target:   cluster.PlannerTarget{Goal: string(r.Target.Goal), TTFT: ms(r.Target.TTFT), ITL: ms(r.Target.ITL), Percentile: r.Target.Percentile, Devices: r.Target.Devices},
		Observed: cluster.PlannerFigures{Rate: &o.Rate, TTFT: ms(o.TTFT), ITL: ms(o.ITL)}, Queued: &o.Queued,
		Predicted: cluster.PlannerFigures{Rate: reason(planner.ReasonForecastRate), ISL: reason(planner.ReasonISL), OSL: reason(planner.ReasonOSL)},
		Current:   plan(d.Current), Proposal: plan(d.Proposal), Cause: string(d.Cause), Refusal: string(d.Refusal), Detail: d.Detail, BestEffort: d.BestEffort, Explanation: r.Explanation,
	}
	if o.Finished > 0 {
		v.Observed.ISL, v.Observed.OSL = &o.ISL, &o.OSL
	}
	for _, c := range slices.Backward(r.Changes) {
		v.Orders = append(v.Orders, cluster.PlannerOrder{Time: c.Time, Node: c.Node, Text: c.Words(), Result: c.Outcome()})
	}
	if c := d.Predicted(); c != nil {
		v.Predicted.TTFT, v.Predicted.ITL, v.Predicted.Miss = ms(c.Outcome.TTFT), ms(c.Outcome.ITL), &c.Outcome.Miss
	}
	return v
}

// Teach has the planner go by a measured profile.
func (c *Cluster) Teach(ctx context.Context, t profile.Taught) error {
	b, err := t.Encode()
	if err != nil {
		return err
	}
	if _, err := c.store.Put(ctx, cluster.MeasuredKey(c.Namespace, t.Model), b); err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	return nil
}

// Unteach has the planner forget the measured profile of a model, and reports whether it had one.
func (c *Cluster) Unteach(ctx context.Context, model string) (had bool, err error) {
	key := cluster.MeasuredKey(c.Namespace, model)
	_, err = c.store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err == nil {
		err = c.store.Delete(ctx, key)
	}
	if err != nil {
		return false, fmt.Errorf("delete the profile: %w", err)
	}
	return true, nil
}
