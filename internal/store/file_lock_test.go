package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
)

// While another process keeps the lock, calls fail in time; watches say that they are stale.
func TestFileLockHeld(t *testing.T) {
	dir := t.TempDir()
	f := openTest(t, dir, nil)
	lease, err := f.GrantLease(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	w, err := f.Watch(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	nextEvent(t, w)
	holder := &fileLock{dir: dir}
	ctx, cancel := context.WithTimeout(t.Context(), patience.Soon)
	defer cancel()
	if err := holder.acquire(ctx); err != nil {
		t.Fatal(err)
	}
	defer holder.close()
	working, done := f.WhileAnswering(t.Context())
	defer done()
	short, cancelShort := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancelShort()
	if _, err := f.Put(short, "late", nil); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("put with a deadline: %v", err)
	}
	if _, err := f.Put(t.Context(), "k", nil); !errors.Is(err, ErrUnavailable) || !errors.Is(err, errLockHeld) {
		t.Errorf("put: got %v, want %v", err, errLockHeld)
	}
	select {
	case <-working.Done():
	case <-time.After(patience.Soon):
		t.Error("work that may be skipped goes on")
	}
	if since, err, _ := w.Stale(); since.IsZero() || err == nil {
		t.Error("the watch is not stale")
	}
	holder.release()
	deadline := time.Now().Add(patience.Soon)
	for since := time.Unix(1, 0); !since.IsZero(); since, _, _ = w.Stale() {
		if time.Now().After(deadline) {
			t.Fatal("the watch stays stale")
		}
		time.Sleep(time.Millisecond)
	}
	mustPut(t, f, "k", "2", WithLease(lease.ID))
	if ev := nextEvent(t, w); ev.Type != Put || string(ev.KV.Value) != "2" {
		t.Errorf("got %+v; a call that was given up took effect", ev)
	}
	f.Close()
	if _, err := f.Get(t.Context(), "k"); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Changes are synced before they are acknowledged, renewals are not. After a sync that
// failed, nothing is acknowledged until the file is replaced.
func TestFileSyncs(t *testing.T) {
	var syncs atomic.Int32
	var failing atomic.Bool
	noSync := errors.New("no sync")
	f := openTest(t, t.TempDir(), func(f *File) {
		f.sync = func(*os.File) error {
			syncs.Add(1)
			if failing.Load() {
				return noSync
			}
			return nil
		}
	})
	lease, err := f.GrantLease(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for i, change := range []func() error{
		func() error { _, err := f.Put(t.Context(), "k", []byte("1"), WithLease(lease.ID)); return err },
		func() error { return f.Delete(t.Context(), "k") },
		func() error { _, err := f.Create(t.Context(), "k", nil, WithLease(lease.ID)); return err },
	} {
		before := syncs.Load()
		if err := change(); err != nil || syncs.Load() != before+1 {
			t.Errorf("change %d: %d syncs, %v", i, syncs.Load()-before, err)
		}
	}
	before := syncs.Load()
	if _, err := f.keepAlive(t.Context(), lease.ID); err != nil || syncs.Load() != before {
		t.Errorf("a renewal: %d syncs, %v", syncs.Load()-before, err)
	}

	failing.Store(true)
	old, err := os.Stat(f.log.path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Put(t.Context(), "k", []byte("2")); !errors.Is(err, ErrUnavailable) || !errors.Is(err, noSync) {
		t.Errorf("a put that was not synced: %v", err)
	}
	failing.Store(false)
	if kv, err := f.Get(t.Context(), "k"); err != nil || string(kv.Value) != "2" {
		t.Errorf("what all can read already was taken back: %q, %v", kv.Value, err)
	}
	if now, err := os.Stat(f.log.path); err != nil || os.SameFile(old, now) {
		t.Errorf("the file was not replaced: %v", err)
	}
	again, err := os.Stat(f.log.path)
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, f, "k", "3")
	if now, err := os.Stat(f.log.path); err != nil || !os.SameFile(again, now) {
		t.Errorf("the file was replaced twice: %v", err)
	}
}

// Whoever releases the lock hears whether others wait for it, and makes room.
func TestFileReleaseTellsOfWaiters(t *testing.T) {
	dir := t.TempDir()
	holder, waiter := &fileLock{dir: dir}, &fileLock{dir: dir}
	defer holder.close()
	defer waiter.close()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Soon)
	defer cancel()
	if err := holder.acquire(ctx); err != nil {
		t.Fatal(err)
	}
	if holder.release() {
		t.Error("nobody waits")
	}
	if err := holder.acquire(ctx); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- waiter.acquire(ctx) }()
	probe, err := os.OpenFile(filepath.Join(dir, "store.waiting"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	patience.Until(t, "the waiter says so", func() bool {
		if tryFlock(probe, true) != nil {
			return true
		}
		_ = unflock(probe)
		return false
	})
	if !holder.release() {
		t.Error("somebody waits")
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if waiter.release() {
		t.Error("nobody waits any more")
	}
}
