package attach

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
)

// mostServices bounds the services of one node.
const mostServices = 64

var (
	// ErrUnknown is returned for a service that is not attached, or no longer.
	ErrUnknown = errors.New("no such service is attached")
	// ErrTaken is returned for a URL that already answers the endpoint with other settings.
	ErrTaken = errors.New("attached already with other settings: detach it first")
	// ErrFull is returned when a node has as many services as it may have.
	ErrFull = fmt.Errorf("this node has %d services attached, which is its limit", mostServices)
	errOver = errors.New("the node is stopping")
)

// Config holds what a node provides.
type Config struct {
	Runtime runtime.Config // of each service, but for its name
	Bus     events.Bus
	Log     *slog.Logger
}

// Services are those attached to a node.
type Services struct {
	cfg Config
	// cut ends when requests must not run on.
	cut    context.Context
	cutOff context.CancelFunc

	mu     sync.Mutex
	closed bool
	all    map[string]*attached // by id
}

// New returns the services of a node, none so far.
func New(cfg Config) *Services {
	s := &Services{cfg: cfg, all: map[string]*attached{}}
	s.cut, s.cutOff = context.WithCancel(context.Background())
	return s
}

// Attach attaches a service for the time of its TTL, or renews it if it is attached already.
// It does not wait until the service is ready.
func (s *Services) Attach(spec cluster.Service) (cluster.ServiceState, error) {
	a, err := s.add(spec, false)
	if err != nil {
		return cluster.ServiceState{}, fmt.Errorf("attach %s: %w", spec.URL, err)
	}
	st, _ := a.state()
	return st, nil
}

func (s *Services) add(spec cluster.Service, held bool) (*attached, error) {
	service, name, err := check(spec, s.cfg.Runtime.Namespace)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	for _, a := range s.all {
		if a.name != name || a.spec.URL != spec.URL || a.ctx.Err() != nil {
			continue
		}
		if held || a.held || !a.same(spec) {
			return nil, ErrTaken
		}
		a.renew()
		return a, nil
	}
	switch {
	case s.closed:
		return nil, errOver
	case len(s.all) >= mostServices:
		return nil, ErrFull
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	a := &attached{
		id: hex.EncodeToString(id[:]), spec: spec, held: held, name: name, node: s.cfg.Runtime.Node, service: service, renewed: time.Now(),
		reason: notAsked, changed: make(chan struct{}), ended: make(chan struct{}),
		log: s.cfg.Log.With("endpoint", name.String(), "url", spec.URL),
	}
	a.newRT = func(ctx context.Context) (*runtime.DistributedRuntime, error) {
		cfg := s.cfg.Runtime
		cfg.Worker, cfg.Incarnation, cfg.Log = a.worker(), a.id, a.log
		return runtime.New(ctx, cfg)
	}
	a.cut = s.cut
	a.ctx, a.leave = context.WithCancelCause(context.Background())
	s.all[a.id] = a
	go a.run()
	return a, nil
}

// same reports whether a was attached with the same settings.
func (s *attached) same(spec cluster.Service) bool {
	one, other := s.spec, spec
	if (one.Model == nil) != (other.Model == nil) || one.Model != nil && *one.Model != *other.Model {
		return false
	}
	one.Model, other.Model = nil, nil
	return one == other
}

// sweep forgets services that have ended. s.mu is held.
func (s *Services) sweep() {
	for id, a := range s.all {
		select {
		case <-a.ended:
			delete(s.all, id)
		default:
		}
	}
}

func (s *Services) get(id string) (*attached, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.all[id]
	if a == nil || a.ctx.Err() != nil {
		return nil, fmt.Errorf("service %s: %w", id, ErrUnknown)
	}
	return a, nil
}

// Renew keeps a service for the time of its TTL from now.
func (s *Services) Renew(id string) (cluster.ServiceState, error) {
	a, err := s.get(id)
	if err != nil {
		return cluster.ServiceState{}, err
	}
	a.renew()
	st, _ := a.state()
	return st, nil
}

// Detach takes a service out of discovery, and waits until its requests have ended or ctx
// ends.
func (s *Services) Detach(ctx context.Context, id string) error {
	a, err := s.get(id)
	if err != nil {
		return err
	}
	a.leave(errDetached)
	select {
	case <-a.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("detach service %s: %w", id, context.Cause(ctx))
	}
}

// List returns all services, by endpoint and URL.
func (s *Services) List() []cluster.ServiceState {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	out := make([]cluster.ServiceState, 0, len(s.all))
	for _, a := range s.all {
		st, _ := a.state()
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b cluster.ServiceState) int {
		return strings.Compare(a.Endpoint+"\x00"+a.URL, b.Endpoint+"\x00"+b.URL)
	})
	return out
}

// Publish sends an event on a topic in the name of a service. For a model, the component is
// that of its workers.
func (s *Services) Publish(ctx context.Context, id, topic string, v any) error {
	a, err := s.get(id)
	if err != nil {
		return err
	}
	of := cluster.Endpoint{Namespace: a.name.Namespace, Component: a.name.Component, Name: topic}
	if err := of.Check(); err != nil {
		return fmt.Errorf("topic %s: %w", topic, err)
	}
	return s.cfg.Bus.Publish(ctx, events.Subject(of.Namespace, of.Component, topic), v)
}

// Hold is a handler of the request plane: it attaches the service of the request, sends its
// state whenever that changes, and detaches it when the caller leaves.
func (s *Services) Hold(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	if r.Stranger {
		return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: "the token for calls attaches no services: dynctl credentials --attach prints the one that does"}
	}
	var spec cluster.Service
	if err := r.Decode(&spec); err != nil {
		return err
	}
	a, err := s.add(spec, true)
	if err != nil {
		return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: err.Error()}
	}
	defer func() {
		a.leave(errDetached)
		<-a.ended
	}()
	for {
		st, changed := a.state()
		if st.Reason != notAsked && a.ctx.Err() == nil {
			if err := send(st); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-a.ctx.Done():
			return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: context.Cause(a.ctx).Error()}
		case <-ctx.Done():
			return nil
		}
	}
}

// Close detaches all services and waits until they are gone. Their requests are cut off when
// ctx ends.
func (s *Services) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.all))
	s.mu.Unlock()
	for _, a := range all {
		a.leave(errOver)
	}
	defer s.cutOff()
	stop := context.AfterFunc(ctx, s.cutOff)
	defer stop()
	for _, a := range all {
		<-a.ended // within the time that the runtime gives to its lease
	}
	return nil
}
