package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/store"
)

// Quarantine is the time for which the client does not offer an instance that failed. A
// changed registration ends it early.
const Quarantine = 5 * time.Second

var (
	// ErrNoTransport is returned by Call for an instance without an address on the
	// request plane.
	ErrNoTransport = errors.New("instance has no request plane address")
	// ErrNoInstances is returned by Wait when its context ends before enough instances
	// are routable.
	ErrNoInstances = errors.New("not enough instances")
)

// Source provides the configuration of a [Client]: a [*DistributedRuntime] or a [Config].
type Source interface {
	source() Config
}

func (c Config) source() Config { return c }

func (d *DistributedRuntime) source() Config { return d.cfg }

// Client follows the instances of one endpoint and calls them. While the store is
// unreachable it keeps the last known instances.
type Client struct {
	subject cluster.Endpoint
	plane   requestplane.Client
	dir     *directory
	log     *slog.Logger
	ctx     context.Context // ends with the client
	cancel  context.CancelFunc
	changed chan struct{} // capacity 1, never closed
	left    chan struct{} // closed when the client has left the directory

	mu          sync.Mutex
	timer       *time.Timer // runs refresh when the next quarantine ends; nil before the first one
	quarantined map[cluster.InstanceID]quarantine
	shut        map[cluster.InstanceID]bool // those that routable leaves out
	routable    []cluster.Instance          // sorted by id; replaced as a whole, never modified
	version     int                         // of the listing that routable was made of
	update      chan struct{}               // closed and replaced with routable
}

// registration is an instance with the revision it was registered at.
type registration struct {
	instance cluster.Instance
	revision store.Revision
}

// quarantine ends at its time, or when the instance has another revision.
type quarantine struct {
	until    time.Time
	revision store.Revision
}

// NewClient follows an endpoint until ctx ends or the client is closed. It returns once
// the current instances are known. There may be none; see [Client.Wait].
func NewClient(ctx context.Context, src Source, component, endpoint string) (*Client, error) {
	cfg := src.source()
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	name := cluster.Endpoint{Namespace: cfg.Namespace, Component: component, Name: endpoint}
	if err := name.Check(); err != nil {
		return nil, err
	}
	c := &Client{
		subject:     name,
		plane:       cfg.Client,
		log:         cfg.Log.With("endpoint", component+"/"+endpoint),
		changed:     make(chan struct{}, 1),
		left:        make(chan struct{}),
		quarantined: map[cluster.InstanceID]quarantine{},
		update:      make(chan struct{}),
	}
	var err error
	if c.dir, err = directories.Join(ctx, cfg.Store, name.Prefix(), c.log); err != nil {
		return nil, fmt.Errorf("find %s: %w", c.subject, err)
	}
	if err := c.dir.CatchUp(ctx); err != nil {
		c.dir.Leave()
		return nil, fmt.Errorf("find %s: %w", c.subject, err)
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.dir.OnChange(c.refresh)
	c.refresh()
	context.AfterFunc(c.ctx, func() {
		defer close(c.left)
		c.dir.Leave()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.timer != nil {
			c.timer.Stop()
		}
	})
	return c, nil
}

func decodeRegistration(kv store.KV) (registration, error) {
	inst, err := cluster.ReadInstance(kv.Key, kv.Value)
	if err != nil {
		return registration{}, fmt.Errorf("decode %s: %w", kv.Key, err)
	}
	if why := inst.Transport.Unspoken(); why != "" {
		return registration{}, fmt.Errorf("instance %s cannot be called: %s", inst.InstanceID, why)
	}
	return registration{instance: inst, revision: kv.ModRevision}, nil
}

// refresh computes the routable instances, now and when the next quarantine ends.
func (c *Client) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, next := time.Now(), time.Duration(0)
	all := c.dir.View() // under the lock, so that the newest one wins
	known := make(map[cluster.InstanceID]quarantine, len(c.quarantined))
	for id, q := range c.quarantined {
		i, there := all.find(id)
		if left := q.until.Sub(now); there && left > 0 && all.revisions[i] == q.revision {
			known[id] = q
			if next == 0 || left < next {
				next = left
			}
		}
	}
	c.refreshInLocked(next)
	same := len(known) == len(c.shut)
	shut := make(map[cluster.InstanceID]bool, len(known))
	for id := range known {
		same, shut[id] = same && c.shut[id], true
	}
	left := len(known) < len(c.quarantined) // quarantine, perhaps because they are gone
	c.quarantined, c.shut = known, shut
	if c.routable != nil && !left && same && all.version == c.version {
		return
	}
	c.version, c.routable = all.version, all.instances
	if c.routable == nil || len(known) > 0 {
		c.routable = make([]cluster.Instance, 0, len(all.instances))
		for _, inst := range all.instances {
			if _, bad := known[inst.InstanceID]; !bad {
				c.routable = append(c.routable, inst)
			}
		}
	}
	close(c.update)
	c.update = make(chan struct{})
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// refreshInLocked has refresh called after d, unless d is 0 or the client is closed.
func (c *Client) refreshInLocked(d time.Duration) {
	switch {
	case d == 0 || c.ctx.Err() != nil:
	case c.timer == nil:
		c.timer = time.AfterFunc(d, c.refresh)
	default:
		c.timer.Reset(d)
	}
}

// Instances returns the routable instances, sorted by id: the registered ones that are
// not in quarantine. The slice is shared: do not change it.
func (c *Client) Instances() []cluster.Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.routable
}

// All returns all registered instances, quarantined or not, sorted by id.
func (c *Client) All() []cluster.Instance {
	return slices.Clone(c.dir.View().instances)
}

// Changed receives after the routable instances changed, and after one in quarantine has
// gone; several changes may come as one. It serves one reader.
func (c *Client) Changed() <-chan struct{} { return c.changed }

// Stale reports since when the instances may be out of date because the store
// cannot be reached, why, and when the next attempt is due; see
// [store.Watcher.Stale].
//
//nolint:revive,staticcheck // the order is that of the question: since when, why, until when
func (c *Client) Stale() (since time.Time, err error, next time.Time) {
	return c.dir.Stale()
}

// Wait waits until at least n instances are routable.
func (c *Client) Wait(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		have, update := len(c.routable), c.update
		c.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-update:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %d of %d: %w: %w", c.subject, have, n, ErrNoInstances, context.Cause(ctx))
		case <-c.ctx.Done():
			return fmt.Errorf("wait for %s: %w", c.subject, ErrClosed)
		case <-c.dir.Done():
			return fmt.Errorf("wait for %s: %w", c.subject, ErrClosed)
		}
	}
}

// gonePoll is the interval at which WaitGone checks.
const gonePoll = 10 * time.Millisecond

// WaitGone waits until this client no longer sees an instance as registered. From then on
// Instances does not return it, unless it registers again.
func (c *Client) WaitGone(ctx context.Context, id cluster.InstanceID) error {
	poll := time.NewTicker(gonePoll)
	defer poll.Stop()
	for c.knows(id) {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s has no instance %s: %w", c.subject, id, context.Cause(ctx))
		case <-c.ctx.Done():
			return fmt.Errorf("wait until %s has no instance %s: %w", c.subject, id, ErrClosed)
		case <-c.dir.Done():
			return fmt.Errorf("wait until %s has no instance %s: %w", c.subject, id, ErrClosed)
		}
	}
	return nil
}

// knows reports whether an instance is routable, or will be after its quarantine.
func (c *Client) knows(id cluster.InstanceID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, bad := c.quarantined[id]
	return bad || slices.ContainsFunc(c.routable, func(i cluster.Instance) bool { return i.InstanceID == id })
}

// ReportDown takes an instance out of the routable ones for [Quarantine], or
// until its registration changes.
func (c *Client) ReportDown(id cluster.InstanceID) {
	all := c.dir.View()
	i, there := all.find(id)
	if !there {
		return
	}
	c.mu.Lock()
	_, already := c.quarantined[id]
	c.quarantined[id] = quarantine{until: time.Now().Add(Quarantine), revision: all.revisions[i]}
	c.mu.Unlock()
	if !already {
		c.log.Warn("instance in quarantine", "instance", id.String(), "worker", all.instances[i].Worker)
	}
	c.refresh() // before the caller looks for another one
}

// Call sends a request to an instance, as [requestplane.Client] does. An instance that
// cannot be reached, no longer serves the endpoint or breaks off the stream is reported
// down.
func (c *Client) Call(ctx context.Context, inst cluster.Instance, id string, headers map[string]string, body any) (requestplane.Stream, error) {
	addr := inst.Transport.Address()
	if addr == "" || c.plane == nil {
		return nil, fmt.Errorf("call %s: instance %s: %w", c.subject, inst.InstanceID, ErrNoTransport)
	}
	stream, err := c.plane.Call(ctx, addr, id, headers, body)
	if err != nil {
		c.judge(inst.InstanceID, err)
		return nil, fmt.Errorf("call %s: instance %s: %w", c.subject, inst.InstanceID, err)
	}
	return &watchedStream{Stream: stream, client: c, id: inst.InstanceID}, nil
}

// judge reports an instance down if err means that it is gone, as opposed to having
// failed at the request.
func (c *Client) judge(id cluster.InstanceID, err error) {
	for _, down := range []error{
		requestplane.ErrCannotConnect, requestplane.ErrDisconnected,
		requestplane.ErrUnknownEndpoint, requestplane.ErrDraining,
	} {
		if errors.Is(err, down) {
			c.ReportDown(id)
			return
		}
	}
}

// Close stops following and waits until that has ended. Open streams continue.
func (c *Client) Close() {
	c.cancel()
	<-c.left
}

// watchedStream reports its instance down when it breaks off.
type watchedStream struct {
	requestplane.Stream
	client *Client
	id     cluster.InstanceID
}

// Recv implements [requestplane.Stream].
func (s *watchedStream) Recv(ctx context.Context, v any) error {
	err := s.Stream.Recv(ctx, v)
	if err != nil {
		s.client.judge(s.id, err)
	}
	return err
}
