package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynctl/dynctl/internal/natsconn"
	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// envNATSMember has the test binary run a member of a NATS cluster instead of testing.
const envNATSMember = "STORE_TEST_NATS_MEMBER"

// natsMember is a server of a NATS cluster.
type natsMember struct {
	Name   string
	Dir    string
	Addr   string // for clients
	Peer   string // for other members
	Routes []string

	cmd *exec.Cmd
}

// serveNATS runs a member until the process is killed.
func serveNATS(config string) error {
	var m natsMember
	if err := json.Unmarshal([]byte(config), &m); err != nil {
		return err
	}
	host, port := hostPort(m.Addr)
	peerHost, peerPort := hostPort(m.Peer)
	opts := &natsserver.Options{
		ServerName: m.Name, Host: host, Port: port, JetStream: true, StoreDir: m.Dir, NoLog: true, NoSigs: true,
		Cluster: natsserver.ClusterOpts{Name: "test", Host: peerHost, Port: peerPort},
	}
	for _, r := range m.Routes {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: r})
	}
	s, err := natsserver.NewServer(opts)
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return errors.New("the server has ended")
}

func hostPort(addr string) (host string, port int) {
	host, text, _ := net.SplitHostPort(addr)
	port, _ = strconv.Atoi(text)
	return host, port
}

// natsCluster is three members in processes of their own.
type natsCluster struct {
	members map[string]*natsMember
	url     string
}

func startNATSCluster(t *testing.T) *natsCluster {
	t.Helper()
	c := &natsCluster{members: map[string]*natsMember{}}
	var urls, routes []string
	dir := t.TempDir()
	for i := range 3 {
		m := &natsMember{Name: fmt.Sprint("n", i), Dir: filepath.Join(dir, fmt.Sprint(i)), Addr: freeAddr(t), Peer: freeAddr(t)}
		c.members[m.Name] = m
		urls, routes = append(urls, "nats://"+m.Addr), append(routes, m.Peer)
	}
	c.url = strings.Join(urls, ",")
	for _, m := range c.members {
		m.Routes = routes
		m.start(t)
	}
	return c
}

func (m *natsMember) start(t *testing.T) {
	t.Helper()
	config, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envNATSMember+"="+string(config))
	cmd.Stderr = os.Stderr
	if err := orphan.Start(cmd); err != nil {
		t.Fatal(err)
	}
	m.cmd = cmd
	t.Cleanup(func() { m.kill(cmd) })
}

func (m *natsMember) kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // an error means that it has ended
	_ = cmd.Wait()
}

func (c *natsCluster) open(t *testing.T) *store.NATS {
	t.Helper()
	s, err := store.NewNATS(store.NATSConfig{Config: natsconn.Config{URL: c.url, Name: t.Name()}}, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// leader is the member that leads the stream.
func (c *natsCluster) leader(t *testing.T, js jetstream.JetStream) (m *natsMember, replicas int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), storetest.Patience)
	defer cancel()
	for ctx.Err() == nil {
		s, err := js.Stream(ctx, bucketStream)
		if err == nil && s.CachedInfo().Cluster != nil && c.members[s.CachedInfo().Cluster.Leader] != nil {
			return c.members[s.CachedInfo().Cluster.Leader], s.CachedInfo().Config.Replicas
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("nobody leads the stream")
	return nil, 0
}

// The member that leads the stream is killed in the middle of writes, watches, leases and
// locks. Nothing that was acknowledged is lost, nothing is there twice, no lease ends, and
// never have two owners one lock.
func TestNATSClusterLosesItsLeader(t *testing.T) {
	t.Parallel()
	c := startNATSCluster(t)
	first := c.open(t)
	ready, cancel := context.WithTimeout(t.Context(), storetest.Patience)
	defer cancel()
	if err := storetest.AwaitAnswer(ready, first); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Put(t.Context(), "p/counter", []byte("0")); err != nil {
		t.Fatal(err)
	}
	js := natsAPI(t, c.url)
	storetest.Eventually(t, "the stream is on three servers", func() bool { _, n := c.leader(t, js); return n == 3 })

	var keepers []*store.LeaseKeeper
	for i := range 3 {
		keeper, err := c.open(t).KeepLease(t.Context(), leaseTTL, storetest.Discard)
		if err != nil {
			t.Fatal(err)
		}
		keepers = append(keepers, keeper)
		if _, err := first.Put(t.Context(), fmt.Sprint("owned/", i), nil, store.WithLease(keeper.ID())); err != nil {
			t.Fatal(err)
		}
	}
	owned, err := first.Watch(t.Context(), "owned/")
	if err != nil {
		t.Fatal(err)
	}
	defer owned.Close()
	state := map[string]string{}
	storetest.Follow(t, owned, state, "they are there", func() bool { return len(state) == 3 })

	locks := startLocks(t, func() store.Store { return c.open(t) })
	load := newCounters(t, func() store.Store { return c.open(t) })
	load.await(t, 50)
	for range 2 {
		m, _ := c.leader(t, js)
		killed := time.Now()
		m.kill(m.cmd)
		load.await(t, 3) // two may have been acknowledged before
		t.Logf("%s, which led, was killed; the next count was acknowledged %s later", m.Name, time.Since(killed).Round(time.Millisecond))
		turns := locks.turns.Load()
		storetest.Eventually(t, "the lock goes on", func() bool { return locks.turns.Load() > turns+3 })
		load.await(t, 30)
		m.start(t)
		storetest.Eventually(t, "all members are current", func() bool {
			s, err := js.Stream(t.Context(), bucketStream)
			if err != nil || s.CachedInfo().Cluster == nil || len(s.CachedInfo().Cluster.Replicas) != 2 {
				return false
			}
			for _, r := range s.CachedInfo().Cluster.Replicas {
				if !r.Current {
					return false
				}
			}
			return true
		})
	}
	locks.check(t)
	load.check(t)
	for i, keeper := range keepers {
		select {
		case <-keeper.Lost():
			t.Errorf("lease %d was lost", i)
		default:
		}
	}
	if kvs, _, err := first.List(t.Context(), "owned/"); err != nil || len(kvs) != 3 {
		t.Errorf("of the leases: %v, %v", kvs, err)
	}
	for {
		select {
		case ev := <-owned.Events():
			if ev.Type == store.Delete || ev.Type == store.Resync && len(ev.All) != 3 {
				t.Errorf("a watch has seen a lease end: %+v", ev)
			}
			continue
		default:
		}
		break
	}
}

// locks are owners that take a lock in turns.
type locks struct {
	cancel context.CancelFunc
	group  sync.WaitGroup
	turns  atomic.Int64
	inside atomic.Int64
}

func startLocks(t *testing.T, open func() store.Store) *locks {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &locks{cancel: cancel}
	t.Cleanup(func() {
		cancel()
		l.group.Wait()
	})
	for range 2 {
		s := open()
		keeper, err := s.KeepLease(t.Context(), leaseTTL, storetest.Discard)
		if err != nil {
			t.Fatal(err)
		}
		l.group.Go(func() {
			lock := store.NewRWLock(s, "turns")
			for ctx.Err() == nil {
				unlock, err := lock.Lock(ctx, keeper.ID())
				if err != nil {
					if ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrExists) {
						t.Errorf("lock: %v", err)
						return
					}
					continue
				}
				if n := l.inside.Add(1); n != 1 {
					t.Errorf("%d owners of one lock", n)
				}
				l.turns.Add(1)
				l.inside.Add(-1)
				for unlock(t.Context()) != nil && t.Context().Err() == nil {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	return l
}

func (l *locks) check(t *testing.T) {
	t.Helper()
	l.cancel()
	l.group.Wait()
	t.Logf("%d turns of the lock", l.turns.Load())
}
