package store

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/natsconn"
)

// startNATS starts a server and returns what opens its store.
func startNATS(t *testing.T) (open func() *NATS) {
	return startLoops(t, (*NATS).follow, (*NATS).monitor)
}

// startLoops is startNATS with other loops: tests may do by hand what the others would.
func startLoops(t *testing.T, loops ...func(*NATS, context.Context)) (open func() *NATS) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	srv, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: t.TempDir(), Addr: "127.0.0.1:0", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	return func() *NATS {
		t.Helper()
		n, err := newNATS(NATSConfig{Config: natsconn.Config{URL: srv.URL()}}, log, loops...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		if _, err := n.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// What is long gone leaves the stream, once, and nothing else does; who has not heard of that
// can write it again.
func TestNATSPurges(t *testing.T) {
	t.Parallel()
	open := startLoops(t, (*NATS).follow) // no monitor purges between two steps
	n, other := open(), open()
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lease, err := n.GrantLease(ctx, time.Hour)
	must(nil, err)
	_, err = n.keepAlive(ctx, lease.ID)
	must(nil, err)
	must(n.Put(ctx, "owned", nil, WithLease(lease.ID)))
	must(n.Put(ctx, "deleted", nil))
	must(n.Put(ctx, "again", nil))
	must(n.Put(ctx, "kept", nil))
	must(nil, n.Delete(ctx, "deleted"))
	must(nil, n.Delete(ctx, "again"))
	must(n.Put(ctx, "again", nil))
	must(nil, n.RevokeLease(ctx, lease.ID))
	must(other.Ping(ctx))

	subjects := func() []string {
		t.Helper()
		s, err := n.js.Stream(ctx, n.stream)
		must(nil, err)
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
		must(nil, err)
		return slices.Sorted(maps.Keys(info.State.Subjects))
	}
	all := subjects()
	n.purge(ctx)
	if now := subjects(); !slices.Equal(now, all) {
		t.Errorf("purged at once: %q is left of %q", now, all)
	}
	later := func(n *NATS) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.state.clock += natsKeepDead
	}
	later(n)
	later(other)
	must(n.Put(ctx, "late", nil))
	must(nil, n.Delete(ctx, "late")) // not for long
	n.purge(ctx)
	want := []string{n.prefix + "k.again", n.prefix + "k.kept", n.prefix + "k.late", n.prefix + "p"}
	if now := subjects(); !slices.Equal(now, want) {
		t.Errorf("left: %q, want %q", now, want)
	}
	must(other.Ping(ctx))
	other.mu.Lock()
	if _, late := other.dead[natsKeys+"late"]; len(other.dead) != 1 || !late {
		t.Errorf("the other process would purge %v again", other.dead)
	}
	other.dead[natsKeys+"late"] = tomb{seq: other.applied.seq} // gone for long
	before := other.applied.seq
	other.mu.Unlock()
	other.purge(ctx) // another process has just purged
	if other.mu.Lock(); other.applied.seq != before {
		t.Error("two processes purge at a time")
	}
	other.bury(natsKeys+"deleted", 12345) // as if it had missed that
	other.mu.Unlock()
	must(other.Create(ctx, "deleted", []byte("new")))
	if kv, err := n.Get(ctx, "deleted"); err != nil || string(kv.Value) != "new" {
		t.Errorf("created again: %q, %v", kv.Value, err)
	}
	if kvs, _, err := open().List(ctx, ""); err != nil || len(kvs) != 3 {
		t.Errorf("read anew: %v, %v", kvs, err)
	}
}
