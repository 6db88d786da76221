package agent

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dynctl/dynctl/internal/attach"
	"github.com/dynctl/dynctl/internal/certs"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/controller"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/frontend"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/nixl/cudaipc"
	"github.com/dynctl/dynctl/internal/nixl/local"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/undo"
	"github.com/dynctl/dynctl/internal/worker"
)

// Options holds the inputs of an agent beside its configuration.
type Options struct {
	Version string
	Log     *slog.Logger
	// Settings are the run-time settings that the configuration sets, for dynctl to show.
	Settings map[string]cluster.NodeSetting
	// Load replaces the loading of models, for tests and simulations.
	Load func(ctx context.Context, a cluster.Assignment, progress func(float64)) (*worker.Loaded, error)
	// Admit replaces, for tests, the check of an assignment before a worker is replaced.
	// If it is nil and Load is set, every assignment passes.
	Admit func(as cluster.Assignment, instead string) error
	// Backend, if set, wraps the backend of each worker, for tests. It sees all steps of
	// the engine and may make them fail.
	Backend func(cluster.Assignment, engine.Backend) engine.Backend
	// GPUs replaces the source of GPU figures, NVIDIA's driver, for tests.
	GPUs func() (GPUSource, error)
	// CUDA replaces NVIDIA's driver for computing, for tests.
	CUDA func() (driver.Driver, error)
	// Ready, if set, is called once the node is up and in discovery.
	Ready func(cluster.Node)
}

// Agent is one node.
type Agent struct {
	cfg         config.Dynamod
	opts        Options
	log         *slog.Logger
	cluster     statedir.Cluster
	dir         statedir.Node
	secret      credentials.Secret // of the cluster
	secretMade  bool               // by this run
	nodeID      string
	incarnation string
	started     time.Time

	stores  *stores
	server  requestplane.Server
	client  requestplane.Client
	plumb   runtime.Config              // shared by all workers
	drt     *runtime.DistributedRuntime // the node's own
	metrics *metrics.Registry
	devices map[string]computer
	vram    *cudaipc.Devices // of its GPUs; nil without
	lost    chan error       // receives the first GPU that is lost
	// nodeDevices are the devices as published.
	nodeDevices []cluster.Device
	models      *models
	settings    *settings
	declared    *declared
	alarms      *alarms
	queue       *queueDepth
	front       *frontend.Frontend // nil when disabled
	peers       *local.Registry    // NIXL agents of this process
	hostPeers   hostPeers          // transports to NIXL agents of other processes of this host
	attached    *attach.Services   // behind URLs
	certs       certs.Followers    // of all connections with certificates from files
	nixlTLS     func() *tls.Config // nil: transfers over TCP are not encrypted
	status      *statusServer
	gpus        *gpus
	workers     *supervisor

	stopping atomic.Bool   // set when Run was told to stop
	noLogs   chan struct{} // closed when followers of logs must leave

	nodeMu   sync.Mutex
	node     cluster.Node
	nodeKept *runtime.Owned // its record in the store; nil until it is published
}

// New returns an agent; Run starts it.
func New(cfg config.Dynamod, opts Options) (*Agent, error) {
	c, err := statedir.Open(cfg.StateDir, cfg.Cluster)
	if err != nil {
		return nil, err
	}
	dir, err := c.Node(cfg.Node.Name)
	if err != nil {
		return nil, err
	}
	var inc [8]byte
	_, _ = rand.Read(inc[:]) // never fails
	a := &Agent{
		cfg: cfg, opts: opts, log: opts.Log.With("node", cfg.Node.Name),
		cluster: c, dir: dir, incarnation: hex.EncodeToString(inc[:]), started: time.Now(),
		metrics: metrics.NewRegistry(), peers: local.NewRegistry(copies(cfg)), hostPeers: newHostPeers(copies(cfg)), noLogs: make(chan struct{}),
	}
	a.alarms = newAlarms(a.metrics, func() *slog.Logger { return a.log })
	if err := a.checkTransports(); err != nil {
		return nil, err
	}
	return a, nil
}

// Log returns the node's logger.
func (a *Agent) Log() *slog.Logger { return a.log }

// stopStep bounds each step of stopping the node.
const stopStep = 10 * time.Second

// Run brings the node up and serves until ctx ends. It then drains, until the configured
// time has passed or hurry ends, and takes the node down. It returns nil after an orderly
// stop, and an error if the node could not start or failed.
func (a *Agent) Run(ctx, hurry context.Context) error {
	var back undo.Stack
	defer func() { back.Run(stopStep, a.opts.Log) }()
	if err := a.start(ctx, &back); err != nil {
		return err
	}
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	g, gctx := errgroup.WithContext(running)
	a.runParts(gctx, g)

	a.log.Info("node is up", "id", a.nodeID, "incarnation", a.incarnation, "cores", a.describeDevices(), "isa", a.describeISA())
	if a.opts.Ready != nil {
		a.opts.Ready(a.Node())
	}
	var broken error
	select {
	case <-ctx.Done():
		a.log.Info("stopping", "cause", context.Cause(ctx), "drain_deadline", a.cfg.Drain.Deadline)
		a.stopping.Store(true)
		a.drain(hurry)
	case <-gctx.Done():
		a.log.Error("stopping: a part of the node failed", "error", context.Cause(gctx))
	case broken = <-a.lost:
		a.log.Error("stopping: this process can no longer use a GPU", "error", broken)
	}
	a.stopping.Store(true)
	a.workers.stop()
	if a.front != nil {
		a.front.Close()
	}
	stop(errStopped)
	return errors.Join(broken, g.Wait()) // no part returns an error for a stop
}

var errStopped = errors.New("node is stopping")

// start brings up everything that Run needs, in order. It pushes the step that undoes
// each onto back.
func (a *Agent) start(ctx context.Context, back *undo.Stack) (err error) {
	if err := a.takeDirectory(back); err != nil {
		return err
	}
	if err := a.secureNIXL(); err != nil {
		return err
	}
	if a.stores, err = startStores(ctx, a, back); err != nil {
		return err
	}
	a.warnOfLoopback()
	if err := a.claimSecret(ctx); err != nil {
		return err
	}
	if err := a.startRequestPlane(back); err != nil {
		return err
	}
	if err := a.startDevices(back); err != nil {
		return err
	}
	if err := a.startGPUDevices(ctx, back); err != nil {
		return err
	}
	cfg := a.plumb
	cfg.Worker = a.cfg.Node.Name
	if a.drt, err = runtime.New(ctx, cfg); err != nil {
		return fmt.Errorf("join the cluster: %w", err)
	}
	back.Push("revoke the node's lease", a.drt.Close)
	a.succeed(ctx)
	if a.settings, err = watchSettings(ctx, a); err != nil {
		return err
	}
	back.Push("stop watching settings", func(context.Context) error { a.settings.close(); return nil })
	a.queue = a.newQueueDepth()
	if a.declared, err = watchDeclared(ctx, a); err != nil {
		return err
	}
	back.Push("stop watching what is declared", func(context.Context) error { a.declared.close(); return nil })
	if a.workers, err = newSupervisor(ctx, a); err != nil {
		return err
	}
	back.Push("stop watching assignments", func(context.Context) error { a.workers.close(); return nil })
	if a.cfg.Frontend.Enabled {
		if err := a.startFrontend(ctx, back); err != nil {
			return err
		}
	}
	if err := a.startAttached(ctx, back); err != nil {
		return err
	}
	if a.status, err = startStatusServer(a); err != nil {
		return err
	}
	back.Push("stop the status server", a.status.close)
	if err := a.serveLogs(ctx, back); err != nil {
		return err
	}
	if err := a.startGPUs(ctx, back); err != nil {
		return err
	}
	if err := a.publishNode(ctx); err != nil {
		return err
	}
	if err := a.confirmSecret(ctx); err != nil {
		return err
	}
	return a.publishEndpoints(back)
}

func (a *Agent) takeDirectory(back *undo.Stack) error {
	if err := a.dir.Create(); err != nil {
		return err
	}
	lock, err := a.dir.Lock()
	if err != nil {
		var locked *statedir.LockedError
		if errors.As(err, &locked) {
			return fmt.Errorf("node %s of cluster %s is running already, as process %d: %w", a.cfg.Node.Name, a.cfg.Cluster, locked.PID, err)
		}
		return err
	}
	back.Push("release the lock", func(context.Context) error { return lock.Release() })
	if err := a.takeSecret(); err != nil {
		return err
	}
	if err := a.dir.SetNamespace(a.cfg.Namespace); err != nil {
		return err
	}
	file, err := openLog(a.dir.AgentLog(), a.alarms.dropped)
	if err != nil {
		return err
	}
	back.Push("close the log", func(context.Context) error { return file.Close() })
	a.log = slog.New(slog.NewMultiHandler(a.cfg.Log.Handler(file), a.opts.Log.Handler())).With("node", a.cfg.Node.Name)
	a.nodeID, err = a.dir.ID(func() string {
		var b [6]byte
		_, _ = rand.Read(b[:]) // never fails
		return a.cfg.Node.Name + "-" + hex.EncodeToString(b[:])
	})
	return err
}

// runParts starts the loops of the node. All of them end with ctx.
func (a *Agent) runParts(ctx context.Context, g *errgroup.Group) {
	g.Go(func() error { return a.runController(ctx) })
	g.Go(func() error { a.queue.run(ctx); return nil })
	g.Go(func() error { return a.declared.run(ctx) })
	g.Go(func() error { a.watchDisk(ctx); return nil })
	g.Go(func() error { a.watchCerts(ctx); return nil })
	g.Go(func() error { a.tellAlarms(ctx); return nil })
	g.Go(func() error { return a.workers.run(ctx) })
	if a.front != nil {
		g.Go(func() error { return a.front.Run(ctx) })
	}
}

// runController takes part in the leader election until ctx ends. The planner runs beside the
// controller that leads.
func (a *Agent) runController(ctx context.Context) error {
	subject := events.Subject(a.cfg.Namespace, cluster.ComponentAgent, cluster.TopicTopology)
	err := controller.New(controller.Config{
		Store: a.stores.store, Namespace: a.cfg.Namespace, Node: a.cfg.Node.Name, Elect: a.electPlanner, Log: a.log,
		Rollout: a.settings.rollout,
		Notify:  func(e cluster.TopologyEvent) { _ = a.stores.bus.Publish(ctx, subject, e) },
	}).Run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// drain lets requests in flight end. The frontend refuses new requests, and the workers
// leave discovery and finish their sequences.
func (a *Agent) drain(hurry context.Context) {
	ctx, cancel := context.WithTimeout(hurry, a.cfg.Drain.Deadline)
	defer cancel()
	var wg sync.WaitGroup
	if a.front != nil {
		wg.Go(func() {
			if err := a.front.Drain(ctx); err != nil {
				a.log.Warn("frontend not drained", "error", err)
			}
		})
	}
	wg.Go(func() { _ = a.attached.Close(ctx) }) // what it cuts off, it logs
	wg.Go(func() {
		if err := a.workers.drain(ctx); err != nil {
			a.log.Warn("workers not drained", "error", err)
		}
	})
	wg.Wait()
}

// Node returns the node's record as published.
func (a *Agent) Node() cluster.Node {
	a.nodeMu.Lock()
	defer a.nodeMu.Unlock()
	return a.node
}

// publishEndpoints writes the file from which dynctl on this machine learns how to reach
// the cluster, if the cluster's stores run here. Where files hold the state, the first node
// of the machine writes it.
func (a *Agent) publishEndpoints(back *undo.Stack) error {
	if !a.hostsStores() {
		return nil
	}
	err := a.cluster.WriteEndpoints(statedir.Endpoints{
		Cluster: a.cfg.Cluster, Namespace: a.cfg.Namespace, Etcd: a.stores.addrs, NATS: a.stores.natsURL,
		Host: a.storesHost(), Node: a.cfg.Node.Name, PID: os.Getpid(), StartedAt: a.started,
	})
	if err != nil {
		return err
	}
	back.Push("withdraw cluster.json", func(context.Context) error { return a.cluster.RemoveEndpoints() })
	return nil
}

func (a *Agent) hostsStores() bool {
	if !a.cfg.Discovery.InFiles() {
		return a.stores.etcd != nil || a.stores.inEmbeddedNATS(a)
	}
	_, err := a.cluster.Endpoints()
	return errors.Is(err, statedir.ErrNotRunning)
}
