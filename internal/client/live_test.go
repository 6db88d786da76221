package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/store"
)

// tick is the interval of snapshots in these tests.
const tick = 30 * time.Millisecond

// live starts a source that ends with the test.
func live(t *testing.T, c *Cluster, o LiveOptions) *Live {
	t.Helper()
	if o.Interval == 0 {
		o.Interval = tick
	}
	l, err := c.Live(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// until waits for a snapshot that fits.
func until(t *testing.T, l *Live, what string, cond func(s cluster.Snapshot) bool) cluster.Snapshot {
	t.Helper()
	deadline := time.After(time.Minute)
	var last cluster.Snapshot
	for {
		select {
		case s, ok := <-l.Snapshots():
			if !ok {
				t.Fatalf("the source ended before: %s", what)
			}
			if cond(s) {
				return s
			}
			last = s
		case <-deadline:
			t.Fatalf("never: %s; last snapshot %+v", what, last)
		}
	}
}

// scene puts a small cluster into the store: a node, a decode worker that answers
// stats over the request plane, and an election.
type scene struct {
	c       *Cluster
	bus     *events.NATS // nil without NATS
	node    cluster.InstanceID
	worker  cluster.InstanceID
	polled  atomic.Int64 // how often the worker was asked
	running atomic.Int64 // what it answers
}

func newScene(t *testing.T, s *servers) *scene {
	t.Helper()
	c := s.connect()
	sc := &scene{c: c, node: grant(t, c, time.Minute), worker: grant(t, c, time.Minute)}
	if s.nats != nil {
		bus, err := c.Bus()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = bus.Close() })
		sc.bus = bus
	}
	srv, err := requestplane.ListenTCP(requestplane.ServerConfig{Key: testSecret.key, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	_, err = srv.Handle("1/stats", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		sc.polled.Add(1)
		st := sc.status()
		st.Stats.Running = int(sc.running.Load())
		return send(st)
	})
	if err != nil {
		t.Fatal(err)
	}
	put(t, c, cluster.TopologyKey(s.namespace), cluster.Topology{Model: tiny, Decode: 1, Generation: 1}, 0)
	put(t, c, cluster.NodeKey("id-1"), cluster.Node{ID: "id-1", Name: "node-1", InstanceID: sc.node, Namespace: s.namespace}, sc.node)
	if _, err := c.store.Put(t.Context(), cluster.ElectionPrefix(s.namespace)+"/"+sc.node.String(), []byte("node-1"), store.WithLease(sc.node)); err != nil {
		t.Fatal(err)
	}
	assign(t, c, cluster.Assignment{Name: "worker-1", Role: cluster.RoleDecode, Node: "id-1", Device: "cpu:0", Desire: cluster.DesireRun, Generation: 1})
	put(t, c, cluster.StatusKey(s.namespace, "worker-1"), sc.status(), sc.worker)
	inst := cluster.Instance{
		Type: cluster.InstanceType, Namespace: s.namespace, Component: "decode", Endpoint: cluster.EndpointStats, InstanceID: sc.worker,
		Transport: cluster.Transport{TCP: srv.Addr() + "/1/stats"}, Worker: "worker-1", Node: "id-1",
	}
	put(t, c, inst.Key(), inst, sc.worker)
	return sc
}

func (sc *scene) status() cluster.WorkerStatus {
	return cluster.WorkerStatus{
		Name: "worker-1", Role: cluster.RoleDecode, Model: "tiny", Node: "id-1", Device: "cpu:0", State: cluster.StateReady,
		InstanceID: sc.worker, LeaseTTLMS: 60000, StartedAt: time.Now().Add(-time.Minute), UpdatedAt: time.Now(), Generation: 1,
	}
}

// publish sends an event as a part of the cluster would.
func (sc *scene) publish(t *testing.T, component, topic string, v any) {
	t.Helper()
	if err := sc.bus.Publish(t.Context(), events.Subject(sc.c.Namespace, component, topic), v); err != nil {
		t.Errorf("publish %s: %v", topic, err)
	}
}

func TestLive(t *testing.T) {
	s := startServers(t)
	sc := newScene(t, s)
	q, err := sc.bus.WorkQueue(s.namespace, events.QueueConfig{})
	if err != nil {
		t.Fatal(err)
	}
	l := live(t, s.connect(), LiveOptions{})
	first := until(t, l, "the store is read", func(s cluster.Snapshot) bool {
		return len(s.Workers) == 1 && s.Fresh.EtcdOK && s.Fresh.NATSOK && s.Leader == "node-1" && s.Workers[0].Lease != nil && s.Queue.Prefill != nil
	})
	w := first.Workers[0]
	if w.State != cluster.StateReady || w.Node != "node-1" || w.Desire != cluster.DesireRun || *w.Lease <= 0 || *w.Lease > time.Minute || w.Uptime == nil {
		t.Errorf("worker %+v", w)
	}
	if first.Cluster != "test" || first.Topology.Decode != 1 || len(first.Nodes) != 1 || len(first.Leases) != 2 || !first.Fresh.Live() || len(first.Notices) != 0 {
		t.Errorf("snapshot %+v", first)
	}

	// Events of all kinds, more of each until they show: a subscription may take a
	// moment to reach the server.
	req, err := protocol.Marshal(protocol.RemotePrefillRequest{RequestID: "r2", Worker: "worker-1", TokenIDs: make([]uint32, 99), BlockIDs: make([]int32, 7), ComputedBlocks: 2, BlockBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(q.Enqueue(t.Context(), "m1", []byte("x")), q.Enqueue(t.Context(), "m2", req)); err != nil {
		t.Fatal(err)
	}
	id := uint64(0)
	stop := make(chan struct{})
	published := make(chan struct{})
	go func() {
		defer close(published)
		for {
			st := sc.status()
			st.Stats = cluster.WorkerStats{Running: 3, Waiting: 2, StepsTotal: id, GeneratedTotal: 100 * id, KVTotal: 64}
			sc.publish(t, "decode", cluster.TopicWorkerStatus, st)
			sc.publish(t, "decode", cluster.TopicKVEvents, cluster.KVEvent{WorkerID: sc.worker, Worker: "worker-1", EventID: id, Kind: cluster.KVStored, Count: 1, Time: time.Now()})
			sc.publish(t, "frontend", cluster.TopicRouterDecisions, cluster.RouterDecision{RequestID: "r1", Phase: cluster.RoleDecode, Chosen: "worker-1", Time: time.Now()})
			f := cluster.FrontendStats{Frontend: "node-1", InstanceID: sc.node, InFlight: 4, Finished: 1}
			f.TTFT.Observe(80 * time.Millisecond)
			sc.publish(t, "frontend", cluster.TopicFrontendStats, f)
			sc.publish(t, cluster.ComponentAgent, cluster.TopicPlanner, plannerReport("node-1", time.Now(), planner.CauseForecast, 1, 2))
			id++
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	got := until(t, l, "events of all kinds arrive", func(s cluster.Snapshot) bool {
		return len(s.Events) > 0 && len(s.Decisions) > 0 && s.Latency.TTFT.P50 != nil && s.Queue.InFlight != nil && s.Workers[0].Stats.Running == 3 &&
			s.Workers[0].TokS != nil && s.KVEventRate != nil && *s.KVEventRate > 0 && *s.Queue.Prefill == 2 && len(s.Queue.Messages) == 2 && s.Planner.Proposes()
	})
	close(stop)
	<-published
	if m := got.Queue.Messages; m[0].RequestID != "m1" || m[0].Worker != "" || m[1].RequestID != "r2" || m[1].PromptTokens != 99 || m[1].Blocks != 5 || m[1].Bytes != 5000 || m[1].InWork || time.Since(m[1].EnqueuedAt) > time.Hour {
		t.Errorf("messages %+v", m)
	}
	if got.Workers[0].Busy == nil {
		t.Error("the use of the engine is not known")
	}
	for _, l := range got.Leases {
		if (l.Owner == "worker-1") != slices.Equal(l.Endpoints, []string{"decode/stats"}) {
			t.Errorf("lease %+v", l)
		}
	}
	if p := *got.Latency.TTFT.P50; p < 70 || p > 90 {
		t.Errorf("ttft p50 %v ms, want 80", p)
	}
	if len(got.Decisions) != 1 || *got.Queue.InFlight != 4 || *got.Queue.Waiting != 2 || got.KVEventGaps != 0 || *got.KVEventLag > 10*time.Second {
		t.Errorf("queue %+v, decisions %+v, gaps %d, lag %s", got.Queue, got.Decisions, got.KVEventGaps, got.KVEventLag)
	}
	if sc.polled.Load() > 0 && len(got.Notices) > 0 {
		t.Errorf("the worker was polled %d times although events arrive; notices %q", sc.polled.Load(), got.Notices)
	}
}

// A worker that does not answer at the beginning is not shown as the store has it, until it
// speaks.
func TestLiveAsksAtTheBeginning(t *testing.T) {
	s := startServers(t)
	sc := newScene(t, s)
	id := grant(t, sc.c, time.Minute)
	mute := sc.status()
	mute.Name, mute.InstanceID = "worker-2", id
	put(t, sc.c, cluster.StatusKey(s.namespace, mute.Name), mute, id)
	plane(t, sc.c, "decode", cluster.EndpointStats, "id-1", mute.Name, id, func(ctx context.Context, _ *requestplane.Request, _ func(any) error) error {
		<-ctx.Done()
		return ctx.Err()
	})
	l := live(t, s.connect(), LiveOptions{})
	silent := func(s cluster.Snapshot) (one, two bool) {
		if len(s.Workers) != 2 {
			t.Fatalf("workers %+v", s.Workers)
		}
		return s.Workers[0].Silent(), s.Workers[1].Silent()
	}
	for n := range 2 { // the second is the one that top prints
		if one, two := silent(until(t, l, "a snapshot", func(cluster.Snapshot) bool { return true })); one || !two {
			t.Errorf("sample %d: silent %t %t, want only the second", n, one, two)
		}
	}
	until(t, l, "an event shows that it lives", func(s cluster.Snapshot) bool {
		mute.UpdatedAt = time.Now()
		sc.publish(t, "decode", cluster.TopicWorkerStatus, mute)
		_, two := silent(s)
		return !two
	})
	if got := sc.polled.Load(); got != 1 {
		t.Errorf("the first worker was asked %d times, want once", got)
	}
}

// Without NATS the workers are asked themselves, and the snapshot says so; when it
// is back, events count again.
func TestLiveWithoutNATS(t *testing.T) {
	s := startServers(t)
	sc := newScene(t, s)
	l := live(t, s.connect(), LiveOptions{})
	until(t, l, "NATS answers", func(s cluster.Snapshot) bool { return s.Fresh.NATSOK })
	s.stopNATS()
	sc.running.Store(5)
	down := until(t, l, "load is polled", func(s cluster.Snapshot) bool {
		return !s.Fresh.NATSOK && len(s.Workers) == 1 && s.Workers[0].Stats.Running == 5
	})
	if down.Fresh.NATSErr == "" || !down.Fresh.EtcdOK || len(down.Notices) == 0 || !strings.Contains(down.Notices[0], "nats unreachable") || down.Queue.Prefill != nil {
		t.Errorf("freshness %+v, notices %q, depth %v", down.Fresh, down.Notices, down.Queue.Prefill)
	}
	sc.running.Store(6)
	until(t, l, "load goes on being polled", func(s cluster.Snapshot) bool { return s.Workers[0].Stats.Running == 6 })
	s.startNATS()
	until(t, l, "NATS is back", func(s cluster.Snapshot) bool {
		return s.Fresh.NATSOK && s.Queue.Prefill != nil && len(s.Notices) == 0
	})
}

// A cluster whose NATS nobody knows is watched too.
func TestLiveWithoutAnyEventPlane(t *testing.T) {
	s := &servers{t: t, namespace: lab(t).Namespace}
	s.etcdAddr = shared.etcd.Endpoint()
	sc := newScene(t, s)
	sc.running.Store(2)
	l := live(t, s.connect(), LiveOptions{})
	got := until(t, l, "load is polled", func(s cluster.Snapshot) bool { return len(s.Workers) == 1 && s.Workers[0].Stats.Running == 2 })
	if len(got.Notices) != 1 || !strings.Contains(got.Notices[0], "no event plane") {
		t.Errorf("notices %q", got.Notices)
	}
	// Nobody leads any more: the former leader is not shown.
	if got.Leader != "node-1" {
		t.Errorf("leader %q", got.Leader)
	}
	if err := sc.c.store.RevokeLease(t.Context(), sc.node); err != nil {
		t.Fatal(err)
	}
	until(t, l, "the leader is gone", func(s cluster.Snapshot) bool { return s.Leader == "" && len(s.Nodes) == 0 })
}

// While etcd is down the last known state stays on the screen, marked as old.
func TestLiveWithoutEtcd(t *testing.T) {
	s := startServers(t)
	newScene(t, s)
	l := live(t, s.connect(), LiveOptions{})
	before := until(t, l, "the store is read", func(s cluster.Snapshot) bool {
		return len(s.Workers) == 1 && s.Fresh.EtcdOK && s.Leader != "" && s.Topology != nil
	})
	s.stopEtcd()
	down := until(t, l, "the snapshot is stale", func(s cluster.Snapshot) bool { return !s.Fresh.EtcdOK && !s.Fresh.Live() })
	if down.Fresh.EtcdErr == "" || !down.Fresh.NATSOK {
		t.Errorf("freshness %+v", down.Fresh)
	}
	if down.Topology == nil || !down.Topology.Equal(*before.Topology) || len(down.Nodes) != 1 || len(down.Workers) != 1 ||
		down.Workers[0].State != cluster.StateReady || down.Leader != "node-1" {
		t.Errorf("the last known state is gone: %+v", down)
	}
	s.startEtcd()
	until(t, l, "it is fresh again", func(s cluster.Snapshot) bool { return s.Fresh.EtcdOK && s.Fresh.Live() && len(s.Workers) == 1 })
}

func TestLiveInterval(t *testing.T) {
	c := lab(t)
	l := live(t, c, LiveOptions{Interval: time.Hour})
	until(t, l, "the first snapshot comes at once", func(cluster.Snapshot) bool { return true })
	l.SetInterval(0) // ignored
	l.SetInterval(-time.Second)
	l.SetInterval(time.Hour)
	l.SetInterval(time.Millisecond) // the newest counts
	for range 3 {
		until(t, l, "snapshots come quickly now", func(cluster.Snapshot) bool { return true })
	}
	// A slow reader gets the newest one, not a row of old ones.
	time.Sleep(50 * time.Millisecond)
	a := <-l.Snapshots()
	b := <-l.Snapshots()
	if b.Time.Sub(a.Time) > 10*time.Second || !b.Time.After(a.Time) {
		t.Errorf("%s after %s", b.Time, a.Time)
	}
	if age := time.Since(a.Time); age > 10*time.Second {
		t.Errorf("an old snapshot: %s", age)
	}
}

func TestLiveActs(t *testing.T) {
	c := lab(t)
	assign(t, c, cluster.Assignment{Name: "worker-1", Desire: cluster.DesireRun})
	l := live(t, c, LiveOptions{})
	if l.ReadOnly() != "" {
		t.Errorf("read only: %s", l.ReadOnly())
	}
	act := func(a Action) error { return l.Act(t.Context(), a) }
	if err := act(Action{Kind: ActDrain, Worker: "worker-1", Deadline: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if a := assignment(t, c, "worker-1"); a.Desire != cluster.DesireDrain || time.Until(a.DrainDeadline) < 50*time.Second || a.DrainForce {
		t.Errorf("drained: %+v", a)
	}
	if err := act(Action{Kind: ActResume, Worker: "worker-1"}); err != nil {
		t.Fatal(err)
	}
	if err := act(Action{Kind: ActDrain, Worker: "worker-1"}); err != nil {
		t.Fatal(err)
	}
	if a := assignment(t, c, "worker-1"); a.Desire != cluster.DesireDrain || !a.DrainDeadline.IsZero() {
		t.Errorf("drained without a deadline: %+v", a)
	}
	if err := act(Action{Kind: ActRestart, Worker: "worker-1"}); err == nil || !strings.Contains(err.Error(), "worker-1 is drained") {
		t.Errorf("restart of a drained worker: %v", err)
	}
	if err := errors.Join(act(Action{Kind: ActResume, Worker: "worker-1"}), act(Action{Kind: ActRestart, Worker: "worker-1"}), act(Action{Kind: ActDrain, Worker: "worker-1"})); err != nil {
		t.Fatal(err)
	}
	if a := assignment(t, c, "worker-1"); a.Starts != 1 || a.Generation != 1 {
		t.Errorf("restarted: %+v", a)
	}
	if err := act(Action{Kind: "explode", Worker: "worker-1"}); err == nil {
		t.Error("an unknown action is accepted")
	}
	if err := act(Action{Kind: ActDrain, Worker: "worker-9"}); !errors.Is(err, ErrNoWorker) {
		t.Errorf("an unknown worker: %v", err)
	}
	ro := live(t, c, LiveOptions{ReadOnly: "recorded"})
	if err := ro.Act(t.Context(), Action{Kind: ActResume, Worker: "worker-1"}); err == nil || err.Error() != "recorded" {
		t.Errorf("read only: %v", err)
	}
	if a := assignment(t, c, "worker-1"); a.Desire != cluster.DesireDrain {
		t.Error("a read-only source wrote")
	}
}

func TestLiveCloseLeaksNothing(t *testing.T) {
	s := startServers(t)
	newScene(t, s)
	watch := func() {
		c, err := Connect(t.Context(), config.Dynctl{
			Cluster: "test", Namespace: s.namespace, StateDir: t.TempDir(),
			Etcd: config.EtcdClient{Endpoints: []string{s.etcdAddr}}, NATS: config.NATSClient{URL: s.nats.URL()},
		}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		// The context of the start is not that of the source.
		ctx, cancel := context.WithCancel(t.Context())
		l, err := c.Live(ctx, LiveOptions{Interval: tick})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		until(t, l, "snapshots come", func(s cluster.Snapshot) bool { return s.Fresh.EtcdOK && s.Queue.Prefill != nil })
		for range 2 {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		for range l.Snapshots() { // what was ready; then it is closed
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	watch() // the server in this process makes what the queue consists of
	before := goleak.IgnoreCurrent()
	watch()
	goleak.VerifyNone(t, before)
}

func TestLiveNeedsAStore(t *testing.T) {
	c := lab(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	closed := (&servers{t: t, etcdAddr: shared.etcd.Endpoint(), namespace: c.Namespace}).connect()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err := closed.Live(ctx, LiveOptions{}); err == nil {
		_ = l.Close()
		t.Error("a source over a closed connection")
	}
}

func TestNotices(t *testing.T) {
	worker := func(name string, state cluster.State, reason string) cluster.Worker {
		return cluster.Worker{WorkerStatus: cluster.WorkerStatus{Name: name, State: state, Reason: reason}}
	}
	s := cluster.Snapshot{Workers: []cluster.Worker{
		worker("worker-1", cluster.StateReady, ""), worker("worker-2", cluster.StateFailed, "out of memory"), worker("worker-3", cluster.StateDraining, "asked"),
		worker("worker-4", cluster.StatePending, "no node is up"), worker("worker-5", cluster.StateFailed, ""),
	}}
	want := []string{"nats unreachable: load is polled from the workers, events are not shown", "worker-2: out of memory", "worker-4: no node is up"}
	if got := notices(s, false); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	s.Fresh.NATSOK = true
	if got := notices(s, false); !slices.Equal(got, want[1:]) {
		t.Errorf("got %q, want %q", got, want[1:])
	}
}
