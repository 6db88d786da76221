package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/store"
)

// run is an agent that runs.
type run struct {
	*Agent
	t      *testing.T
	node   cluster.Node
	loads  *loads
	cancel context.CancelCauseFunc
	hurry  context.CancelCauseFunc
	ended  chan error
	over   bool
}

// startAgent runs an agent until the test ends, and waits until it is up.
func startAgent(t *testing.T, cfg config.Dynamod, change ...func(*Options)) *run {
	t.Helper()
	r, err := tryAgent(t, cfg, change...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tryAgent is startAgent for one that may not come up.
func tryAgent(t *testing.T, cfg config.Dynamod, change ...func(*Options)) (*run, error) {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	r := &run{t: t, loads: newLoads(), ended: make(chan error, 1)}
	ready := make(chan cluster.Node, 1)
	opts := Options{Version: "v1.2.3", Log: testLog(t), Load: r.loads.load, Ready: func(n cluster.Node) { ready <- n }}
	for _, c := range change {
		c(&opts)
	}
	a, err := New(cfg, opts)
	if err != nil {
		return nil, err
	}
	r.Agent = a
	ctx, cancel := context.WithCancelCause(context.Background())
	hurry, hurryUp := context.WithCancelCause(context.Background())
	r.cancel, r.hurry = cancel, hurryUp
	go func() { r.ended <- a.Run(ctx, hurry) }()
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
	select {
	case r.node = <-ready:
		return r, nil
	case err := <-r.ended:
		r.over = true
		return nil, err
	case <-time.After(time.Minute):
		t.Fatal("the agent is not up after a minute")
		return nil, nil
	}
}

// stop stops the agent in order and returns what Run returned.
func (r *run) stop() error {
	if r.over {
		return nil
	}
	r.over = true
	r.cancel(errors.New("the test is over"))
	select {
	case err := <-r.ended:
		return err
	case <-time.After(time.Minute):
		buf := make([]byte, 1<<20)
		return errors.New("the agent did not stop within a minute\n" + string(buf[:goruntime.Stack(buf, true)]))
	}
}

// lasting are servers that outlive agents.
type lasting struct {
	t     *testing.T
	dir   string
	etcd  *embedded.Etcd
	nats  *embedded.NATS
	store *store.Etcd
}

func startExternal(t *testing.T) *lasting {
	t.Helper()
	x := &lasting{t: t, dir: t.TempDir()}
	var err error
	if x.etcd, err = embedded.StartEtcd(t.Context(), embedded.EtcdOptions{Dir: filepath.Join(x.dir, "etcd"), ClientAddr: "127.0.0.1:0", Log: testLog(t), UnsafeNoFsync: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.etcd.Close() })
	x.nats = x.startNATS("127.0.0.1:0")
	if x.store, err = store.NewEtcd(store.EtcdConfig{Endpoints: []string{x.etcd.Endpoint()}}, testLog(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.store.Close() })
	if _, err := x.store.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *lasting) startNATS(addr string) *embedded.NATS {
	x.t.Helper()
	n, err := embedded.StartNATS(x.t.Context(), embedded.NATSOptions{Dir: filepath.Join(x.dir, "nats"), Addr: addr, Log: testLog(x.t)})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = n.Close() })
	return n
}

func (x *lasting) config() config.Dynamod {
	cfg := testConfig(x.t)
	cfg.Etcd.Endpoints, cfg.NATS.URL = []string{x.etcd.Endpoint()}, x.nats.URL()
	cfg.Frontend.Enabled = false
	cfg.SecretFile = filepath.Join(x.dir, "secret")
	return cfg
}

func declare(t *testing.T, s store.Store, decode int) {
	t.Helper()
	top := cluster.Topology{Model: cluster.ModelSpec{Name: "mock"}, Decode: decode, Generation: 1}
	if _, err := store.PutJSON(t.Context(), s, cluster.TopologyKey(cluster.DefaultNamespace), top); err != nil {
		t.Fatal(err)
	}
}

func status(t *testing.T, s store.Store, worker string) cluster.WorkerStatus {
	t.Helper()
	st, _, err := store.GetJSON[cluster.WorkerStatus](t.Context(), s, cluster.StatusKey(cluster.DefaultNamespace, worker))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	return st
}

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	// A connection of its own: none is left in a pool.
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// A node with everything in it comes up, runs a worker, and leaves nothing behind.
func TestNodeLife(t *testing.T) {
	before := goleak.IgnoreCurrent()
	cfg := testConfig(t)
	cfg.Node.Roles = []string{"decode"}
	cfg.CPU.Devices, cfg.CPU.Cores = 2, 3
	a := startAgent(t, cfg)

	kv, err := a.stores.store.Get(t.Context(), cluster.NodeKey(a.nodeID))
	if err != nil {
		t.Fatal(err)
	}
	n, err := store.DecodeJSON[cluster.Node](kv)
	if err != nil {
		t.Fatal(err)
	}
	if kv.Lease != a.drt.ID() || n.InstanceID != kv.Lease {
		t.Errorf("the node's key is under lease %s, its own is %s", kv.Lease, a.drt.ID())
	}
	if n.ID != a.nodeID || n.Name != "node-1" || n.Namespace != cfg.Namespace || n.PID != os.Getpid() || n.Version != "v1.2.3" || n.Incarnation == "" || n.Host == "" || n.StartedAt.IsZero() {
		t.Errorf("node %+v", n)
	}
	if len(n.Devices) != 2 || n.Devices[0].ID != "cpu:0" || n.Devices[0].Cores != 2 || n.Devices[1].Cores != 1 || n.Devices[0].MemoryBytes <= 0 {
		t.Errorf("devices %+v", n.Devices)
	}
	if !n.EmbeddedEtcd || !n.EmbeddedNATS || n.FrontendURL == "" || n.StatusURL == "" || n.RequestPlane == "" || len(n.Roles) != 1 {
		t.Errorf("node %+v", n)
	}
	if a.node.InstanceID != n.InstanceID || a.Node().FrontendURL != n.FrontendURL {
		t.Errorf("Ready was told %+v", a.node)
	}
	e, err := a.cluster.Endpoints()
	if err != nil || e.Etcd[0] != config.SchemeDynamod+a.stores.etcd.Endpoint() || e.NATS != config.SchemeDynamod+a.stores.nats.Addr() || e.Host != "" || e.PID != os.Getpid() || e.Namespace != cfg.Namespace {
		t.Errorf("cluster.json: %+v %v", e, err)
	}

	declare(t, a.stores.store, 1)
	patience.Until(t, "worker-1 is ready", func() bool { return status(t, a.stores.store, "worker-1").State == cluster.StateReady })
	if code, body := get(t, n.StatusURL+"/health"); code != http.StatusOK || !strings.Contains(body, `"worker-1":"ready"`) {
		t.Errorf("health: %d %s", code, body)
	}
	if who, err := store.Leader(t.Context(), a.stores.store, cluster.ElectionPrefix(cfg.Namespace)); who != "node-1" || err != nil {
		t.Errorf("leader %q %v", who, err)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.cluster.Endpoints(); !errors.Is(err, statedir.ErrNotRunning) {
		t.Errorf("after the stop: %v", err)
	}
	if _, err := os.Stat(filepath.Join(a.cluster.Path, "cluster.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("cluster.json is left: %v", err)
	}
	if pid, held := a.dir.Holder(); held {
		t.Errorf("the lock is held by %d", pid)
	}
	if log := read(t, a.dir.AgentLog()); !strings.Contains(log, "node is up") || !strings.Contains(log, "the test is over") {
		t.Errorf("log: %s", log)
	}
	if log := read(t, a.dir.WorkerLog("worker-1")); !strings.Contains(log, "state=ready") {
		t.Errorf("log of worker-1: %s", log)
	}
	goleak.VerifyNone(t, append(natsLeaks(), before)...)

	// Started again it is the same node with the same data at the same address, and goes on by
	// itself.
	b := startAgent(t, cfg)
	if b.node.ID != n.ID || b.node.Incarnation == n.Incarnation || b.node.StatusURL != n.StatusURL {
		t.Errorf("again: %+v", b.node)
	}
	patience.Until(t, "worker-1 is back", func() bool { return status(t, b.stores.store, "worker-1").State == cluster.StateReady })
}

// With servers of its own a cluster sees a stopped node leave at once.
func TestStopRevokesLeases(t *testing.T) {
	x := startExternal(t)
	a := startAgent(t, x.config())
	declare(t, x.store, 2)
	patience.Until(t, "both workers are ready", func() bool {
		return status(t, x.store, "worker-1").State == cluster.StateReady && status(t, x.store, "worker-2").State == cluster.StateReady
	})
	if a.node.EmbeddedEtcd || a.node.EmbeddedNATS || a.node.FrontendURL != "" {
		t.Errorf("node %+v", a.node)
	}
	if _, err := a.cluster.Endpoints(); !errors.Is(err, statedir.ErrNotRunning) {
		t.Errorf("a cluster that runs elsewhere has a cluster.json: %v", err)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if leases, err := x.store.Leases(t.Context()); err != nil || len(leases) != 0 {
		t.Errorf("leases are left: %v %v", leases, err)
	}
	for _, prefix := range []string{cluster.NodePrefix, cluster.StatusPrefix(cluster.DefaultNamespace), cluster.InstancePrefix(cluster.DefaultNamespace, "", ""), cluster.LeaderPrefix} {
		if kvs, _, err := x.store.List(t.Context(), prefix); err != nil || len(kvs) != 0 {
			t.Errorf("below %s: %v %v", prefix, kvs, err)
		}
	}
}

// What a killed run left behind is revoked at the next start.
func TestStartAfterAKill(t *testing.T) {
	x := startExternal(t)
	cfg := x.config()
	c, _ := statedir.Open(cfg.StateDir, cfg.Cluster)
	dir, _ := c.Node(cfg.Node.Name)
	if err := dir.Create(); err != nil {
		t.Fatal(err)
	}
	id, err := dir.ID(func() string { return "node-1-abc" })
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir.Path, "lock"), []byte("99999999\n"), 0o600); err != nil { // of a dead process
		t.Fatal(err)
	}
	lease, err := x.store.GrantLease(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	old := cluster.Instance{Type: cluster.InstanceType, Namespace: cfg.Namespace, Component: "decode", Endpoint: "generate", InstanceID: lease.ID, Node: id, Incarnation: "before"}
	if _, err := store.PutJSON(t.Context(), x.store, old.Key(), old, store.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, cfg)
	if a.node.ID != id {
		t.Errorf("the node is %s, it was %s", a.node.ID, id)
	}
	if _, _, err := x.store.LeaseTTL(t.Context(), lease.ID); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("the lease of the killed run: %v", err)
	}
}

func TestStatusServer(t *testing.T) {
	x := startExternal(t)
	cfg := x.config()
	a := startAgent(t, cfg)
	base := a.node.StatusURL
	health := func() (code int, h health) {
		code, body := get(t, base+"/health")
		if err := json.Unmarshal([]byte(body), &h); err != nil {
			t.Fatalf("%d %s: %v", code, body, err)
		}
		return code, h
	}
	if code, body := get(t, base+"/live"); code != http.StatusOK || !strings.Contains(body, `"status":"live"`) || !strings.Contains(body, `"secs"`) {
		t.Errorf("live: %d %s", code, body)
	}
	if code, h := health(); code != http.StatusOK || h.Status != "ready" || len(h.Reasons) != 0 || len(h.Endpoints) != 0 {
		t.Errorf("health: %d %+v", code, h)
	}
	if code, body := get(t, base+"/metrics"); code != http.StatusOK {
		t.Errorf("metrics: %d %.200s", code, body)
	}
	for _, path := range []string{"/", "/nothing", "/debug/pprof/heap"} {
		if code, _ := get(t, base+path); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}

	// A worker that fails is a reason, with its words.
	a.loads.set(func(l *loads) { l.err = errors.New("needs 9 GiB") })
	declare(t, x.store, 1)
	patience.Until(t, "the failed worker shows", func() bool {
		code, h := health()
		return code == http.StatusServiceUnavailable && h.Status == "notready" && h.Workers["worker-1"] == cluster.StateFailed &&
			len(h.Reasons) == 1 && strings.Contains(h.Reasons[0], "worker-1: load model: needs 9 GiB")
	})
	a.loads.set(func(l *loads) { l.err = nil })
	patience.Until(t, "it is ready again", func() bool {
		code, h := health()
		return code == http.StatusOK && h.Workers["worker-1"] == cluster.StateReady && h.Endpoints["generate"] == "ready"
	})
	if _, body := get(t, base+"/metrics"); !strings.Contains(body, "dynamo_component_") {
		t.Errorf("no metrics of the worker: %.300s", body)
	}

	// So is a store that does not answer. The process lives all the time.
	addr := strings.TrimPrefix(x.nats.URL(), "nats://")
	if err := x.nats.Close(); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "NATS is missed", func() bool {
		code, h := health()
		return code == http.StatusServiceUnavailable && len(h.Reasons) == 1 && strings.Contains(h.Reasons[0], addr)
	})
	if code, _ := get(t, base+"/live"); code != http.StatusOK {
		t.Errorf("live: %d", code)
	}
	x.nats = x.startNATS(addr)
	patience.Until(t, "NATS is back", func() bool { code, _ := health(); return code == http.StatusOK })

	// A node that drains is not ready, and is live.
	a.stopping.Store(true)
	if code, h := health(); code != http.StatusServiceUnavailable || len(h.Reasons) != 1 || h.Reasons[0] != "the node is stopping" {
		t.Errorf("while stopping: %d %+v", code, h)
	}
}

// Who follows a log does not keep the node from stopping.
func TestFollowerDoesNotDelayTheStop(t *testing.T) {
	x := startExternal(t)
	a := startAgent(t, x.config())
	kvs, _, err := x.store.List(t.Context(), cluster.InstancePrefix(cluster.DefaultNamespace, cluster.ComponentAgent, cluster.EndpointLogs))
	if err != nil || len(kvs) != 1 {
		t.Fatalf("%d instances: %v", len(kvs), err)
	}
	inst, err := store.DecodeJSON[cluster.Instance](kvs[0])
	if err != nil {
		t.Fatal(err)
	}
	plane := requestplane.NewClient(requestplane.ClientConfig{Key: handshake.NewKey(a.secret.Key(requestplane.KeyPurpose)), Log: testLog(t)})
	defer plane.Close()
	stream, err := plane.Call(context.Background(), inst.Transport.Address(), "logs-1", nil, protocol.LogRequest{Tail: 10, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var chunk protocol.LogChunk
	if err := stream.Recv(t.Context(), &chunk); err != nil || !strings.Contains(string(chunk.Data), "node=node-1") {
		t.Fatalf("%q: %v", chunk.Data, err)
	}
	begin := time.Now()
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > patience.Soon/2 {
		t.Errorf("the stop took %s", took)
	}
	var text strings.Builder
	for {
		if err = stream.Recv(context.Background(), &chunk); err != nil {
			break
		}
		text.Write(chunk.Data)
	}
	if !errors.Is(err, io.EOF) || !strings.Contains(text.String(), "stopping") {
		t.Errorf("the follower saw %q and %v, want the end of the node and of the log", text.String(), err)
	}
}

// A second signal ends the wait for requests.
func TestHurry(t *testing.T) {
	x := startExternal(t)
	a := startAgent(t, x.config())
	a.loads.set(func(l *loads) { l.opts.StepTime = func(int, int) time.Duration { return 20 * time.Millisecond } })
	declare(t, x.store, 1)
	patience.Until(t, "worker-1 is ready", func() bool { return status(t, x.store, "worker-1").State == cluster.StateReady })
	kvs, _, err := x.store.List(t.Context(), cluster.InstancePrefix(cluster.DefaultNamespace, "decode", cluster.EndpointGenerate))
	if err != nil || len(kvs) != 1 {
		t.Fatalf("%d instances: %v", len(kvs), err)
	}
	inst, _ := store.DecodeJSON[cluster.Instance](kvs[0])
	plane := requestplane.NewClient(requestplane.ClientConfig{Key: handshake.NewKey(a.secret.Key(requestplane.KeyPurpose)), Log: testLog(t)})
	defer plane.Close()
	stream, err := plane.Call(context.Background(), inst.Transport.Address(), "r1", nil, protocol.PreprocessedRequest{
		RequestID: "r1", Model: "mock", ModelSum: "sha256:test", TokenIDs: []uint32{1, 2, 3}, Stop: protocol.StopConditions{MaxTokens: 1000},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var out protocol.EngineOutput
	if err := stream.Recv(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	a.cancel(errors.New("signal terminated"))
	patience.Until(t, "it drains", func() bool { return status(t, x.store, "worker-1").State == cluster.StateDraining })
	if code, body := get(t, a.node.StatusURL+"/health"); code != http.StatusServiceUnavailable || !strings.Contains(body, "stopping") {
		t.Errorf("health while draining: %d %s", code, body)
	}
	select {
	case err := <-a.ended:
		t.Fatalf("it did not wait for the request: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	begin := time.Now()
	a.hurry(errors.New("second signal"))
	if err := <-a.ended; err != nil {
		t.Error(err)
	}
	a.over = true
	if took := time.Since(begin); took > patience.Soon/2 {
		t.Errorf("it took %s after the second signal", took)
	}
}
