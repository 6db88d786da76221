package attach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/outside"
	"github.com/dynctl/dynctl/internal/runtime"
)

const (
	// checkReady and checkAbsent are how often a service is asked whether it is ready, while it
	// is and while it is not.
	checkReady  = 2 * time.Second
	checkAbsent = 500 * time.Millisecond
	// checkLimit bounds such a question.
	checkLimit = 2 * time.Second
	// failuresMost is how often in a row a service may fail before it leaves discovery.
	failuresMost = 2
	// drainLimit is how long requests may run on after a service was detached.
	drainLimit = 30 * time.Second
)

// attached is one service. Its goroutine, run, serves it until leave is called or nobody
// renews it.
type attached struct {
	id      string
	spec    cluster.Service
	held    bool // by a call, and not for a time
	name    cluster.Endpoint
	node    string // that holds the lease
	service *outside.Service
	newRT   func(context.Context) (*runtime.DistributedRuntime, error)
	log     *slog.Logger

	cut   context.Context // ends when requests must not run on
	ctx   context.Context // ends when it is to leave
	leave context.CancelCauseFunc
	ended chan struct{} // closed when it is gone

	mu      sync.Mutex
	renewed time.Time
	reason  string // empty: ready
	changed chan struct{}
	drt     *runtime.DistributedRuntime // nil until the service was ready once
	known   *runtime.Introduced         // the same
	served  []*runtime.Served
}

// notAsked is the reason before the first answer.
const notAsked = "not asked yet"

var (
	errDetached = errors.New("detached")
	errExpired  = errors.New("not renewed in time")
)

// state returns what is known, and a channel that is closed when it changes.
func (s *attached) state() (cluster.ServiceState, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := cluster.ServiceState{ID: s.id, Endpoint: s.name.String(), URL: s.spec.URL, Ready: s.reason == "", Reason: s.reason}
	if s.spec.Model != nil {
		out.Model = s.spec.Model.Name
	}
	if !s.held {
		out.TTLSeconds = int(ttlOf(s.spec) / time.Second)
	}
	if s.drt != nil {
		out.Instance = s.drt.ID().String()
	}
	for _, e := range s.served {
		out.InFlight += e.InFlight()
	}
	return out, s.changed
}

// worker is the name of the service among those that hold leases.
func (s *attached) worker() string { return "attached-" + s.id }

func (s *attached) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed = time.Now()
}

// become notes why the service is not ready; nil means that it is.
func (s *attached) become(why error) {
	reason := ""
	if why != nil {
		reason = why.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case reason == s.reason:
		return
	case reason == "":
		s.log.Info("attached service is ready")
	case s.reason == "":
		s.log.Warn("attached service is not ready", "reason", reason)
	}
	s.reason = reason
	if s.known != nil {
		s.known.Say(reason)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// run serves the service while it is ready.
func (s *attached) run() {
	defer close(s.ended)
	defer s.service.Close()
	next := time.NewTimer(0)
	defer next.Stop()
	failures := failuresMost // the first answer decides
	for {
		select {
		case <-next.C:
		case <-s.ctx.Done():
			s.end()
			return
		}
		s.expire()
		err := s.look()
		switch {
		case s.ctx.Err() != nil:
			continue
		case err == nil:
			failures = 0
			s.become(s.join())
		default:
			if failures++; failures >= failuresMost {
				s.withdraw()
				s.become(err)
			}
		}
		if failures == 0 {
			next.Reset(checkReady)
		} else {
			next.Reset(checkAbsent)
		}
	}
}

// expire makes the service leave if nobody has renewed it for its time.
func (s *attached) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.held && time.Since(s.renewed) > ttlOf(s.spec) {
		s.leave(errExpired)
	}
}

func (s *attached) look() error {
	ctx, cancel := context.WithTimeout(s.ctx, checkLimit)
	defer cancel()
	return s.service.Check(ctx)
}

// join makes what the service answers known, if it is not.
func (s *attached) join() error {
	ctx, cancel := context.WithTimeout(s.ctx, 2*checkLimit)
	defer cancel()
	if s.served == nil {
		return s.begin(ctx)
	}
	for _, e := range s.served {
		if err := e.Join(ctx); err != nil {
			return err
		}
	}
	return nil
}

// begin takes a lease and serves for the first time.
func (s *attached) begin(ctx context.Context) error {
	drt, err := s.newRT(ctx)
	if err != nil {
		return err
	}
	program := cluster.Program{Name: s.worker(), Kind: cluster.ProgramService, Node: s.node, URL: s.spec.URL}
	if s.spec.Model != nil {
		program.Model = s.spec.Model.Name
	}
	known, err := drt.Introduce(ctx, program)
	if err != nil {
		return errors.Join(err, drt.Close(ctx))
	}
	served, err := s.serve(ctx, drt)
	if err != nil {
		return errors.Join(err, drt.Close(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drt, s.served, s.known = drt, served, known
	return nil
}

func (s *attached) serve(ctx context.Context, drt *runtime.DistributedRuntime) ([]*runtime.Served, error) {
	if m := s.spec.Model; m != nil {
		model := outside.Model{Name: m.Name, Dir: m.Dir, ContextLength: m.ContextLength, Concurrent: m.Concurrent}
		return outside.ServeModel(ctx, drt, model, s.service.Generate)
	}
	e, err := drt.In(s.name.Namespace).Component(s.name.Component).Endpoint(s.name.Name).Serve(ctx, s.service.Handle)
	return []*runtime.Served{e}, err
}

// withdraw takes the service out of discovery. Requests that run go on.
func (s *attached) withdraw() {
	ctx, cancel := context.WithTimeout(s.ctx, checkLimit)
	defer cancel()
	for _, e := range s.served {
		if err := e.Leave(ctx); err != nil && s.ctx.Err() == nil { // the runtime keeps trying
			s.log.Warn("attached service cannot leave discovery yet", "error", err)
		}
	}
}

// end leaves the cluster: first discovery, then, when the requests have ended, the lease.
func (s *attached) end() {
	s.log.Info("service leaves", "cause", context.Cause(s.ctx))
	s.become(fmt.Errorf("leaves: %w", context.Cause(s.ctx)))
	if s.drt == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.cut, drainLimit)
	defer cancel()
	if err := s.drt.Shutdown(ctx); err != nil {
		s.log.Warn("requests of an attached service were cut off", "error", err)
	}
}
