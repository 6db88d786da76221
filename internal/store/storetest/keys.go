package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/store"
)

func testPutGet(t *testing.T, s store.Store) {
	ctx := t.Context()
	if _, err := s.Get(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("get of an absent key: got %v, want %v", err, store.ErrNotFound)
	}
	value := []byte{0, 1, 0xff}
	rev, err := s.Put(ctx, "k", value)
	if err != nil {
		t.Fatal(err)
	}
	value[0] = 9 // the store must have its own copy
	kv, err := s.Get(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if kv.Key != "k" || !bytes.Equal(kv.Value, []byte{0, 1, 0xff}) || kv.ModRevision != rev || kv.Lease != 0 {
		t.Errorf("get: got %+v, want the value put at revision %d", kv, rev)
	}
	if later := put(t, s, "k", "2"); later <= rev {
		t.Errorf("revisions: %d after %d", later, rev)
	}
}

func testCreate(t *testing.T, s store.Store) {
	ctx := t.Context()
	rev, err := s.Create(ctx, "k", []byte("1"))
	if err != nil || rev == 0 {
		t.Fatalf("create: revision %d, %v", rev, err)
	}
	if _, err := s.Create(ctx, "k", []byte("2")); !errors.Is(err, store.ErrExists) {
		t.Errorf("second create: got %v, want %v", err, store.ErrExists)
	}
	if kv, _ := s.Get(ctx, "k"); string(kv.Value) != "1" {
		t.Errorf("value: got %q, want the first", kv.Value)
	}
}

func testCreateRace(t *testing.T, s store.Store) {
	const creators = 16
	var wg sync.WaitGroup
	results := make([]error, creators)
	for i := range creators {
		wg.Go(func() {
			_, results[i] = s.Create(t.Context(), "k", fmt.Append(nil, i))
		})
	}
	wg.Wait()
	winner := slices.Index(results, nil)
	if winner < 0 {
		t.Fatalf("nobody created the key: %v", results)
	}
	for i, err := range results {
		if i != winner && !errors.Is(err, store.ErrExists) {
			t.Errorf("creator %d: got %v, want %v", i, err, store.ErrExists)
		}
	}
	if kv, _ := s.Get(t.Context(), "k"); string(kv.Value) != fmt.Sprint(winner) {
		t.Errorf("value: got %s, want that of creator %d", kv.Value, winner)
	}
}

func testCompareAndSwap(t *testing.T, s store.Store) {
	ctx := t.Context()
	tests := []struct {
		name   string
		expect func(store.Revision) store.Revision
		want   error
	}{
		{"current revision", func(r store.Revision) store.Revision { return r }, nil},
		{"older revision", func(r store.Revision) store.Revision { return r - 1 }, store.ErrConflict},
		{"newer revision", func(r store.Revision) store.Revision { return r + 1 }, store.ErrConflict},
		{"absent, but it exists", func(store.Revision) store.Revision { return 0 }, store.ErrConflict},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			rev := put(t, s, "k", "old")
			if _, err := s.CompareAndSwap(ctx, "k", tc.expect(rev), []byte("new")); !errors.Is(err, tc.want) {
				t.Errorf("error: got %v, want %v", err, tc.want)
			}
			want := "old"
			if tc.want == nil {
				want = "new"
			}
			if kv, _ := s.Get(ctx, "k"); string(kv.Value) != want {
				t.Errorf("value: got %s, want %s", kv.Value, want)
			}
		})
	}
	if _, err := s.CompareAndSwap(ctx, "absent", 0, []byte("1")); err != nil {
		t.Errorf("swap of an absent key: %v", err)
	}
}

func testDeleteWins(t *testing.T, s store.Store) {
	rev := put(t, s, "k", "1")
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CompareAndSwap(t.Context(), "k", rev, []byte("2")); !errors.Is(err, store.ErrConflict) {
		t.Errorf("swap after delete: got %v, want %v", err, store.ErrConflict)
	}
	if exists(t, s, "k") {
		t.Error("a swap brought a deleted key back")
	}
}

func testList(t *testing.T, s store.Store) {
	for _, key := range []string{"a/generate/2", "a/generate/1", "a/generate2/3", "b/x", "a/generate"} {
		put(t, s, key, key)
	}
	last := put(t, s, "a/generate/3", "3")
	kvs, rev, err := s.List(t.Context(), "a/generate/")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range kvs {
		keys = append(keys, kv.Key)
	}
	if want := []string{"a/generate/1", "a/generate/2", "a/generate/3"}; !slices.Equal(keys, want) {
		t.Errorf("keys: got %q, want %q", keys, want)
	}
	if rev < last {
		t.Errorf("revision: got %d, want at least %d", rev, last)
	}
	if kvs, _, err := s.List(t.Context(), "nothing/"); err != nil || len(kvs) != 0 {
		t.Errorf("empty prefix: got %v, %v", kvs, err)
	}
	middle := put(t, s, "a/generate/2", "again")
	put(t, s, "a/generate2/3", "outside")
	for prefix, want := range map[string]store.Revision{"a/generate/": middle, "a/generate/1": kvs[0].ModRevision, "nothing/": 0} {
		if newest, err := s.Newest(t.Context(), prefix); err != nil || newest != want {
			t.Errorf("newest of %s: got %d, %v, want %d", prefix, newest, err, want)
		}
	}
}

func testDelete(t *testing.T, s store.Store) {
	put(t, s, "k", "1")
	for range 2 { // deleting an absent key is fine
		if err := s.Delete(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	if exists(t, s, "k") {
		t.Error("the key is still there")
	}
}

type document struct {
	N    int
	Name string
	ID   uint64
}

func testJSON(t *testing.T, s store.Store) {
	ctx := t.Context()
	const beyondFloat = uint64(1)<<53 + 1
	if _, err := store.PutJSON(ctx, s, "doc", document{N: 1, ID: beyondFloat}); err != nil {
		t.Fatal(err)
	}
	doc, rev, err := store.GetJSON[document](ctx, s, "doc")
	if err != nil || doc.N != 1 || doc.ID != beyondFloat || rev == 0 {
		t.Errorf("get: got %+v at %d, %v", doc, rev, err)
	}

	var wg sync.WaitGroup
	for range 4 { // fewer than the attempts of one update, so that all must succeed
		wg.Go(func() {
			_, _, err := store.UpdateJSON(ctx, s, "doc", func(d document, exists bool) (document, error) {
				if !exists {
					return d, errors.New("the document is gone")
				}
				d.N++
				return d, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if doc, _, _ := store.GetJSON[document](ctx, s, "doc"); doc.N != 5 || doc.ID != beyondFloat {
		t.Errorf("after four increments: got %+v", doc)
	}

	put(t, s, "bad", "{")
	if _, _, err := store.GetJSON[document](ctx, s, "bad"); err == nil {
		t.Error("a value that is not JSON was decoded")
	}
	refused := errors.New("refused")
	if _, _, err := store.UpdateJSON(ctx, s, "new", func(document, bool) (document, error) { return document{}, refused }); !errors.Is(err, refused) {
		t.Errorf("refused update: got %v", err)
	}
}

func testCancelled(t *testing.T, s store.Store) {
	cause := errors.New("caller left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	lease := grant(t, s)
	for name, call := range map[string]func() error{
		"get":                     func() error { _, err := s.Get(ctx, "k"); return err },
		"list":                    func() error { _, _, err := s.List(ctx, "k"); return err },
		"newest":                  func() error { _, err := s.Newest(ctx, "k"); return err },
		"put":                     func() error { _, err := s.Put(ctx, "k", nil); return err },
		"create":                  func() error { _, err := s.Create(ctx, "k", nil); return err },
		"compare and swap":        func() error { _, err := s.CompareAndSwap(ctx, "k", 1, nil); return err },
		"delete":                  func() error { return s.Delete(ctx, "k") },
		"watch":                   func() error { _, err := s.Watch(ctx, "k"); return err },
		"grant a lease":           func() error { _, err := s.GrantLease(ctx, TTL); return err },
		"keep a lease":            func() error { _, err := s.KeepLease(ctx, TTL, Discard); return err },
		"look up a lease":         func() error { _, _, err := s.LeaseTTL(ctx, lease.ID); return err },
		"list leases":             func() error { _, err := s.Leases(ctx); return err },
		"revoke a lease":          func() error { return s.RevokeLease(ctx, lease.ID) },
		"ask whether it is there": func() error { _, err := s.Ping(ctx); return err },
	} {
		if err := call(); !errors.Is(err, cause) {
			t.Errorf("%s: got %v, want %v", name, err, cause)
		}
	}
	if exists(t, s, "k") {
		t.Error("a cancelled put took effect")
	}
}

func testClose(t *testing.T, s store.Store) {
	w := watch(t, s, "k/")
	Next(t, w)
	keeper, err := s.KeepLease(t.Context(), TTL, Discard)
	if err != nil {
		t.Fatal(err)
	}
	p, err := store.WatchPrefix(t.Context(), s, "k/", store.DecodeJSON[document], Discard)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := <-w.Events(); ok {
		t.Error("a watch delivers after Close")
	}
	Closed(t, "typed watch ended", p.Done())
	keeper.Close()
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("get: got %v, want %v", err, store.ErrClosed)
	}
	if _, err := s.Watch(t.Context(), "k"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("watch: got %v, want %v", err, store.ErrClosed)
	}
	if _, err := s.KeepLease(t.Context(), TTL, Discard); !errors.Is(err, store.ErrClosed) {
		t.Errorf("keep lease: got %v, want %v", err, store.ErrClosed)
	}
	if _, err := s.Ping(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("ping: got %v, want %v", err, store.ErrClosed)
	}
}
