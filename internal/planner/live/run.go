package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// Config configures [Run]. All fields are required.
type Config struct {
	Store     store.Store
	Bus       events.Bus
	Namespace string
	Node      string // its name
	// Settings returns the present settings. The error says which do not go together.
	Settings func() (Settings, error)
	// Kubernetes returns a client of the Kubernetes API, for [ConnectorKubernetes]. It is called once until it succeeds.
	Kubernetes func() (*kube.Client, error)
	// Leads reports whether this node leads: at a moment between its call and its return.
	Leads   func(context.Context) (bool, error)
	Metrics *metrics.Planner // have series while the planner decides
	Log     *slog.Logger
}

// Settings are what the planner of a cluster follows.
type Settings struct {
	// Planner is the configuration. Devices 0 stands for those of the cluster's nodes, or for the workers
	// that are assigned where these are more.
	Planner   planner.Config
	Connector Connector
	Targets   Targets // of ConnectorKubernetes
	// MaxLocalPrefill is disagg.max_local_prefill_tokens.
	MaxLocalPrefill int
	// LeastDelay says that disagg.conditional is least-delay, Threshold that it is threshold: else no plan has another
	// threshold.
	LeastDelay, Threshold bool
}

const (
	// keepEvery is how often the newest decision is written to the store although nothing but its
	// numbers changed.
	keepEvery = time.Minute
	// writeWithin bounds one write.
	writeWithin = 2 * time.Second
	// retryAfter is the pause before the store and the event plane are watched again.
	retryAfter = 2 * time.Second
)

// Run observes and decides until ctx ends, and awaits everything that it started. What it cannot watch now
// it tries again later: it returns only then.
func Run(ctx context.Context, cfg Config) {
	for ctx.Err() == nil {
		if err := run(ctx, cfg); err != nil && ctx.Err() == nil {
			cfg.Log.Warn("the planner observes nothing, will try again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

// executor is what carries decisions out, if the mode is to act.
type executor struct {
	mode      planner.Mode
	connector Connector
	targets   Targets
}

// loop is a planner at work.
type loop struct {
	cfg     Config
	speed   *Speed
	gather  *Gatherer
	core    *planner.Planner
	eval    *evaluator     // of core
	settled planner.Config // that core has
	actor   *actor
	how     executor // of the last good settings
	refused string   // error of the newest configuration
	kept    planner.Report
	keptAt  time.Time
	clear   bool // the store has no decision
	hours   hours
	watches watches
	learned learned
	diary   diary
}

func run(ctx context.Context, cfg Config) error {
	l := &loop{cfg: cfg, speed: NewSpeed(), actor: &actor{cfg: cfg}}
	l.eval = &evaluator{speed: l.speed}
	defer cfg.Metrics.Clear()
	defer l.actor.close()
	l.gather = NewGatherer(time.Now(), l.speed)
	var err error
	l.watches, err = watch(ctx, cfg)
	defer l.watches.close()
	if err != nil {
		return err
	}
	subs, err := l.listen(ctx)
	defer func() {
		for _, s := range subs {
			_ = s.Close() // nobody is called any more
		}
	}()
	if err != nil {
		return err
	}
	if err := l.actor.recall(ctx); err != nil {
		return fmt.Errorf("read what the planner did before: %w", err)
	}
	if err := l.diary.recall(ctx, cfg, time.Now()); err != nil {
		return fmt.Errorf("read the load of earlier days: %w", err)
	}
	tick := time.NewTimer(l.interval())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.watches.assignments.Changed():
			l.gather.Look(time.Now(), l.watches.view())
		case <-l.watches.status.Changed():
			l.gather.Look(time.Now(), l.watches.view())
		case <-tick.C:
			l.step(ctx, time.Now())
			tick.Reset(l.interval())
		}
	}
}

// interval returns the time between two observations.
func (l *loop) interval() time.Duration {
	settings, _ := l.cfg.Settings() // step tells the error
	return min(max(settings.Planner.LoadInterval, time.Second), time.Minute)
}

// listen subscribes to what frontends, workers and the prefill queue tell.
func (l *loop) listen(ctx context.Context) (subs []events.Subscription, err error) {
	for topic, h := range map[string]func(events.Event){
		cluster.TopicFrontendStats: func(e events.Event) {
			l.gather.Lost(e.Missed)
			if f, ok := decode[cluster.FrontendStats](e); ok {
				l.gather.Frontend(time.Now(), f)
			}
		},
		cluster.TopicWorkerStatus: func(e events.Event) {
			if st, ok := decode[cluster.WorkerStatus](e); ok {
				l.gather.Worker(time.Now(), st)
			}
		},
		cluster.TopicQueueDepth: func(e events.Event) {
			if q, ok := decode[cluster.QueueDepth](e); ok {
				l.gather.Queue(q)
			}
		},
	} {
		s, err := l.cfg.Bus.Subscribe(ctx, events.Subject(l.cfg.Namespace, "*", topic), h)
		if err != nil {
			return subs, fmt.Errorf("subscribe to %s: %w", topic, err)
		}
		subs = append(subs, s)
	}
	return subs, nil
}

// decode reads an event. One of another form is of another release: it is left out.
func decode[T any](e events.Event) (v T, ok bool) {
	err := e.Decode(&v)
	return v, err == nil
}

// step observes, decides, acts and tells.
func (l *loop) step(ctx context.Context, now time.Time) {
	settings, wrong := l.cfg.Settings()
	if wrong == nil {
		l.how = executor{settings.Planner.Mode, settings.Connector, settings.Targets}
	}
	if l.core != nil && l.settled.Mode == planner.ModeAct && l.how.mode == planner.ModeAct {
		l.actor.claim(ctx, l.how.connector, l.how.targets)
	}
	v := l.watches.view()
	v.MaxLocalPrefill = settings.MaxLocalPrefill
	o := l.gather.Observe(now, v)
	used := l.hours.add(now, held(v))
	l.learned.actions(o.Finished)
	l.learned.keep(ctx, l.cfg, now, l.speed, v)
	l.actor.see(now, v.Declared)
	if l.how.mode != planner.ModeAct || l.how.connector != ConnectorKubernetes {
		l.actor.release(ctx, v)
	}
	l.actor.look(ctx, now, v, &o)
	if settings.Planner.Mode == planner.ModeOff {
		l.forget(ctx)
		return
	}
	if settings.Planner.Devices == 0 {
		settings.Planner.Devices = devices(v)
	}
	settings.Planner.Thresholds = settings.Planner.Thresholds && settings.Threshold
	if !l.configure(settings.Planner, wrong) {
		return
	}
	l.eval.leastDelay = settings.LeastDelay
	o.Hold = l.actor.hold(now, v, l.settled, l.how.connector)
	d := l.core.Tick(now, o)
	l.diary.keep(ctx, l.cfg, now, l.core)
	l.actor.settle(now, v, o, d.Late)
	if l.settled.Mode == planner.ModeAct {
		plan := l.actor.act(ctx, now, v, d, l.settled, l.how.connector)
		l.actor.follow(ctx, now, v, plan, l.settled)
	}
	report := planner.NewReport(l.cfg.Node, l.settled, o, d)
	report.Changes = l.actor.changes
	l.cfg.Metrics.Update(figuresOf(report, used))
	_ = l.cfg.Bus.Publish(ctx, events.Subject(l.cfg.Namespace, cluster.ComponentAgent, cluster.TopicPlanner), report) // lost ones are counted by the bus
	if !l.actor.untold && (d.Refusal == planner.RefusedInsufficientData || sameDecision(l.kept.Decision, d) && now.Sub(l.keptAt) < keepEvery) {
		return // the store keeps the newest that is a decision, and what was changed
	}
	write, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	if _, err := store.PutJSON(write, l.cfg.Store, cluster.PlannerKey(l.cfg.Namespace), report); err != nil {
		if ctx.Err() == nil {
			l.cfg.Log.Warn("the planner's decision is not in the store", "error", err)
		}
		return
	}
	if d.Changes() && l.kept.Decision.Proposal != d.Proposal && l.settled.Mode == planner.ModeAdvise {
		l.cfg.Log.Info("the planner advises a change", "from", d.Current.String(), "to", d.Proposal.String(), "cause", d.Cause)
	}
	l.kept, l.keptAt, l.clear, l.actor.untold = report, now, false, false
}

// forget deletes the decision of a planner that is off.
func (l *loop) forget(ctx context.Context) {
	l.cfg.Metrics.Clear()
	if l.clear {
		return
	}
	write, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	err := l.cfg.Store.Delete(write, cluster.PlannerKey(l.cfg.Namespace))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return // at the next step
	}
	l.kept, l.keptAt, l.clear = planner.Report{}, time.Time{}, true
}

// configure applies settings. Those that do not go together are told once; the last good ones stay.
func (l *loop) configure(settings planner.Config, wrong error) bool {
	if wrong == nil && l.core != nil && reflect.DeepEqual(settings, l.settled) {
		l.refused = ""
		return true
	}
	err := wrong
	switch {
	case err != nil:
	case l.core == nil:
		if l.core, err = planner.New(settings, l.speed, l.eval); err == nil {
			for _, c := range l.actor.changes {
				l.core.Recall(c)
			}
			l.diary.tell(l.cfg, time.Now(), l.core)
		}
	default:
		err = l.core.Configure(settings)
	}
	if err != nil {
		if err.Error() != l.refused {
			l.refused = err.Error()
			l.cfg.Log.Warn("the planner's settings do not go together, those before stay", "error", err)
		}
		return l.core != nil
	}
	l.settled, l.refused, l.eval.target = settings, "", settings.Target
	return true
}

// devices returns how many devices the cluster has for workers, without those of encode workers and of other pools; or how many
// workers it has on them where these are more: CPU devices take several.
func devices(v View) int {
	have, used, others := 0, 0, 0
	for _, n := range v.Nodes {
		have += len(n.Devices)
	}
	for _, a := range v.Assignments {
		switch {
		case a.Device == "":
		case planned(a):
			used++
		default:
			others++
		}
	}
	return max(have-others, used, 1)
}

// sameDecision reports whether two decisions say the same but for their numbers.
func sameDecision(a, b planner.Decision) bool {
	return a.Mode == b.Mode && a.Current == b.Current && a.Proposal == b.Proposal && a.Cause == b.Cause && a.Refusal == b.Refusal && a.BestEffort == b.BestEffort
}
