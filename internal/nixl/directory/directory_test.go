package directory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/directory"
	"github.com/dynctl/dynctl/internal/nixl/local"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a store and agents that use it.
type site struct {
	nixltest.Env
	store *store.Memory
}

func newSite(t *testing.T) *site {
	reg := local.NewRegistry(0)
	s := &site{nixltest.Env{Transports: func() []nixl.Transport { return []nixl.Transport{reg.Transport()} }}, store.NewMemory(store.SystemClock{})}
	t.Cleanup(func() { _ = s.store.Close() })
	return s
}

// member starts an agent with a lease and a directory.
func (s *site) member(t *testing.T, name string, o directory.Options) (*nixl.Agent, *directory.Directory, cluster.InstanceID) {
	t.Helper()
	lease, err := s.store.GrantLease(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	a := s.Agent(t, name)
	d := directory.New(a, store.NewLeased(s.store, func() cluster.InstanceID { return lease.ID }), o)
	t.Cleanup(d.Close)
	return a, d, lease.ID
}

func TestPublishAndFetch(t *testing.T) {
	s := newSite(t)
	a, da, _ := s.member(t, "a", directory.Options{})
	b, db, lease := s.member(t, "b", directory.Options{})
	ctx := nixltest.Context(t)

	fetched := make(chan error, 1)
	go func() { fetched <- da.Fetch(ctx, "b", "") }() // before it is published
	if err := db.Publish(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-fetched; err != nil {
		t.Fatal(err)
	}
	if kv, err := s.store.Get(ctx, "/nixl/agents/b/metadata"); err != nil || kv.Lease != lease {
		t.Errorf("key %+v, %v", kv, err)
	}
	if !a.Known("b", b.Incarnation()) {
		t.Fatal("b is not known")
	}
	nixltest.Region(t, b, 4096)
	if err := db.Publish(ctx); err != nil {
		t.Fatal(err)
	}
	nixltest.Poll(t, "a new region is followed", func() bool { _, err := a.RemoteRegion("b", "kv"); return err == nil })

	// The owner dies: its lease ends, and its peers forget it.
	if err := s.store.RevokeLease(ctx, lease); err != nil {
		t.Fatal(err)
	}
	nixltest.Poll(t, "b is forgotten", func() bool { return !a.Known("b", "") })
	if err := db.Publish(ctx); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("publish under a lost lease: %v", err)
	}
}

func TestPartialLabels(t *testing.T) {
	s := newSite(t)
	a, da, _ := s.member(t, "a", directory.Options{Namespace: "/ns/", Wait: 50 * time.Millisecond})
	b, db, _ := s.member(t, "b", directory.Options{Namespace: "/ns"})
	ctx := nixltest.Context(t)
	r, _ := nixltest.Region(t, b, 4096)
	for label, spec := range map[string]nixl.PartialSpec{"conn": {Connection: true}, "blocks": {Regions: []*nixl.Region{r}}} {
		if err := db.PublishPartial(ctx, label, spec); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.store.Get(ctx, "/ns/b/blocks"); err != nil {
		t.Error(err)
	}
	if err := da.Fetch(ctx, "b", "blocks"); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("regions before the connection data: %v", err)
	}
	for _, label := range []string{"conn", "blocks"} {
		if err := da.Fetch(ctx, "b", label); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.RemoteRegion("b", "kv"); err != nil {
		t.Error(err)
	}
	if err := da.Fetch(ctx, "b", "none"); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("label that is not published: %v", err)
	}
	if err := s.store.Delete(ctx, "/ns/b/blocks"); err != nil {
		t.Fatal(err)
	}
	if err := db.PublishPartial(ctx, "more", nixl.PartialSpec{Connection: true}); err != nil {
		t.Fatal(err)
	}
	if err := da.Fetch(ctx, "b", "more"); err != nil || !a.Known("b", "") {
		t.Errorf("b with one label less: %v", err)
	}
	if err := db.Withdraw(ctx); err != nil {
		t.Fatal(err)
	}
	nixltest.Poll(t, "b is forgotten", func() bool { return !a.Known("b", "") })
	if err := da.Fetch(ctx, "b", ""); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("fetch of who has left: %v", err)
	}
}

// What is gone is an earlier run of an agent that has come back: it stays known.
func TestOldIncarnationLeaves(t *testing.T) {
	s := newSite(t)
	a, da, _ := s.member(t, "a", directory.Options{})
	old, db, _ := s.member(t, "b", directory.Options{})
	ctx := nixltest.Context(t)
	if err := db.Publish(ctx); err != nil {
		t.Fatal(err)
	}
	if err := da.Fetch(ctx, "b", ""); err != nil {
		t.Fatal(err)
	}
	_ = old.Close()
	b := s.Agent(t, "b")
	nixltest.Load(t, a, b) // by another way than the store
	if err := db.Withdraw(ctx); err != nil {
		t.Fatal(err)
	}
	blob, err := b.PartialMetadata(nixl.PartialSpec{Connection: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Put(ctx, "/nixl/agents/b/later", blob); err != nil {
		t.Fatal(err)
	}
	if err := da.Fetch(ctx, "b", "later"); err != nil { // changes are seen in order
		t.Fatal(err)
	}
	if !a.Known("b", b.Incarnation()) {
		t.Error("the present incarnation was forgotten with the old one")
	}
}

func TestFetchErrors(t *testing.T) {
	s := newSite(t)
	_, da, lease := s.member(t, "a", directory.Options{Wait: 20 * time.Millisecond})
	c, _, _ := s.member(t, "c", directory.Options{})
	ctx := nixltest.Context(t)
	put := func(key string, value []byte) {
		if _, err := s.store.Put(ctx, key, value, store.WithLease(lease)); err != nil {
			t.Fatal(err)
		}
	}
	put("/nixl/agents/b/metadata", c.Metadata())
	put("/nixl/agents/d/metadata", []byte("garbage"))
	put("/nixl/agents/e/metadata", nil)
	for _, x := range []struct {
		peer, label string
		want        nixl.Status
	}{
		{"b", "", nixl.ErrMismatch}, // it is that of c
		{"d", "", nixl.ErrMismatch},
		{"e", "", nixl.ErrNotFound}, // an empty key is a placeholder
		{"x", "", nixl.ErrNotFound},
		{"", "", nixl.ErrInvalidParam},
		{"b/c", "", nixl.ErrInvalidParam},
		{"b", "../c", nixl.ErrInvalidParam},
	} {
		if err := da.Fetch(ctx, x.peer, x.label); nixl.StatusOf(err) != x.want {
			t.Errorf("fetch %q of %q: %v", x.label, x.peer, err)
		}
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := da.Fetch(canceled, "x", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("fetch without patience: %v", err)
	}
	da.Close()
	if err := da.Fetch(ctx, "c", ""); nixl.StatusOf(err) != nixl.ErrNotAllowed {
		t.Errorf("fetch after Close: %v", err)
	}
}
