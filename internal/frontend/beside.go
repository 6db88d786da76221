package frontend

import (
	"context"
	"errors"
	"fmt"
)

// besideHop returns a context for an attempt that ends with an error that wraps errFirstLeg when
// the prefill beside it fails: servers that meet wait for each other, the decode server for
// minutes after the other one is gone. end stops that, and may be called more than once.
func (g *generation) besideHop(ctx context.Context) (attempt context.Context, end func()) {
	h := g.hop
	if h == nil || h.failed == nil {
		return ctx, func() {}
	}
	attempt, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.failed, func() { cancel(fmt.Errorf("%w: %w", errFirstLeg, context.Cause(h.failed))) })
	return attempt, func() { stop() }
}

// besideError returns why besideHop ended an attempt, or the attempt's own error.
func besideError(attempt context.Context, err error) error {
	if cause := context.Cause(attempt); errors.Is(cause, errFirstLeg) {
		return cause
	}
	return err
}
