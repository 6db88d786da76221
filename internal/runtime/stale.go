package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// instances is the part of a store that RevokeStale needs: the registrations and their
// leases.
type instances interface {
	store.Reader
	store.Leaser
}

// RevokeStale revokes the leases that an earlier run of a node left behind: those of all
// instances in the namespace that the node registered in another incarnation. It returns
// the number of leases revoked. The caller must make sure that the earlier run is over.
// Without RevokeStale, the leases would end after their TTL.
func RevokeStale(ctx context.Context, s instances, namespace, node, incarnation string) (int, error) {
	if namespace == "" || node == "" || incarnation == "" {
		return 0, errors.New("revoke stale: namespace, node and incarnation are required")
	}
	kvs, _, err := s.List(ctx, cluster.InstancePrefix(namespace, "", ""))
	if err != nil {
		return 0, fmt.Errorf("revoke stale: %w", err)
	}
	stale := map[cluster.InstanceID]struct{}{}
	for _, kv := range kvs {
		inst, err := store.DecodeJSON[cluster.Instance](kv)
		if err == nil && kv.Lease != 0 && inst.Node == node && inst.Incarnation != "" && inst.Incarnation != incarnation {
			stale[kv.Lease] = struct{}{}
		}
	}
	var errs []error
	revoked := 0
	for lease := range stale {
		switch err := s.RevokeLease(ctx, lease); {
		case err == nil:
			revoked++
		case !errors.Is(err, store.ErrLeaseNotFound):
			errs = append(errs, err)
		}
	}
	return revoked, errors.Join(errs...)
}
