package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

func TestLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory(store.SystemClock{})
		defer func() { _ = s.Close() }()
		lease, err := s.GrantLease(t.Context(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		l := store.NewLeased(s, func() cluster.InstanceID { return lease.ID })
		if err := l.Put(t.Context(), "/x/a", []byte("1")); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		seen := map[string]string{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- l.Follow(ctx, "/x/", func(key string, value []byte) {
				mu.Lock()
				defer mu.Unlock()
				if value == nil {
					seen[key] = "gone"
					return
				}
				seen[key] = "is " + string(value)
			})
		}()
		synctest.Wait()
		want := func(key, value string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if seen[key] != value {
				t.Errorf("%s is %q, want %q", key, seen[key], value)
			}
		}
		want("/x/a", "is 1")
		if err := l.Put(t.Context(), "/x/b", nil); err != nil {
			t.Fatal(err)
		}
		want("/x/b", "is ")
		if err := l.DeletePrefix(t.Context(), "/x/b"); err != nil {
			t.Fatal(err)
		}
		want("/x/b", "gone")
		time.Sleep(11 * time.Second) // of the bubble's clock: nobody keeps the lease alive
		want("/x/a", "gone")
		if err := l.Put(t.Context(), "/x/a", []byte("2")); !errors.Is(err, store.ErrLeaseNotFound) {
			t.Errorf("put under a lost lease: %v", err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow(): %v", err)
		}
	})
}
