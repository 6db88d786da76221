package store

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/dynctl/dynctl/internal/embedded"
)

// A stream that asks for compacted history ends with an error, after which the
// watcher lists the prefix and goes on from there.
func TestEtcdStreamBehindCompaction(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	server, err := embedded.StartEtcd(ctx, embedded.EtcdOptions{Dir: t.TempDir(), ClientAddr: "127.0.0.1:0", Log: log, UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	e, err := NewEtcd(EtcdConfig{Endpoints: []string{server.Endpoint()}}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var rev Revision
	for i := range 10 {
		if rev, err = e.Put(ctx, "p/k", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Client().Compact(ctx, int64(rev)); err != nil {
		t.Fatal(err)
	}

	w, err := newWatcher(ctx, e.life, nil, 1, nil, func(ctx context.Context, w *Watcher) {
		if err := e.stream(ctx, e.health.current(), w, "p/", 1); err == nil || reasonOf(err) != reasonOf(rpctypes.ErrCompacted) {
			t.Errorf("stream ended with %v, want %v", err, rpctypes.ErrCompacted)
		}
		e.follow(ctx, e.health.current(), w, "p/", 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for ev := range w.Events() {
		if ev.Type == Resync && len(ev.All) == 1 && string(ev.All[0].Value) == "9" {
			break
		}
	}
	if _, err := e.Put(ctx, "p/k", []byte("after")); err != nil {
		t.Fatal(err)
	}
	if ev := <-w.Events(); string(ev.KV.Value) != "after" {
		t.Errorf("next event: got %+v, want the later put", ev)
	}
	if since, err, _ := w.Stale(); !since.IsZero() {
		t.Errorf("stale since %s: %v", since, err)
	}
}
