package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// silence is a period in which the store does not answer, beginning when it is made.
type silence struct{ over, lasting context.Context }

// FallSilent stops all answers, as a broken network does. Calls wait until their contexts
// end. Contexts of [Memory.WhileAnswering] end after patience, counted from now. The
// returned function makes the store answer again.
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

// await waits until the store answers, ctx ends or the timeout of one call is over.
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
