package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/dynctl/dynctl/internal/agent"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/undo"
	"github.com/dynctl/dynctl/internal/worker"
)

// nodeSpec describes a node and what it serves.
type nodeSpec struct {
	name            string
	dir             string // state directory
	prefill, decode int
	encode          int
	blocks          int    // KV blocks of each worker
	blockSize       int    // tokens, 0 for the rig's
	chunk           int    // tokens of a step, 0 for the default
	model           string // directory, empty for the built-in one; it is served under the built-in one's name
	quantize        string // format to which it quantizes the weights
	quantized       string // directory of quantized weights, empty for its own
	cores           int    // of its devices, 0 for all
	devices         int    // 0 for one on each NUMA node
	gpus            string // that workers run on, as gpu.devices names them; empty for processors
	apart           bool   // prefill workers run in a separate process
	cuda            driving
	strategy        string  // of disaggregation, empty for the default
	degrees         degrees // tensor-parallel ones, 0 for the default
	load            loader
	mock            bool // workers have the product's mock backend
}

// loader replaces the loading of the built-in model; nil does not.
type loader = func(context.Context, cluster.Assignment, func(float64)) (*worker.Loaded, error)

// driving replaces NVIDIA's driver, for tests; nil does not.
type driving = func() (driver.Driver, error)

// node is a whole dynamod inside this process: a cluster of its own.
type node struct {
	spec      nodeSpec
	url       string // of its frontend
	statusURL string // of health and metrics
	log       *slog.Logger
	store     store.Store
	plane     requestplane.Client
	at        statedir.Endpoints // of its stores
	back      undo.Stack
	// secretFile holds the secret of the cluster.
	secretFile string
}

const (
	nodeCluster = "bench"
	nodeTimeout = time.Minute
	nodePoll    = 10 * time.Millisecond
)

// errNotUp is returned when a node does not serve in time.
var errNotUp = errors.New("not up within a minute")

// config returns the default configuration, ignoring this machine's files and
// environment, with all embedded servers on free ports.
func (spec nodeSpec) config() (config.Dynamod, error) {
	cfg, _, err := config.LoadDynamod(config.Input{
		Environ:  []string{"HOME=" + spec.dir},
		ReadFile: func(string) ([]byte, error) { return nil, fs.ErrNotExist },
	})
	if err != nil {
		return cfg, err
	}
	cfg.Cluster, cfg.StateDir = nodeCluster, spec.dir
	cfg.Etcd.Listen, cfg.NATS.Listen = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Frontend.Port = 0
	cfg.CPU.Cores, cfg.CPU.Devices = spec.cores, spec.devices
	if spec.gpus != "" {
		cfg.GPU.Devices = spec.gpus
	}
	if spec.apart {
		cfg.Node.Roles = []string{string(cluster.RoleDecode)}
	}
	if spec.strategy != "" {
		cfg.Disagg.Strategy = spec.strategy
	}
	cfg.Disagg.Conditional, cfg.Disagg.MaxLocalPrefillTokens = cluster.ConditionalThreshold, 0
	cfg.Drain.Deadline = 5 * time.Second
	return cfg, cfg.Validate()
}

// startNode starts a node and declares what it serves.
func startNode(ctx context.Context, spec nodeSpec, log *slog.Logger) (_ *node, err error) {
	n := &node{spec: spec, log: log}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	cfg, err := spec.config()
	if err != nil {
		return nil, err
	}
	if err := spec.lendQuantized(); err != nil {
		return nil, err
	}
	up, err := startAgent(ctx, cfg, agent.Options{Version: "bench", Log: log, Load: spec.load, CUDA: spec.cuda}, &n.back)
	if err != nil {
		return nil, err
	}
	n.url, n.statusURL = up.FrontendURL, up.StatusURL
	if err := n.connect(cfg); err != nil {
		return nil, err
	}
	return n, n.declare(ctx)
}

// startAgent runs an agent until back stops it, and waits until it is up.
func startAgent(ctx context.Context, cfg config.Dynamod, o agent.Options, back *undo.Stack) (cluster.Node, error) {
	ready := make(chan cluster.Node, 1)
	o.Ready = func(n cluster.Node) { ready <- n }
	a, err := agent.New(cfg, o)
	if err != nil {
		return cluster.Node{}, err
	}
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(running, context.WithoutCancel(ctx)) }()
	back.Push("stop the node", func(ctx context.Context) error {
		stop(errDone)
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	select {
	case up := <-ready:
		return up, nil
	case err := <-ended:
		ended <- nil // for the step above
		return cluster.Node{}, err
	case <-ctx.Done():
		return cluster.Node{}, context.Cause(ctx)
	case <-time.After(nodeTimeout):
		return cluster.Node{}, errNotUp
	}
}

// lendQuantized makes existing quantized weights available to the node.
func (spec nodeSpec) lendQuantized() error {
	if spec.quantized == "" {
		return nil
	}
	models := filepath.Join(spec.dir, "models")
	if err := os.MkdirAll(models, 0o700); err != nil {
		return fmt.Errorf("lend quantized weights: %w", err)
	}
	if err := os.Symlink(spec.quantized, filepath.Join(models, "quantized")); err != nil {
		return fmt.Errorf("lend quantized weights: %w", err)
	}
	return nil
}

var errDone = errors.New("the benchmark is over")

// connect reaches the node's stores and workers.
func (n *node) connect(cfg config.Dynamod) error {
	dir, err := statedir.Open(cfg.StateDir, cfg.Cluster)
	if err != nil {
		return err
	}
	at, err := dir.Endpoints()
	if err != nil {
		return err
	}
	n.at, n.secretFile = at, cmp.Or(cfg.SecretFile, dir.SecretPath())
	return n.reach(cfg.Etcd.EtcdClient)
}

// reach connects to the stores at n.at and to workers.
func (n *node) reach(cfg config.EtcdClient) error {
	secret, err := credentials.Load(n.secretFile)
	if err != nil {
		return err
	}
	etcd, err := dial.Etcd(cfg, n.at.Etcd, dial.Identity{User: "bench", Secret: secret}, n.log)
	if err != nil {
		return err
	}
	n.store = etcd
	n.back.Push("close the etcd connection", func(context.Context) error { return etcd.Close() })
	n.plane = requestplane.NewClient(requestplane.ClientConfig{Key: handshake.NewKey(secret.Key(requestplane.KeyPurpose)), Log: n.log})
	n.back.Push("close the request plane", func(context.Context) error { return n.plane.Close() })
	return nil
}

// declare writes the topology of the cluster.
func (n *node) declare(ctx context.Context) error {
	t := cluster.Topology{
		Model: cluster.ModelSpec{Name: cluster.BuiltinModelName, Path: n.spec.model, Quantize: n.spec.quantize}, Prefill: n.spec.prefill, Decode: n.spec.decode, Encode: n.spec.encode,
		Engine:     cluster.EngineSpec{KVBlocks: n.spec.blocks, BlockSize: cmp.Or(n.spec.blockSize, rigBlockSize), MaxBatchTokens: n.spec.chunk},
		Generation: 1, UpdatedAt: time.Now(), UpdatedBy: "bench",
	}
	if n.spec.gpus != "" {
		t.Engine.Backend = cluster.BackendCUDA
	}
	if n.spec.mock {
		t.Engine.Backend = cluster.BackendMock
	}
	t.PrefillSpec.Engine.TensorParallel, t.DecodeSpec.Engine.TensorParallel = n.spec.degrees.prefill, n.spec.degrees.decode
	if err := t.Validate(); err != nil {
		return err
	}
	_, err := store.PutJSON(ctx, n.store, cluster.TopologyKey(cluster.DefaultNamespace), t)
	return err
}

func (n *node) close() { n.back.Run(stopStep, n.log) }

// waitServing waits until requests are answered and, with prefill workers, until prompts
// are prefilled remotely.
func (n *node) waitServing(ctx context.Context, client *sseClient, ask *asker) error {
	ctx, cancel := context.WithTimeoutCause(ctx, nodeTimeout, errNotUp)
	defer cancel()
	for {
		up, err := n.serves(ctx, client, ask)
		if up {
			return nil
		}
		if failed := n.failure(ctx); failed != nil {
			return failed
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(nodePoll):
		}
	}
}

// failure returns the failure of a worker, if one has failed.
func (n *node) failure(ctx context.Context) error {
	kvs, _, err := n.store.List(ctx, cluster.StatusPrefix(cluster.DefaultNamespace))
	if err != nil {
		return nil // not a worker's failure
	}
	for _, kv := range kvs {
		if st, err := store.DecodeJSON[cluster.WorkerStatus](kv); err == nil && st.State == cluster.StateFailed {
			return fmt.Errorf("%w: %s: %s", errWorker, st.Name, st.Reason)
		}
	}
	return nil
}

// errWorker is returned when a worker of the node does not start.
var errWorker = errors.New("a worker failed")

// serves reports whether the node works as it should; err is the reason if not.
func (n *node) serves(ctx context.Context, client *sseClient, ask *asker) (bool, error) {
	q, err := ask.question(ctx, 1, 2)
	if err != nil {
		return false, err
	}
	if _, err := client.to(n.url).answer(ctx, q); err != nil {
		return false, err
	}
	if n.spec.prefill == 0 {
		return true, nil
	}
	st, err := n.decodeStats(ctx)
	if err != nil {
		return false, err
	}
	return st.RemotePrefillTotal > 0, nil
}

// errNoWorker is returned when no decode worker is registered.
var errNoWorker = errors.New("no decode worker is registered")

// decodeStats asks the decode worker for its counters.
func (n *node) decodeStats(ctx context.Context) (cluster.WorkerStats, error) {
	prefix := cluster.InstancePrefix(cluster.DefaultNamespace, cluster.RoleDecode.Component(), cluster.EndpointStats)
	kvs, _, err := n.store.List(ctx, prefix)
	if err != nil {
		return cluster.WorkerStats{}, err
	}
	if len(kvs) == 0 {
		return cluster.WorkerStats{}, errNoWorker
	}
	var inst cluster.Instance
	if err := json.Unmarshal(kvs[0].Value, &inst); err != nil {
		return cluster.WorkerStats{}, fmt.Errorf("decode %s: %w", kvs[0].Key, err)
	}
	stream, err := n.plane.Call(ctx, inst.Transport.Address(), "bench-stats", nil, nil)
	if err != nil {
		return cluster.WorkerStats{}, err
	}
	defer stream.Close()
	var st cluster.WorkerStatus
	if err := stream.Recv(ctx, &st); err != nil {
		return cluster.WorkerStats{}, err
	}
	return st.Stats, nil
}
