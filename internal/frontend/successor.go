package frontend

import (
	"context"
	"time"
)

// maxAwaiting bounds the requests that wait for the first worker of a model. They hold
// their bodies, of which only small ones wait.
const maxAwaiting = 1024

// awaitModel returns a model that is ready, or the error of model. If no worker serves it, but
// the topology has some, it gives the request's turn back by leave, waits up to
// limits.successor for one, and takes another turn.
func (f *Frontend) awaitModel(ctx context.Context, name string, leave func(), turn func() (leave func(), bad *apiError)) (*servedModel, func(), *apiError) {
	m, bad := f.model(name)
	if bad == nil || turn == nil || !f.registry.declares(name) {
		return m, leave, bad
	}
	leave()
	select {
	case f.awaiting <- struct{}{}:
		defer func() { <-f.awaiting }()
	default:
		return nil, leave, bad
	}
	ctx, cancel := context.WithTimeout(ctx, f.limits.successor)
	defer cancel()
	for f.registry.declares(name) {
		select {
		case <-time.After(f.limits.poll):
		case <-ctx.Done():
			return nil, leave, bad
		}
		if m, bad = f.model(name); bad == nil {
			again, late := turn()
			if late != nil {
				return nil, leave, late
			}
			return m, again, nil
		}
	}
	return nil, leave, bad
}
