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
	d         *DistributedRuntime
	name      cluster.Endpoint
	short     string               // the last part of its paths
	handler   requestplane.Handler // nil for an announced endpoint
	transport cluster.Transport    // of an announced endpoint
	record    *record
	prober    *prober // nil without a canary
	health    *Served // whose health it shares; nil: none

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

// Serve answers requests for an endpoint of the runtime's own namespace; see
// [Endpoint.Serve].
func (d *DistributedRuntime) Serve(ctx context.Context, component, endpoint string, h requestplane.Handler, opts ...ServeOption) (*Served, error) {
	return d.In("").Component(component).Endpoint(endpoint).Serve(ctx, h, opts...)
}

// Announce registers an endpoint of the runtime's own namespace; see [Endpoint.Announce].
func (d *DistributedRuntime) Announce(ctx context.Context, component, endpoint string, transport cluster.Transport) (*Served, error) {
	return d.In("").Component(component).Endpoint(endpoint).Announce(ctx, transport)
}

func (d *DistributedRuntime) serve(ctx context.Context, name cluster.Endpoint, h requestplane.Handler, opts []ServeOption) (*Served, error) {
	if d.cfg.Server == nil || h == nil {
		return nil, fmt.Errorf("serve %s: a request plane server and a handler are required", name)
	}
	s := &Served{d: d, name: name, handler: h}
	for _, o := range opts {
		if err := o(s); err != nil {
			return nil, fmt.Errorf("serve %s: %w", name, err)
		}
	}
	return s.start(ctx)
}

func (s *Served) start(ctx context.Context) (*Served, error) {
	if err := s.name.Check(); err != nil {
		return nil, err
	}
	s.short = s.d.shortPath(s.name)
	s.paths = map[cluster.InstanceID]*path{}
	s.record = &record{
		key: func(id cluster.InstanceID) string {
			return cluster.InstanceKey(s.name.Namespace, s.name.Component, s.name.Name, id)
		},
		write: s.register,
	}
	if s.handler != nil {
		s.record.bind, s.record.bound = s.bind, s.retire
	}
	if err := s.d.add(s.record); err != nil {
		return nil, fmt.Errorf("serve %s: %w", s.name, err)
	}
	if err := s.record.first(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("serve %s: %w", s.name, err), s.unbind(ctx))
	}
	s.d.mu.Lock()
	s.d.served[s] = struct{}{}
	s.d.mu.Unlock()
	if s.prober != nil {
		s.d.healthChanged() // it is not ready before its first probe
		s.prober.task.Wake()
	}
	return s, nil
}

// Instance returns the current registration.
func (s *Served) Instance() cluster.Instance { return s.instance(s.d.ID()) }

func (s *Served) instance(id cluster.InstanceID) cluster.Instance {
	inst := cluster.Instance{
		Type:        cluster.InstanceType,
		Namespace:   s.name.Namespace,
		Component:   s.name.Component,
		Endpoint:    s.name.Name,
		InstanceID:  id,
		Transport:   s.transport,
		Worker:      s.d.cfg.Worker,
		Node:        s.d.cfg.Node,
		Incarnation: s.d.cfg.Incarnation,
	}
	if s.handler != nil {
		inst.Transport = cluster.TransportTo(s.d.cfg.AdvertiseAddr + "/" + s.pathOf(id))
		inst.Codec = codecMsgpack
	}
	return inst
}

// pathOf returns the path of the endpoint on the request plane under an id.
func (s *Served) pathOf(id cluster.InstanceID) string {
	if s.d.static != nil {
		return staticPath(s.name)
	}
	return id.String() + "/" + s.short
}

// shortPath returns the last part of an endpoint's paths: its name, or the whole one if
// this runtime serves another endpoint of that name.
func (d *DistributedRuntime) shortPath(name cluster.Endpoint) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.served {
		if s.name != name && s.short == name.Name {
			return staticPath(name)
		}
	}
	return name.Name
}

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
		return fmt.Errorf("leave %s: %w", s.name, err)
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
		return fmt.Errorf("join %s: %w", s.name, err)
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
		return fmt.Errorf("close %s: %w", s.name, err)
	}
	s.d.mu.Lock()
	delete(s.d.served, s)
	s.d.mu.Unlock()
	s.d.healthChanged()
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
	errs := make([]error, 0, len(paths)+1)
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
	if s.prober != nil {
		errs = append(errs, s.prober.stop(ctx))
	}
	return errors.Join(errs...)
}
