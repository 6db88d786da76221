package dynamo

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/natspipe"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/undo"
)

// ErrUnreachable is returned by Connect when no cluster is found, or its store does not
// answer.
var ErrUnreachable = errors.New("cluster not reachable")

// ErrNoSecret is returned by Connect when this machine lacks the cluster's secret, without
// which nobody may call or serve.
var ErrNoSecret = errors.New("the cluster's secret is required")

// Runtime is this program as a part of a cluster. Close ends it.
type Runtime struct {
	d    *runtime.DistributedRuntime
	back undo.Stack
	log  *slog.Logger
}

// Option changes how a program joins a cluster.
type Option func(*options)

type options struct {
	environ         []string
	namespace, name string
	log             *slog.Logger
}

// WithEnviron reads settings from a list of NAME=value in place of the process's
// environment.
func WithEnviron(environ []string) Option { return func(o *options) { o.environ = environ } }

// WithNamespace is the namespace of events and models, in place of the configured one.
func WithNamespace(namespace string) Option { return func(o *options) { o.namespace = namespace } }

// WithName is the name that listings show beside what the program serves, in place of that
// of its file with its process id.
func WithName(name string) Option { return func(o *options) { o.name = name } }

// WithLogger has the package write logs, which it otherwise discards.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

func apply(opts []Option) options {
	o := options{environ: os.Environ(), log: slog.New(slog.DiscardHandler), name: fmt.Sprintf("%s-%d", filepath.Base(os.Args[0]), os.Getpid())}
	for _, f := range opts {
		f(&o)
	}
	return o
}

const (
	connectTimeout = 10 * time.Second // for the first answer of the store
	partTimeout    = 5 * time.Second  // for each connection to close
)

// Connect joins a cluster. It reads the settings of dynamod: its variables, such as
// ETCD_ENDPOINTS, NATS_SERVER, DYN_DISCOVERY_BACKEND, DYN_FILE_KV, DYN_REQUEST_PLANE,
// DYNAMOD_CLUSTER, DYNAMOD_NAMESPACE, DYNAMOD_SECRET_FILE and DYNAMOD_NODE_ADVERTISE_HOST,
// and its configuration file. Without addresses it joins the cluster that runs on this
// machine. Requests to this program arrive on a free port. DYN_DISCOVERY_BACKEND=mem gives the
// runtime a cluster of its own within this process, as [NewLocal] does, which ends with it.
//
// Errors: ErrUnreachable, ErrNoSecret, a wrong setting, or the cause of ctx.
func Connect(ctx context.Context, opts ...Option) (*Runtime, error) {
	o := apply(opts)
	cfg, origins, err := config.LoadDynamod(config.Input{Environ: o.environ})
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if cfg.Discovery.Backend == config.BackendMem {
		o.namespace = cmp.Or(o.namespace, cfg.Namespace)
		return alone(ctx, o)
	}
	local, err := statedir.Open(cfg.StateDir, cfg.Cluster)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if !origins.Set("discovery.backend") {
		if err := dial.Remember(&cfg.Discovery, false, local); err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
	}
	at, err := dial.Locate(cfg.Etcd.EtcdClient, cfg.Discovery, cfg.NATS.NATSClient, local)
	if err != nil {
		return nil, fmt.Errorf("connect: %w: %w", ErrUnreachable, err)
	}
	cfg.NATS.URL = cmp.Or(cfg.NATS.URL, at.NATS)
	if v, ok := origins.Of("namespace"); ok && v.Origin.Kind == config.FromDefault {
		cfg.Namespace = cmp.Or(at.Namespace, cfg.Namespace)
	}
	cfg.SecretFile = cmp.Or(cfg.SecretFile, local.SecretPath())
	cfg.Namespace = cmp.Or(o.namespace, cfg.Namespace)
	r := &Runtime{log: o.log}
	if err := r.connect(ctx, cfg, at.Etcd, o); err != nil {
		r.back.Run(partTimeout, r.log)
		return nil, fmt.Errorf("connect: %w", err)
	}
	return r, nil
}

func (r *Runtime) connect(ctx context.Context, cfg config.Dynamod, addrs []string, o options) error {
	secret, err := credentials.Load(cfg.SecretFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is no file %s; \"dynctl join\" with a token of the cluster makes it", ErrNoSecret, cfg.SecretFile)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNoSecret, err)
	}
	id := dial.Identity{User: "dynamod", Secret: secret}
	plumb := runtime.Config{Namespace: cfg.Namespace, LeaseTTL: cfg.LeaseTTL(), Worker: o.name, Log: o.log}
	stores := dial.Stores{Etcd: cfg.Etcd.EtcdClient, NATS: cfg.NATS.NATSClient, Kubernetes: cfg.Kubernetes}
	if plumb.Store, err = dial.Store(stores, addrs, id, o.log); err != nil {
		return err
	}
	r.back.Push("close the store", func(context.Context) error { return plumb.Store.Close() })
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if _, err := plumb.Store.Ping(limited); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	var nc *events.NATS
	if cfg.NATS.URL != "" {
		bus, err := dial.NATS(cfg.NATS.NATSClient, "", o.name, id, o.log)
		if err != nil {
			return err
		}
		r.back.Push("close the NATS connection", func(context.Context) error { return bus.Close() })
		plumb.Bus, nc = bus, bus
	}
	if err := r.openPlane(cfg, handshake.NewKey(secret.Key(requestplane.KeyPurpose)), nc, &plumb); err != nil {
		return err
	}
	return r.begin(limited, plumb)
}

// openPlane listens for requests. nc may be nil.
func (r *Runtime) openPlane(cfg config.Dynamod, key handshake.Key, nc *events.NATS, plumb *runtime.Config) error {
	var secure *tls.Config
	if cfg.RequestPlane.TLS {
		var err error
		if secure, err = handshake.Ephemeral(); err != nil {
			return err
		}
	}
	host := cfg.Node.AdvertiseHost
	listen := cmp.Or(cfg.RequestPlane.Listen, config.DefaultAnyListen)
	if ip := net.ParseIP(host); listen == config.DefaultAnyListen && host != "localhost" && host != "" && (ip == nil || !ip.IsLoopback()) {
		listen = ":0" // others reach it at the advertised host
	}
	pipes, err := r.openPipes(cfg, nc, plumb.Log)
	if err != nil {
		return err
	}
	srv, err := requestplane.Listen(cluster.Plane(cfg.RequestPlane.Mode), requestplane.ServerConfig{Addr: listen, Pipes: pipes, Key: key, TLS: secure, Log: plumb.Log})
	if err != nil {
		return err
	}
	r.back.Push("stop the request plane", func(context.Context) error { return srv.Close() })
	at, plane := cluster.SplitPlane(srv.Addr())
	if plane != cluster.PlaneNATS {
		bound, port, err := net.SplitHostPort(at)
		if err != nil {
			return err
		}
		if ip := net.ParseIP(bound); host != "" && ip != nil && ip.IsUnspecified() {
			bound = host
		}
		at = net.JoinHostPort(bound, port)
	}
	client := requestplane.NewClient(requestplane.ClientConfig{
		Key: key, TLS: secure, Log: plumb.Log,
		Pipes: func() (*natspipe.Hub, error) {
			if pipes == nil {
				return nil, errNoNATS
			}
			return pipes, nil
		},
	})
	r.back.Push("close the request plane's connections", func(context.Context) error { return client.Close() })
	plumb.Server, plumb.Client, plumb.AdvertiseAddr = srv, client, plane.Server(at)
	return nil
}

var errNoNATS = errors.New("requests over NATS need a NATS server: set NATS_SERVER")

// openPipes returns pipes over a connection to NATS, if there is one.
func (r *Runtime) openPipes(cfg config.Dynamod, nc *events.NATS, log *slog.Logger) (*natspipe.Hub, error) {
	switch {
	case nc != nil:
		pipes := natspipe.New(nc, natspipe.Config{Log: log})
		r.back.Push("close the pipes over NATS", func(context.Context) error { return pipes.Close() })
		return pipes, nil
	case cfg.RequestPlane.Mode == config.PlaneNATS:
		return nil, errNoNATS
	}
	return nil, nil
}

// begin takes a lease.
func (r *Runtime) begin(ctx context.Context, plumb runtime.Config) (err error) {
	if r.d, err = runtime.New(ctx, plumb); err != nil {
		return err
	}
	host, _ := os.Hostname() // empty where the system does not tell
	_, err = r.d.Introduce(ctx, cluster.Program{Name: plumb.Worker, Kind: cluster.ProgramOwn, Host: host, PID: os.Getpid()})
	if err != nil {
		return errors.Join(err, r.d.Close(ctx))
	}
	return nil
}

// Namespace returns the namespace of the runtime's events and models.
func (r *Runtime) Namespace() string { return r.d.Namespace() }

// ID returns the instance id of everything that the runtime serves. It changes when the
// lease was lost and is granted anew.
func (r *Runtime) ID() uint64 { return uint64(r.d.ID()) }

// Close takes everything that the runtime serves out of discovery, lets running requests
// end until ctx does, and leaves the cluster.
func (r *Runtime) Close(ctx context.Context) error {
	err := r.d.Shutdown(ctx)
	r.back.Run(partTimeout, r.log)
	if err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// bus returns the event plane, or an error if the cluster has none.
func (r *Runtime) bus() (events.Bus, error) {
	if b := r.d.Bus(); b != nil {
		return b, nil
	}
	return nil, errors.New("the cluster has no event plane: set NATS_SERVER")
}
