package store

import (
	"context"
	"sync"
)

// lifetime ends everything that a store started. Every watcher, keeper and loop begins in
// it, and close cancels and waits for all of them.
type lifetime struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func newLifetime() *lifetime {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &lifetime{ctx: ctx, cancel: cancel}
}

// begin registers one piece of work; it must call done when it has ended.
func (l *lifetime) begin() (done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	l.wg.Add(1)
	return sync.OnceFunc(l.wg.Done), nil
}

// join derives a context that ends with parent or with the lifetime.
func (l *lifetime) join(parent context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return ctx, func(cause error) {
		stop()
		cancel(cause)
	}
}

// close ends the lifetime, waits, and reports whether this was the first call.
func (l *lifetime) close() bool {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	l.cancel(ErrClosed)
	l.wg.Wait()
	return first
}
