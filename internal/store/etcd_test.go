package store_test

import (
	"context"
	"testing"

	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

func TestEtcd(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store {
		return openEtcd(t, startEtcd(t, embedded.EtcdOptions{}).Endpoint())
	})
}

// startEtcd starts a server; only the address and directory need be given.
func startEtcd(t *testing.T, opts embedded.EtcdOptions) *embedded.Etcd {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	if opts.ClientAddr == "" {
		opts.ClientAddr = "127.0.0.1:0"
	}
	opts.Log, opts.UnsafeNoFsync = storetest.Discard, true
	ctx, cancel := context.WithTimeout(t.Context(), storetest.Patience)
	defer cancel()
	e, err := embedded.StartEtcd(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func openEtcd(t *testing.T, endpoints ...string) *store.Etcd {
	t.Helper()
	s, err := store.NewEtcd(store.EtcdConfig{Endpoints: endpoints}, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
