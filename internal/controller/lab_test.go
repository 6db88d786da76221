package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// lab is a store with nodes whose agents follow their assignments at once. It lives
// in a synctest bubble: sleeping costs nothing, and the end of the test proves that
// no goroutine is left.
type lab struct {
	t     *testing.T
	store *spy
	ctx   context.Context
	wg    sync.WaitGroup

	mu     sync.Mutex
	nodes  map[string]*fakeNode
	events []string
}

// spy counts writes of assignments and lets a test step in before one.
type spy struct {
	store.Store
	mu     sync.Mutex
	tried  int // compare-and-swaps and deletes of assignments
	done   int // those that took effect
	before func(key string)
}

func (s *spy) note(key string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLocked(key, err)
}

func (s *spy) noteLocked(key string, err error) {
	if strings.HasPrefix(key, cluster.AssignmentPrefix(ns)) {
		s.tried++
		if err == nil {
			s.done++
		}
	}
}

func (s *spy) counts() (tried, done int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tried, s.done
}

func (s *spy) CompareAndSwap(ctx context.Context, key string, expect store.Revision, value []byte, opts ...store.PutOption) (store.Revision, error) {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil && strings.HasPrefix(key, cluster.AssignmentPrefix(ns)) {
		before(key)
	}
	rev, err := s.Store.CompareAndSwap(ctx, key, expect, value, opts...)
	s.note(key, err)
	return rev, err
}

func (s *spy) Delete(ctx context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, absent := s.Store.Get(ctx, key)
	err := s.Store.Delete(ctx, key)
	s.noteLocked(key, errors.Join(err, absent)) // of two deletes one takes effect
	return err
}

// inLab runs a test in a bubble.
func inLab(t *testing.T, test func(*lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		l := &lab{t: t, store: &spy{Store: store.NewMemory(nil)}, ctx: ctx, nodes: map[string]*fakeNode{}}
		test(l)
		cancel()
		l.wg.Wait()
		if err := l.store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// fakeNode is a node whose workers do at once what their assignments ask.
type fakeNode struct {
	node  cluster.Node
	lease cluster.InstanceID
	stop  context.CancelFunc

	mu sync.Mutex
	// next is the state of workers that start from now on.
	next cluster.State
}

func (f *fakeNode) become(s cluster.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = s
}

// addNode registers a node and its agent.
func (l *lab) addNode(name string, change ...func(*cluster.Node)) *fakeNode {
	l.t.Helper()
	lease, err := l.store.GrantLease(l.ctx, time.Hour)
	if err != nil {
		l.t.Fatal(err)
	}
	f := &fakeNode{lease: lease.ID, next: cluster.StateReady, node: cluster.Node{
		ID: "id-" + name, Name: name, Namespace: ns, Devices: []cluster.Device{{ID: "cpu:0", Cores: 4}},
	}}
	for _, c := range change {
		c(&f.node)
	}
	ctx, cancel := context.WithCancel(l.ctx)
	f.stop = cancel
	if _, err := store.PutJSON(l.ctx, l.store, cluster.NodeKey(f.node.ID), f.node, store.WithLease(f.lease)); err != nil {
		l.t.Fatal(err)
	}
	l.wg.Go(func() { l.follow(ctx, f) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes[name] = f
	return f
}

// follow writes the statuses that an agent would.
func (l *lab) follow(ctx context.Context, f *fakeNode) {
	w, err := store.WatchPrefix(ctx, l.store, cluster.AssignmentPrefix(ns), store.DecodeJSON[cluster.Assignment], slog.New(slog.DiscardHandler))
	if err != nil {
		return
	}
	defer w.Close()
	mine := map[string]cluster.WorkerStatus{}
	for {
		now := map[string]cluster.WorkerStatus{}
		for _, a := range w.Snapshot() {
			if a.Node != f.node.ID {
				continue
			}
			last := mine[a.Name]
			st := cluster.WorkerStatus{Name: a.Name, Role: a.Role, Node: a.Node, Generation: a.Generation, State: last.State}
			switch {
			case a.Desire == cluster.DesireDrain:
				st.State = cluster.StateDrained
			case a.Desire == cluster.DesireRemove:
				st.State = cluster.StateStopped
			case last.Generation != a.Generation || last.State == cluster.StateDrained:
				f.mu.Lock()
				st.State = f.next
				f.mu.Unlock()
			}
			now[a.Name] = st
			if st == last {
				continue
			}
			_, _ = store.PutJSON(ctx, l.store, cluster.StatusKey(ns, a.Name), st, store.WithLease(f.lease)) // the node may be lost
		}
		for name := range mine {
			if _, ok := now[name]; !ok {
				_ = l.store.Delete(ctx, cluster.StatusKey(ns, name))
			}
		}
		mine = now
		select {
		case <-w.Changed():
		case <-w.Done():
			return
		}
	}
}

// report has a worker of a node say that it is in a state.
func (l *lab) report(f *fakeNode, worker string, state cluster.State) {
	l.t.Helper()
	a := l.assignments()[worker]
	st := cluster.WorkerStatus{Name: worker, Role: a.Role, Node: a.Node, Generation: a.Generation, State: state}
	if _, err := store.PutJSON(l.ctx, l.store, cluster.StatusKey(ns, worker), st, store.WithLease(f.lease)); err != nil {
		l.t.Fatal(err)
	}
}

// lose ends a node's lease, as a crash does.
func (l *lab) lose(name string) {
	l.t.Helper()
	l.mu.Lock()
	f := l.nodes[name]
	l.mu.Unlock()
	f.stop()
	if err := l.store.RevokeLease(l.ctx, f.lease); err != nil {
		l.t.Fatal(err)
	}
}

// control runs a controller. With a lease it takes part in the election, without
// one it always leads.
func (l *lab) control(name string, lease cluster.InstanceID) (stop func()) {
	ctx, cancel := context.WithCancel(l.ctx)
	c := New(Config{
		Store: l.store, Namespace: ns, Node: name, Log: slog.New(slog.DiscardHandler),
		Elect: func(ctx context.Context, prefix, value string, lead func(context.Context) error) error {
			if lease == 0 {
				return lead(ctx)
			}
			return store.Elect(ctx, l.store, prefix, value, lease, lead)
		},
		Notify: func(e cluster.TopologyEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.events = append(l.events, e.Message)
		},
	})
	done := make(chan error, 1)
	l.wg.Go(func() { done <- c.Run(ctx) })
	return func() {
		cancel()
		<-done
	}
}

func (l *lab) declare(prefill, decode int, change ...func(*cluster.Topology)) {
	l.t.Helper()
	_, _, err := store.UpdateJSON(l.ctx, l.store, cluster.TopologyKey(ns), func(t cluster.Topology, _ bool) (cluster.Topology, error) {
		if t.Model.Name == "" {
			t.Model = tiny
		}
		t.Prefill, t.Decode, t.Generation = prefill, decode, t.Generation+1
		for _, c := range change {
			c(&t)
		}
		return t, nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) order(worker string, d cluster.Desire) {
	l.t.Helper()
	_, _, err := store.UpdateJSON(l.ctx, l.store, cluster.AssignmentKey(ns, worker), func(a cluster.Assignment, exists bool) (cluster.Assignment, error) {
		if !exists {
			return a, errors.New("no such worker")
		}
		a.Desire = d
		return a, nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// settle waits until nothing happens any more, resyncs included.
func (l *lab) settle() {
	time.Sleep(3 * resyncEvery)
	synctest.Wait()
}

func (l *lab) assignments() map[string]cluster.Assignment {
	l.t.Helper()
	kvs, _, err := l.store.List(l.ctx, cluster.AssignmentPrefix(ns))
	if err != nil {
		l.t.Fatal(err)
	}
	out := map[string]cluster.Assignment{}
	for _, kv := range kvs {
		a, err := store.DecodeJSON[cluster.Assignment](kv)
		if err != nil {
			l.t.Fatal(err)
		}
		out[a.Name] = a
	}
	return out
}

// want checks the assignments, each as "worker-1 decode node-1".
func (l *lab) want(what string, want ...string) {
	l.t.Helper()
	l.settle()
	var got []string
	for _, a := range l.assignments() {
		s := fmt.Sprint(a.Name, " ", a.Role, " ", strings.TrimPrefix(a.Node, "id-"))
		if a.Desire != cluster.DesireRun {
			s += " " + string(a.Desire)
		}
		got = append(got, strings.TrimSpace(s))
	}
	slices.SortFunc(got, cluster.CompareNames)
	slices.SortFunc(want, cluster.CompareNames)
	if !slices.Equal(got, want) {
		l.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
