package client

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/store"
)

var tiny = cluster.ModelSpec{Name: "tiny"}

func twoByFour(t *cluster.Topology, _ bool) error {
	t.Model, t.Prefill, t.Decode = tiny, 2, 4
	return nil
}

func TestDeclare(t *testing.T) {
	c := lab(t)
	ctx := t.Context()
	if top, err := c.Topology(ctx); top != nil || err != nil {
		t.Errorf("nothing declared: %v %v", top, err)
	}
	first, err := c.Declare(ctx, twoByFour)
	if err != nil || first.Generation != 1 || first.Prefill != 2 || first.UpdatedBy == "" || first.UpdatedAt.IsZero() {
		t.Fatalf("declared %+v %v", first, err)
	}
	key := cluster.TopologyKey(c.Namespace)
	rev := revision(t, c, key)
	same, err := c.Declare(ctx, twoByFour)
	if err != nil || same.Generation != 1 || same.Decode != 4 {
		t.Errorf("the same again: %+v %v", same, err)
	}
	if now := revision(t, c, key); now != rev {
		t.Errorf("the same was written again: revision %d, was %d", now, rev)
	}
	for name, change := range map[string]func(*cluster.Topology, bool) error{
		"invalid":        func(t *cluster.Topology, _ bool) error { t.Decode = -1; return nil },
		"prefill alone":  func(t *cluster.Topology, _ bool) error { t.Decode = 0; return nil },
		"refused":        func(*cluster.Topology, bool) error { return errors.New("no") },
		"bad block size": func(t *cluster.Topology, _ bool) error { t.Engine.BlockSize = 7; return nil },
	} {
		if _, err := c.Declare(ctx, change); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if now := revision(t, c, key); now != rev {
		t.Errorf("something refused was written: revision %d, was %d", now, rev)
	}
	if top, err := c.Topology(ctx); err != nil || top.Decode != 4 {
		t.Errorf("read back: %+v %v", top, err)
	}
}

// Somebody else is faster: the change runs again on what is there now.
func TestDeclareWithAConcurrentWriter(t *testing.T) {
	c := lab(t)
	ctx := t.Context()
	if _, err := c.Declare(ctx, twoByFour); err != nil {
		t.Fatal(err)
	}
	runs := 0
	got, err := c.Declare(ctx, func(top *cluster.Topology, _ bool) error {
		if runs++; runs == 1 {
			if _, err := c.Declare(ctx, func(o *cluster.Topology, _ bool) error { o.Prefill = 7; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		top.Decode++
		return nil
	})
	if err != nil || runs != 2 || got.Prefill != 7 || got.Decode != 5 || got.Generation != 3 {
		t.Errorf("after %d runs %+v %v, want both changes", runs, got, err)
	}
	// Somebody who always is faster.
	n := 0
	_, err = c.Declare(ctx, func(top *cluster.Topology, _ bool) error {
		n++
		put(t, c, cluster.TopologyKey(c.Namespace), cluster.Topology{Model: tiny, Decode: n}, 0)
		top.Prefill = 1
		return nil
	})
	if !errors.Is(err, store.ErrConflict) {
		t.Errorf("always too late: %v after %d attempts, want ErrConflict", err, n)
	}
}

func assign(t *testing.T, c *Cluster, a cluster.Assignment) string {
	t.Helper()
	key := cluster.AssignmentKey(c.Namespace, a.Name)
	put(t, c, key, a, 0)
	return key
}

func assignment(t *testing.T, c *Cluster, name string) cluster.Assignment {
	t.Helper()
	a, _, err := store.GetJSON[cluster.Assignment](t.Context(), c.store, cluster.AssignmentKey(c.Namespace, name))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestDrainAndResume(t *testing.T) {
	c := lab(t)
	ctx := t.Context()
	key := assign(t, c, cluster.Assignment{Name: "worker-7", Role: cluster.RoleDecode, Node: "n1", Device: "cpu:0", Desire: cluster.DesireRun, Generation: 4})
	rev := revision(t, c, key)
	if err := c.Resume(ctx, "worker-7"); err != nil {
		t.Fatal(err)
	}
	if now := revision(t, c, key); now != rev {
		t.Error("resuming a running worker wrote something")
	}
	deadline := time.Now().Add(time.Minute)
	if err := c.Drain(ctx, "worker-7", deadline, true); err != nil {
		t.Fatal(err)
	}
	if a := assignment(t, c, "worker-7"); a.Desire != cluster.DesireDrain || !a.DrainDeadline.Equal(deadline) || !a.DrainForce || a.Generation != 4 || a.Node != "n1" {
		t.Errorf("drained: %+v", a)
	}
	if err := c.Resume(ctx, "worker-7"); err != nil {
		t.Fatal(err)
	}
	if a := assignment(t, c, "worker-7"); a.Desire != cluster.DesireRun || !a.DrainDeadline.IsZero() || a.DrainForce {
		t.Errorf("resumed: %+v", a)
	}
}

func TestOrdersThatAreRefused(t *testing.T) {
	c := lab(t)
	ctx := t.Context()
	key := assign(t, c, cluster.Assignment{Name: "worker-1", Desire: cluster.DesireRemove})
	rev := revision(t, c, key)
	for name, err := range map[string]error{
		"drain":  c.Drain(ctx, "worker-1", time.Time{}, false),
		"resume": c.Resume(ctx, "worker-1"),
	} {
		if err == nil || !strings.Contains(err.Error(), "worker-1 is being removed") {
			t.Errorf("%s of a worker that is being removed: %v", name, err)
		}
	}
	if now := revision(t, c, key); now != rev {
		t.Error("a refused order was written")
	}
	for name, err := range map[string]error{
		"drain":  c.Drain(ctx, "worker-9", time.Time{}, false),
		"resume": c.Resume(ctx, "worker-9"),
	} {
		if !errors.Is(err, ErrNoWorker) || !strings.Contains(err.Error(), "cluster test") {
			t.Errorf("%s of an unknown worker: %v", name, err)
		}
	}
	if _, err := c.store.Get(ctx, cluster.AssignmentKey(c.Namespace, "worker-9")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an order made a worker: %v", err)
	}
}

// An order does not undo what the controller writes at the same time.
func TestOrderWithAConcurrentWriter(t *testing.T) {
	c := lab(t)
	assign(t, c, cluster.Assignment{Name: "worker-1", Desire: cluster.DesireRun, Generation: 1})
	runs := 0
	err := c.Order(t.Context(), "worker-1", func(a *cluster.Assignment) error {
		if runs++; runs == 1 {
			assign(t, c, cluster.Assignment{Name: "worker-1", Desire: cluster.DesireRun, Generation: 2, Node: "elsewhere"})
		}
		a.Desire = cluster.DesireDrain
		return nil
	})
	if a := assignment(t, c, "worker-1"); err != nil || runs != 2 || a.Generation != 2 || a.Node != "elsewhere" || a.Desire != cluster.DesireDrain {
		t.Errorf("after %d runs %+v %v", runs, a, err)
	}
}

func TestSettingsAndCards(t *testing.T) {
	c := lab(t)
	ctx := t.Context()
	if err := c.PutSetting(ctx, "disagg.max_local_prefill_tokens", 128); err != nil {
		t.Fatal(err)
	}
	kv, err := c.store.Get(ctx, cluster.SettingKey(c.Namespace, "disagg.max_local_prefill_tokens"))
	if err != nil || string(kv.Value) != "128" {
		t.Errorf("setting %q %v", kv.Value, err)
	}
	if all, err := c.Settings(ctx); err != nil || len(all) != 1 || string(all["disagg.max_local_prefill_tokens"]) != "128" {
		t.Errorf("settings %v %v", all, err)
	}
	for range 2 {
		if err := c.DeleteSetting(ctx, "disagg.max_local_prefill_tokens"); err != nil {
			t.Error(err)
		}
	}
	if all, err := c.Settings(ctx); err != nil || len(all) != 0 {
		t.Errorf("settings %v %v", all, err)
	}
	if err := c.PutSetting(ctx, "x", func() {}); err == nil {
		t.Error("a function is a setting")
	}
	if cards, err := c.ModelCards(ctx); len(cards) != 0 || err != nil {
		t.Errorf("no workers: %v %v", cards, err)
	}
	put(t, c, cluster.CardKey(c.Namespace, "decode", "generate", 7), cluster.ModelCard{DisplayName: "tiny", Digest: "sha256:x"}, 0)
	if cards, err := c.ModelCards(ctx); len(cards) != 1 || cards[0].Digest != "sha256:x" || err != nil {
		t.Errorf("cards %v %v", cards, err)
	}
	put(t, c, cluster.CardKey(c.Namespace, "decode", "generate", 8), "no card", 0)
	if _, err := c.ModelCards(ctx); err == nil || !strings.Contains(err.Error(), "generate/8") {
		t.Errorf("a card that does not decode: %v", err)
	}
}

func TestConnect(t *testing.T) {
	c := lab(t)
	base := config.Dynctl{Cluster: "local", StateDir: t.TempDir()}
	connect := func(change func(*config.Dynctl)) (*Cluster, error) {
		cfg := base
		change(&cfg)
		ctx, cancel := context.WithTimeout(t.Context(), patience.Soon/10)
		defer cancel()
		return Connect(ctx, cfg, quiet)
	}
	t.Run("nothing runs here", func(t *testing.T) {
		if _, err := connect(func(*config.Dynctl) {}); !errors.Is(err, ErrUnreachable) || !errors.Is(err, statedir.ErrNotRunning) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("nobody answers", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := ln.Addr().String()
		ln.Close()
		if _, err := connect(func(cfg *config.Dynctl) { cfg.Etcd.Endpoints = []string{addr} }); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), addr) {
			t.Errorf("got %v, want ErrUnreachable with the address", err)
		}
	})
	t.Run("bad name", func(t *testing.T) {
		if _, err := connect(func(cfg *config.Dynctl) { cfg.Cluster = "../x" }); err == nil || errors.Is(err, ErrUnreachable) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("bad certificate", func(t *testing.T) {
		if _, err := connect(func(cfg *config.Dynctl) {
			cfg.Etcd.Endpoints, cfg.Etcd.CAFile = []string{shared.etcd.Endpoint()}, "/does/not/exist"
		}); err == nil || errors.Is(err, ErrUnreachable) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("configured", func(t *testing.T) {
		got, err := connect(func(cfg *config.Dynctl) { cfg.Etcd.Endpoints = []string{shared.etcd.Endpoint()} })
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		if bus, err := got.Bus(); bus != nil || err != nil {
			t.Errorf("no NATS is known: %v %v", bus, err)
		}
	})
	t.Run("runs here", func(t *testing.T) {
		local, _ := statedir.Open(base.StateDir, "local")
		node, _ := local.Node("node-1")
		if err := node.Create(); err != nil {
			t.Fatal(err)
		}
		lock, err := node.Lock()
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Release()
		e := statedir.Endpoints{Cluster: "local", Namespace: c.Namespace, Etcd: []string{shared.etcd.Endpoint()}, NATS: "nats://127.0.0.1:1", Node: "node-1", PID: os.Getpid()}
		if err := local.WriteEndpoints(e); err != nil {
			t.Fatal(err)
		}
		got, err := connect(func(*config.Dynctl) {})
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		if got.Namespace != c.Namespace || got.nats != e.NATS {
			t.Errorf("namespace %s, nats %s", got.Namespace, got.nats)
		}
		other, err := connect(func(cfg *config.Dynctl) { cfg.Namespace = "other" })
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if other.Namespace != "other" {
			t.Errorf("the namespace that was chosen is %s", other.Namespace)
		}
	})
}
