package engine

import (
	"context"
	"errors"
	"fmt"
)

// errProbed is returned while the scheduler has not come to an earlier probe.
var errProbed = errors.New("the engine has not answered an earlier probe")

// Probe has the scheduler compute one token in a free KV block, and returns nil when that
// has succeeded. It is no request: no statistics, no tenant, no queue and no cached block
// change. A failed step counts like one of a request, so that a broken backend ends the
// engine. Without a free block, the scheduler only answers. When ctx ends first, Probe
// returns its cause, and the step is not computed later.
func (e *Engine) Probe(ctx context.Context) error {
	if !e.asked.CompareAndSwap(false, true) {
		return errProbed
	}
	result := make(chan error, 1)
	err := e.send(ctx, func() {
		e.asked.Store(false)
		result <- e.probe(ctx)
	})
	if err != nil {
		e.asked.Store(false) // nobody else runs it
		return err
	}
	select {
	case err = <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.done:
		return ErrClosed
	}
}

func (e *Engine) probe(ctx context.Context) error {
	if ctx.Err() != nil || len(e.pool.free) == 0 {
		return context.Cause(ctx)
	}
	blocks, err := e.pool.Acquire(nil, 1)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	defer e.pool.Release(blocks)
	e.pace.pause() // it is no step that prompts are measured by
	err = e.backend.Step(e.life, []BatchSeq{{Tokens: []uint32{0}, Blocks: blocks}})
	if err != nil {
		e.broken = e.countFailure(0, err)
		return fmt.Errorf("engine step: %w", err)
	}
	e.failures = 0
	return nil
}

// Progress returns a number that grows whenever a step has computed or generated tokens. It
// does not wait for the scheduler.
func (e *Engine) Progress() uint64 {
	st := e.stats.Load()
	return st.ComputedTotal + st.GeneratedTotal
}
