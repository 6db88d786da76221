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
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// Config configures [Run]. All fields are required.
type Config struct {
	Store     store.Store
	Bus       events.Bus
	Namespace string
	Node      string // its name
	// Settings returns the present configuration of the planner, and
	// disagg.max_local_prefill_tokens. Devices 0 stands for those of the cluster's nodes, or for the
	// workers that are assigned where these are more. The error says which settings do not go together.
	Settings func() (cfg planner.Config, maxLocalPrefill int, err error)
	Log      *slog.Logger
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

// loop is a planner at work.
type loop struct {
	cfg     Config
	speed   *Speed
	gather  *Gatherer
	core    *planner.Planner
	settled planner.Config // that core has
	refused string         // error of the newest configuration
	kept    planner.Report
	keptAt  time.Time
	clear   bool // the store has no decision
	watches watches
}

func run(ctx context.Context, cfg Config) error {
	l := &loop{cfg: cfg, speed: NewSpeed()}
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
	for {
		settings, _, _ := cfg.Settings() // step tells the error
		tick := time.NewTimer(min(max(settings.LoadInterval, time.Second), time.Minute))
		select {
		case <-ctx.Done():
			tick.Stop()
			return context.Cause(ctx)
		case <-tick.C:
		}
		l.step(ctx, time.Now())
	}
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

// step observes, decides and tells.
func (l *loop) step(ctx context.Context, now time.Time) {
	settings, maxLocal, wrong := l.cfg.Settings()
	v := l.watches.view()
	v.MaxLocalPrefill = maxLocal
	o := l.gather.Observe(now, v)
	if settings.Mode == planner.ModeOff {
		l.forget(ctx)
		return
	}
	if settings.Devices == 0 {
		settings.Devices = devices(v)
	}
	if !l.configure(settings, wrong) {
		return
	}
	d := l.core.Tick(now, o)
	if d.Refusal == planner.RefusedInsufficientData {
		return // there is nothing to tell yet
	}
	report := planner.NewReport(l.cfg.Node, l.settled, o, d)
	_ = l.cfg.Bus.Publish(ctx, events.Subject(l.cfg.Namespace, cluster.ComponentAgent, cluster.TopicPlanner), report) // lost ones are counted by the bus
	if sameDecision(l.kept.Decision, d) && now.Sub(l.keptAt) < keepEvery {
		return
	}
	write, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	if _, err := store.PutJSON(write, l.cfg.Store, cluster.PlannerKey(l.cfg.Namespace), report); err != nil {
		if ctx.Err() == nil {
			l.cfg.Log.Warn("the planner's decision is not in the store", "error", err)
		}
		return
	}
	if d.Changes() && l.kept.Decision.Proposal != d.Proposal {
		l.cfg.Log.Info("the planner advises a change", "from", d.Current.String(), "to", d.Proposal.String(), "cause", d.Cause)
	}
	l.kept, l.keptAt, l.clear = report, now, false
}

// forget deletes the decision of a planner that is off.
func (l *loop) forget(ctx context.Context) {
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
		l.core, err = planner.New(settings, l.speed, nil)
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
	l.settled, l.refused = settings, ""
	return true
}

// devices returns how many devices the cluster has for workers, or how many workers it has on them where
// these are more: CPU devices take several.
func devices(v View) int {
	have, used := 0, 0
	for _, n := range v.Nodes {
		have += len(n.Devices)
	}
	for _, a := range v.Assignments {
		if a.Role.HoldsKV() && a.Node != "" {
			used++
		}
	}
	return max(have, used, 1)
}

// sameDecision reports whether two decisions say the same but for their numbers.
func sameDecision(a, b planner.Decision) bool {
	return a.Mode == b.Mode && a.Current == b.Current && a.Proposal == b.Proposal && a.Cause == b.Cause && a.Refusal == b.Refusal && a.BestEffort == b.BestEffort
}
