package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
)

// DefaultKubernetesTTL is the default of [KubernetesConfig.MinTTL].
const DefaultKubernetesTTL = 30 * time.Second

// KubernetesConfig says how a [Kubernetes] store is reached, and who uses it.
type KubernetesConfig struct {
	Client *kube.Client
	// Pod is where this process runs; instances of a process in a pod are in the pod's
	// DynamoWorkerMetadata object.
	Pod kube.Pod
	// Agent says that the first lease of this process is that of a node. The instance id
	// that follows from the pod's name is for the lease after that.
	Agent bool
	// MinTTL is the least TTL of leases, each of which is renewed after half of it.
	// Default [DefaultKubernetesTTL].
	MinTTL  time.Duration
	Timeout time.Duration // of one call; default [DefaultTimeout]
	// Explain is the interval at which the log says why somebody who waits for instances
	// sees none. Default 10 s.
	Explain time.Duration
}

// Kubernetes is a [Store] in objects of the Kubernetes API. KUBERNETES.md says how it works
// and what it guarantees.
type Kubernetes struct {
	client    *kube.Client
	pod       kube.Pod
	minTTL    time.Duration
	timeout   time.Duration
	explains  time.Duration
	log       *slog.Logger
	life      *lifetime
	health    *health
	run       string  // of this process
	late      float64 // how long this process leaves the end of leases to others, as a share
	restarts  chan struct{}
	sooner    chan struct{} // capacity 1: the interval of checks is shorter
	listed    chan struct{} // closed when all that is followed has been listed once
	documents documents

	mu      sync.Mutex // guards what follows
	state   replica
	moved   chan struct{} // closed and replaced when what is below has changed
	unread  map[kube.Resource]bool
	failing map[kube.Resource]error
	proven  time.Time // when the API server last gave a sign of life

	version  int64 // of the records, up to which all changes are known
	records  map[string]*kube.Record
	landings map[string]*landing // by the name of the write
	orphaned map[string]time.Duration
	holding  map[cluster.InstanceID]*holding // leases of this process
	every    time.Duration                   // the interval of checks
	agent    bool                            // the next lease is that of a node
	names    int                             // names given to leases

	workersVersion int64
	workers        map[string]*workerView
	ready          map[string]map[string]bool // by object that declares it
	told           string                     // the last diagnosis
}

var _ Store = (*Kubernetes)(nil)

// NewKubernetes returns a store in the namespace of the client. It connects in the
// background; Close ends it.
func NewKubernetes(cfg KubernetesConfig, log *slog.Logger) (*Kubernetes, error) {
	if err := cfg.Pod.Check(); err != nil {
		return nil, fmt.Errorf("open the store in Kubernetes: %w", err)
	}
	k := &Kubernetes{
		client:   cfg.Client,
		pod:      cfg.Pod,
		minTTL:   withDefault(cfg.MinTTL, DefaultKubernetesTTL),
		timeout:  withDefault(cfg.Timeout, DefaultTimeout),
		explains: withDefault(cfg.Explain, tellEvery),
		log:      log,
		life:     newLifetime(),
		health:   newHealth(),
		run:      rand.Text()[:16],
		late:     mathrand.Float64(),
		restarts: make(chan struct{}),
		sooner:   make(chan struct{}, 1),
		listed:   make(chan struct{}),
		state:    newReplica(),
		moved:    make(chan struct{}),
		failing:  map[kube.Resource]error{},
		every:    checkMax,
		records:  map[string]*kube.Record{},
		landings: map[string]*landing{},
		orphaned: map[string]time.Duration{},
		holding:  map[cluster.InstanceID]*holding{},
		agent:    cfg.Agent,
		workers:  map[string]*workerView{},
		ready:    map[string]map[string]bool{},
	}
	k.pod.Namespace = cfg.Client.Namespace
	k.documents.turn = make(chan struct{}, 1)
	readiness, selector := kube.ReadyIn(k.pod.Mode)
	k.unread = map[kube.Resource]bool{kube.Records: true, kube.WorkerMetadata: true, readiness: true}
	for _, run := range []func(context.Context){
		func(ctx context.Context) {
			follow(k, kube.Records, "", k.replaceRecords, k.changeRecord).Run(ctx, k.restarts)
		},
		func(ctx context.Context) {
			follow(k, kube.WorkerMetadata, "", k.replaceWorkers, k.changeWorker).Run(ctx, nil)
		},
		func(ctx context.Context) {
			follow(k, readiness, selector, k.replaceReady, k.changeReady).Run(ctx, nil)
		},
		k.maintain,
	} {
		finished, err := k.life.begin()
		if err != nil {
			return nil, err
		}
		go func() {
			defer finished()
			run(k.life.ctx)
		}()
	}
	return k, nil
}

// follow returns a follower whose news the store takes over under its lock.
func follow[T any](k *Kubernetes, r kube.Resource, selector string, replace func([]*T, int64), change func(*T, bool, int64)) *kube.Follower[T] {
	locked := func(do func()) {
		k.mu.Lock()
		defer k.mu.Unlock()
		do()
		close(k.moved)
		k.moved = make(chan struct{})
	}
	return &kube.Follower[T]{
		Client: k.client, Resource: r, Selector: selector,
		Replace: func(all []*T, version int64) {
			locked(func() {
				replace(all, version)
				if delete(k.unread, r); len(k.unread) == 0 {
					select {
					case <-k.listed:
					default:
						close(k.listed)
					}
				}
			})
		},
		Changed:  func(object *T, gone bool, version int64) { locked(func() { change(object, gone, version) }) },
		Answered: func() { k.answered(r) },
		Failing:  func(err error, next time.Time) { k.fails(r, err, next) },
	}
}

// answered notes a sign of life of what follows a resource.
func (k *Kubernetes) answered(r kube.Resource) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.failing, r)
	k.proven = time.Now()
	if r == kube.Records {
		k.state.observe(k.proven)
	}
	if len(k.failing) > 0 {
		return
	}
	if down, _ := k.health.answered(nil); down > 0 {
		k.log.Info("the API server is back", "server", k.client.Server, "down", down.Round(time.Millisecond))
	}
}

func (k *Kubernetes) fails(r kube.Resource, err error, next time.Time) {
	k.mu.Lock()
	k.failing[r] = err
	k.mu.Unlock()
	if k.health.failed(err, next) {
		k.log.Warn("the API server does not answer", "server", k.client.Server, "err", err)
	}
}

// callKubernetes runs one call with the default timeout, once everything has been listed, and explains its
// error.
func callKubernetes[T any](ctx context.Context, k *Kubernetes, verb, subject string, call func(context.Context) (T, error)) (T, error) {
	var none T
	if subject != "" {
		verb += " " + subject
	}
	switch {
	case ctx.Err() != nil:
		return none, fmt.Errorf("%s: %w", verb, context.Cause(ctx))
	case k.life.ctx.Err() != nil:
		return none, fmt.Errorf("%s: %w", verb, ErrClosed)
	}
	limited, cancel := k.life.join(ctx)
	defer cancel(nil)
	if _, bounded := ctx.Deadline(); !bounded {
		var stop context.CancelFunc
		limited, stop = context.WithTimeout(limited, k.timeout)
		defer stop()
	}
	var result T
	var err error
	select {
	case <-k.listed:
		result, err = call(limited)
	case <-limited.Done():
		err = limited.Err()
	}
	if err == nil {
		return result, nil
	}
	return none, fmt.Errorf("%s: %w", verb, k.explain(ctx, err))
}

// explain turns an error of a call in terms of a store.
func (k *Kubernetes) explain(ctx context.Context, err error) error {
	for _, ours := range []error{ErrNotFound, ErrExists, ErrConflict, ErrLeaseNotFound, ErrUnavailable} {
		if errors.Is(err, ours) {
			return err
		}
	}
	switch {
	case k.life.ctx.Err() != nil:
		return ErrClosed
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Cause(ctx)
	case kube.IsDenied(err):
		return fmt.Errorf("%w: %w", ErrDenied, err)
	case kube.IsRefused(err):
		return err
	}
	if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if _, last, _ := k.health.trouble(); last != nil && !errors.Is(err, last) {
		err = fmt.Errorf("%w (%w)", err, last)
	}
	return fmt.Errorf("%w: API server %s: %w", ErrUnavailable, k.client.Server, err)
}

// await waits until a condition holds, which is looked at under the lock.
func (k *Kubernetes) await(ctx context.Context, holds func() bool) error {
	for {
		k.mu.Lock()
		held, moved := holds(), k.moved
		k.mu.Unlock()
		if held {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				k.restart()
			}
			return fmt.Errorf("what was written does not arrive: %w", ctx.Err())
		}
	}
}

// restart has the records watched anew, because they may not arrive any more.
func (k *Kubernetes) restart() {
	select {
	case k.restarts <- struct{}{}:
	default:
	}
}

// next returns the revision of a change that the API server gave a version. Versions of
// one resource grow, so that only changes of others shift what is counted here.
func (k *Kubernetes) next(version int64) Revision { return max(Revision(version), k.state.rev+1) }

// KeepLease implements [Store].
func (k *Kubernetes) KeepLease(ctx context.Context, ttl time.Duration, log *slog.Logger) (*LeaseKeeper, error) {
	return keepLease(ctx, k.life, k, ttl, log)
}

// WhileAnswering implements [Store].
func (k *Kubernetes) WhileAnswering(ctx context.Context) (context.Context, context.CancelFunc) {
	return k.health.whileAnswering(ctx)
}

// Ping implements [Store].
func (k *Kubernetes) Ping(ctx context.Context) (time.Duration, error) {
	return callKubernetes(ctx, k, "ping", "", func(ctx context.Context) (time.Duration, error) {
		start := time.Now()
		err := k.client.Probe(ctx, kube.Records)
		return time.Since(start), err
	})
}

// Close implements [Store].
func (k *Kubernetes) Close() error {
	if k.life.close() {
		k.health.stop()
	}
	return nil
}

// Leases implements [Store].
func (k *Kubernetes) Leases(ctx context.Context) ([]cluster.InstanceID, error) {
	return callKubernetes(ctx, k, "list leases", "", func(ctx context.Context) ([]cluster.InstanceID, error) {
		err := k.sync(ctx, kube.LabelLease, "", func(r *kube.Record) bool { return r.IsLease() })
		if err != nil {
			return nil, err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		return slices.Sorted(maps.Keys(k.state.leases)), nil
	})
}

// newID returns a random id that fits into a float64.
func newID() cluster.InstanceID {
	return cluster.InstanceID(mathrand.Int64N(math.MaxInt64>>10) + 1)
}
