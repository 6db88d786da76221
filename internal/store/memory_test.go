package store_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store {
		s := store.NewMemory(nil)
		t.Cleanup(func() { s.Close() })
		return s
	})
}

func TestMemoryOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory(nil)
		defer s.Close()
		keeper, err := s.KeepLease(t.Context(), 10*time.Second, storetest.Discard)
		if err != nil {
			t.Fatal(err)
		}
		left, err := s.GrantLease(t.Context(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for key, lease := range map[string]store.Lease{"p/kept": {ID: keeper.ID()}, "p/left": left} {
			if _, err := s.Put(t.Context(), key, nil, store.WithLease(lease.ID)); err != nil {
				t.Fatal(err)
			}
		}
		w, err := s.Watch(t.Context(), "p/")
		if err != nil {
			t.Fatal(err)
		}
		storetest.Next(t, w)

		s.SetOutage(true)
		if _, err := s.Get(t.Context(), "p/kept"); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("get: got %v, want %v", err, store.ErrUnavailable)
		}
		if since, err, _ := w.Stale(); since.IsZero() || err == nil {
			t.Error("the watch is not stale")
		}
		time.Sleep(time.Minute)
		if !keeper.Uncertain() {
			t.Error("the lease is certain after six times its TTL")
		}

		s.SetOutage(false)
		if ev := storetest.Next(t, w); ev.Type != store.Resync || len(ev.All) != 2 {
			t.Errorf("after the outage: got %+v, want a resync with both keys", ev)
		}
		if since, err, _ := w.Stale(); !since.IsZero() {
			t.Errorf("stale since %s: %v", since, err)
		}
		time.Sleep(2 * time.Second)
		if keeper.Uncertain() {
			t.Error("the lease is still uncertain")
		}
		// Its fresh TTL counts from the end of the outage.
		time.Sleep(8500 * time.Millisecond)
		if ev := storetest.Next(t, w); ev.Type != store.Delete || ev.KV.Key != "p/left" {
			t.Errorf("next event: got %+v, want the lease that nobody kept to end", ev)
		}
	})
}

// manualClock shows that leases live by the clock they are given.
type manualClock struct {
	now    time.Time
	timers []func()
}

func (c *manualClock) Now() time.Time { return c.now }

func (c *manualClock) AfterFunc(_ time.Duration, f func()) (stop func() bool) {
	c.timers = append(c.timers, f)
	return func() bool { return true }
}

func TestMemoryClock(t *testing.T) {
	clock := &manualClock{now: time.Unix(0, 0)}
	s := store.NewMemory(clock)
	defer s.Close()
	lease, err := s.GrantLease(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	clock.now = clock.now.Add(59 * time.Second)
	clock.timers[0]() // early
	if left, _, err := s.LeaseTTL(t.Context(), lease.ID); err != nil || left != time.Second {
		t.Errorf("left: got %s, %v, want 1s", left, err)
	}
	clock.now = clock.now.Add(time.Second)
	clock.timers[0]()
	if _, _, err := s.LeaseTTL(t.Context(), lease.ID); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("after the TTL: got %v, want %v", err, store.ErrLeaseNotFound)
	}
}
