package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// silence is a store that does not answer, from the moment that it is made.
type silence struct{ over, lasting context.Context }

// FallSilent stops the answers, as a broken network does: calls wait for the end of their
// contexts, and those that are, or will be, in [Memory.WhileAnswering] for so long in all.
// The returned function has the store answer again.
func (m *Memory) FallSilent(patience time.Duration) (answer func()) {
	over, answer := context.WithCancel(context.Background())
	lasting, end := context.WithCancelCause(context.Background())
	limit := time.AfterFunc(patience, func() { end(fmt.Errorf("%w: no answer for %s", ErrUnavailable, patience)) })
	context.AfterFunc(over, func() { limit.Stop() })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = silence{over, lasting}
	return answer
}

// await waits until the store answers, ctx ends or the time of one call is up.
func (m *Memory) await(ctx context.Context) error {
	m.mu.Lock()
	over := m.silent.over
	m.mu.Unlock()
	if over == nil || over.Err() != nil {
		return nil
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	select {
	case <-over.Done():
		return nil
	case <-ctx.Done():
		if cause := context.Cause(ctx); errors.Is(cause, ErrUnavailable) {
			return cause
		}
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
}

// WhileAnswering implements [Store].
func (m *Memory) WhileAnswering(ctx context.Context) (context.Context, context.CancelFunc) {
	m.mu.Lock()
	s := m.silent
	m.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	if s.over == nil || s.over.Err() != nil {
		return ctx, func() { cancel(nil) }
	}
	stop := context.AfterFunc(s.lasting, func() { cancel(context.Cause(s.lasting)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
