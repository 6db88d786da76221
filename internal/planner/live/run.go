package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
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

// loop is the planners at work, one for each pool.
type loop struct {
	cfg     Config
	actor   *actor
	how     executor // of the last good settings
	watches watches
	kept    map[string]planner.Report // that the store had at the beginning, by pool, and has of pools that went
	days    map[string]store.KV       // the same of their loads

	mu    sync.Mutex // events come while the loop decides
	pools []*pool    // in the order of units
}

func run(ctx context.Context, cfg Config) error {
	l := &loop{cfg: cfg, actor: &actor{cfg: cfg}}
	defer cfg.Metrics.Clear()
	defer l.actor.close()
	var err error
	l.watches, err = watch(ctx, cfg)
	defer l.watches.close()
	if err != nil {
		return err
	}
	if err := l.recall(ctx); err != nil {
		return err
	}
	l.meet(time.Now(), l.watches.view())
	subs, err := l.listen(ctx)
	defer func() {
		for _, s := range subs {
			_ = s.Close() // nobody is called any more
		}
	}()
	if err != nil {
		return err
	}
	tick := time.NewTimer(l.interval())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.watches.assignments.Changed():
			l.look(time.Now())
		case <-l.watches.status.Changed():
			l.look(time.Now())
		case <-tick.C:
			l.step(ctx, time.Now())
			tick.Reset(l.interval())
		}
	}
}

// look has all pools see which actions have begun or ended.
func (l *loop) look(now time.Time) {
	v := l.watches.view()
	for _, p := range l.pools {
		p.gather.Look(now, v.of(p.unit))
	}
}

// recall reads what the leaders before told of the pools, and what they knew of the load of earlier days.
func (l *loop) recall(ctx context.Context) error {
	l.kept, l.days = map[string]planner.Report{}, map[string]store.KV{}
	prefix := cluster.PlannerPrefix(l.cfg.Namespace)
	told, _, err := l.cfg.Store.List(ctx, prefix)
	if err != nil {
		return fmt.Errorf("read what the planner did before: %w", err)
	}
	for _, kv := range told {
		r, err := store.DecodeJSON[planner.Report](kv)
		if err != nil {
			return fmt.Errorf("read what the planner did before: %w", err)
		}
		l.kept[cluster.PoolOf(kv.Key, prefix)] = r
	}
	prefix = cluster.DaysPrefix(l.cfg.Namespace)
	days, _, err := l.cfg.Store.List(ctx, prefix)
	if err != nil {
		return fmt.Errorf("read the load of earlier days: %w", err)
	}
	for _, kv := range days {
		l.days[cluster.PoolOf(kv.Key, prefix)] = kv
	}
	return nil
}

// meet makes the pools those that are declared. Those that stay keep all that they know.
func (l *loop) meet(now time.Time, v View) {
	if v.Stale != "" && len(l.pools) > 0 {
		return
	}
	var pools []*pool
	for _, u := range units(v.Declared) {
		i := slices.IndexFunc(l.pools, func(p *pool) bool { return p.unit.pool == u.pool })
		if i < 0 {
			pools = append(pools, l.begin(now, u))
			continue
		}
		l.pools[i].unit = u
		pools = append(pools, l.pools[i])
	}
	for _, p := range l.pools {
		if !slices.Contains(pools, p) {
			l.kept[p.unit.pool], l.days[p.unit.pool] = p.kept, store.KV{}
			l.cfg.Metrics.Forget(p.unit.pool)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pools = pools
	for _, p := range pools {
		p.model = p.unit.model
	}
}

// clean deletes what the store has of pools that are no more.
func (l *loop) clean(ctx context.Context, v View) {
	if v.Stale != "" || v.Declared == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	remove := func(name, key string) bool {
		if slices.ContainsFunc(l.pools, func(p *pool) bool { return p.unit.pool == name }) {
			return true
		}
		err := l.cfg.Store.Delete(ctx, key)
		return err == nil || errors.Is(err, store.ErrNotFound)
	}
	maps.DeleteFunc(l.kept, func(name string, _ planner.Report) bool {
		return remove(name, cluster.PlannerKey(l.cfg.Namespace, name))
	})
	maps.DeleteFunc(l.days, func(name string, _ store.KV) bool { return remove(name, cluster.DaysKey(l.cfg.Namespace, name)) })
}

// interval returns the time between two observations.
func (l *loop) interval() time.Duration {
	settings, _ := l.cfg.Settings() // step tells the error
	return min(max(settings.Planner.LoadInterval, time.Second), time.Minute)
}

// listen subscribes to what frontends, workers and the prefill queue tell.
func (l *loop) listen(ctx context.Context) (subs []events.Subscription, err error) {
	each := func(tell func(p *pool)) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, p := range l.pools {
			tell(p)
		}
	}
	for topic, h := range map[string]func(events.Event){
		cluster.TopicFrontendStats: func(e events.Event) {
			f, ok := decode[cluster.FrontendStats](e)
			each(func(p *pool) {
				p.gather.Lost(e.Missed)
				if ok {
					p.gather.Frontend(time.Now(), f, p.model)
				}
			})
		},
		cluster.TopicWorkerStatus: func(e events.Event) {
			if st, ok := decode[cluster.WorkerStatus](e); ok {
				each(func(p *pool) { p.gather.Worker(time.Now(), st) })
			}
		},
		cluster.TopicQueueDepth: func(e events.Event) {
			if q, ok := decode[cluster.QueueDepth](e); ok {
				each(func(p *pool) { p.gather.Queue(q) })
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

// step observes, decides, acts and tells, for all pools.
func (l *loop) step(ctx context.Context, now time.Time) {
	settings, wrong := l.cfg.Settings()
	if wrong == nil {
		l.how = executor{settings.Planner.Mode, settings.Connector, settings.Targets}
	}
	if l.how.mode == planner.ModeAct && slices.ContainsFunc(l.pools, func(p *pool) bool { return p.core != nil && p.settled.Mode == planner.ModeAct }) {
		l.actor.claim(ctx, l.how.connector, l.how.targets)
	}
	v := l.watches.view()
	v.MaxLocalPrefill = settings.MaxLocalPrefill
	l.meet(now, v)
	l.clean(ctx, v)
	for _, p := range l.pools {
		p.observe(ctx, now, v)
	}
	if l.how.mode != planner.ModeAct || l.how.connector != ConnectorKubernetes {
		l.actor.release(ctx, v)
	}
	l.actor.look(ctx, now, v, l.changing())
	if settings.Planner.Mode == planner.ModeOff {
		for _, p := range l.pools {
			p.forget(ctx)
		}
		return
	}
	if settings.Planner.Devices == 0 {
		settings.Planner.Devices = devices(v)
	}
	settings.Planner.Thresholds = settings.Planner.Thresholds && settings.Threshold && len(l.pools) == 1 // the setting is that of all pools
	budget := planner.Budget{Devices: settings.Planner.Devices, Prefill: settings.Planner.Prefill.Devices, Decode: settings.Planner.Decode.Devices}
	var seats []planner.Seat
	var ready []*pool
	for _, p := range l.pools {
		if !p.configure(now, p.unit.fit(settings.Planner, p.view.Declared), wrong) {
			budget.Devices -= held(p.view) // it keeps what it has
			continue
		}
		p.eval.leastDelay = settings.LeastDelay
		p.seen.Hold = p.orders.hold(now, p.view, p.settled, l.how.connector)
		if p.settled.Mode == planner.ModeOff {
			p.seen.Hold = planner.Hold{Why: p.unit.plansFor()}
		}
		ready, seats = append(ready, p), append(seats, planner.Seat{Pool: p.unit.pool, Planner: p.core, Observation: p.seen})
	}
	if len(seats) == 0 {
		return
	}
	declared := v.Declared
	for i, d := range planner.Share(now, budget, seats) {
		p := ready[i]
		p.view.Declared = declared.in(p.unit.pool) // with what the pools before have written
		p.diary.keep(ctx, l.cfg, p.unit.pool, now, p.core)
		p.orders.settle(now, p.view, p.seen, d.Late)
		if p.settled.Mode == planner.ModeAct {
			declared = p.orders.act(ctx, now, p.view, d, p.view.beside(p.seen), p.settled, l.how.connector)
		}
		p.tell(ctx, now, d)
	}
	if l.how.mode == planner.ModeAct {
		v.Declared = declared
		l.actor.follow(ctx, now, v, settings.Planner)
	}
}

// changing returns the pool whose change is the newest, the first one if there is none: what pods do is of it.
func (l *loop) changing() *pool {
	return slices.MaxFunc(l.pools, func(a, b *pool) int {
		at := func(p *pool) time.Time {
			if n := len(p.orders.changes); n > 0 {
				return p.orders.changes[n-1].Time
			}
			return time.Time{}
		}
		return at(a).Compare(at(b))
	})
}

// devices returns how many devices the cluster has for workers, without those of encode workers and of workers whose pool
// is no more; or how many workers it has on them where these are more: CPU devices take several.
func devices(v View) int {
	pools := []string{""}
	if v.Declared != nil {
		pools = v.Declared.whole.PoolNames()
	}
	have, used, others := 0, 0, 0
	for _, n := range v.Nodes {
		have += len(n.Devices)
	}
	for _, a := range v.Assignments {
		switch {
		case a.Device == "":
		case a.Role.HoldsKV() && slices.Contains(pools, a.Pool):
			used++
		default:
			others++
		}
	}
	return max(have-others, used, 1)
}
