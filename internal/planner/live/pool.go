package live

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// pool is one planner at work: for the workers of one pool and the requests of its model.
type pool struct {
	cfg     Config
	unit    unit
	model   string // of the unit; loop.mu guards it
	speed   *Speed
	gather  *Gatherer
	core    *planner.Planner
	eval    *evaluator     // of core
	settled planner.Config // that core has
	orders  *orders
	refused string // error of the newest configuration
	kept    planner.Report
	keptAt  time.Time
	clear   bool // the store has no decision
	hours   hours
	used    float64 // of hours
	learned learned
	diary   diary

	view View // of the step
	seen planner.Observation
}

// begin begins to observe a pool, with what the leaders before knew of it.
func (l *loop) begin(now time.Time, u unit) *pool {
	p := &pool{cfg: l.cfg, unit: u, speed: NewSpeed(), orders: &orders{actor: l.actor, pool: u.pool}}
	p.eval = &evaluator{speed: p.speed}
	p.gather = NewGatherer(now, p.speed)
	p.orders.changes = l.kept[u.pool].Changes
	if kv, known := l.days[u.pool]; known && len(kv.Value) > 0 {
		p.diary.recall(l.cfg, kv, now)
	}
	delete(l.kept, u.pool)
	delete(l.days, u.pool)
	return p
}

// observe takes in the window that has ended.
func (p *pool) observe(ctx context.Context, now time.Time, v View) {
	p.view = v.of(p.unit)
	p.speed.measure(nil)
	if t, there := v.Measured[p.unit.model]; there {
		p.speed.measure(&t)
	}
	p.seen = p.gather.Observe(now, p.view)
	if engine := p.view.external(); p.seen.Unknown != "" && engine != "" {
		p.seen.Unknown = fmt.Sprintf("Servers of %s do not tell what their steps cost, so that nothing can be predicted for them before dynctl profile --teach", engine)
	}
	p.used = p.hours.add(now, held(p.view))
	p.learned.actions(p.seen.Finished)
	if p.unit.pool == "" {
		p.learned.keep(ctx, p.cfg, now, p.speed, p.view)
	}
	p.orders.see(now, p.view.Declared)
}

// tell tells a decision to whoever listens, and has the store keep it where it is news.
func (p *pool) tell(ctx context.Context, now time.Time, d planner.Decision) {
	report := planner.NewReport(p.cfg.Node, p.settled, p.seen, d)
	report.Pool, report.Model, report.Beside, report.Changes = p.unit.pool, p.unit.model, p.view.beside(p.seen), p.orders.changes
	if p.speed.taught() {
		report.Measured = p.speed.measured.Time
	}
	p.cfg.Metrics.Update(p.unit.pool, figuresOf(report, p.used))
	_ = p.cfg.Bus.Publish(ctx, events.Subject(p.cfg.Namespace, cluster.ComponentAgent, cluster.TopicPlanner), report) // lost ones are counted by the bus
	if !p.orders.untold && (d.Refusal == planner.RefusedInsufficientData || sameDecision(p.kept.Decision, d) && now.Sub(p.keptAt) < keepEvery) {
		return // the store keeps the newest that is a decision, and what was changed
	}
	write, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	if _, err := store.PutJSON(write, p.cfg.Store, cluster.PlannerKey(p.cfg.Namespace, p.unit.pool), report); err != nil {
		if ctx.Err() == nil {
			p.cfg.Log.Warn("the planner's decision is not in the store", "pool", p.unit.pool, "error", err)
		}
		return
	}
	if d.Changes() && p.kept.Decision.Proposal != d.Proposal && p.settled.Mode == planner.ModeAdvise {
		p.cfg.Log.Info("the planner advises a change", "pool", p.unit.pool, "from", d.Current.String(), "to", d.Proposal.String(), "cause", d.Cause)
	}
	p.kept, p.keptAt, p.clear, p.orders.untold = report, now, false, false
}

// forget deletes the decision of a planner that is off.
func (p *pool) forget(ctx context.Context) {
	p.cfg.Metrics.Forget(p.unit.pool)
	if p.clear {
		return
	}
	write, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	err := p.cfg.Store.Delete(write, cluster.PlannerKey(p.cfg.Namespace, p.unit.pool))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return // at the next step
	}
	p.kept, p.keptAt, p.clear = planner.Report{}, time.Time{}, true
}

// configure applies settings. Those that do not go together are told once; the last good ones stay.
func (p *pool) configure(now time.Time, settings planner.Config, wrong error) bool {
	if wrong == nil && p.core != nil && reflect.DeepEqual(settings, p.settled) {
		p.refused = ""
		return true
	}
	err := wrong
	switch {
	case err != nil:
	case p.core == nil:
		if p.core, err = planner.New(settings, p.speed, p.eval); err == nil {
			for _, c := range p.orders.changes {
				p.core.Recall(c)
			}
			p.diary.tell(p.cfg, now, p.core)
		}
	default:
		err = p.core.Configure(settings)
	}
	if err != nil {
		if err.Error() != p.refused {
			p.refused = err.Error()
			p.cfg.Log.Warn("the planner's settings do not go together, those before stay", "pool", p.unit.pool, "error", err)
		}
		return p.core != nil
	}
	p.settled, p.refused, p.eval.target = settings, "", settings.Target
	return true
}

// sameDecision reports whether two decisions say the same but for their numbers.
func sameDecision(a, b planner.Decision) bool {
	return a.Mode == b.Mode && a.Current == b.Current && a.Proposal == b.Proposal && a.Cause == b.Cause && a.Refusal == b.Refusal && a.BestEffort == b.BestEffort
}
