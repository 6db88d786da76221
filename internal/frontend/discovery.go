package frontend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/store"
)

// announce registers the frontend in discovery, together with its endpoints for operators
// and workers. The frontend serves clients meanwhile, however long the store is
// unreachable.
func (f *Frontend) announce(ctx context.Context) error {
	for _, register := range []func() (*runtime.Served, error){
		func() (*runtime.Served, error) {
			return f.cfg.Runtime.Serve(ctx, cluster.ComponentFrontend, cluster.EndpointDecisions, f.sendDecisions)
		},
		func() (*runtime.Served, error) {
			return f.cfg.Runtime.Serve(ctx, cluster.ComponentFrontend, cluster.EndpointLoad, f.sendLoad)
		},
		func() (*runtime.Served, error) {
			return f.cfg.Runtime.Serve(ctx, cluster.ComponentFrontend, cluster.EndpointDeparted, f.sendDeparted)
		},
		func() (*runtime.Served, error) {
			return f.cfg.Runtime.Serve(ctx, cluster.ComponentFrontend, cluster.EndpointKVIndex, f.sendKVIndex)
		},
		func() (*runtime.Served, error) {
			return f.cfg.Runtime.Serve(ctx, cluster.ComponentFrontend, cluster.EndpointMedia, f.sendContent)
		},
		func() (*runtime.Served, error) {
			return f.cfg.Runtime.Announce(ctx, cluster.ComponentFrontend, cluster.EndpointHTTP, cluster.Transport{HTTP: f.url})
		},
	} {
		s, err := register()
		for wait := f.limits.retry; errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil; wait = min(2*wait, f.limits.retryMost) {
			f.log.Warn("frontend not announced yet, trying again", "error", err, "in", wait)
			select {
			case <-time.After(wait):
				s, err = register()
			case <-ctx.Done():
			}
		}
		switch {
		case err == nil && !f.keep(s):
			_ = s.Close(ctx) // if this fails, it ends with the lease
			return nil
		case err == nil:
		case ctx.Err() != nil:
			return nil // told to stop meanwhile
		default:
			return fmt.Errorf("announce the frontend: %w", err)
		}
	}
	return nil
}

// keep records a registration for withdraw. It returns false if withdraw has been called.
func (f *Frontend) keep(s *runtime.Served) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.withdrawn {
		return false
	}
	f.announced = append(f.announced, s)
	return true
}

// withdraw takes the frontend out of discovery, its address first. A registration that it
// cannot remove ends with the lease.
func (f *Frontend) withdraw(ctx context.Context) {
	f.mu.Lock()
	all := f.announced
	f.announced, f.withdrawn = nil, true
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, s := range slices.Backward(all) {
		if err := s.Close(ctx); err != nil {
			f.log.Debug("frontend not withdrawn", "error", err)
		}
	}
}
