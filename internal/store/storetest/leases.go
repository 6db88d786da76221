package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/store"
)

func testLease(t *testing.T, s store.Store) {
	ctx := t.Context()
	lease := grant(t, s)
	put(t, s, "owned", "1", store.WithLease(lease.ID))
	put(t, s, "free", "1")
	if kv, err := s.Get(ctx, "owned"); err != nil || kv.Lease != lease.ID {
		t.Errorf("get: got lease %s, %v, want %s", kv.Lease, err, lease.ID)
	}
	if ids, err := s.Leases(ctx); err != nil || !slices.Contains(ids, lease.ID) {
		t.Errorf("leases: got %v, %v, want %s among them", ids, err, lease.ID)
	}
	left, granted, err := s.LeaseTTL(ctx, lease.ID)
	if err != nil || granted != lease.TTL || left <= 0 || left > granted {
		t.Errorf("ttl: got %s of %s, %v", left, granted, err)
	}

	if err := s.RevokeLease(ctx, lease.ID); err != nil {
		t.Fatal(err)
	}
	if exists(t, s, "owned") {
		t.Error("a key outlived its lease")
	}
	if !exists(t, s, "free") {
		t.Error("a key without a lease went with somebody else's")
	}
	if err := s.RevokeLease(ctx, lease.ID); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("second revoke: got %v, want %v", err, store.ErrLeaseNotFound)
	}
	if _, _, err := s.LeaseTTL(ctx, lease.ID); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("ttl after revoke: got %v, want %v", err, store.ErrLeaseNotFound)
	}
	if _, err := s.Put(ctx, "late", nil, store.WithLease(lease.ID)); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("put on a revoked lease: got %v, want %v", err, store.ErrLeaseNotFound)
	}
	if _, err := s.GrantLease(ctx, 0); err == nil {
		t.Error("a lease without a time to live was granted")
	}
}

func testLeaseExpires(t *testing.T, s store.Store) {
	lease, err := s.GrantLease(t.Context(), TTL)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "owned", "1", store.WithLease(lease.ID))
	Eventually(t, "the key is gone", func() bool { return !exists(t, s, "owned") })
	if _, _, err := s.LeaseTTL(t.Context(), lease.ID); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("ttl: got %v, want %v", err, store.ErrLeaseNotFound)
	}
}

func testLeaseMove(t *testing.T, s store.Store) {
	first, second := grant(t, s), grant(t, s)
	put(t, s, "k", "1", store.WithLease(first.ID))
	put(t, s, "k", "2", store.WithLease(second.ID))
	if err := s.RevokeLease(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	if !exists(t, s, "k") {
		t.Fatal("the key went with its former lease")
	}
	put(t, s, "k", "3") // off any lease
	if err := s.RevokeLease(t.Context(), second.ID); err != nil {
		t.Fatal(err)
	}
	if !exists(t, s, "k") {
		t.Error("the key went with a lease it was taken off")
	}
}

func testKeeper(t *testing.T, s store.Store) {
	// A busy machine may renew late, and this lease must not be lost.
	keeper, err := s.KeepLease(t.Context(), 3*TTL, Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	put(t, s, "owned", "1", store.WithLease(keeper.ID()))
	start := keeper.LastRenewed()
	Eventually(t, "renewed past its lifetime", func() bool {
		return keeper.LastRenewed().Sub(start) > keeper.TTL()*5/4
	})
	if !exists(t, s, "owned") {
		t.Error("the key is gone although its lease was kept")
	}
	if keeper.Uncertain() || keeper.Err() != nil {
		t.Errorf("uncertain %v, error %v, want neither", keeper.Uncertain(), keeper.Err())
	}
	keeper.Close()
	keeper.Close()
	Eventually(t, "the lease expired after Close", func() bool { return !exists(t, s, "owned") })
	select {
	case <-keeper.Lost():
		t.Error("a closed keeper reports a loss")
	default:
	}
}

func testKeeperLost(t *testing.T, s store.Store) {
	keeper, err := s.KeepLease(t.Context(), TTL, Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	if err := s.RevokeLease(t.Context(), keeper.ID()); err != nil {
		t.Fatal(err)
	}
	Closed(t, "the loss is noticed", keeper.Lost())
	if keeper.Uncertain() {
		t.Error("a lost lease is not uncertain")
	}
	if err := keeper.Revoke(t.Context()); err != nil {
		t.Errorf("revoke of a lost lease: %v", err)
	}
}

func testKeeperRevoke(t *testing.T, s store.Store) {
	keeper, err := s.KeepLease(t.Context(), time.Minute, Discard)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "owned", "1", store.WithLease(keeper.ID()))
	for range 2 {
		if err := keeper.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if exists(t, s, "owned") {
		t.Error("a key outlived its lease")
	}
}
