package store

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/ondemand"
)

const (
	keepBackoffMin = 50 * time.Millisecond
	keepBackoffMax = time.Second
	// keepAttemptMin gives even a late attempt enough time for one round trip.
	keepAttemptMin = 250 * time.Millisecond
	keepAttemptMax = 3 * time.Second
)

// leaseServer is the part of a store that a keeper uses.
type leaseServer interface {
	GrantLease(ctx context.Context, ttl time.Duration) (Lease, error)
	RevokeLease(ctx context.Context, id cluster.InstanceID) error
	// keepAlive renews a lease and returns the TTL it has now. It fails fast
	// when the store is unreachable and with ErrLeaseNotFound when the store
	// says that the lease is gone.
	keepAlive(ctx context.Context, id cluster.InstanceID) (time.Duration, error)
}

// LeaseKeeper keeps one lease alive. It renews when half of the
// remaining time has passed and retries failures until the store answers. Only an answer
// of the store ends the lease: a store that was down for longer than the TTL gives its
// leases a fresh TTL when it comes back.
type LeaseKeeper struct {
	lease  Lease
	server leaseServer
	log    *slog.Logger
	task   *ondemand.Task
	lost   chan struct{} // closed when the store says that the lease is gone
	end    func()        // closes the keeper when the store closes, unless it is called before

	backoff time.Duration // after the last failure; owned by task

	mu       sync.Mutex
	renewed  time.Time // when the last successful renewal was sent
	deadline time.Time // when the lease ends unless it is renewed
	failure  error     // of the last attempt, nil after a success
	onLost   func()    // may be nil
}

// keepLease grants a lease and starts its keeper within the given lifetime.
func keepLease(ctx context.Context, life *lifetime, server leaseServer, ttl time.Duration, log *slog.Logger) (*LeaseKeeper, error) {
	finished, err := life.begin()
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	lease, err := server.GrantLease(ctx, ttl)
	if err != nil {
		finished()
		return nil, err
	}
	k := &LeaseKeeper{
		lease:    lease,
		server:   server,
		log:      log.With("lease", lease.ID.String()),
		lost:     make(chan struct{}),
		renewed:  sent,
		deadline: sent.Add(lease.TTL),
	}
	k.task = ondemand.New(life.ctx, k.keep)
	k.task.WakeIn(k.nextRenewal())
	stop := context.AfterFunc(life.ctx, func() {
		k.task.Close()
		finished()
	})
	k.end = func() {
		stop()
		finished()
	}
	return k, nil
}

// ID returns the id of the lease.
func (k *LeaseKeeper) ID() cluster.InstanceID { return k.lease.ID }

// TTL returns the granted time to live.
func (k *LeaseKeeper) TTL() time.Duration { return k.lease.TTL }

// Lost returns a channel that is closed when the store reports that the lease is gone. It
// stays open when the keeper is closed.
func (k *LeaseKeeper) Lost() <-chan struct{} { return k.lost }

// OnLost has f called when [LeaseKeeper.Lost] is closed, at once if it is. f must not block.
func (k *LeaseKeeper) OnLost(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.onLost = f
	if k.isLost() {
		f()
	}
}

func (k *LeaseKeeper) isLost() bool {
	select {
	case <-k.lost:
		return true
	default:
		return false
	}
}

// lose says that the lease is gone.
func (k *LeaseKeeper) lose() {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.lost)
	if k.onLost != nil {
		k.onLost()
	}
}

// LastRenewed returns when the last successful renewal was sent.
func (k *LeaseKeeper) LastRenewed() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.renewed
}

// Uncertain reports whether the lease should have ended by now while the store could not
// be asked. Other members may have seen it end.
func (k *LeaseKeeper) Uncertain() bool {
	if k.isLost() {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Now().After(k.deadline)
}

// Check renews the lease at once. Callers use it when a write under the lease was
// refused.
func (k *LeaseKeeper) Check() { k.task.Wake() }

// Err returns the error of the last renewal, or nil if it succeeded.
func (k *LeaseKeeper) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failure
}

// Close stops renewing and waits for a renewal under way. The lease is left
// to expire. Closing twice is fine.
func (k *LeaseKeeper) Close() {
	k.task.Close()
	k.end()
}

// Revoke stops renewing and ends the lease with all its keys. A lease that is
// gone already is not an error.
func (k *LeaseKeeper) Revoke(ctx context.Context) error {
	k.Close()
	if err := k.server.RevokeLease(ctx, k.lease.ID); err != nil && !errors.Is(err, ErrLeaseNotFound) {
		return err
	}
	return nil
}

// keep renews and says when to renew again, unless the lease is gone.
func (k *LeaseKeeper) keep(ctx context.Context) {
	if k.isLost() {
		return
	}
	err := k.renew(ctx)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		k.backoff = 0
		k.task.WakeIn(k.nextRenewal())
	case errors.Is(err, ErrLeaseNotFound):
		k.log.Warn("lease lost", "err", err)
		k.lose()
	default:
		k.backoff = k.nextBackoff(k.backoff)
		k.task.WakeIn(k.backoff)
	}
}

// renew sends one keep-alive.
func (k *LeaseKeeper) renew(ctx context.Context) error {
	limit := min(max(k.left()/2, keepAttemptMin), keepAttemptMax)
	actx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	sent := time.Now()
	ttl, err := k.server.keepAlive(actx, k.lease.ID)

	k.mu.Lock()
	defer k.mu.Unlock()
	first := k.failure == nil
	k.failure = err
	switch {
	case err == nil:
		if !first {
			k.log.Info("lease keep-alive recovered", "down", sent.Sub(k.renewed).Round(time.Millisecond))
		}
		k.renewed, k.deadline = sent, sent.Add(ttl)
	case first && ctx.Err() == nil:
		k.log.Warn("lease keep-alive failed", "left", time.Until(k.deadline).Round(time.Millisecond), "err", err)
	}
	return err
}

func (k *LeaseKeeper) left() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Until(k.deadline)
}

// nextRenewal returns half of the remaining time, less up to a tenth. The random part
// keeps workers that started together from renewing together.
func (k *LeaseKeeper) nextRenewal() time.Duration {
	half := max(k.left()/2, keepBackoffMin)
	return half - rand.N(half/10+1)
}

// nextBackoff doubles the last pause up to a second, and never exceeds half of the time
// left or an eighth of the TTL. After a long outage the store grants exactly one fresh
// TTL, in which a renewal must succeed.
func (k *LeaseKeeper) nextBackoff(last time.Duration) time.Duration {
	next := min(max(2*last, keepBackoffMin), keepBackoffMax, max(k.lease.TTL/8, keepBackoffMin))
	if left := k.left(); left > 0 {
		next = max(min(next, left/2), keepBackoffMin)
	}
	return next
}
