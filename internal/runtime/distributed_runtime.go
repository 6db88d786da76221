package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/ondemand"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/store"
)

// DefaultLeaseTTL is the lease TTL unless configured: a process that is silent for longer
// counts as gone.
const DefaultLeaseTTL = 10 * time.Second

// ErrClosed is returned by everything after the DistributedRuntime's Close.
var ErrClosed = errors.New("runtime closed")

// Config holds the parts of a [DistributedRuntime].
type Config struct {
	Store store.Store
	// Static lists instances that are known beforehand, in place of a Store; see
	// [StaticInstance]. If it is not nil, there is no discovery: what the runtime serves
	// has a path that follows from its name, and what it publishes stays in this process.
	Static []cluster.Instance
	// Server answers requests; nil if the runtime serves no endpoints.
	Server requestplane.Server
	// Client calls other instances; nil if the runtime calls none.
	Client requestplane.Client
	Bus    events.Bus // may be nil; kept for [DistributedRuntime.Bus]

	Namespace string // default [cluster.DefaultNamespace]
	// AdvertiseAddr is the address at which others reach Server, in the form of its Addr,
	// which is the default.
	AdvertiseAddr string
	LeaseTTL      time.Duration // default [DefaultLeaseTTL]

	// Worker, Node and Incarnation go into every registration; see
	// [cluster.Instance].
	Worker, Node, Incarnation string

	Log *slog.Logger // nil discards
}

func (c *Config) complete() error {
	if (c.Store == nil) == (c.Static == nil) {
		return errors.New("runtime: either a store or static instances are required")
	}
	if c.Namespace == "" {
		c.Namespace = cluster.DefaultNamespace
	}
	if err := cluster.CheckNamespace(c.Namespace); err != nil {
		return err
	}
	if c.AdvertiseAddr == "" && c.Server != nil {
		c.AdvertiseAddr = c.Server.Addr()
	}
	if c.LeaseTTL <= 0 {
		c.LeaseTTL = DefaultLeaseTTL
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// DistributedRuntime is one lease, with the endpoints and keys that live under it.
type DistributedRuntime struct {
	cfg    Config
	static *store.Memory // its own store in static mode, else nil
	log    *slog.Logger
	ctx    context.Context // ends with ErrClosed
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	repairs *ondemand.Task // woken when some record differs from the store
	// Owned by repairs.
	backoff time.Duration // after the last failure, 0 after a success
	audited time.Time

	mu        sync.Mutex
	closed    bool
	keeper    *store.LeaseKeeper
	renewal   chan struct{} // closed and replaced when the id changes
	records   map[*record]struct{}
	served    map[*Served]struct{}
	onRelease []func(old, renewed cluster.InstanceID)

	introduced []*Introduced
}

// New grants a lease, keeps it, and returns the runtime. It fails when the store
// does not answer.
func New(ctx context.Context, cfg Config) (*DistributedRuntime, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	log := cfg.Log
	if cfg.Worker != "" {
		log = log.With("worker", cfg.Worker)
	}
	var static *store.Memory
	if cfg.Static != nil {
		var err error
		if static, err = staticStore(ctx, cfg.Static); err != nil {
			return nil, fmt.Errorf("start runtime: %w", err)
		}
		cfg.Store, cfg.Static = static, nil
	}
	keeper, err := cfg.Store.KeepLease(ctx, cfg.LeaseTTL, log)
	if err != nil {
		if static != nil {
			err = errors.Join(err, static.Close())
		}
		return nil, fmt.Errorf("start runtime: %w", err)
	}
	d := &DistributedRuntime{
		cfg:     cfg,
		static:  static,
		log:     log,
		audited: time.Now(),
		keeper:  keeper,
		renewal: make(chan struct{}),
		records: map[*record]struct{}{},
		served:  map[*Served]struct{}{},
	}
	d.ctx, d.cancel = context.WithCancelCause(context.Background())
	d.repairs = ondemand.New(d.ctx, d.repair)
	d.repairs.WakeIn(auditTTLs * cfg.LeaseTTL)
	keeper.OnLost(d.repairs.Wake)
	return d, nil
}

// ID returns the current lease id, which is the instance id of everything
// registered here. It changes when a lost lease is granted anew.
func (d *DistributedRuntime) ID() cluster.InstanceID {
	id, _ := d.current()
	return id
}

// current returns the id and a channel that is closed when it changes.
func (d *DistributedRuntime) current() (cluster.InstanceID, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.keeper.ID(), d.renewal
}

// Namespace returns the namespace of everything registered here.
func (d *DistributedRuntime) Namespace() string { return d.cfg.Namespace }

// Store returns the store the runtime was given.
func (d *DistributedRuntime) Store() store.Store { return d.cfg.Store }

// Bus returns the bus the runtime was given, which may be nil.
func (d *DistributedRuntime) Bus() events.Bus { return d.cfg.Bus }

// LeaseView is the state of the lease as this process knows it at one moment.
type LeaseView struct {
	ID          cluster.InstanceID
	TTL         time.Duration
	LastRenewed time.Time
	// Uncertain means that the lease should have ended by now, but the store
	// could not be asked. Others may consider this process gone.
	Uncertain bool
	Err       error // of the last renewal, nil if it succeeded
}

// Lease returns the state of the lease as it is known now.
func (d *DistributedRuntime) Lease() LeaseView {
	d.mu.Lock()
	keeper := d.keeper
	d.mu.Unlock()
	return LeaseView{
		ID:          keeper.ID(),
		TTL:         keeper.TTL(),
		LastRenewed: keeper.LastRenewed(),
		Uncertain:   keeper.Uncertain(),
		Err:         keeper.Err(),
	}
}

// OnRelease registers f to run after a lost lease was granted anew. By then everything is
// registered again under the new id, as far as the store allowed it. f runs on the
// runtime's own goroutine: it must return soon and must not call Close.
func (d *DistributedRuntime) OnRelease(f func(old, renewed cluster.InstanceID)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.onRelease = append(d.onRelease, f)
}

// Elect runs lead whenever this runtime is elected at prefix, as [store.Elect]
// does, across lost leases, until ctx ends or the runtime is closed. It returns
// the cause.
func (d *DistributedRuntime) Elect(ctx context.Context, prefix, value string, lead func(context.Context) error) error {
	ctx, cancel := d.join(ctx)
	defer cancel()
	for {
		id, renewed := d.current()
		err := store.Elect(ctx, d.cfg.Store, prefix, value, id, lead)
		if !errors.Is(err, store.ErrLeaseNotFound) {
			return err
		}
		if err := d.awaitRenewal(ctx, renewed); err != nil {
			return err
		}
	}
}

// goes runs f on a goroutine that Close waits for, unless Close has begun.
func (d *DistributedRuntime) goes(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.wg.Go(f)
	}
}

// join derives a context that also ends with the runtime.
func (d *DistributedRuntime) join(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(d.ctx, func() { cancel(context.Cause(d.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// awaitRenewal has the lease checked and waits for a new one. ctx must come from join.
func (d *DistributedRuntime) awaitRenewal(ctx context.Context, renewed <-chan struct{}) error {
	d.checkLease()
	select {
	case <-renewed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close revokes the lease, which takes everything registered here out of
// discovery at once, refuses new requests and waits for the running ones until
// ctx ends. When the store cannot be reached, the lease is left to expire and
// the error says so. Closing twice is fine.
func (d *DistributedRuntime) Close(ctx context.Context) error {
	d.mu.Lock()
	first := !d.closed
	d.closed = true
	served := slices.Collect(maps.Keys(d.served))
	introduced := d.introduced
	d.mu.Unlock()
	d.cancel(ErrClosed)
	d.repairs.Close()
	for _, i := range introduced {
		i.task.Close()
	}
	d.wg.Wait()
	if !first {
		return nil
	}
	var errs []error
	if err := d.revoke(ctx); err != nil {
		errs = append(errs, err)
	}
	for _, s := range served {
		errs = append(errs, s.unbind(ctx))
	}
	if d.static != nil {
		errs = append(errs, d.static.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close runtime: %w", err)
	}
	return nil
}

// revokeTimeout bounds the last phase of [DistributedRuntime.Shutdown].
const revokeTimeout = 3 * time.Second

// Shutdown closes the runtime in phases: all endpoints leave discovery and then refuse new
// requests, the running ones have until ctx ends, and the lease is revoked last. Keys of
// [DistributedRuntime.PutOwned] stay until then. The error names the endpoints with requests
// that have not ended; it matches the cause of ctx.
func (d *DistributedRuntime) Shutdown(ctx context.Context) error {
	d.mu.Lock()
	served := slices.Collect(maps.Keys(d.served))
	d.mu.Unlock()
	errs := make([]error, len(served))
	var wg sync.WaitGroup
	for i, s := range served {
		wg.Go(func() { errs[i] = s.Close(ctx) })
	}
	wg.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeTimeout)
	defer cancel()
	d.mu.Lock()
	clear(d.served) // they have had their time
	d.mu.Unlock()
	return errors.Join(errors.Join(errs...), d.Close(last))
}

// revoke ends the lease. If the store does not answer, the lease is left to expire.
func (d *DistributedRuntime) revoke(ctx context.Context) error {
	ctx, cancel := d.cfg.Store.WhileAnswering(ctx)
	defer cancel()
	return d.keeper.Revoke(ctx)
}
