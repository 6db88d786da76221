package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// serverCluster is three servers that have a store together, in processes of their own.
type serverCluster interface {
	open(t *testing.T) store.Store
	// settle waits until all three have everything.
	settle(t *testing.T)
	// killLeader kills the member that leads, and returns its name and how to start it again.
	killLeader(t *testing.T) (name string, start func())
}

// The member that leads is killed in the middle of writes, watches, leases and locks. Nothing
// that was acknowledged is lost, nothing is there twice, no lease ends, and never have two
// owners one lock.
func TestClusterLosesItsLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("six servers in processes of their own take long")
	}
	for name, start := range map[string]func(*testing.T) serverCluster{
		"etcd": func(t *testing.T) serverCluster { return startEtcdCluster(t) },
		"nats": func(t *testing.T) serverCluster { return startNATSCluster(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testClusterLosesItsLeader(t, start(t))
		})
	}
}

func testClusterLosesItsLeader(t *testing.T, c serverCluster) {
	first := c.open(t)
	ready, cancel := context.WithTimeout(t.Context(), storetest.Patience)
	defer cancel()
	if err := storetest.AwaitAnswer(ready, first); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Put(t.Context(), "p/counter", []byte("0")); err != nil {
		t.Fatal(err)
	}
	c.settle(t)

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
		killed := time.Now()
		name, start := c.killLeader(t)
		load.await(t, 3) // two may have been acknowledged before
		t.Logf("%s, which led, was killed; the next count was acknowledged %s later", name, time.Since(killed).Round(time.Millisecond))
		turns := locks.turns.Load()
		storetest.Eventually(t, "the lock goes on", func() bool { return locks.turns.Load() > turns+3 })
		load.await(t, 30)
		start()
		c.settle(t)
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

// startMember runs this test binary again, as the member that the variable env says.
func startMember(t *testing.T, env string, member any) *exec.Cmd {
	t.Helper()
	config, err := json.Marshal(member)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env+"="+string(config))
	cmd.Stderr = os.Stderr
	if err := orphan.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	return cmd
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // an error means that it has ended
	_ = cmd.Wait()
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
