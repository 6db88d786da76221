package storetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
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

func testRWLock(t *testing.T, s store.Store) {
	ctx, cancel := context.WithTimeout(t.Context(), patience.Soon)
	defer cancel()
	lock := store.NewRWLock(s, "snapshots")
	a, b, c := grant(t, s), grant(t, s), grant(t, s)
	readA, err := lock.RLock(ctx, a.ID, "a")
	if err != nil {
		t.Fatal(err)
	}
	readB, err := lock.RLock(ctx, b.ID, "b")
	if err != nil {
		t.Fatalf("second reader: %v", err)
	}
	if _, err := lock.RLock(ctx, b.ID, "b"); !errors.Is(err, store.ErrExists) {
		t.Errorf("reader id in use: got %v, want %v", err, store.ErrExists)
	}

	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := lock.Lock(short, c.ID); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("writer beside readers: got %v, want %v", err, context.DeadlineExceeded)
	}

	type held struct {
		unlock func(context.Context) error
		err    error
	}
	writer := make(chan held, 1)
	go func() {
		unlock, err := lock.Lock(ctx, c.ID)
		writer <- held{unlock, err}
	}()
	for _, unlock := range []func(context.Context) error{readA, readB} {
		select {
		case <-writer:
			t.Fatal("the writer did not wait for all readers")
		default:
		}
		if err := unlock(ctx); err != nil {
			t.Fatal(err)
		}
	}
	w := <-writer // ctx ends
	if w.err != nil {
		t.Fatal(w.err)
	}

	short, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := lock.RLock(short, a.ID, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("reader beside a writer: got %v, want %v", err, context.DeadlineExceeded)
	}
	for range 2 {
		if err := w.unlock(ctx); err != nil {
			t.Errorf("unlock: %v", err)
		}
	}
	if kvs, _, _ := s.List(ctx, "v1/snapshots/"); len(kvs) != 0 {
		t.Errorf("left behind: %v", kvs)
	}
}

func testRWLockLease(t *testing.T, s store.Store) {
	lock := store.NewRWLock(s, "snapshots")
	a, b := grant(t, s), grant(t, s)
	if _, err := lock.Lock(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = s.RevokeLease(t.Context(), a.ID) })
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	unlock, err := lock.Lock(ctx, b.ID)
	if err != nil {
		t.Fatalf("after the holder's lease ended: %v", err)
	}
	if err := unlock(ctx); err != nil {
		t.Error(err)
	}
	if _, err := lock.Lock(ctx, a.ID); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("lock on a lost lease: got %v, want %v", err, store.ErrLeaseNotFound)
	}
}
