package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// memoryLease is a lease of a Memory store; the store's mutex guards it.
type memoryLease struct {
	id       cluster.InstanceID
	ttl      time.Duration
	deadline time.Time
	keys     map[string]struct{}
	stop     func() bool // of the expiry timer
}

// GrantLease implements [Store]. TTLs are kept exactly, without etcd's rounding
// to seconds.
func (m *Memory) GrantLease(ctx context.Context, ttl time.Duration) (Lease, error) {
	if ttl <= 0 {
		return Lease{}, fmt.Errorf("grant lease: ttl %s is not positive", ttl)
	}
	if err := m.enter(ctx); err != nil {
		return Lease{}, fmt.Errorf("grant lease: %w", err)
	}
	defer m.mu.Unlock()
	m.lastLease++
	lease := &memoryLease{id: m.lastLease, ttl: ttl, keys: map[string]struct{}{}, stop: func() bool { return true }}
	m.leases[lease.id] = lease
	m.renewLocked(lease)
	return Lease{ID: lease.id, TTL: ttl}, nil
}

// renewLocked gives the lease its full TTL again.
func (m *Memory) renewLocked(lease *memoryLease) {
	lease.stop()
	lease.deadline = m.clock.Now().Add(lease.ttl)
	lease.stop = m.clock.AfterFunc(lease.ttl, func() { m.expire(lease) })
}

// expire ends a lease whose timer fired, unless it was renewed meanwhile.
func (m *Memory) expire(lease *memoryLease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life.ctx.Err() != nil || !m.outage.since.IsZero() ||
		m.leases[lease.id] != lease || m.clock.Now().Before(lease.deadline) {
		return
	}
	m.endLocked(lease)
}

func (m *Memory) endLocked(lease *memoryLease) {
	lease.stop()
	delete(m.leases, lease.id)
	m.deleteLocked(slices.Sorted(maps.Keys(lease.keys)))
}

// keepAlive implements [leaseServer].
func (m *Memory) keepAlive(ctx context.Context, id cluster.InstanceID) (time.Duration, error) {
	lease, err := m.enterLease(ctx, "keep alive", id)
	if err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	m.renewLocked(lease)
	return lease.ttl, nil
}

// LeaseTTL implements [Store].
func (m *Memory) LeaseTTL(ctx context.Context, id cluster.InstanceID) (left, granted time.Duration, err error) {
	lease, err := m.enterLease(ctx, "look up", id)
	if err != nil {
		return 0, 0, err
	}
	defer m.mu.Unlock()
	return max(lease.deadline.Sub(m.clock.Now()), 0), lease.ttl, nil
}

// RevokeLease implements [Store].
func (m *Memory) RevokeLease(ctx context.Context, id cluster.InstanceID) error {
	lease, err := m.enterLease(ctx, "revoke", id)
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.endLocked(lease)
	return nil
}

// enterLease locks the store, as enter does, and finds the lease.
func (m *Memory) enterLease(ctx context.Context, verb string, id cluster.InstanceID) (*memoryLease, error) {
	if err := m.enter(ctx); err != nil {
		return nil, fmt.Errorf("%s lease %s: %w", verb, id, err)
	}
	lease, ok := m.leases[id]
	if !ok {
		m.mu.Unlock()
		return nil, fmt.Errorf("%s lease %s: %w", verb, id, ErrLeaseNotFound)
	}
	return lease, nil
}
