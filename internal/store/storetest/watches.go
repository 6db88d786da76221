package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/store"
)

func testWatchSnapshot(t *testing.T, s store.Store) {
	put(t, s, "p/b", "2")
	put(t, s, "p/a", "1")
	put(t, s, "q/a", "other")
	w := watch(t, s, "p/")
	ev := Next(t, w)
	if ev.Type != store.Resync || len(ev.All) != 2 || ev.All[0].Key != "p/a" || string(ev.All[1].Value) != "2" {
		t.Errorf("first event: got %s of %v", ev.Type, ev.All)
	}
	rev := put(t, s, "p/c", "3")
	ev = Next(t, w)
	if ev.Type != store.Put || ev.KV.Key != "p/c" || string(ev.KV.Value) != "3" || ev.Revision != rev || ev.KV.ModRevision != rev {
		t.Errorf("second event: got %+v, want the put at revision %d", ev, rev)
	}
	if since, err, _ := w.Stale(); !since.IsZero() || err != nil {
		t.Errorf("stale: since %s, %v", since, err)
	}
}

func testWatchOrder(t *testing.T, s store.Store) {
	w := watch(t, s, "p/")
	Next(t, w)
	const n = 50
	go func() {
		for i := range n {
			_, _ = s.Put(t.Context(), "p/k", fmt.Append(nil, i))
			_ = s.Delete(t.Context(), "p/k")
		}
	}()
	last := store.Revision(0)
	for i := range n {
		put, del := Next(t, w), Next(t, w)
		if put.Type != store.Put || string(put.KV.Value) != fmt.Sprint(i) {
			t.Fatalf("event %d: got %s %q, want put %d", 2*i, put.Type, put.KV.Value, i)
		}
		if del.Type != store.Delete || del.KV.Key != "p/k" || string(del.KV.Value) != fmt.Sprint(i) {
			t.Fatalf("event %d: got %s %s %q, want the delete of %d", 2*i+1, del.Type, del.KV.Key, del.KV.Value, i)
		}
		if put.Revision <= last || del.Revision <= put.Revision {
			t.Fatalf("revisions go back: %d, %d, %d", last, put.Revision, del.Revision)
		}
		last = del.Revision
	}
}

func testWatchLease(t *testing.T, s store.Store) {
	lease := grant(t, s)
	put(t, s, "p/a", "1", store.WithLease(lease.ID))
	put(t, s, "p/b", "2", store.WithLease(lease.ID))
	w := watch(t, s, "p/")
	Next(t, w)
	if err := s.RevokeLease(t.Context(), lease.ID); err != nil {
		t.Fatal(err)
	}
	gone := map[string]string{}
	for range 2 {
		ev := Next(t, w)
		if ev.Type != store.Delete || ev.KV.Lease != lease.ID {
			t.Errorf("event: got %+v, want a delete", ev)
		}
		gone[ev.KV.Key] = string(ev.KV.Value)
	}
	if gone["p/a"] != "1" || gone["p/b"] != "2" {
		t.Errorf("deleted: got %v", gone)
	}
}

func testWatchTwo(t *testing.T, s store.Store) {
	watchers := []*store.Watcher{watch(t, s, "p/"), watch(t, s, "p/"), watch(t, s, "q/")}
	for _, w := range watchers {
		Next(t, w)
	}
	put(t, s, "p/a", "1")
	put(t, s, "q/a", "2")
	for i, want := range []string{"1", "1", "2"} {
		if ev := Next(t, watchers[i]); string(ev.KV.Value) != want {
			t.Errorf("watcher %d: got %q, want %q", i, ev.KV.Value, want)
		}
	}
}

// A reader that does not read for thousands of changes still sees the last one,
// without the store having kept them all.
func testWatchSlow(t *testing.T, s store.Store) {
	w := watch(t, s, "p/")
	Next(t, w)
	const writers, each = 10, 150
	const changes = writers * each
	lease := grant(t, s)
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			for i := range each {
				if _, err := s.Put(t.Context(), fmt.Sprint("p/", n), fmt.Append(nil, i), store.WithLease(lease.ID)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	put(t, s, "p/last", "done")
	if err := s.Delete(t.Context(), "p/0"); err != nil {
		t.Fatal(err)
	}
	put(t, s, "p/end", ".")

	state := map[string]string{}
	steps := 0
	Follow(t, w, state, "the last change arrived", func() bool { steps++; return state["p/end"] == "." })
	if steps > changes/2 {
		t.Errorf("%d events for %d changes, want them folded", steps, changes)
	}
	if len(state) != 11 || state["p/9"] != fmt.Sprint(each-1) || state["p/last"] != "done" {
		t.Errorf("final state: got %v", state)
	}
}

func testWatchEnd(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	byContext, err := s.Watch(ctx, "p/")
	if err != nil {
		t.Fatal(err)
	}
	byClose := watch(t, s, "p/")
	cancel()
	for _, w := range []*store.Watcher{byContext, byClose} {
		if w == byClose {
			Next(t, w)
			w.Close()
		}
		for range w.Events() { // until it is closed
		}
		w.Close()
	}
	put(t, s, "p/a", "1") // nobody is left to block it
}

func testPrefix(t *testing.T, s store.Store) {
	if _, err := store.PutJSON(t.Context(), s, "p/a", document{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	p, err := store.WatchPrefix(t.Context(), s, "p/", store.DecodeJSON[document], Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	before := p.Snapshot()
	if len(before) != 1 || before["p/a"].Name != "a" {
		t.Fatalf("first snapshot: got %v", before)
	}
	rev, err := store.PutJSON(t.Context(), s, "p/b", document{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "p/a"); err != nil {
		t.Fatal(err)
	}
	for p.Revision() <= rev { // the delete comes after
		select {
		case <-p.Changed():
		case <-t.Context().Done():
			t.Fatal("no change")
		}
	}
	after := p.Snapshot()
	if len(after) != 1 || after["p/b"].Name != "b" {
		t.Errorf("snapshot: got %v, want only b", after)
	}
	if _, ok := p.Get("p/a"); ok {
		t.Error("a deleted key is still there")
	}
	if len(before) != 1 || before["p/a"].Name != "a" {
		t.Errorf("an old snapshot changed: %v", before)
	}
	p.Close()
	if b, ok := p.Get("p/b"); !ok || b.Name != "b" {
		t.Error("the values are not readable after Close")
	}
}

func testPrefixBadValue(t *testing.T, s store.Store) {
	put(t, s, "p/bad", "{")
	put(t, s, "p/good", `{"Name":"good"}`)
	p, err := store.WatchPrefix(t.Context(), s, "p/", store.DecodeJSON[document], Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got := p.Snapshot(); len(got) != 1 || got["p/good"].Name != "good" {
		t.Errorf("snapshot: got %v, want only the good value", got)
	}
	rev := put(t, s, "p/good", "[]")
	Eventually(t, "the bad value was seen", func() bool { return p.Revision() >= rev })
	if good, _ := p.Get("p/good"); good.Name != "good" {
		t.Errorf("after a bad value: got %+v, want the last good one", good)
	}
	put(t, s, "p/bad", `{"Name":"mended"}`)
	Eventually(t, "the mended value is there", func() bool { v, _ := p.Get("p/bad"); return v.Name == "mended" })
}
