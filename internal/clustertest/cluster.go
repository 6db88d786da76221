package clustertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/agent"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/natspipe"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/store"
)

// Options describe a cluster.
type Options struct {
	Model    string // model directory; empty: the built-in one
	Quantize string // format of the weights; empty: as they are stored
	Prefill  int
	Decode   int
	Encode   int
	Engine   cluster.EngineSpec
	// PrefillEngine and DecodeEngine are what workers of a role have otherwise.
	PrefillEngine, DecodeEngine cluster.EngineSpec
	// Nodes are the agents; none means one that takes everything.
	Nodes []Node
	// Store holds the state: config.BackendEtcd, which is the default, BackendNATS or
	// BackendFile. Nodes that are processes need etcd.
	Store string
	// Config changes the configuration of every agent.
	Config func(*config.Dynamod)
	// Backend, if set, is put around the backends of workers in this process.
	Backend func(cluster.Assignment, engine.Backend) engine.Backend
	// CUDA, if set, is the driver of the agents in this process.
	CUDA func() (driver.Driver, error)
	// LeaseTTL of workers and nodes. The default of 10 s outlasts a machine that lets this
	// process wait for seconds; tests that wait for leases to end have shorter ones.
	LeaseTTL time.Duration
	// Timeout of every wait for the cluster, there only to end what hangs; default two
	// minutes.
	Timeout time.Duration
}

// Node is one agent.
type Node struct {
	Roles []string // preferred roles
	// Process runs it as a process of its own, which Kill can kill. The test binary
	// must call [Main] from its TestMain.
	Process bool
	// Config changes the configuration of this agent only.
	Config func(*config.Dynamod)
}

// Cluster is a running cluster.
type Cluster struct {
	*Servers
	Client *client.Cluster
	Watch  *client.Watch
	Model  string // served name
	URL    string // of the frontend
	Nodes  []*RunningNode
	// SecretFile holds the secret that all nodes share.
	SecretFile string
	plane      requestplane.Client // to nodes of all planes

	t    testing.TB
	opts Options
	log  *slog.Logger
}

// RunningNode is an agent that runs.
type RunningNode struct {
	Name string
	ID   string

	stop    func(cause error) error // stops in order and waits
	process *process                // nil for agents in this process
	restart func()                  // the same
}

// Start brings a cluster up and waits until it serves. It ends with the test.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.LeaseTTL == 0 {
		o.LeaseTTL = 10 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	if len(o.Nodes) == 0 {
		o.Nodes = []Node{{}}
	}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	c := &Cluster{t: t, opts: o, log: log, Servers: startServers(t, log, o.Store == "" || o.Store == config.BackendEtcd), Model: cluster.BuiltinModelName}
	if o.Model != "" {
		c.Model = "test-model"
	}
	c.SecretFile = filepath.Join(t.TempDir(), "secret")
	secret, err := credentials.Create(c.SecretFile, credentials.New())
	if err != nil {
		t.Fatal(err)
	}
	c.openPlane(handshake.NewKey(secret.Key(requestplane.KeyPurpose)))
	for i, n := range o.Nodes {
		c.startNode(i, n)
	}
	c.connect()
	c.Declare(o.Prefill, o.Decode)
	c.WaitReady(o.Prefill, o.Decode)
	return c
}

func (c *Cluster) openPlane(key handshake.Key) {
	c.t.Helper()
	bus, err := dial.NATS(config.NATSClient{URL: c.NATSURL()}, "", "clustertest", dial.Identity{}, c.log)
	if err != nil {
		c.t.Fatal(err)
	}
	pipes := natspipe.New(bus, natspipe.Config{Log: c.log})
	c.plane = requestplane.NewClient(requestplane.ClientConfig{
		Key: key, Log: c.log,
		Pipes: func() (*natspipe.Hub, error) { return pipes, nil },
	})
	c.t.Cleanup(func() {
		if err := errors.Join(c.plane.Close(), pipes.Close(), bus.Close()); err != nil {
			c.t.Error(err)
		}
	})
}

// config is the configuration of node i.
func (c *Cluster) config(i int, n Node) config.Dynamod {
	cfg, _, err := config.LoadDynamod(config.Input{Environ: []string{"HOME=" + c.t.TempDir()}})
	if err != nil {
		c.t.Fatal(err)
	}
	cfg.StateDir = c.t.TempDir()
	cfg.SecretFile = c.SecretFile
	cfg.Cluster = "test"
	cfg.Node.Name = "node-" + strconv.Itoa(i+1)
	cfg.Node.Roles = n.Roles
	cfg.Discovery, cfg.Etcd.Endpoints = c.discovery()
	cfg.Etcd.LeaseTTL = c.opts.LeaseTTL
	cfg.NATS.URL = c.NATSURL()
	cfg.Frontend.Enabled, cfg.Frontend.Port = i == 0, 0
	cfg.Drain.Deadline = 10 * time.Second
	cfg.Disagg.Conditional, cfg.Disagg.MaxLocalPrefillTokens = cluster.ConditionalThreshold, 0 // all is prefilled remotely
	if c.opts.Config != nil {
		c.opts.Config(&cfg)
	}
	if n.Config != nil {
		n.Config(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		c.t.Fatal(err)
	}
	return cfg
}

// discovery says what holds the state.
func (c *Cluster) discovery() (d config.Discovery, etcd []string) {
	return config.DiscoveryAt(c.storeAddrs())
}

func (c *Cluster) storeAddrs() []string {
	switch c.opts.Store {
	case config.BackendNATS:
		return []string{config.SchemeBucket + store.DefaultBucket}
	case config.BackendFile:
		return []string{config.SchemeFile + c.storeDir()}
	}
	return []string{c.EtcdAddr}
}

func (c *Cluster) storeDir() string { return filepath.Join(c.dir, "store") }

// OpenStore opens the cluster's store beside those of its nodes, until the test ends.
func (c *Cluster) OpenStore() store.Store {
	c.t.Helper()
	s, err := dial.Store(dial.Stores{NATS: config.NATSClient{URL: c.NATSURL()}}, c.storeAddrs(), dial.Identity{}, c.log)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			c.t.Errorf("close the store: %v", err)
		}
	})
	return s
}

// StopStore has the store not answer until the returned function is called.
func (c *Cluster) StopStore() (start func()) {
	c.t.Helper()
	switch c.opts.Store {
	case config.BackendNATS:
		c.StopNATS()
		return c.StartNATS
	case config.BackendFile: // as a process does that is stopped in the middle of a write
		return c.holdFiles()
	}
	c.StopEtcd()
	return c.StartEtcd
}

func (c *Cluster) startNode(i int, n Node) {
	c.t.Helper()
	cfg := c.config(i, n)
	var r *RunningNode
	if n.Process {
		r = c.startProcess(cfg)
	} else {
		r = c.startInProcess(cfg)
	}
	c.Nodes = append(c.Nodes, r)
}

func (c *Cluster) startInProcess(cfg config.Dynamod) *RunningNode {
	c.t.Helper()
	ready := make(chan cluster.Node, 1)
	a, err := agent.New(cfg, agent.Options{Version: "test", Log: c.log, Backend: c.opts.Backend, CUDA: c.opts.CUDA, Ready: func(n cluster.Node) { ready <- n }})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, context.Background()) }()
	r := &RunningNode{Name: cfg.Node.Name}
	stopped := false
	r.stop = func(cause error) error {
		if stopped {
			return nil
		}
		stopped = true
		cancel(cause)
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Minute):
			return errors.New("the agent did not stop within a minute")
		}
	}
	c.t.Cleanup(func() {
		if err := r.stop(errors.New("test over")); err != nil {
			c.t.Errorf("%s: %v", r.Name, err)
		}
	})
	select {
	case n := <-ready:
		r.ID = n.ID
		if n.FrontendURL != "" {
			c.URL = n.FrontendURL
		}
	case err := <-ended:
		stopped = true
		c.t.Fatalf("%s: %v", r.Name, err)
	case <-time.After(c.opts.Timeout):
		c.t.Fatalf("%s is not up after %s", r.Name, c.opts.Timeout)
	}
	return r
}

// connect makes the client that stands for dynctl.
func (c *Cluster) connect() {
	c.t.Helper()
	cfg := config.Dynctl{Cluster: "test", Namespace: cluster.DefaultNamespace, StateDir: c.t.TempDir(), SecretFile: c.SecretFile}
	cfg.Discovery, cfg.Etcd.Endpoints = c.discovery()
	cfg.NATS.URL = c.NATSURL()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cl, err := client.Connect(ctx, cfg, c.log)
	if err != nil {
		c.t.Fatal(err)
	}
	c.Client = cl
	if c.Watch, err = cl.Watch(context.Background()); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		c.Watch.Close()
		if err := cl.Close(); err != nil {
			c.t.Errorf("close client: %v", err)
		}
	})
}

// Quantize changes the format of the weights, as dynctl up --quantize does, and waits
// until so many workers serve with it.
func (c *Cluster) Quantize(format string, prefill, decode int) {
	c.t.Helper()
	c.opts.Quantize = format
	c.Declare(prefill, decode)
	c.WaitView("all workers have loaded "+format, func(v client.View) bool {
		for _, w := range v.Workers() {
			if w.Weights != format {
				return false
			}
		}
		return true
	})
	c.WaitReady(prefill, decode)
}

// Declare changes the desired state, as dynctl up and scale do.
func (c *Cluster) Declare(prefill, decode int) {
	c.t.Helper()
	c.Insist(func(ctx context.Context) error {
		_, err := c.Client.Declare(ctx, func(t *cluster.Topology, _ bool) error {
			t.Model = cluster.ModelSpec{Name: c.Model, Path: c.opts.Model, Quantize: c.opts.Quantize}
			t.Prefill, t.Decode, t.Encode, t.Engine = prefill, decode, c.opts.Encode, c.opts.Engine
			t.PrefillSpec.Engine, t.DecodeSpec.Engine = c.opts.PrefillEngine, c.opts.DecodeEngine
			return nil
		})
		return err
	})
}

// Encode is the number of encode workers that Declare asks for.
func (c *Cluster) Encode() int { return c.opts.Encode }

// SetEncode changes it.
func (c *Cluster) SetEncode(n int) { c.opts.Encode = n }

// Insist gives an order that may be given twice, again for as long as the store does not
// answer, as it may on a busy machine.
func (c *Cluster) Insist(order func(context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), c.opts.Timeout)
	defer cancel()
	for {
		err := order(ctx)
		if err == nil {
			return
		}
		if !errors.Is(err, store.ErrUnavailable) {
			c.t.Fatal(err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			c.t.Fatal(err)
		}
	}
}

// WaitReady waits until so many workers serve and the frontend offers the model.
func (c *Cluster) WaitReady(prefill, decode int) {
	c.t.Helper()
	c.WaitView(fmt.Sprintf("%d prefill and %d decode workers are ready", prefill, decode), func(v client.View) bool {
		n := map[cluster.Role]int{}
		for _, w := range v.Workers() {
			if !w.State.Serving() {
				return false
			}
			n[w.Role]++
		}
		generate := 0
		for _, i := range v.Instances {
			if i.Component == cluster.RoleDecode.Component() && i.Endpoint == cluster.EndpointGenerate {
				generate++
			}
		}
		return n[cluster.RolePrefill] == prefill && n[cluster.RoleEncode] == c.opts.Encode && n[cluster.RoleDecode] == decode && generate == decode
	})
	if decode > 0 {
		c.WaitServed(decode)
		c.WaitView("their endpoints are known here too", func(client.View) bool {
			return len(c.Instances(cluster.RoleDecode.Component(), cluster.EndpointGenerate)) >= decode
		})
	}
}

// WaitView waits for a condition on the state of the cluster.
func (c *Cluster) WaitView(what string, cond func(client.View) bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), c.opts.Timeout)
	defer cancel()
	err := c.Watch.Until(ctx, 100*time.Millisecond, func(v client.View) (bool, error) { return cond(v), nil })
	if err != nil {
		v := c.Watch.View()
		for _, w := range v.Workers() {
			c.t.Logf("%s %s %s %s", w.Name, w.Role, w.State, w.Reason)
		}
		c.t.Fatalf("never: %s: %v", what, err)
	}
}
