package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/store"
)

// codecMsgpack names the encoding of bodies on the request plane.
const codecMsgpack = "msgpack"

// Served is one endpoint of this runtime, registered or not.
type Served struct {
	d                   *DistributedRuntime
	component, endpoint string
	handler             requestplane.Handler // nil for an announced endpoint
	transport           cluster.Transport    // of an announced endpoint
	record              *record

	mu sync.Mutex
	// paths holds the bound paths by instance id. After a lost lease, the previous path
	// stays until its requests have ended.
	paths map[cluster.InstanceID]*path
}

// path is one bound path of an endpoint.
type path struct {
	remove   func(context.Context) error
	retiring bool
}

// Serve answers requests for an endpoint. It registers the endpoint last, so that others
// never find one that does not answer yet. A runtime serves each name only once.
func (d *DistributedRuntime) Serve(ctx context.Context, component, endpoint string, h requestplane.Handler) (*Served, error) {
	if d.cfg.Server == nil || h == nil {
		return nil, fmt.Errorf("serve %s/%s: a request plane server and a handler are required", component, endpoint)
	}
	s := &Served{d: d, component: component, endpoint: endpoint, handler: h}
	return s.start(ctx)
}

// Announce registers an endpoint that another server answers at transport, such as an
// HTTP frontend.
func (d *DistributedRuntime) Announce(ctx context.Context, component, endpoint string, transport cluster.Transport) (*Served, error) {
	s := &Served{d: d, component: component, endpoint: endpoint, transport: transport}
	return s.start(ctx)
}

func (s *Served) start(ctx context.Context) (*Served, error) {
	if err := (cluster.Endpoint{Namespace: s.d.cfg.Namespace, Component: s.component, Name: s.endpoint}).Check(); err != nil {
		return nil, err
	}
	s.paths = map[cluster.InstanceID]*path{}
	s.record = &record{
		key: func(id cluster.InstanceID) string {
			return cluster.InstanceKey(s.d.cfg.Namespace, s.component, s.endpoint, id)
		},
		write: s.register,
	}
	if s.handler != nil {
		s.record.bind, s.record.bound = s.bind, s.retire
	}
	if err := s.d.add(s.record); err != nil {
		return nil, fmt.Errorf("serve %s/%s: %w", s.component, s.endpoint, err)
	}
	if err := s.record.first(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("serve %s/%s: %w", s.component, s.endpoint, err), s.unbind(ctx))
	}
	s.d.mu.Lock()
	s.d.served[s] = struct{}{}
	s.d.mu.Unlock()
	return s, nil
}

// Instance returns the current registration.
func (s *Served) Instance() cluster.Instance { return s.instance(s.d.ID()) }

func (s *Served) instance(id cluster.InstanceID) cluster.Instance {
	inst := cluster.Instance{
		Type:        cluster.InstanceType,
		Namespace:   s.d.cfg.Namespace,
		Component:   s.component,
		Endpoint:    s.endpoint,
		InstanceID:  id,
		Transport:   s.transport,
		Worker:      s.d.cfg.Worker,
		Node:        s.d.cfg.Node,
		Incarnation: s.d.cfg.Incarnation,
	}
	if s.handler != nil {
		inst.Transport = cluster.Transport{TCP: s.d.cfg.AdvertiseAddr + "/" + s.pathOf(id)}
		inst.Codec = codecMsgpack
	}
	return inst
}

func (s *Served) pathOf(id cluster.InstanceID) string { return id.String() + "/" + s.endpoint }

// InFlight returns the number of requests that run now, including those on previous
// paths.
func (s *Served) InFlight() int {
	s.mu.Lock()
	ids := slices.Collect(maps.Keys(s.paths))
	s.mu.Unlock()
	n := 0
	for _, id := range ids {
		n += s.d.cfg.Server.InFlight(s.pathOf(id))
	}
	return n
}

// Leave takes the endpoint out of discovery; it keeps answering. If that fails, the
// runtime keeps trying.
func (s *Served) Leave(ctx context.Context) error {
	if err := s.record.change(ctx, func() { s.record.wanted = false }); err != nil {
		return fmt.Errorf("leave %s/%s: %w", s.component, s.endpoint, err)
	}
	return nil
}

// Join registers an endpoint again after Leave. After Close it fails with [ErrClosed].
func (s *Served) Join(ctx context.Context) error {
	over := false
	err := s.record.change(ctx, func() {
		over = s.record.final
		s.record.wanted = !over
	})
	if err == nil && over {
		err = ErrClosed
	}
	if err != nil {
		return fmt.Errorf("join %s/%s: %w", s.component, s.endpoint, err)
	}
	return nil
}

// Close leaves discovery, refuses new requests and waits for the running ones until ctx
// ends. Calling it again continues the wait.
func (s *Served) Close(ctx context.Context) error {
	err := s.record.change(ctx, func() { s.record.wanted, s.record.final = false, true })
	if s.d.ctx.Err() != nil {
		err = nil // the lease is revoked, and the registration with it
	}
	if err := errors.Join(err, s.unbind(ctx)); err != nil {
		return fmt.Errorf("close %s/%s: %w", s.component, s.endpoint, err)
	}
	s.d.mu.Lock()
	delete(s.d.served, s)
	s.d.mu.Unlock()
	return nil
}

// register creates the instance key. If the key exists, it is ours only if an earlier
// attempt wrote it and the answer was lost.
func (s *Served) register(ctx context.Context, key string, id cluster.InstanceID) error {
	body, err := json.Marshal(s.instance(id))
	if err != nil {
		return fmt.Errorf("register %s: %w", key, err)
	}
	_, err = s.d.cfg.Store.Create(ctx, key, body, store.WithLease(id))
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	kv, gerr := s.d.cfg.Store.Get(ctx, key)
	if gerr == nil && kv.Lease == id && bytes.Equal(kv.Value, body) {
		return nil
	}
	return errors.Join(err, gerr)
}

// bind starts answering at the path of id.
func (s *Served) bind(id cluster.InstanceID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, bound := s.paths[id]; bound {
		return nil
	}
	remove, err := s.d.cfg.Server.Handle(s.pathOf(id), s.handler)
	if err != nil {
		return err
	}
	s.paths[id] = &path{remove: remove}
	return nil
}

// retire refuses new requests on all paths but that of id. Callers that use a previous
// path are told to look the instance up again. Requests that run there finish.
func (s *Served) retire(id cluster.InstanceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for old, p := range s.paths {
		if old == id || p.retiring {
			continue
		}
		p.retiring = true
		s.d.goes(func() {
			if p.remove(s.d.ctx) == nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.paths, old)
			}
		})
	}
}

// unbind refuses new requests on all paths and waits for the running ones.
func (s *Served) unbind(ctx context.Context) error {
	s.mu.Lock()
	paths := maps.Clone(s.paths)
	s.mu.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, 0, len(paths))
	var mu sync.Mutex
	for id, p := range paths {
		wg.Go(func() {
			err := p.remove(ctx)
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
			if err == nil {
				s.mu.Lock()
				delete(s.paths, id)
				s.mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
