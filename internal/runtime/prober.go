package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/ondemand"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// recheck is the longest time between two looks at an endpoint with Progress that is not ready.
const recheck = time.Second

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

	// Owned by watch.
	seen   uint64    // what Progress returned last
	looked time.Time // when that was
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
	changed := p.why != ""
	p.alive, p.why = time.Now(), ""
	p.mu.Unlock()
	if changed {
		p.s.d.healthChanged()
	}
}

// watch probes if it is time, and sleeps until it is.
func (p *prober) watch(ctx context.Context) {
	begin := time.Now()
	p.mu.Lock()
	left := p.canary.Wait - begin.Sub(p.alive)
	p.mu.Unlock()
	switch {
	case p.progressed(begin):
		left = p.canary.Wait
	case left <= 0:
		if err := p.probe(ctx); ctx.Err() == nil {
			p.judge(begin, err)
		}
		left = p.canary.Wait
	}
	p.task.WakeIn(p.pause(left))
}

// progressed reports whether the endpoint has made progress since the last look, which was
// its sign of life then: when exactly it came is not known.
func (p *prober) progressed(now time.Time) bool {
	if p.canary.Progress == nil {
		return false
	}
	n, before := p.canary.Progress(), p.looked
	p.looked = now
	if n == p.seen {
		return false
	}
	p.seen = n
	p.ready()
	p.mu.Lock()
	changed := p.why != ""
	if before.After(p.alive) {
		p.alive = before
	}
	p.why = ""
	p.mu.Unlock()
	if changed {
		p.s.d.healthChanged()
	}
	return true
}

// pause is the time to the next look, of which left is the time to the next probe.
func (p *prober) pause(left time.Duration) time.Duration {
	if p.canary.Progress == nil {
		return left
	}
	left = min(left, p.canary.Wait/2)
	if !p.health().Ready {
		left = min(left, recheck)
	}
	return left
}

// ready logs that the endpoint is ready, if it was not.
func (p *prober) ready() {
	if !p.health().Ready {
		p.s.d.log.Info("endpoint is ready", "endpoint", p.s.name.String())
	}
}

// judge takes the outcome of a probe. A request that was answered meanwhile says more than
// a probe that failed.
func (p *prober) judge(begin time.Time, err error) {
	if err == nil {
		p.ready()
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
		p.s.d.log.Warn("endpoint is not ready", "endpoint", p.s.name.String(), "reason", is)
		p.s.d.healthChanged()
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
	if p.canary.Probe != nil {
		return p.canary.Probe(ctx)
	}
	r := &requestplane.Request{ID: "canary", Path: p.s.name.Name, Body: append([]byte(nil), p.body...)}
	return p.handler(ctx, r, send)
}
