package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/dynctl/dynctl/internal/cluster"
)

// GrantLease implements [Store]. etcd counts in whole seconds and has a minimum
// that depends on its election time-out, so the TTL may be rounded up.
func (e *Etcd) GrantLease(ctx context.Context, ttl time.Duration) (lease Lease, err error) {
	if ttl <= 0 {
		return Lease{}, fmt.Errorf("grant lease: ttl %s is not positive", ttl)
	}
	err = e.do(ctx, "grant lease", "", func(ctx context.Context) error {
		resp, err := e.client.Grant(ctx, int64(math.Ceil(ttl.Seconds())))
		if err != nil {
			return err
		}
		lease = Lease{ID: cluster.InstanceID(resp.ID), TTL: seconds(resp.TTL)}
		return nil
	})
	return lease, err
}

// keepAlive implements [leaseServer].
func (e *Etcd) keepAlive(ctx context.Context, id cluster.InstanceID) (ttl time.Duration, err error) {
	err = e.do(ctx, "keep alive lease", id.String(), func(ctx context.Context) error {
		var err error
		ttl, err = e.keeping.renew(ctx, id)
		return err
	})
	if errors.Is(err, ErrUnavailable) {
		e.client.ActiveConnection().ResetConnectBackoff()
	}
	return ttl, err
}

// LeaseTTL implements [Store].
func (e *Etcd) LeaseTTL(ctx context.Context, id cluster.InstanceID) (left, granted time.Duration, err error) {
	err = e.do(ctx, "look up lease", id.String(), func(ctx context.Context) error {
		resp, err := e.client.TimeToLive(ctx, leaseID(id))
		if err != nil {
			return err
		}
		if resp.TTL < 0 {
			return rpctypes.ErrLeaseNotFound
		}
		left, granted = seconds(resp.TTL), seconds(resp.GrantedTTL)
		return nil
	})
	return left, granted, err
}

// RevokeLease implements [Store].
func (e *Etcd) RevokeLease(ctx context.Context, id cluster.InstanceID) error {
	return e.do(ctx, "revoke lease", id.String(), func(ctx context.Context) error {
		_, err := e.client.Revoke(ctx, leaseID(id))
		return err
	})
}

// Leases implements [Store].
func (e *Etcd) Leases(ctx context.Context) (ids []cluster.InstanceID, err error) {
	err = e.do(ctx, "list leases", "", func(ctx context.Context) error {
		resp, err := e.client.Leases(ctx)
		if err != nil {
			return err
		}
		ids = make([]cluster.InstanceID, len(resp.Leases))
		for i, l := range resp.Leases {
			ids[i] = cluster.InstanceID(l.ID)
		}
		slices.Sort(ids)
		return nil
	})
	return ids, err
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
