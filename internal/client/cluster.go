package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/store"
)

// ErrUnreachable is returned when the cluster's stores cannot be reached.
var ErrUnreachable = errors.New("cluster not reachable")

// ErrNoSecret is returned by calls to nodes and workers when the client lacks the
// cluster's secret.
var ErrNoSecret = errors.New("nodes and workers require the cluster's secret")

// Cluster is a connection to one cluster. It is safe for concurrent use; Close
// ends everything that was started through it.
type Cluster struct {
	Name      string
	Namespace string
	// Local is the cluster's directory on this machine. It is set even if the cluster
	// does not run here.
	Local statedir.Cluster

	cfg   config.Dynctl
	id    dial.Identity
	log   *slog.Logger
	store store.Store
	addrs []string // of the store
	nats  string
	plane requestplane.Client
	pipes pipes
}

// Connect connects to the stores of a cluster, at the configured endpoints or those of
// the local cluster of that name. Without a configured namespace, it uses the one that
// the local cluster was started for, or else the default. It fails with ErrUnreachable
// when no store answers.
func Connect(ctx context.Context, cfg config.Dynctl, log *slog.Logger) (*Cluster, error) {
	local, err := statedir.Open(cfg.StateDir, cfg.Cluster)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Name: cfg.Cluster, Namespace: cfg.Namespace, Local: local, cfg: cfg, log: log, nats: cfg.NATS.URL}
	at, err := dial.Locate(cfg.Etcd, cfg.Discovery, cfg.NATS, local)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	c.addrs, c.nats = at.Etcd, cmp.Or(c.nats, at.NATS)
	c.Namespace = cmp.Or(c.Namespace, at.Namespace, cluster.DefaultNamespace)
	secret, noSecret := Secret(cfg)
	c.id = dial.Identity{User: "dynctl", Secret: secret}
	stores := dial.Stores{Etcd: cfg.Etcd, NATS: cfg.NATS, Kubernetes: config.Kubernetes{KubernetesClient: cfg.Kubernetes}}
	stores.NATS.URL = c.nats
	if c.store, err = dial.Store(stores, c.addrs, c.id, log); err != nil {
		if errors.Is(err, dial.ErrNoSecret) {
			err = fmt.Errorf("%w: %w: %w", ErrUnreachable, err, noSecret)
		}
		return nil, err
	}
	ping, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := c.store.Ping(ping); err != nil {
		if why := dial.Diagnose(ctx, dial.Servers(c.addrs, c.nats), c.id); why != nil {
			err = why
		}
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrUnreachable, err), c.store.Close())
	}
	// Without the secret, stores that allow it can still be read. Nodes and workers
	// refuse to answer.
	var key handshake.Key
	if noSecret == nil {
		key = handshake.NewKey(secret.Key(requestplane.KeyPurpose))
	}
	c.plane = requestplane.NewClient(requestplane.ClientConfig{Key: key, NoKey: noSecret, Pipes: c.openPipes, Log: log})
	return c, nil
}

// Kinds of stores beside etcd, see [Cluster.StoreKind].
const (
	StoreFiles      = "files"
	StoreNATS       = "nats"
	StoreKubernetes = "kubernetes"
)

// StoreKind says what holds the cluster's state, and its directory or bucket. Both are empty
// for etcd.
func (c *Cluster) StoreKind() (kind, name string) {
	switch d, _ := config.DiscoveryAt(c.addrs); {
	case d.InFiles():
		return StoreFiles, d.Dir
	case d.InNATS():
		return StoreNATS, d.Bucket
	case d.InKubernetes():
		return StoreKubernetes, ""
	}
	return "", ""
}

// Secret returns the secret of the cluster, or ErrNoSecret if this machine does not have
// it.
func Secret(cfg config.Dynctl) (credentials.Secret, error) {
	local, err := statedir.Open(cfg.StateDir, cfg.Cluster)
	if err != nil {
		return credentials.Secret{}, err
	}
	path := cmp.Or(cfg.SecretFile, local.SecretPath())
	s, err := credentials.Load(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, fmt.Errorf("%w: there is no file %s; run \"dynctl join\" here with the token from \"dynctl credentials --join\" on a machine of the cluster, or copy its secret and set secret_file", ErrNoSecret, path)
	case err != nil:
		return s, fmt.Errorf("%w: %w", ErrNoSecret, err)
	}
	return s, nil
}

// Close ends the connections.
func (c *Cluster) Close() error {
	return errors.Join(c.plane.Close(), c.pipes.close(), c.store.Close())
}

// Bus connects to the cluster's event plane. It returns nil when none is configured. The
// caller closes it.
func (c *Cluster) Bus() (*events.NATS, error) {
	if c.nats == "" {
		return nil, nil
	}
	return dial.NATS(c.cfg.NATS, c.nats, "dynctl", c.id, c.log)
}

// Topology returns the desired state, or nil if none was ever declared.
func (c *Cluster) Topology(ctx context.Context) (*cluster.Topology, error) {
	t, _, err := store.GetJSON[cluster.Topology](ctx, c.store, cluster.TopologyKey(c.Namespace))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read topology: %w", err)
	}
	return &t, nil
}

// errUnchanged ends an update that would not change the stored value.
var errUnchanged = errors.New("unchanged")

func whoAmI() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// ErrNoWorker is returned when no worker has that name.
var ErrNoWorker = errors.New("no such worker")

// Order changes the assignment of one worker by compare-and-swap. change may run again
// after a concurrent change. Nothing is written when nothing changes.
func (c *Cluster) Order(ctx context.Context, worker string, change func(*cluster.Assignment) error) error {
	_, _, err := store.UpdateJSON(ctx, c.store, cluster.AssignmentKey(c.Namespace, worker), func(a cluster.Assignment, exists bool) (cluster.Assignment, error) {
		if !exists {
			return a, ErrNoWorker
		}
		before := a
		if err := change(&a); err != nil {
			return a, err
		}
		if a == before {
			return a, errUnchanged
		}
		return a, nil
	})
	switch {
	case errors.Is(err, errUnchanged):
		return nil
	case errors.Is(err, ErrNoWorker):
		return fmt.Errorf("%w in cluster %s", ErrNoWorker, c.Name)
	}
	return err
}

// HTTPToken returns the token with which programs that are no nodes call endpoints of nodes
// that serve requests over HTTP.
func HTTPToken(secret credentials.Secret) string {
	return requestplane.HTTPToken(handshake.NewKey(secret.Key(requestplane.KeyPurpose)))
}
