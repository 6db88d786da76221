package store_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynctl/dynctl/internal/natsconn"
	"github.com/dynctl/dynctl/internal/proxytest"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// bucketStream is the stream of the default bucket.
const bucketStream = "KV_" + store.DefaultBucket

// natsAPI is a connection beside those of stores.
func natsAPI(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Whoever is away while more is written than the stream keeps, and while a key that was
// deleted is purged, gets what is there now.
func TestNATSAwayWhileHistoryIsPurged(t *testing.T) {
	t.Parallel()
	at := &site{nats: true, access: open}
	server := at.start(t, t.TempDir())
	direct := at.open(t, server.addr)
	p := proxytest.New(t, server.addr)
	away := at.open(t, p.Addr())
	for _, key := range []string{"p/changed", "p/deleted", "p/kept"} {
		if _, err := direct.Put(t.Context(), key, []byte("before")); err != nil {
			t.Fatal(err)
		}
	}
	w, err := away.Watch(t.Context(), "p/")
	if err != nil {
		t.Fatal(err)
	}
	state := map[string]string{}
	storetest.Follow(t, w, state, "it is there", func() bool { return len(state) == 3 })

	p.Cut()
	storetest.Eventually(t, "the watch is stale", func() bool { since, _, _ := w.Stale(); return !since.IsZero() })
	if err := direct.Delete(t.Context(), "p/deleted"); err != nil {
		t.Fatal(err)
	}
	s, err := natsAPI(t, "nats://"+server.addr).Stream(t.Context(), bucketStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSubject("$KV."+store.DefaultBucket+".k.p/deleted")); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if _, err := direct.Put(t.Context(), "p/changed", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	p.Heal()
	resynced := false
	for !resynced {
		ev := storetest.Next(t, w)
		resynced = ev.Type == store.Resync
		if resynced && (len(ev.All) != 2 || string(ev.All[0].Value) != "199") {
			t.Errorf("resync: %v", ev.All)
		}
	}
	storetest.Eventually(t, "the watch is current", func() bool { since, _, _ := w.Stale(); return since.IsZero() })
	if kvs, _, err := away.List(t.Context(), "p/"); err != nil || len(kvs) != 2 {
		t.Errorf("list: %v, %v", kvs, err)
	}
	if _, err := away.Create(t.Context(), "p/deleted", []byte("again")); err != nil {
		t.Errorf("create what was purged: %v", err)
	}
}

// The server comes back with another history that is longer than the old one: no number says
// so, only the messages themselves.
func TestNATSHistoryIsReplacedByALongerOne(t *testing.T) {
	t.Parallel()
	at := &site{nats: true, access: open}
	server := at.start(t, t.TempDir())
	p := proxytest.New(t, server.addr)
	away := at.open(t, p.Addr())
	if _, err := away.Put(t.Context(), "p/old", nil); err != nil {
		t.Fatal(err)
	}
	w, err := away.Watch(t.Context(), "p/")
	if err != nil {
		t.Fatal(err)
	}
	storetest.Next(t, w)
	p.Cut()
	server.stop(t)(t, t.TempDir())
	direct := at.open(t, server.addr)
	for i := range 20 {
		if _, err := direct.Put(t.Context(), "p/new", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	p.Heal()
	if ev := storetest.Next(t, w); ev.Type != store.Resync || len(ev.All) != 1 || ev.All[0].Key != "p/new" {
		t.Errorf("got %+v, want a resync with the new key only", ev)
	}
	if kvs, _, err := away.List(t.Context(), "p/"); err != nil || len(kvs) != 1 {
		t.Errorf("list: %v, %v", kvs, err)
	}
}

// What was acknowledged is there after the server was stopped in the middle of writes, and
// nothing is there twice; watches see each change in order.
func TestNATSRestartsBetweenWrites(t *testing.T) {
	t.Parallel()
	at := &site{nats: true, access: open}
	dir := t.TempDir()
	server := at.start(t, dir)
	first := at.open(t, server.addr)
	if _, err := first.Put(t.Context(), "p/counter", []byte("0")); err != nil {
		t.Fatal(err)
	}
	load := newCounters(t, func() store.Store { return at.open(t, server.addr) })
	for range 3 {
		load.await(t, 100)
		again := server.stop(t)
		server = again(t, dir)
	}
	load.await(t, 100)
	load.check(t)
}

// A connection with a latency of tens of milliseconds keeps its leases and makes progress
// against those that are near.
func TestNATSSlowConnection(t *testing.T) {
	t.Parallel()
	at := &site{nats: true, access: open}
	server := at.start(t, t.TempDir())
	p := proxytest.New(t, server.addr)
	p.Delay(20 * time.Millisecond)
	first := at.open(t, server.addr)
	if _, err := first.Put(t.Context(), "p/counter", []byte("0")); err != nil {
		t.Fatal(err)
	}
	far := at.open(t, p.Addr())
	keeper, err := far.KeepLease(t.Context(), 2*storetest.TTL, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	load := newCounters(t, func() store.Store { return at.open(t, server.addr) })
	load.await(t, 20)
	begin := time.Now()
	for i := range 5 {
		if _, err := far.Create(t.Context(), fmt.Sprint("far/", i), nil, store.WithLease(keeper.ID())); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("five creates beside two writers without a pause: %s", time.Since(begin))
	revoked, err := first.GrantLease(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := far.Put(t.Context(), "far/late", nil, store.WithLease(revoked.ID)); err != nil {
		t.Fatal(err)
	}
	if err := first.RevokeLease(t.Context(), revoked.ID); err != nil {
		t.Fatal(err)
	}
	// The far one has not heard of that yet.
	if err := far.RevokeLease(t.Context(), revoked.ID); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("second revoke: %v", err)
	}
	if revoked, err = first.GrantLease(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Put(t.Context(), "far/late", nil, store.WithLease(revoked.ID)); err != nil {
		t.Fatal(err)
	}
	if err := first.RevokeLease(t.Context(), revoked.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Put(t.Context(), "far/late", nil, store.WithLease(revoked.ID)); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("put under a lease that has just ended: %v", err)
	}
	start := keeper.LastRenewed()
	storetest.Eventually(t, "the lease is renewed for long", func() bool { return keeper.LastRenewed().Sub(start) > keeper.TTL() })
	load.check(t)
	if kvs, _, err := first.List(t.Context(), "far/"); err != nil || len(kvs) != 5 {
		t.Errorf("of the far one: %v, %v", kvs, err)
	}
}

// counters are clients that count up one key by compare-and-swap and create keys of their own
// until check, which compares with what they were told.
type counters struct {
	end      func()
	stop     chan struct{} // closed by end
	group    sync.WaitGroup
	stores   []store.Store
	counted  atomic.Int64 // acknowledged
	unknown  atomic.Int64
	mu       sync.Mutex
	created  map[string]bool // acknowledged
	failures []error
	watches  sync.WaitGroup
}

func newCounters(t *testing.T, open func() store.Store) *counters {
	t.Helper()
	c := &counters{stop: make(chan struct{}), created: map[string]bool{}}
	c.end = sync.OnceFunc(func() { close(c.stop) })
	t.Cleanup(func() {
		c.end()
		c.group.Wait()
	})
	for i := range 2 {
		s := open()
		c.stores = append(c.stores, s)
		w, err := s.Watch(t.Context(), "p/")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		c.watches.Go(func() { c.follow(w) })
		c.group.Go(func() { c.run(t, s, i) })
	}
	return c
}

// run writes until stop.
func (c *counters) run(t *testing.T, s store.Store, id int) {
	for turn := 0; ; turn++ {
		select {
		case <-c.stop:
			return
		default:
		}
		err := c.count(t.Context(), s)
		if key := fmt.Sprintf("made/%d/%d", id, turn); err == nil {
			if _, err = s.Create(t.Context(), key, nil); err == nil {
				c.mu.Lock()
				c.created[key] = true
				c.mu.Unlock()
			}
			c.counted.Add(1)
		}
		if err != nil {
			c.unknown.Add(1)
			if !errors.Is(err, store.ErrUnavailable) {
				c.fail(err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// count adds one.
func (c *counters) count(ctx context.Context, s store.Store) error {
	for {
		kv, err := s.Get(ctx, "p/counter")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(kv.Value))
		if err != nil {
			return err
		}
		_, err = s.CompareAndSwap(ctx, "p/counter", kv.ModRevision, strconv.AppendInt(nil, int64(n+1), 10))
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

func (c *counters) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, err)
}

// follow checks that the counter never goes back, nor stands still.
func (c *counters) follow(w *store.Watcher) {
	last := 0
	for ev := range w.Events() {
		kvs, least := []store.KV{ev.KV}, last+1
		if ev.Type == store.Resync {
			kvs, least = ev.All, last
		}
		for _, kv := range kvs {
			var n int
			fmt.Sscan(string(kv.Value), &n)
			if n < least && ev.Type != store.Delete {
				c.fail(fmt.Errorf("a watch sees %s with %d after %d", ev.Type, n, last))
			}
			last = n
		}
	}
}

// await waits for so many more counts.
func (c *counters) await(t *testing.T, n int64) {
	t.Helper()
	n += c.counted.Load()
	storetest.Eventually(t, "they count on", func() bool { return c.counted.Load() >= n || c.failed() })
}

func (c *counters) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.failures) > 0
}

// check ends the writers and compares.
func (c *counters) check(t *testing.T) {
	t.Helper()
	c.end()
	c.group.Wait()
	c.mu.Lock()
	for _, err := range c.failures {
		t.Error(err)
	}
	c.mu.Unlock()
	for _, s := range c.stores {
		kv, err := s.Get(t.Context(), "p/counter")
		if err != nil {
			t.Fatal(err)
		}
		var n int64
		fmt.Sscan(string(kv.Value), &n)
		if counted, unknown := c.counted.Load(), c.unknown.Load(); n < counted || n > counted+unknown {
			t.Errorf("the counter is %d; %d counts were acknowledged, and of %d it is unknown", n, counted, unknown)
		}
		there := map[string]bool{}
		kvs, _, err := s.List(t.Context(), "made/")
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range kvs {
			there[kv.Key] = true
		}
		for key := range c.created {
			if !there[key] {
				t.Errorf("%s was acknowledged and is not there", key)
			}
		}
	}
	t.Logf("%d counts, %d attempts without an answer", c.counted.Load(), c.unknown.Load())
}

func TestNATSRefusals(t *testing.T) {
	t.Parallel()
	opts := &natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, JetStream: true, JetStreamMaxStore: 1 << 40, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}
	opts.Users = []*natsserver.User{
		{Username: "all", Password: "secret"},
		{Username: "guest", Password: "secret", Permissions: &natsserver.Permissions{
			Publish: &natsserver.SubjectPermission{Allow: []string{"$JS.API.>", "$JS.FC.>", "_INBOX.>"}},
		}},
	}
	srv, err := natsserver.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(storetest.Patience) {
		t.Fatal("no server")
	}
	as := func(user, password, bucket string) *store.NATS {
		t.Helper()
		s, err := store.NewNATS(store.NATSConfig{Config: natsconn.Config{URL: srv.ClientURL(), User: user, Password: password}, Bucket: bucket, Timeout: time.Second}, storetest.Discard)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	all := as("all", "secret", "")
	if _, err := all.Put(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := as("all", "wrong", "").Get(t.Context(), "k"); !errors.Is(err, store.ErrDenied) {
		t.Errorf("wrong password: %v", err)
	}
	guest := as("guest", "secret", "")
	if _, err := guest.Get(t.Context(), "k"); err != nil {
		t.Errorf("get of a guest: %v", err)
	}
	if _, err := guest.Put(t.Context(), "k", nil); !errors.Is(err, store.ErrDenied) {
		t.Errorf("put of a guest: %v", err)
	}
	if _, err := all.Put(t.Context(), "k", make([]byte, 2<<20)); err == nil || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a value of 2 MiB: %v", err)
	}
	if _, err := all.Put(t.Context(), strings.Repeat(".", 1000), nil); err == nil || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a key that is too long: %v", err)
	}

	nc, err := nats.Connect(srv.ClientURL(), nats.UserInfo("all", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "other", History: 10, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := as("all", "secret", "other").Get(t.Context(), "k"); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "made for something else") {
		t.Errorf("a bucket of somebody else: %v", err)
	}
	for _, cfg := range []store.NATSConfig{
		{Config: natsconn.Config{URL: "nats://%zz"}},
		{Config: natsconn.Config{URL: "nats://127.0.0.1:1", NKey: "/does/not/exist"}},
		{Config: natsconn.Config{URL: "nats://127.0.0.1:1"}, Bucket: "a.b"},
	} {
		if s, err := store.NewNATS(cfg, storetest.Discard); err == nil {
			_ = s.Close()
			t.Errorf("%+v: accepted", cfg)
		}
	}
}

func TestNATSUnreachable(t *testing.T) {
	t.Parallel()
	s, err := store.NewNATS(store.NATSConfig{Config: natsconn.Config{URL: "nats://127.0.0.1:1"}, Timeout: time.Second}, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, call := range map[string]func() error{
		"get":    func() error { _, err := s.Get(t.Context(), "k"); return err },
		"put":    func() error { _, err := s.Put(t.Context(), "k", nil); return err },
		"watch":  func() error { _, err := s.Watch(t.Context(), "k"); return err },
		"keep":   func() error { _, err := s.KeepLease(t.Context(), time.Second, storetest.Discard); return err },
		"revoke": func() error { return s.RevokeLease(t.Context(), 1) },
	} {
		err := call()
		if text := fmt.Sprint(err); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(text, "NATS nats://127.0.0.1:1: ") || strings.Contains(text, "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
