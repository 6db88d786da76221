package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/undo"
	"github.com/dynctl/dynctl/internal/worker"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests wait for back-offs and time limits more than they compute.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := goleak.Find(natsLeaks()...); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// natsLeaks are goroutines that a NATS server leaves behind when it is shut down while
// a stream is being made.
func natsLeaks() []goleak.Option {
	const server = "github.com/nats-io/nats-server/v2/server"
	return []goleak.Option{
		goleak.IgnoreAnyFunction(server + ".(*fileStore).flushStreamStateLoop"), goleak.IgnoreAnyFunction(server + "/ats.Register.func1"),
	}
}

// long bounds the waits of tests for slow operations.
const long = time.Minute

// within waits for a condition that must hold soon.
func within(t *testing.T, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func testLog(t *testing.T) *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	return slog.New(slog.DiscardHandler)
}

// testConfig is the default configuration with directories of the test and free
// ports everywhere.
func testConfig(t *testing.T) config.Dynamod {
	t.Helper()
	cfg, _, err := config.LoadDynamod(config.Input{Environ: []string{"HOME=" + t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.StateDir, cfg.Cluster = t.TempDir(), "test"
	cfg.Etcd.Listen, cfg.NATS.Listen, cfg.Frontend.Port = "127.0.0.1:0", "127.0.0.1:0", 0
	cfg.Etcd.LeaseTTL, cfg.Drain.Deadline, cfg.CPU.Cores = 2*time.Second, 30*time.Second, 1
	return cfg
}

// loads replaces the loading of models by mock engines and keeps the books.
type loads struct {
	mu    sync.Mutex
	opts  mock.Options
	err   error                           // of the next loads
	gate  func(ctx context.Context) error // if set, each load waits for it
	began int
	now   map[string]int // loading or loaded at this moment, by worker
	most  int            // of one worker at a time
}

func newLoads() *loads {
	return &loads{now: map[string]int{}, opts: mock.Options{BlockSize: 16, VocabSize: 300, MaxContext: 1024}}
}

func (l *loads) set(change func(*loads)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

func (l *loads) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.began
}

func (l *loads) load(ctx context.Context, as cluster.Assignment, progress func(float64)) (*worker.Loaded, error) {
	l.mu.Lock()
	l.began++
	l.now[as.Name]++
	l.most = max(l.most, l.now[as.Name])
	gate, err, opts := l.gate, l.err, l.opts
	l.mu.Unlock()
	release := func() { l.set(func(l *loads) { l.now[as.Name]-- }) }
	progress(0.5)
	if gate != nil {
		err = errors.Join(gate(ctx), err)
	}
	if err != nil {
		release()
		return nil, err
	}
	return &worker.Loaded{
		Backend: mock.New(opts), Blocks: 64,
		Card:    cluster.ModelCard{DisplayName: as.Model.Name, Digest: "sha256:test", HashSeed: cluster.DefaultHashSeed},
		Files:   map[string][]byte{},
		Release: release,
	}, nil
}

// wait makes a gate that lets nobody through until open is called.
func wait() (gate func(context.Context) error, open func()) {
	ch := make(chan struct{})
	return func(ctx context.Context) error {
		select {
		case <-ch:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, sync.OnceFunc(func() { close(ch) })
}

// testNode is an agent over in-memory plumbing: everything that runs workers, and
// none of the servers.
type testNode struct {
	*Agent
	t     *testing.T
	mem   *store.Memory
	loads *loads
	stop  func()
}

// startTestNode brings up the part of an agent that runs workers.
func startTestNode(t *testing.T) *testNode {
	t.Helper()
	n := &testNode{t: t, mem: store.NewMemory(nil), loads: newLoads()}
	a, err := New(testConfig(t), Options{Version: "test", Log: testLog(t), Load: n.loads.load})
	if err != nil {
		t.Fatal(err)
	}
	n.Agent = a
	var back undo.Stack
	check := func(err error) {
		t.Helper()
		if err != nil {
			back.Run(stopStep, a.log)
			t.Fatal(err)
		}
	}
	check(a.dir.Create())
	a.nodeID = "id-1"
	bus, queue, plane := events.NewMemory(), events.NewMemoryQueue(events.QueueConfig{}), requestplane.NewMemory()
	back.Push("close the store", func(context.Context) error { return n.mem.Close() })
	back.Push("close the bus", func(context.Context) error { return bus.Close() })
	a.stores = &stores{store: n.mem, bus: bus, queue: queue}
	a.server, a.client = plane.NewServer(requestplane.Limits{}, a.log), plane.NewClient()
	back.Push("close the plane", func(context.Context) error { return errors.Join(a.client.Close(), a.server.Close()) })
	a.plumb = runtime.Config{
		Store: n.mem, Server: a.server, Client: a.client, Bus: bus, Namespace: a.cfg.Namespace,
		LeaseTTL: a.cfg.Etcd.LeaseTTL, Node: a.nodeID, Incarnation: a.incarnation, Log: a.log,
	}
	check(a.startDevices(&back))
	a.drt, err = runtime.New(t.Context(), a.plumb)
	check(err)
	back.Push("revoke the lease", a.drt.Close)
	a.settings, err = watchSettings(t.Context(), a)
	check(err)
	back.Push("close the settings", func(context.Context) error { a.settings.close(); return nil })
	a.queue = a.newQueueDepth()
	a.declared, err = watchDeclared(t.Context(), a)
	check(err)
	back.Push("close what is declared", func(context.Context) error { a.declared.close(); return nil })
	a.workers, err = newSupervisor(t.Context(), a)
	check(err)
	back.Push("close the supervisor", func(context.Context) error { a.workers.close(); return nil })
	a.nodeKept, err = a.drt.PutOwned(t.Context(), func(cluster.InstanceID) string { return cluster.NodeKey(a.nodeID) }, a.encodeNode)
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		var g errgroup.Group
		g.Go(func() error { a.tellAlarms(ctx); return nil })
		g.Go(func() error { return a.declared.run(ctx) })
		g.Go(func() error { return a.workers.run(ctx) })
		done <- g.Wait()
	}()
	n.stop = sync.OnceFunc(func() {
		a.workers.stop()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		back.Run(stopStep, a.log)
	})
	t.Cleanup(n.stop)
	return n
}

// assign writes an assignment of worker-1 to this node.
func (n *testNode) assign(change ...func(*cluster.Assignment)) {
	n.t.Helper()
	n.assignAs("worker-1", change...)
}

func (n *testNode) assignAs(name string, change ...func(*cluster.Assignment)) {
	n.t.Helper()
	key := cluster.AssignmentKey(n.cfg.Namespace, name)
	_, _, err := store.UpdateJSON(n.t.Context(), n.mem, key, func(a cluster.Assignment, exists bool) (cluster.Assignment, error) {
		if !exists {
			a = cluster.Assignment{
				Name: name, Role: cluster.RoleDecode, Model: cluster.ModelSpec{Name: "mock"}, Node: n.nodeID, Device: "cpu:0",
				Desire: cluster.DesireRun, Generation: 1,
			}
		}
		for _, c := range change {
			c(&a)
		}
		return a, nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) unassign(name string) {
	n.t.Helper()
	if err := n.mem.Delete(n.t.Context(), cluster.AssignmentKey(n.cfg.Namespace, name)); err != nil {
		n.t.Fatal(err)
	}
}

func desire(d cluster.Desire) func(*cluster.Assignment) {
	return func(a *cluster.Assignment) { a.Desire = d }
}

// stored returns the status of worker-1 as others see it, and the lease it is under.
func (n *testNode) stored() (st cluster.WorkerStatus, lease cluster.InstanceID) {
	n.t.Helper()
	kv, err := n.mem.Get(n.t.Context(), cluster.StatusKey(n.cfg.Namespace, "worker-1"))
	if errors.Is(err, store.ErrNotFound) {
		return st, 0
	}
	if err == nil {
		st, err = store.DecodeJSON[cluster.WorkerStatus](kv)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return st, kv.Lease
}

// reaches waits until others see worker-1 in a state.
func (n *testNode) reaches(want cluster.State) cluster.WorkerStatus {
	n.t.Helper()
	return n.reachesWithin(long, want)
}

func (n *testNode) reachesWithin(limit time.Duration, want cluster.State) (st cluster.WorkerStatus) {
	n.t.Helper()
	within(n.t, limit, fmt.Sprintf("worker-1 is %s", want), func() bool {
		st, _ = n.stored()
		return st.State == want
	})
	return st
}

// running is the worker that runs as worker-1, nil if there is none.
func (n *testNode) running() *worker.Worker {
	n.workers.mu.Lock()
	defer n.workers.mu.Unlock()
	r := n.workers.runners["worker-1"]
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.w
}
