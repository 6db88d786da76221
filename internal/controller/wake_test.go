package controller

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// Workers that write their statuses now and then make no plan. A change that a plan could
// depend on makes one at once.
func TestHeartbeatsMakeNoPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v := store.NewMemory(nil), fleet(4, 5)
		defer s.Close()
		fill(t, s, v)
		c, stop := lead(s)
		defer stop()
		time.Sleep(resyncEvery / 2) // the listings are over
		before := c.plans.Load()
		beat := func(st cluster.WorkerStatus) {
			if _, err := store.PutJSON(t.Context(), s, cluster.StatusKey(ns, st.Name), st); err != nil {
				t.Fatal(err)
			}
		}
		const rounds = 10
		for range rounds {
			for _, a := range v.Assignments {
				st := v.Status[a.Name]
				st.UpdatedAt = time.Now()
				st.Stats.StepsTotal++
				st.Stats.Running++
				st.Drain = &cluster.DrainStatus{Left: st.Stats.Running}
				beat(st)
				time.Sleep(resyncEvery / time.Duration(len(v.Assignments)))
			}
		}
		if n := c.plans.Load() - before; n > rounds {
			t.Errorf("%d plans in %d times %s", n, rounds, resyncEvery)
		}
		time.Sleep(resyncEvery / 3)
		for what, change := range map[string]func(*cluster.WorkerStatus){
			"state":       func(st *cluster.WorkerStatus) { st.State = cluster.StateDegraded },
			"generation":  func(st *cluster.WorkerStatus) { st.Generation-- },
			"memory":      func(st *cluster.WorkerStatus) { st.MemoryBytes++ },
			"block bytes": func(st *cluster.WorkerStatus) { st.BlockBytes++ },
			"block size":  func(st *cluster.WorkerStatus) { st.Stats.BlockSize++ },
			"reason":      func(st *cluster.WorkerStatus) { st.Reason = "full" },
			"no memory":   func(st *cluster.WorkerStatus) { st.NoMemory = true },
			"fits alone":  func(st *cluster.WorkerStatus) { st.FitsAlone = true },
			"declined":    func(st *cluster.WorkerStatus) { st.Declined.Why = "no" },
		} {
			before := c.plans.Load()
			st := v.Status["worker-2"]
			change(&st)
			beat(st)
			time.Sleep(settleMax)
			if c.plans.Load() == before {
				t.Errorf("%s: no plan", what)
			}
			beat(v.Status["worker-2"])
			time.Sleep(settleMax)
		}
	})
}

// fill writes a view to a store.
func fill(tb testing.TB, s store.Store, v View) {
	tb.Helper()
	put := func(key string, value any) {
		if _, err := store.PutJSON(context.Background(), s, key, value); err != nil {
			tb.Fatal(err)
		}
	}
	for _, n := range v.Nodes {
		put(cluster.NodeKey(n.ID), n)
	}
	for _, a := range v.Assignments {
		put(cluster.AssignmentKey(ns, a.Name), a)
	}
	for _, st := range v.Status {
		put(cluster.StatusKey(ns, st.Name), st)
	}
	put(cluster.TopologyKey(ns), v.Topology)
}

// BenchmarkHeartbeats times a controller of 1,000 workers while these write their
// statuses with new counters, by status.
func BenchmarkHeartbeats(b *testing.B) {
	for _, f := range [][2]int{{128, 1}, {1000, 1}, {125, 8}} {
		b.Run(fmt.Sprintf("%dx%d", f[0], f[1]), func(b *testing.B) {
			s, v := store.NewMemory(nil), fleet(f[0], f[1])
			fill(b, s, v)
			c, stop := lead(s)
			defer stop()
			b.ReportAllocs()
			before := c.plans.Load()
			for i := 0; b.Loop(); i++ {
				st := v.Status[cluster.WorkerName(1+i%len(v.Assignments))]
				st.UpdatedAt, st.Stats.StepsTotal = time.Now(), uint64(i)
				if _, err := store.PutJSON(context.Background(), s, cluster.StatusKey(ns, st.Name), st); err != nil {
					b.Fatal(err)
				}
				time.Sleep(5 * time.Millisecond) // as 1,000 workers do that write every 5 s
			}
			b.ReportMetric(float64(c.plans.Load()-before)/float64(b.N), "plans/op")
		})
	}
}

// lead starts a controller that always leads.
func lead(s store.Store) (*Controller, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c := New(Config{
		Store: s, Namespace: ns, Node: "n", Log: slog.New(slog.DiscardHandler),
		Elect: func(ctx context.Context, _, _ string, lead func(context.Context) error) error { return lead(ctx) },
	})
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return c, func() {
		cancel()
		<-done
	}
}

// BenchmarkOrder times an order to replace one of 1,000 workers until its successor is
// assigned.
func BenchmarkOrder(b *testing.B) {
	s, v := store.NewMemory(nil), fleet(125, 8)
	defer s.Close()
	fill(b, s, v)
	_, stop := lead(s)
	defer stop()
	p, err := store.WatchPrefix(b.Context(), s, cluster.AssignmentPrefix(ns), store.DecodeJSON[cluster.Assignment], slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	time.Sleep(time.Second) // the controller has listed everything
	for i := 0; b.Loop(); i++ {
		a := v.Assignments[i]
		a.Replace = true
		if _, err := store.PutJSON(b.Context(), s, cluster.AssignmentKey(ns, a.Name), a); err != nil {
			b.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); len(p.Snapshot()) < len(v.Assignments)+i+1; {
			select {
			case <-p.Changed():
			case <-time.After(time.Until(deadline)):
				b.Fatalf("no successor of %s", a.Name)
			}
		}
	}
}
