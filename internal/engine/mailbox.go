package engine

import "context"

// readMail runs what was sent since the last step.
func (e *Engine) readMail() {
	for {
		select {
		case f := <-e.mail:
			f()
		default:
			e.publishStats()
			return
		}
	}
}

// send has the scheduler run f between two steps. It fails if ctx or the engine ends
// before the mailbox has room for f.
func (e *Engine) send(ctx context.Context, f func()) error {
	if e.stepped() {
		f()
		return nil
	}
	select {
	case e.mail <- f:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.done:
		return ErrClosed
	}
}

// post is send without a limit. An engine that has ended does not run f.
func (e *Engine) post(f func()) { _ = e.send(context.Background(), f) }

// ask runs f on the scheduler's goroutine and returns its result, after the statistics
// include f's changes. If ctx ends first, f may still run later.
func ask[T any](ctx context.Context, e *Engine, f func() T) (T, error) {
	result := make(chan T, 1)
	var none T
	if err := e.send(ctx, func() {
		v := f()
		e.publishStats()
		result <- v
	}); err != nil {
		return none, err
	}
	select {
	case v := <-result:
		return v, nil
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-e.done:
	}
	select { // it may have been the last mail that was read
	case v := <-result:
		return v, nil
	default:
		return none, ErrClosed
	}
}
