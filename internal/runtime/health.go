package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/ondemand"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Defaults of [Canary].
const (
	DefaultCanaryWait    = 10 * time.Second
	DefaultCanaryTimeout = 3 * time.Second
)

// Canary probes an endpoint with a request while no other one shows that it works. The
// request goes to the handler inside this process, without the request plane.
type Canary struct {
	Body    any           // as of a request
	Wait    time.Duration // idle time before a probe; default [DefaultCanaryWait]
	Timeout time.Duration // for the first item; default [DefaultCanaryTimeout]
}

// ServeOption changes how an endpoint is served.
type ServeOption func(*Served) error

// WithCanary probes the endpoint: at once, and whenever no item of an answer was sent for
// the canary's Wait. Until the first probe succeeds, the endpoint is not ready. The first
// item of an answer, or its end without an error, is a success.
func WithCanary(c Canary) ServeOption {
	return func(s *Served) error {
		body, err := requestplane.Encode(c.Body)
		if err != nil {
			return fmt.Errorf("canary: %w", err)
		}
		if c.Wait <= 0 {
			c.Wait = DefaultCanaryWait
		}
		if c.Timeout <= 0 {
			c.Timeout = DefaultCanaryTimeout
		}
		s.prober = &prober{s: s, canary: c, body: body, handler: s.handler, why: "not probed yet"}
		s.prober.task = ondemand.New(s.d.ctx, s.prober.watch)
		s.handler = s.prober.handle
		return nil
	}
}

// Health says whether an endpoint works.
type Health struct {
	Ready bool
	Why   string // why it is not ready
}

// Health returns the health of every endpoint that is served or announced. An endpoint
// without a canary is ready.
func (d *DistributedRuntime) Health() map[cluster.Endpoint]Health {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[cluster.Endpoint]Health, len(d.served))
	for s := range d.served {
		out[s.name] = s.Health()
	}
	return out
}

// Health says whether the endpoint works, as far as its canary knows.
func (s *Served) Health() Health {
	if s.prober == nil {
		return Health{Ready: true}
	}
	return s.prober.health()
}

// prober watches the answers of a handler and probes it when there are none.
type prober struct {
	s       *Served
	canary  Canary
	body    []byte
	handler requestplane.Handler
	task    *ondemand.Task

	mu    sync.Mutex
	alive time.Time     // the last sign that it works
	why   string        // empty: ready
	busy  chan struct{} // closed when the latest probe has returned; nil before the first
}

func (p *prober) health() Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Health{Ready: p.why == "", Why: p.why}
}

// stop ends the probes and waits for the running one until ctx ends.
func (p *prober) stop(ctx context.Context) error {
	p.task.Close()
	p.mu.Lock()
	busy := p.busy
	p.mu.Unlock()
	if busy == nil {
		return nil
	}
	select {
	case <-busy:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the canary of %s: %w", p.s.name, context.Cause(ctx))
	}
}

// handle is the handler with an eye on what it sends.
func (p *prober) handle(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	return p.handler(ctx, r, func(item any) error {
		err := send(item)
		if err == nil {
			p.succeed()
		}
		return err
	})
}

func (p *prober) succeed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alive, p.why = time.Now(), ""
}

// watch probes if it is time, and sleeps until it is.
func (p *prober) watch(ctx context.Context) {
	begin := time.Now()
	p.mu.Lock()
	left := p.canary.Wait - begin.Sub(p.alive)
	p.mu.Unlock()
	if left > 0 {
		p.task.WakeIn(left)
		return
	}
	if err := p.probe(ctx); ctx.Err() == nil {
		p.judge(begin, err)
	}
	p.task.WakeIn(p.canary.Wait)
}

// judge takes the outcome of a probe. A request that was answered meanwhile says more than
// a probe that failed.
func (p *prober) judge(begin time.Time, err error) {
	log := p.s.d.log.With("endpoint", p.s.name.String())
	if err == nil {
		if !p.health().Ready {
			log.Info("endpoint is ready")
		}
		p.succeed()
		return
	}
	p.mu.Lock()
	was := p.why
	if p.alive.Before(begin) {
		p.why = err.Error()
	}
	is := p.why
	p.mu.Unlock()
	if is != was {
		log.Warn("endpoint is not ready", "reason", is)
	}
}

var (
	errProbed = errors.New("the canary has its answer") // the cause of its context then
	errStuck  = errors.New("the canary before has not returned")
)

// begin marks a probe as running, unless the one before still runs.
func (p *prober) begin() (busy chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy != nil {
		select {
		case <-p.busy:
		default:
			return nil, false
		}
	}
	p.busy = make(chan struct{})
	return p.busy, true
}

// probe sends one request. A handler that does not return when its context ends gets no
// second one meanwhile.
func (p *prober) probe(parent context.Context) error {
	busy, ok := p.begin()
	if !ok {
		return errStuck
	}
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(errProbed)
	timeout := time.AfterFunc(p.canary.Timeout, func() { cancel(requestplane.ErrTimeout) })
	defer timeout.Stop()
	outcome := make(chan error, 1)
	tell := func(err error) {
		select {
		case outcome <- err:
		default: // something came before
		}
	}
	go func() {
		defer close(busy)
		tell(p.call(ctx, func(any) error {
			tell(nil)
			return context.Cause(ctx)
		}))
	}()
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer to the canary within %s: %w", p.canary.Timeout, context.Cause(ctx))
	}
}

// call runs the handler. A panic is an error.
func (p *prober) call(ctx context.Context, send func(any) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("handler panicked: %v", r)
		}
	}()
	r := &requestplane.Request{ID: "canary", Path: p.s.name.Name, Body: append([]byte(nil), p.body...)}
	return p.handler(ctx, r, send)
}
