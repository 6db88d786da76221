package store

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dynctl/dynctl/internal/cluster"
)

// GrantLease implements [Store].
func (n *NATS) GrantLease(ctx context.Context, ttl time.Duration) (Lease, error) {
	if ttl <= 0 {
		return Lease{}, fmt.Errorf("grant lease: ttl %s is not positive", ttl)
	}
	return doNATS(ctx, n, "grant lease", "", func(ctx context.Context) (Lease, error) {
		id, sent := newLeaseID(), time.Now()
		rev, err := n.write(ctx, n.message(natsLeases+id.String(), []byte(ttl.String()), lastOf(0)))
		if err == nil {
			err = n.keeps(ctx, id, rev)
		}
		n.hold(id, sent.Add(ttl))
		return Lease{ID: id, TTL: ttl}, err
	})
}

// KeepLease implements [Store].
func (n *NATS) KeepLease(ctx context.Context, ttl time.Duration, log *slog.Logger) (*LeaseKeeper, error) {
	return keepLease(ctx, n.life, n, ttl, log)
}

// keepAlive implements [leaseServer].
func (n *NATS) keepAlive(ctx context.Context, id cluster.InstanceID) (time.Duration, error) {
	return doNATS(ctx, n, "keep alive lease", id.String(), func(ctx context.Context) (ttl time.Duration, err error) {
		sent := time.Now()
		rev, err := n.writeAlways(ctx, func(c natsCondition) (*nats.Msg, error) {
			lease, err := n.state.lease(id)
			if err != nil {
				return nil, err
			}
			ttl = lease.ttl
			return n.message(natsBeats+id.String(), nil, c), nil
		})
		if err == nil {
			err = n.keeps(ctx, id, rev)
		}
		if err == nil {
			n.hold(id, sent.Add(ttl))
		}
		return ttl, err
	})
}

// keeps waits until a message has been read, and checks that its lease was held then.
func (n *NATS) keeps(ctx context.Context, id cluster.InstanceID, rev Revision) (err error) {
	if !n.holdsNow(func() bool { return n.applied.seq >= rev }) {
		if err := n.catchUp(ctx); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	_, err = n.state.lease(id)
	return err
}

// hold notes until when nobody ends a lease that this process has renewed.
func (n *NATS) hold(id cluster.InstanceID, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state.leases[id] != nil {
		n.held[id] = until
	}
}

// holds implements [leaseHolder].
func (n *NATS) holds(id cluster.InstanceID) (until time.Time, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	until, ok = n.held[id]
	return until, ok
}

// RevokeLease implements [Store].
func (n *NATS) RevokeLease(ctx context.Context, id cluster.InstanceID) error {
	_, err := doNATS(ctx, n, "revoke lease", id.String(), func(ctx context.Context) (Revision, error) {
		for attempt := 0; ; attempt++ {
			m, err := n.attempt(ctx, func() (*nats.Msg, error) {
				_, err := n.state.lease(id)
				return n.marker(natsLeases+id.String(), lastOf(n.grants[id])), err
			})
			if err != nil {
				return 0, err
			}
			rev, err := n.write(ctx, m)
			if !conflict(err) {
				return rev, err
			}
			if err := n.overtaken(ctx, attempt); err != nil { // another one has ended it
				return 0, err
			}
		}
	})
	return err
}

// LeaseTTL implements [Store]. The time left is what this process knows: of a lease that it
// has not seen renewed yet, it is the TTL less the time since the store was opened.
func (n *NATS) LeaseTTL(ctx context.Context, id cluster.InstanceID) (left, granted time.Duration, err error) {
	type ttl struct{ left, granted time.Duration }
	t, err := readNATS(ctx, n, "look up lease", id.String(), func() (ttl, error) {
		lease, err := n.state.lease(id)
		if err != nil {
			return ttl{}, err
		}
		return ttl{n.state.left(lease), lease.ttl}, nil
	})
	return t.left, t.granted, err
}

// Leases implements [Store].
func (n *NATS) Leases(ctx context.Context) ([]cluster.InstanceID, error) {
	return readNATS(ctx, n, "list leases", "", func() ([]cluster.InstanceID, error) {
		return slices.Sorted(maps.Keys(n.state.leases)), nil
	})
}
