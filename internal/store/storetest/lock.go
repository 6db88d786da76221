package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/store"
)

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
		unlock store.Unlock
		err    error
	}
	writer := make(chan held, 1)
	go func() {
		unlock, err := lock.Lock(ctx, c.ID)
		writer <- held{unlock, err}
	}()
	for _, unlock := range []store.Unlock{readA, readB} {
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
	if _, err := lock.Lock(ctx, c.ID); !errors.Is(err, store.ErrExists) {
		t.Errorf("writer's lease again: got %v, want %v", err, store.ErrExists)
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
	a, b, c := grant(t, s), grant(t, s), grant(t, s)
	if _, err := lock.Lock(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { _ = s.RevokeLease(t.Context(), c.ID) })
	waiting, giveUp := context.WithTimeout(t.Context(), Patience)
	defer giveUp()
	if _, err := lock.Lock(waiting, c.ID); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("wait behind a holder, without a lease by now: got %v, want %v", err, store.ErrLeaseNotFound)
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

// testRWLockOrder has writers wait behind a reader: they come in their order, and before
// readers that ask later.
func testRWLockOrder(t *testing.T, s store.Store) {
	ctx, cancel := context.WithTimeout(t.Context(), patience.Soon)
	defer cancel()
	lock := store.NewRWLock(s, "order")
	reader := grant(t, s)
	unlock, err := lock.RLock(ctx, reader.ID, "first")
	if err != nil {
		t.Fatal(err)
	}
	waiting := func(n int) {
		t.Helper()
		w, err := s.Watch(ctx, "v1/order/writers/")
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for have := 0; have < n; have++ {
			if ev := Next(t, w); ev.Type == store.Resync {
				have = len(ev.All) - 1
			}
		}
	}
	var group sync.WaitGroup
	defer group.Wait()
	came := make(chan int, 4)
	acquire := func(i int, take func(context.Context, cluster.InstanceID) (store.Unlock, error)) {
		lease := grant(t, s)
		group.Go(func() {
			unlock, err := take(ctx, lease.ID)
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			came <- i
			if err := unlock(ctx); err != nil {
				t.Errorf("unlock of %d: %v", i, err)
			}
		})
	}
	for i := range 3 {
		acquire(i, lock.Lock)
		waiting(i + 1)
	}
	for _, try := range []func() (store.Unlock, error){
		func() (store.Unlock, error) { return lock.TryLock(ctx, reader.ID) },
		func() (store.Unlock, error) { return lock.TryRLock(ctx, reader.ID, "second") },
	} {
		if _, err := try(); !errors.Is(err, store.ErrConflict) {
			t.Errorf("a try behind writers: got %v, want %v", err, store.ErrConflict)
		}
	}
	acquire(3, func(ctx context.Context, id cluster.InstanceID) (store.Unlock, error) {
		return lock.RLock(ctx, id, "late")
	})
	if err := unlock(ctx); err != nil {
		t.Fatal(err)
	}
	for want := range 4 {
		select {
		case got := <-came:
			if got != want {
				t.Errorf("waiter %d came in place %d", got, want)
			}
		case <-ctx.Done():
			t.Fatal("somebody waits for ever")
		}
	}
	group.Wait()
	for _, try := range []func() (store.Unlock, error){
		func() (store.Unlock, error) { return lock.TryLock(ctx, reader.ID) },
		func() (store.Unlock, error) { return lock.TryRLock(ctx, reader.ID, "second") },
	} {
		unlock, err := try()
		if err != nil {
			t.Fatalf("a try of a free lock: %v", err)
		}
		if err := unlock(ctx); err != nil {
			t.Error(err)
		}
	}
	if kvs, _, _ := s.List(ctx, "v1/order/"); len(kvs) != 0 {
		t.Errorf("left behind: %v", kvs)
	}
}

// holders is the model of a lock: who holds it now.
type holders struct {
	mu      sync.Mutex
	writers int
	readers int
	most    int // readers at once
}

// enter counts a holder, and fails if the lock has another one that excludes it.
func (h *holders) enter(write bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if write {
		h.writers++
	} else {
		h.readers++
	}
	h.most = max(h.most, h.readers)
	if h.writers > 1 || h.writers == 1 && h.readers > 0 {
		return fmt.Errorf("%d writers and %d readers at once", h.writers, h.readers)
	}
	return nil
}

func (h *holders) leave(write bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if write {
		h.writers--
	} else {
		h.readers--
	}
}

// testRWLockModel has many owners take a lock, give up, die while they wait and lose their
// leases while they hold it, and compares with a model that excludes whom it must.
func testRWLockModel(t *testing.T, s store.Store) {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	lock := store.NewRWLock(s, "model")
	var model holders
	var group sync.WaitGroup
	const owners, turns = 6, 15
	for owner := range owners {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(owner), 1)) //nolint:gosec // repeatable
			for turn := range turns {
				if err := lockTurn(ctx, s, lock, &model, random, fmt.Sprintf("%d-%d", owner, turn)); err != nil {
					t.Errorf("owner %d, turn %d: %v", owner, turn, err)
					cancel()
					return
				}
			}
		})
	}
	group.Wait()
	if kvs, _, err := s.List(t.Context(), "v1/model/"); err != nil || len(kvs) != 0 {
		t.Errorf("left behind: %v, %v", kvs, err)
	}
	if model.most < 2 {
		t.Error("readers never shared the lock")
	}
}

// lockTurn is one turn of an owner with a lease of its own.
func lockTurn(ctx context.Context, s store.Store, lock *store.RWLock, model *holders, random *rand.Rand, name string) error {
	begin := time.Now()
	lease, err := s.GrantLease(ctx, Patience)
	if err != nil {
		return err
	}
	step := min(time.Since(begin), 5*time.Millisecond) // of this store on this machine
	write := random.IntN(3) == 0
	waits, dies, loses := random.IntN(4) > 0, random.IntN(6) == 0, random.IntN(4) == 0
	died := make(chan error, 1)
	if dies { // while it waits, if it has to
		time.AfterFunc(time.Duration(random.IntN(2000))*time.Microsecond, func() { died <- s.RevokeLease(ctx, lease.ID) })
	}
	var unlock store.Unlock
	switch {
	case write && waits:
		unlock, err = lock.Lock(ctx, lease.ID)
	case write:
		unlock, err = lock.TryLock(ctx, lease.ID)
	case waits:
		unlock, err = lock.RLock(ctx, lease.ID, name)
	default:
		unlock, err = lock.TryRLock(ctx, lease.ID, name)
	}
	switch {
	case dies: // it may have had the lock for a moment, which nobody relies on
		if err != nil && !errors.Is(err, store.ErrLeaseNotFound) && !errors.Is(err, store.ErrConflict) {
			return fmt.Errorf("without a lease: %w", err)
		}
		return <-died
	case !waits && errors.Is(err, store.ErrConflict):
		return s.RevokeLease(ctx, lease.ID)
	case err != nil:
		return err
	}
	if err := model.enter(write); err != nil {
		return err
	}
	time.Sleep(time.Duration(random.Int64N(int64(8*step) + 1))) // others come meanwhile
	model.leave(write)
	if !loses {
		if err := unlock(ctx); err != nil {
			return err
		}
	}
	return s.RevokeLease(ctx, lease.ID)
}
