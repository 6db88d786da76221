package controller

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// What belongs to nobody is deleted after a while and told; what has an owner stays.
func TestCleansStrays(t *testing.T) {
	inLab(t, func(l *lab) {
		f := l.addNode("node-1")
		l.control("node-1", 0)
		l.declare(0, 1)
		l.settle()
		put := func(key string, v any, lease cluster.InstanceID) string {
			t.Helper()
			if _, err := store.PutJSON(l.ctx, l.store, key, v, store.WithLease(lease)); err != nil {
				t.Fatal(err)
			}
			return key
		}
		there := func(key string) bool {
			t.Helper()
			_, err := l.store.Get(l.ctx, key)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
			return err == nil
		}
		strays := []string{
			put(cluster.StatusKey(ns, "worker-9"), cluster.WorkerStatus{Name: "worker-9"}, f.lease),
			put(cluster.StatusKey(ns, "worker-8"), "garbage", 0),
			put(cluster.InstanceKey(ns, "decode", "generate", 7), cluster.Instance{}, 0),
			put(cluster.CardKey(ns, "decode", "generate", 7), cluster.ModelCard{}, 0),
			put(cluster.NIXLMetadataKey(ns, "worker-9.ab"), 1, 0),
			put(cluster.AssignmentKey("gone", "worker-1"), cluster.Assignment{Name: "worker-1", Desire: cluster.DesireRun}, 0),
		}
		kept := []string{
			cluster.StatusKey(ns, "worker-1"), cluster.AssignmentKey(ns, "worker-1"), cluster.TopologyKey(ns), cluster.NodeKey("id-node-1"),
			put(cluster.InstanceKey(ns, "decode", "generate", 8), cluster.Instance{}, f.lease),
			put(cluster.CordonKey(ns, "id-node-7"), cluster.Cordon{Node: "id-node-7"}, 0),
			put(cluster.SettingKey(ns, "x"), 1, 0),
			// Down for now, but declared; a node waits there; no assignment at all.
			put(cluster.TopologyKey("down"), cluster.Topology{}, 0), put(cluster.AssignmentKey("down", "worker-1"), cluster.Assignment{Name: "worker-1"}, 0),
			put(cluster.NodeKey("id-node-5"), cluster.Node{ID: "id-node-5", Namespace: "fresh"}, f.lease),
			put(cluster.AssignmentKey("fresh", "worker-1"), cluster.Assignment{Name: "worker-1"}, 0),
			put("/dynctl/other/workers/x/y", 1, 0), put("/dynctl/other/workers/worker-1", cluster.Assignment{Name: "worker-2"}, 0),
		}
		time.Sleep(strayFor / 2)
		synctest.Wait()
		for _, key := range strays {
			if !there(key) {
				t.Errorf("%s is deleted before anybody could claim it", key)
			}
		}
		time.Sleep(strayFor + 2*cleanEvery)
		synctest.Wait()
		for _, key := range strays {
			if there(key) {
				t.Errorf("%s is still there", key)
			}
		}
		for _, key := range kept {
			if !there(key) {
				t.Errorf("%s is deleted", key)
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, key := range strays {
			if !slices.ContainsFunc(l.events, func(e string) bool { return strings.HasPrefix(e, "deleted "+key+": ") }) {
				t.Errorf("no event about %s in %q", key, l.events)
			}
		}
	})
}

// A status that is claimed in time stays, however often it was without an assignment.
func TestStraysMayReturn(t *testing.T) {
	inLab(t, func(l *lab) {
		f := l.addNode("node-1")
		l.control("node-1", 0)
		key := cluster.StatusKey(ns, "worker-9")
		a := cluster.Assignment{Name: "worker-9", Role: cluster.RoleDecode, Node: "id-node-1", Desire: cluster.DesireRun, Generation: 1}
		for range 4 {
			if _, err := store.PutJSON(l.ctx, l.store, key, cluster.WorkerStatus{Name: "worker-9"}, store.WithLease(f.lease)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(strayFor - cleanEvery/2)
			if _, err := store.PutJSON(l.ctx, l.store, cluster.AssignmentKey(ns, "worker-9"), a); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * cleanEvery)
			if _, err := l.store.Get(l.ctx, key); err != nil {
				t.Error(err)
			}
			if err := l.store.Delete(l.ctx, cluster.AssignmentKey(ns, "worker-9")); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Who belongs to whom is not judged on an old view, and not more often than needed.
func TestStraysAreLookedForNowAndThen(t *testing.T) {
	inLab(t, func(l *lab) {
		mem := store.NewMemory(nil)
		defer mem.Close()
		c := New(Config{Store: mem, Namespace: ns, Log: slog.New(slog.DiscardHandler)})
		w, err := c.watch(l.ctx)
		defer w.close()
		if err != nil {
			t.Fatal(err)
		}
		s, first := newStrays(), time.Now()
		looked := func(what string, want time.Time) {
			t.Helper()
			if err := c.clean(l.ctx, w, s); err != nil || !s.last.Equal(want) {
				t.Errorf("%s: looked %s after the first time (%v), want %s", what, s.last.Sub(first), err, want.Sub(first))
			}
		}
		looked("at first", first)
		time.Sleep(cleanEvery - 1)
		looked("too soon", first)
		time.Sleep(time.Nanosecond)
		second := time.Now()
		looked("in time", second)
		time.Sleep(cleanEvery)
		mem.SetOutage(true)
		looked("without the store", second)
	})
}
