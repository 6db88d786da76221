package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/store"
)

// LiveOptions configure a live source.
type LiveOptions struct {
	Interval time.Duration // between snapshots; default one second
	ReadOnly string        // why actions are refused; empty allows them
	Inspect  string        // worker whose activity the snapshots hold; see [Source]
}

// Live is a [Source] over a running cluster: it watches the store, listens to the
// event plane and makes a snapshot every interval.
type Live struct {
	c    *Cluster
	opts LiveOptions

	out      chan cluster.Snapshot // capacity 1: the newest
	interval chan time.Duration
	inspect  chan string // capacity 1: the newest
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	watch *Watch
	bus   *events.NATS // nil without an event plane
	queue *events.JetStreamQueue
	tally *tally
	known cachesWatch
	plan  plannerWatch

	// Only run uses these, for one snapshot after the other.
	etcd   reach
	nats   reach
	lease  leases
	leader string // last known
	looked string // worker whose activity the snapshots hold
	polled bool   // the workers were asked at the beginning
}

var _ Source = (*Live)(nil)

// Live starts a live source. Close ends it.
func (c *Cluster) Live(ctx context.Context, opts LiveOptions) (*Live, error) {
	if opts.Interval <= 0 {
		opts.Interval = time.Second
	}
	l := &Live{
		c: c, opts: opts, out: make(chan cluster.Snapshot, 1), interval: make(chan time.Duration, 1),
		inspect: make(chan string, 1), looked: opts.Inspect, tally: newTally(), lease: leases{},
	}
	var err error
	if l.watch, err = c.Watch(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	if l.bus, err = c.Bus(); err != nil {
		l.watch.Close()
		return nil, err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l.cancel = cancel
	if l.bus != nil {
		if err := l.listen(run); err != nil {
			_ = l.Close() // err says what failed
			return nil, err
		}
	}
	l.wg.Go(func() { l.run(run) })
	return l, nil
}

// listen subscribes to the event plane and feeds the tally.
func (l *Live) listen(ctx context.Context) error {
	on := func(component, topic string, h func(events.Event)) error {
		_, err := l.bus.Subscribe(ctx, events.Subject(l.c.Namespace, component, topic), h)
		return err
	}
	queue, err := l.bus.WorkQueue(l.c.Namespace, events.QueueConfig{})
	if err != nil {
		return err
	}
	l.queue = queue
	return errors.Join(
		on("*", cluster.TopicKVEvents, l.tally.kvEvent),
		on("*", cluster.TopicWorkerStatus, l.tally.workerStatus),
		on("*", cluster.TopicRouterDecisions, l.tally.decision),
		on("*", cluster.TopicFrontendStats, l.tally.frontend),
		on("*", cluster.TopicTopology, l.tally.action),
		on("*", cluster.TopicNodeStats, l.tally.nodeStats),
		on("*", cluster.TopicPlanner, l.plan.heard),
	)
}

// Snapshots implements Source.
func (l *Live) Snapshots() <-chan cluster.Snapshot { return l.out }

// SetInterval implements Source. An interval that is not positive is ignored.
func (l *Live) SetInterval(d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-l.interval:
	default:
	}
	select {
	case l.interval <- d:
	default:
	}
}

// Inspect implements Source.
func (l *Live) Inspect(worker string) {
	select {
	case <-l.inspect:
	default:
	}
	select {
	case l.inspect <- worker:
	default:
	}
}

// ReadOnly implements Source.
func (l *Live) ReadOnly() string { return l.opts.ReadOnly }

// Log implements Source.
func (l *Live) Log(ctx context.Context, name string, tail int, write func([]byte) error) error {
	v := l.watch.View()
	o, node, known := LogOptions{Worker: name, Tail: tail, Follow: true}, v.Status[name].Node, false
	if a, ok := v.Assignments[name]; ok {
		node, known = a.Node, true
	}
	for _, n := range v.Nodes {
		if !known && node == "" && (n.Name == name || n.ID == name) {
			o.Worker, node = "", n.ID
		}
	}
	switch {
	case node == "" && known:
		return fmt.Errorf("%s runs on no node", name)
	case node == "":
		return fmt.Errorf("%w: nothing is called %s in cluster %s", ErrNoWorker, name, l.c.Name)
	}
	return l.c.Logs(ctx, v, node, o, write)
}

// Act implements Source.
func (l *Live) Act(ctx context.Context, a Action) error {
	if l.opts.ReadOnly != "" {
		return errors.New(l.opts.ReadOnly)
	}
	switch a.Kind {
	case ActDrain:
		var deadline time.Time
		if a.Deadline > 0 {
			deadline = time.Now().Add(a.Deadline)
		}
		return l.c.Drain(ctx, a.Worker, deadline, false)
	case ActResume:
		return l.c.Resume(ctx, a.Worker)
	case ActRestart:
		_, err := l.c.Restart(ctx, a.Worker)
		return err
	case ActRestartAll:
		_, err := l.c.RestartAll(ctx, cluster.Rollout{})
		return err
	case ActScale:
		_, err := l.c.Scale(ctx, a.Pool, a.Workers, "dynctl top: "+a.Text())
		return err
	case ActSet:
		name, value, err := EncodeSetting(a.Setting, a.Value)
		if err != nil {
			return err
		}
		return l.c.PutSetting(ctx, name, value)
	}
	return errors.New("unknown action " + string(a.Kind))
}

// Close implements Source.
func (l *Live) Close() error {
	if l.cancel != nil {
		l.cancel()
	}
	l.wg.Wait()
	l.watch.Close()
	if l.bus != nil {
		return l.bus.Close()
	}
	return nil
}

// run makes snapshots until ctx ends.
func (l *Live) run(ctx context.Context) {
	defer close(l.out)
	tick := time.NewTicker(l.opts.Interval)
	defer tick.Stop()
	for {
		s := l.snapshot(ctx)
		select {
		case <-l.out: // replaces an older snapshot that was not read
		default:
		}
		select {
		case l.out <- s:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case d := <-l.interval:
			tick.Reset(d)
		case l.looked = <-l.inspect: // makes a new snapshot at once
		case <-ctx.Done():
			return
		}
	}
}

// probeTimeout limits each query that a snapshot sends to a store.
const probeTimeout = time.Second

// reach records whether a store answers.
type reach struct {
	ok  bool
	rtt time.Duration
	err string
}

func (r *reach) probe(ctx context.Context, ping func(context.Context) (time.Duration, error)) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	rtt, err := ping(ctx)
	r.ok, r.rtt, r.err = err == nil, rtt, ""
	if err != nil {
		r.err = err.Error()
	}
}

// snapshot combines everything that is known now.
func (l *Live) snapshot(ctx context.Context) cluster.Snapshot {
	var wg sync.WaitGroup
	var depth *events.Depth
	var queued []cluster.QueuedPrefill
	var activity *cluster.Activity
	if l.looked != "" {
		wg.Go(func() {
			a := l.c.Activity(ctx, l.watch.View(), l.looked)
			activity = &a
		})
	}
	view := l.watch.View()
	first := !l.polled
	if first {
		// The store's statuses may be a minute old: who does not answer is not shown as it was.
		l.polled = true
		wg.Go(func() { l.pollStats(ctx, view) })
	}
	wg.Go(func() { l.etcd.probe(ctx, l.c.store.Ping) })
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		switch leader, err := store.Leader(ctx, l.c.store, cluster.ElectionPrefix(l.c.Namespace)); {
		case err == nil:
			l.leader = leader
		case errors.Is(err, store.ErrNotFound):
			l.leader = "" // there is no leader; without an answer the last one is kept
		}
		l.plan.refresh(ctx, l.c, view, l.leader)
	})
	if l.bus != nil {
		wg.Go(func() { l.nats.probe(ctx, l.bus.Ping) })
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, probeTimeout)
			defer cancel()
			if d, err := l.queue.Depth(ctx); err == nil {
				depth = &d
				if d.Pending+d.InWork > 0 {
					queued = l.peek(ctx)
				}
			}
		})
	}
	l.known.refresh(ctx, &l.wg, l.c, view)
	l.lease.refresh(ctx, l.c.store, view)
	wg.Wait()
	if !l.nats.ok && !first {
		l.pollStats(ctx, view)
	}

	now := time.Now()
	s := cluster.Snapshot{
		Time: now, Cluster: l.c.Name, Topology: view.Topology, Leader: l.leader,
		Fresh: cluster.Freshness{
			EtcdOK: l.etcd.ok, EtcdRTT: l.etcd.rtt, EtcdErr: l.etcd.err,
			NATSOK: l.nats.ok, NATSRTT: l.nats.rtt, NATSErr: l.nats.err,
		},
	}
	if s.Fresh.Store, _ = l.c.StoreKind(); s.Fresh.Store == StoreNATS {
		s.Fresh.Store = "bucket" // beside NATS itself
	}
	if since, next, _ := l.watch.Stale(); !since.IsZero() {
		s.Fresh.StaleSince, s.Fresh.NextAttempt = since, next
	}
	l.tally.fill(&s, view, depth, now)
	s.Queue.Messages, s.Activity = queued, activity
	s.Caches = l.known.caches(s.Workers, l.tally, l.nats.ok)
	s.Planner, s.PlannerPools = l.plan.newest()
	for i := range s.Workers {
		w := &s.Workers[i]
		if left, ok := l.lease.left(w.InstanceID, now); ok {
			w.Lease = &left
		}
		w.Node = view.NodeName(w.Node)
	}
	s.Leases = l.lease.list(view, now)
	s.Notices = notices(s, l.bus == nil)
	return s
}

// peek returns the oldest messages of the prefill queue; none when the queue does not
// answer.
func (l *Live) peek(ctx context.Context) []cluster.QueuedPrefill {
	messages, _ := l.queue.Peek(ctx, cluster.MaxQueued)
	var out []cluster.QueuedPrefill
	for _, m := range messages {
		q := cluster.QueuedPrefill{RequestID: m.ID, EnqueuedAt: m.StoredAt, InWork: m.InWork}
		var req protocol.RemotePrefillRequest
		if protocol.Unmarshal(m.Body, &req) == nil && req.RequestID != "" {
			q.RequestID, q.Worker, q.PromptTokens, q.Deadline = req.RequestID, req.Worker, len(req.TokenIDs), req.Deadline
			q.Blocks = max(len(req.BlockIDs)-req.ComputedBlocks, 0)
			q.Bytes = int64(q.Blocks) * max(req.BlockBytes, 0)
		}
		out = append(out, q)
	}
	return out
}

// pollStats asks workers and nodes directly: at the beginning, and while the event plane
// delivers nothing.
func (l *Live) pollStats(ctx context.Context, view View) {
	var wg sync.WaitGroup
	var nodes map[string]cluster.GPUReport
	wg.Go(func() { nodes = l.c.askNodes(ctx, view) })
	l.tally.stored(view)
	asked := time.Now()
	stats, mute := l.c.askStats(ctx, view)
	l.tally.polled(asked, stats, mute)
	wg.Wait()
	for id, r := range nodes {
		l.tally.node(id, r)
	}
}
