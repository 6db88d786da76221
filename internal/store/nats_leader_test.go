package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/natsconn"
	"github.com/dynctl/dynctl/internal/proxytest"
)

// behind takes a store back to a place of its history, as if its session had not gone on.
func behind(n *NATS, at natsPlace, verified bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.session, n.applied = nil, at
	n.state.data = map[string]KV{}
	if !verified {
		n.verified = 0
	}
}

// A read does not miss what the session has not brought yet.
func TestNATSReadsWhatTheSessionMisses(t *testing.T) {
	t.Parallel()
	n := startNATS(t)()
	ctx := t.Context()
	var places []natsPlace
	for _, key := range []string{"a", "b", "c"} {
		if _, err := n.Put(ctx, key, []byte(key)); err != nil {
			t.Fatal(err)
		}
		n.mu.Lock()
		places = append(places, n.applied)
		n.mu.Unlock()
	}
	for _, verified := range []bool{true, false} { // or the connection is a new one
		behind(n, places[0], verified)
		kvs, rev, err := n.List(ctx, "")
		if err != nil || len(kvs) != 2 || rev != places[2].seq || string(kvs[1].Value) != "c" {
			t.Errorf("verified %t: %v at %d, %v", verified, kvs, rev, err)
		}
	}

	// What was applied last is another message on the server, or messages are missing there.
	s, err := n.js.Stream(ctx, n.stream)
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(n.prefix+"k.b"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]struct {
		place    natsPlace
		verified bool
	}{
		"another message": {natsPlace{places[0].seq, places[0].at.Add(time.Nanosecond)}, false},
		"a gap":           {places[0], true},
	} {
		behind(n, at.place, at.verified)
		last, err := n.askLeader(ctx, natsGet{Last: ">"})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.pull(ctx, last); !errors.Is(err, errNATSHistory) {
			t.Errorf("%s: %v, want %v", name, err, errNATSHistory)
		}
		if kvs, _, err := n.List(ctx, ""); err != nil || len(kvs) != 2 || kvs[1].Key != "c" {
			t.Errorf("after %s: %v, %v", name, kvs, err)
		}
	}
}

// Who reads over a slow connection while the stream is read anew waits for that, and does not end it
// each time that it asks.
func TestNATSReadsAnewOverASlowConnection(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	srv, err := embedded.StartNATS(t.Context(), embedded.NATSOptions{Dir: t.TempDir(), Addr: "127.0.0.1:0", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	p := proxytest.New(t, srv.Addr())
	n, err := newNATS(NATSConfig{Config: natsconn.Config{URL: "nats://" + p.Addr()}}, log, (*NATS).follow, (*NATS).monitor)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	if _, err := n.Put(t.Context(), "a", []byte("a")); err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	at := n.applied
	n.mu.Unlock()
	p.Delay(80 * time.Millisecond)
	behind(n, natsPlace{at.seq, at.at.Add(time.Nanosecond)}, false) // another message
	if kvs, _, err := n.List(t.Context(), ""); err != nil || len(kvs) != 1 {
		t.Errorf("%v, %v", kvs, err)
	}
}

// After an outage a lease has all of its TTL again.
func TestNATSRenewsLeasesAfterAnOutage(t *testing.T) {
	t.Parallel()
	n := startNATS(t)()
	lease, err := n.GrantLease(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	n.state.leases[lease.ID].seen -= 50 * time.Minute
	n.mu.Unlock()
	if left, _, err := n.LeaseTTL(t.Context(), lease.ID); err != nil || left > 11*time.Minute {
		t.Fatalf("%s left, %v", left, err)
	}
	n.health.failed(errors.New("a test"), time.Now())
	signal(n.check)
	renewed := func() bool { return n.state.left(n.state.leases[lease.ID]) > 59*time.Minute }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !n.holdsNow(renewed) && ctx.Err() == nil {
		sleep(ctx, time.Millisecond)
	}
	if ctx.Err() != nil {
		t.Error("the lease has not been renewed")
	}
}

// Of two processes that create keys which exclude each other, one fails.
func TestNATSExcludes(t *testing.T) {
	t.Parallel()
	open := startNATS(t)
	stores := []*NATS{open(), open()}
	keys := []string{"x/one", "y/one"}
	both := 0
	for range 200 {
		var made [2]error
		var wg sync.WaitGroup
		for i, n := range stores {
			wg.Go(func() {
				_, made[i] = n.createUnless(t.Context(), keys[i], nil, []string{keys[1-i][:2]}, nil)
				if made[i] != nil && !errors.Is(made[i], ErrConflict) {
					t.Error(made[i])
				}
			})
		}
		wg.Wait()
		switch {
		case made[0] == nil && made[1] == nil:
			t.Fatal("both were created")
		case made[0] != nil && made[1] != nil:
			both++
		}
		for i, n := range stores {
			if err := n.Delete(t.Context(), keys[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if both > 0 {
		t.Errorf("%d times nobody created a key", both)
	}
}

// Only a lease that stands still is ended, by whoever says so.
func TestNATSEndsOverdueLeasesOnly(t *testing.T) {
	t.Parallel()
	n := startNATS(t)()
	lease, err := n.GrantLease(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if rev, err := n.endOverdue(t.Context(), lease.ID); rev != 0 || err != nil {
		t.Errorf("a lease that is not overdue was ended at %d, %v", rev, err)
	}
	n.mu.Lock()
	n.state.leases[lease.ID].seen -= time.Hour
	n.mu.Unlock()
	if _, err := n.keepAlive(t.Context(), lease.ID); err != nil {
		t.Fatal(err)
	}
	if rev, err := n.endOverdue(t.Context(), lease.ID); rev != 0 || err != nil {
		t.Errorf("a lease that was renewed was ended at %d, %v", rev, err)
	}
	n.mu.Lock()
	n.state.leases[lease.ID].seen -= time.Hour
	n.mu.Unlock()
	if rev, err := n.endOverdue(t.Context(), lease.ID); rev == 0 || err != nil {
		t.Errorf("an overdue lease: ended at %d, %v", rev, err)
	}
	if _, _, err := n.LeaseTTL(t.Context(), lease.ID); !errors.Is(err, ErrLeaseNotFound) {
		t.Errorf("its TTL: %v", err)
	}
}
