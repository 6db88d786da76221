package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/proxytest"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// leaseTTL is the lease of the outage tests; outages are longer.
const leaseTTL = 4 * time.Second

// A lease whose store was down for longer than the TTL is alive when the store
// comes back, and so is everything under it.
func TestLeaseOutlivesAnOutage(t *testing.T) { everyStore(t, leaseOutlivesAnOutage) }

func leaseOutlivesAnOutage(t *testing.T, at *site) {
	dir := t.TempDir()
	server := at.start(t, dir)
	s := at.open(t, server.addr)
	keeper, err := s.KeepLease(t.Context(), leaseTTL, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "p/owned", []byte("1"), store.WithLease(keeper.ID())); err != nil {
		t.Fatal(err)
	}
	w, err := s.Watch(t.Context(), "p/")
	if err != nil {
		t.Fatal(err)
	}
	storetest.Next(t, w)

	restart := server.stop(t)
	storetest.Eventually(t, "the watch is stale", func() bool {
		since, err, next := w.Stale()
		return !since.IsZero() && err != nil && !next.IsZero()
	})
	storetest.Eventually(t, "the lease is uncertain", keeper.Uncertain)
	select {
	case <-keeper.Lost():
		t.Fatal("the lease was given up without asking")
	case <-time.After(500 * time.Millisecond):
	}
	if keeper.Err() == nil {
		t.Error("no reason for the uncertainty")
	}

	restart(t, dir)
	storetest.Eventually(t, "the lease is certain again", func() bool { return !keeper.Uncertain() })
	if !at.nats { // whose stream goes on where it was
		ev := storetest.Next(t, w)
		if ev.Type != store.Resync || len(ev.All) != 1 || ev.All[0].Key != "p/owned" {
			t.Errorf("after the outage: got %s %v, want a resync with the key", ev.Type, ev.All)
		}
	}
	storetest.Eventually(t, "the watch is current", func() bool { since, _, _ := w.Stale(); return since.IsZero() })
	if _, err := s.Put(t.Context(), "p/later", nil); err != nil {
		t.Fatal(err)
	}
	state := map[string]string{}
	storetest.Follow(t, w, state, "a later change", func() bool { _, ok := state["p/later"]; return ok })
	renewed := keeper.LastRenewed()
	storetest.Eventually(t, "the lease is renewed as before", func() bool { return keeper.LastRenewed().After(renewed) })
	if _, err := s.Get(t.Context(), "p/owned"); err != nil {
		t.Error(err)
	}
}

// When the server comes back without its data, leases are lost and watchers must not
// wait for the new history to reach the revisions of the old one.
func TestHistoryIsReplaced(t *testing.T) { everyStore(t, historyIsReplaced) }

func historyIsReplaced(t *testing.T, at *site) {
	server := at.start(t, t.TempDir())
	s := at.open(t, server.addr)
	keeper, err := s.KeepLease(t.Context(), leaseTTL, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if _, err := s.Put(t.Context(), "p/old", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := store.WatchPrefix(t.Context(), s, "p/", func(kv store.KV) (string, error) { return string(kv.Value), nil }, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()

	restart := server.stop(t)
	restart(t, t.TempDir())
	storetest.Closed(t, "the lease is lost", keeper.Lost())
	if _, err := s.Put(t.Context(), "p/new", []byte("x")); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, "the watch shows the new history", func() bool {
		got := p.Snapshot()
		return len(got) == 1 && got["p/new"] == "x"
	})
}

// The connection is cut while keys change and history is compacted away.
func TestEtcdWatchSurvivesCompaction(t *testing.T) { everySite(t, watchSurvivesCompaction) }

func watchSurvivesCompaction(t *testing.T, at *site) {
	server := at.start(t, t.TempDir())
	direct := at.etcd(t, server.addr)
	p := proxytest.New(t, server.addr)
	w, err := at.open(t, p.Addr()).Watch(t.Context(), "p/")
	if err != nil {
		t.Fatal(err)
	}
	storetest.Next(t, w)

	p.Cut()
	var rev store.Revision
	for i := range 20 {
		if rev, err = direct.Put(t.Context(), "p/k", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := direct.Client().Compact(t.Context(), int64(rev)); err != nil {
		t.Fatal(err)
	}
	p.Heal()
	state := map[string]string{}
	storetest.Follow(t, w, state, "the state after the cut", func() bool { return state["p/k"] == "19" })
	if _, err := direct.Put(t.Context(), "p/k", []byte("after")); err != nil {
		t.Fatal(err)
	}
	storetest.Follow(t, w, state, "a later change", func() bool { return state["p/k"] == "after" })
}

// A connection that is open but silent is noticed, and what happened behind the
// silence is delivered.
func TestSilentConnection(t *testing.T) { everyStore(t, silentConnection) }

func silentConnection(t *testing.T, at *site) {
	server := at.start(t, t.TempDir())
	direct := at.open(t, server.addr)
	p := proxytest.New(t, server.addr)
	s := at.open(t, p.Addr())
	w, err := s.Watch(t.Context(), "p/")
	if err != nil {
		t.Fatal(err)
	}
	storetest.Next(t, w)

	p.Freeze()
	if _, err := direct.Put(t.Context(), "p/k", []byte("1")); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, "the silence is noticed", func() bool { since, _, _ := w.Stale(); return !since.IsZero() })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Get(ctx, "k"); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("get: got %v, want both %v and %v", err, store.ErrUnavailable, context.DeadlineExceeded)
	}
	p.Heal()
	state := map[string]string{}
	storetest.Follow(t, w, state, "what was missed", func() bool { return state["p/k"] == "1" })
	storetest.Eventually(t, "the watch is current", func() bool { since, _, _ := w.Stale(); return since.IsZero() })
}

func TestEtcdUnreachable(t *testing.T) {
	t.Parallel()
	s, err := store.NewEtcd(store.EtcdConfig{Endpoints: []string{" http://127.0.0.1:1 "}, Timeout: 2 * time.Second}, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	start := time.Now()
	_, err = s.Ping(t.Context())
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("ping: got %v, want %v", err, store.ErrUnavailable)
	}
	t.Logf("after %s: %v", time.Since(start), err)

	calls := map[string]func() error{
		"get":    func() error { _, err := s.Get(t.Context(), "k"); return err },
		"put":    func() error { _, err := s.Put(t.Context(), "k", nil); return err },
		"watch":  func() error { _, err := s.Watch(t.Context(), "k"); return err },
		"grant":  func() error { _, err := s.GrantLease(t.Context(), time.Second); return err },
		"keep":   func() error { _, err := s.KeepLease(t.Context(), time.Second, storetest.Discard); return err },
		"revoke": func() error { return s.RevokeLease(t.Context(), 1) },
		"leader": func() error { _, err := store.Leader(t.Context(), s, "/leader"); return err },
	}
	var wg sync.WaitGroup
	for name, call := range calls {
		wg.Go(func() {
			err := call()
			if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got %v, want only %v", name, err, store.ErrUnavailable)
			}
			for _, part := range []string{"etcd 127.0.0.1:1: ", "after 2s", "connection refused"} {
				if text := err.Error(); !strings.Contains(text, part) || strings.Contains(text, "\n") {
					t.Errorf("%s: got %q, want it to say %q in one line", name, text, part)
				}
			}
		})
	}
	wg.Wait()
	t.Log(s.Delete(t.Context(), "k"))

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := storetest.AwaitAnswer(ctx, s); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("wait: got %v, want %v", err, store.ErrUnavailable)
	}
}

func TestEtcdConfigErrors(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]store.EtcdConfig{
		"no endpoints":          {},
		"blank endpoints":       {Endpoints: []string{" "}},
		"user without password": {Endpoints: []string{"127.0.0.1:1"}, Username: "u"},
	} {
		if s, err := store.NewEtcd(cfg, storetest.Discard); err == nil {
			s.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}

// What depends on the store may start before it.
func TestStartsLater(t *testing.T) { everyStore(t, startsLater) }

func startsLater(t *testing.T, at *site) {
	server := at.start(t, t.TempDir())
	restart := server.stop(t)
	ready := make(chan error, 1)
	go func() {
		s, err := at.connect(server.addr)
		if err != nil {
			ready <- err
			return
		}
		defer s.Close()
		if err := storetest.AwaitAnswer(t.Context(), s); err != nil {
			ready <- err
			return
		}
		_, err = s.Put(t.Context(), "k", nil)
		ready <- err
	}()
	restart(t, t.TempDir())
	if err := <-ready; err != nil {
		t.Error(err)
	}
}

func TestEtcdCredentials(t *testing.T) {
	t.Parallel()
	server := startEtcd(t, embedded.EtcdOptions{})
	admin := openEtcd(t, server.Endpoint()).Client()
	for _, step := range []func() error{
		func() error { _, err := admin.UserAdd(t.Context(), "root", "secret"); return err },
		func() error { _, err := admin.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := admin.UserAdd(t.Context(), "guest", "guest"); return err },
		func() error { _, err := admin.RoleAdd(t.Context(), "reader"); return err },
		func() error {
			_, err := admin.RoleGrantPermission(t.Context(), "reader", "p/", "p0", clientv3.PermissionType(clientv3.PermRead))
			return err
		},
		func() error { _, err := admin.UserGrantRole(t.Context(), "guest", "reader"); return err },
		func() error { _, err := admin.AuthEnable(t.Context()); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	open := func(user, password string) (*store.Etcd, error) {
		return store.NewEtcd(store.EtcdConfig{Endpoints: []string{server.Endpoint()}, Username: user, Password: password}, storetest.Discard)
	}
	if _, err := open("root", "wrong"); !errors.Is(err, store.ErrDenied) {
		t.Errorf("wrong password: got %v, want %v", err, store.ErrDenied)
	} else {
		t.Log(err)
	}
	root, err := open("root", "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	guest, err := open("guest", "guest")
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	if _, err := guest.Ping(t.Context()); err != nil {
		t.Errorf("ping of a guest: %v", err)
	}
	w, err := guest.Watch(t.Context(), "p/")
	if err != nil {
		t.Fatal(err)
	}
	storetest.Next(t, w)
	if _, err := root.Put(t.Context(), "p/k", nil); err != nil {
		t.Fatal(err)
	}
	storetest.Next(t, w)
	if _, err := guest.Put(t.Context(), "p/k", nil); !errors.Is(err, store.ErrDenied) {
		t.Errorf("put of a guest: got %v, want %v", err, store.ErrDenied)
	} else {
		t.Log(err)
	}
	keeper, err := root.KeepLease(t.Context(), leaseTTL, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	start := keeper.LastRenewed()
	storetest.Eventually(t, "the lease is renewed with credentials", func() bool { return keeper.LastRenewed().After(start) })
}

// A leader that cannot renew its lease stops leading within the TTL, and leads
// again when the store is back.
func TestLeaderSurvivesAnOutage(t *testing.T) { everyStore(t, leaderSurvivesAnOutage) }

func leaderSurvivesAnOutage(t *testing.T, at *site) {
	dir := t.TempDir()
	server := at.start(t, dir)
	s := at.open(t, server.addr)
	keeper, err := s.KeepLease(t.Context(), leaseTTL, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	leads, deposed := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = store.Elect(ctx, s, "/leader", "a", keeper.ID(), func(ctx context.Context) error {
			leads <- struct{}{}
			<-ctx.Done()
			select {
			case deposed <- struct{}{}:
			case <-t.Context().Done():
			}
			return nil
		})
	}()
	select {
	case <-leads:
	case <-time.After(storetest.Patience):
		t.Fatal("never led")
	}
	restart := server.stop(t)
	start := time.Now()
	select {
	case <-deposed:
		t.Logf("deposed after %s", time.Since(start))
	case <-time.After(storetest.Patience):
		t.Fatal("leads without a store")
	}
	restart(t, dir)
	select {
	case <-leads:
	case <-time.After(storetest.Patience):
		t.Fatal("never led again")
	}
	cancel()
	<-deposed
	storetest.Closed(t, "elect returned", done)
}

// A candidate that waits when etcd is replaced by an old backup of it, whose revisions are
// lower, leads as soon as nobody else does.
func TestEtcdCandidateOutlivesABackup(t *testing.T) {
	dir, backup := t.TempDir(), t.TempDir()
	opts := embedded.EtcdOptions{Dir: dir, ClientAddr: "127.0.0.1:0"}
	server := startEtcd(t, opts)
	opts.ClientAddr = server.Endpoint()
	s := openEtcd(t, server.Endpoint())
	keep := func() *store.LeaseKeeper {
		keeper, err := s.KeepLease(t.Context(), time.Minute, storetest.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return keeper
	}
	elect := func(value string, keeper *store.LeaseKeeper) (leads chan struct{}, resign func()) {
		ctx, cancel := context.WithCancel(t.Context())
		leads, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			_ = store.Elect(ctx, s, "/leader", value, keeper.ID(), func(ctx context.Context) error {
				select {
				case leads <- struct{}{}:
				case <-ctx.Done():
				}
				<-ctx.Done()
				return nil
			})
		}()
		resign = func() { cancel(); <-done }
		t.Cleanup(resign)
		return leads, resign
	}
	one, two := keep(), keep()
	first, resign := elect("first", one)
	<-first
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	server = startEtcd(t, opts)
	for range 100 {
		if _, err := s.Put(t.Context(), "p/k", nil); err != nil {
			t.Fatal(err)
		}
	}
	second, _ := elect("second", two)
	storetest.Eventually(t, "both stand", func() bool {
		kvs, _, err := s.List(t.Context(), "/leader/")
		return err == nil && len(kvs) == 2
	})
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	opts.Dir = backup
	startEtcd(t, opts)
	storetest.Eventually(t, "etcd answers", func() bool { _, err := s.Ping(t.Context()); return err == nil })
	resign()
	select {
	case <-second:
	case <-time.After(storetest.Patience):
		t.Fatal("nobody leads")
	}
}

// A token that etcd takes back while everything runs is replaced, on calls and on streams
// that are open already, with one log-in.
func TestEtcdTokenIsRefused(t *testing.T) { everySite(t, tokenIsRefused) }

func tokenIsRefused(t *testing.T, at *site) {
	server := at.start(t, t.TempDir())
	s := at.open(t, server.addr)
	w, err := s.Watch(t.Context(), "p/")
	if err != nil {
		t.Fatal(err)
	}
	storetest.Next(t, w)
	if at.access != open {
		// With a change of the password, all tokens of the user are void.
		if _, err := at.etcd(t, server.addr).Client().UserChangePassword(t.Context(), "root", "secret"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Put(t.Context(), "q/k", []byte("1")); err != nil {
		t.Fatal(err)
	}
	other, err := s.Watch(t.Context(), "q/")
	if err != nil {
		t.Fatal(err)
	}
	state := map[string]string{}
	storetest.Follow(t, other, state, "what is there", func() bool { return state["q/k"] == "1" })
	for _, key := range []string{"p/k", "q/k"} {
		if _, err := s.Put(t.Context(), key, []byte("2")); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Follow(t, other, state, "a change on a new stream", func() bool { return state["q/k"] == "2" })
	storetest.Follow(t, w, state, "a change on the old stream", func() bool { return state["p/k"] == "2" })
}
