package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/store"
)

// counted counts watches, and refuses those that are listed while broken.
type counted struct {
	store.Store
	watches atomic.Int64
	broken  atomic.Bool
}

var errBroken = errors.New("broken")

func (c *counted) Watch(ctx context.Context, prefix string) (*store.Watcher, error) {
	c.watches.Add(1)
	if c.broken.Load() {
		return nil, errBroken
	}
	return c.Store.Watch(ctx, prefix)
}

// numbers shares prefixes whose view is the number of its keys. views counts them.
func numbers(views *atomic.Int64) *store.Shares[string, int] {
	return store.NewShares(
		func(kv store.KV) (string, error) { return string(kv.Value), nil },
		func(found *store.Prefix[string], _ int) int { views.Add(1); return len(found.Snapshot()) })
}

// Readers of one prefix share a watch and what is made of a change; those of another prefix
// or store do not. Whoever has left is told no more.
func TestShares(t *testing.T) {
	s, log := &counted{Store: store.NewMemory(nil)}, slog.New(slog.DiscardHandler)
	defer s.Close()
	var views atomic.Int64
	all := numbers(&views)
	var told [10]atomic.Int64
	var readers []*store.Share[string, int]
	for i := range told {
		h, err := all.Join(t.Context(), s, "p/", log)
		if err != nil {
			t.Fatal(err)
		}
		h.OnChange(func() { told[i].Add(1) })
		readers = append(readers, h)
	}
	other, err := all.Join(t.Context(), s, "q/", log)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Leave()
	if n := s.watches.Load(); n != 2 {
		t.Errorf("%d watches of two prefixes", n)
	}
	before := views.Load()
	if _, err := s.Put(t.Context(), "p/1", nil); err != nil {
		t.Fatal(err)
	}
	for i := range told {
		patience.Until(t, fmt.Sprintf("reader %d is told", i), func() bool { return told[i].Load() > 0 && readers[i].View() == 1 })
	}
	if made := views.Load() - before; made > 3 { // the first listings of both prefixes may be told late
		t.Errorf("%d views of one change", made)
	}
	readers[0].Leave()
	heard := told[0].Load()
	if _, err := s.Put(t.Context(), "p/2", nil); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the others see a change", func() bool { return readers[1].View() == 2 })
	if told[0].Load() != heard {
		t.Error("a reader that has left was told")
	}
	if other.View() != 0 {
		t.Error("another prefix shows the keys of this one")
	}
	for _, h := range readers[1:] {
		h.Leave()
	}
	select {
	case <-readers[1].Done():
	default:
		t.Error("the watch goes on without readers")
	}
}

// A reader that catches up sees all that was written before.
func TestShareCatchesUp(t *testing.T) {
	s, log := store.NewMemory(nil), slog.New(slog.DiscardHandler)
	defer s.Close()
	all := numbers(new(atomic.Int64))
	first, err := all.Join(t.Context(), s, "p/", log)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Leave()
	for n := 1; n <= 200; n++ {
		if _, err := s.Put(t.Context(), fmt.Sprint("p/", n), nil); err != nil {
			t.Fatal(err)
		}
		h, err := all.Join(t.Context(), s, "p/", log)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := h.View(); got != n {
			t.Fatalf("%d keys after %d writes", got, n)
		}
		h.Leave()
	}
}

// When the store refuses the watch, each reader that wanted to share it is told so, and the
// next one tries again.
func TestShareFails(t *testing.T) {
	s, log := &counted{Store: store.NewMemory(nil)}, slog.New(slog.DiscardHandler)
	defer s.Close()
	s.broken.Store(true)
	all := numbers(new(atomic.Int64))
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := all.Join(t.Context(), s, "p/", log); !errors.Is(err, errBroken) {
				t.Errorf("join: %v", err)
			}
		})
	}
	wg.Wait()
	s.broken.Store(false)
	h, err := all.Join(t.Context(), s, "p/", log)
	if err != nil {
		t.Fatal(err)
	}
	h.Leave()
}
