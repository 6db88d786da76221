package storetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/store"
)

func testElect(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("test over")
	var wg sync.WaitGroup
	var leading, turns atomic.Int32
	names := []string{"a", "b", "c"}
	for _, name := range names {
		lease := grant(t, s)
		wg.Go(func() {
			err := store.Elect(ctx, s, "/leader", name, lease.ID, func(ctx context.Context) error {
				defer leading.Add(-1)
				if n := leading.Add(1); n != 1 {
					t.Errorf("%d leaders at a time", n)
				}
				if who, err := store.Leader(ctx, s, "/leader"); err != nil || who != name {
					t.Errorf("leader: got %q, %v, want %q", who, err, name)
				}
				if leads, err := store.Leads(ctx, s, "/leader", lease.ID); err != nil || !leads {
					t.Errorf("%s leads: got %v, %v", name, leads, err)
				}
				if leads, err := store.Leads(ctx, s, "/leader", lease.ID+1); err != nil || leads {
					t.Errorf("another lease leads: got %v, %v", leads, err)
				}
				if turns.Add(1) >= 4 {
					<-ctx.Done() // the last one stays
				}
				return nil // gives up the turn
			})
			if !errors.Is(err, stopped) {
				t.Errorf("elect: got %v, want %v", err, stopped)
			}
		})
	}
	Eventually(t, "the leadership moved on", func() bool { return turns.Load() >= 4 })
	cancel(stopped)
	wg.Wait()
	if who, err := store.Leader(t.Context(), s, "/leader"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("leader after all left: got %q, %v, want %v", who, err, store.ErrNotFound)
	}
}

func testElectDeposed(t *testing.T, s store.Store) {
	lease := grant(t, s)
	led := make(chan struct{})
	result := make(chan error, 1)
	go func() {
		result <- store.Elect(t.Context(), s, "/leader", "a", lease.ID, func(ctx context.Context) error {
			close(led)
			<-ctx.Done()
			return nil
		})
	}()
	Closed(t, "it leads", led)
	if err := s.RevokeLease(t.Context(), lease.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-result:
		if !errors.Is(err, store.ErrLeaseNotFound) {
			t.Errorf("elect: got %v, want %v", err, store.ErrLeaseNotFound)
		}
	case <-time.After(Patience):
		t.Fatal("still leading without a lease")
	}
}
