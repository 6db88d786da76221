package runtime_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/store"
)

func instance(id int) cluster.Instance {
	return cluster.Instance{
		Type: cluster.InstanceType, Namespace: cluster.DefaultNamespace, Component: "backend", Endpoint: "generate",
		InstanceID: cluster.InstanceID(id), Worker: fmt.Sprint("worker-", id), Transport: cluster.Transport{TCP: fmt.Sprint("127.0.0.1:1/", id, "/generate")},
	}
}

// watched counts the watches of a store.
type watched struct {
	store.Store
	mu      sync.Mutex
	watches int
}

func (w *watched) Watch(ctx context.Context, prefix string) (*store.Watcher, error) {
	w.mu.Lock()
	w.watches++
	w.mu.Unlock()
	return w.Store.Watch(ctx, prefix)
}

// All clients of an endpoint in a process share one watch. It ends with the last client
// and begins again with the next one.
func TestClientsShareAWatch(t *testing.T) {
	s := &watched{Store: store.NewMemory(nil)}
	defer s.Close()
	if _, err := store.PutJSON(t.Context(), s, instance(1).Key(), instance(1)); err != nil {
		t.Fatal(err)
	}
	for round := 1; round <= 2; round++ {
		var clients []*runtime.Client
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 20 {
			wg.Go(func() {
				c, err := runtime.NewClient(t.Context(), runtime.Config{Store: s}, "backend", "generate")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				clients = append(clients, c)
			})
		}
		wg.Wait()
		if s.watches != round {
			t.Errorf("%d watches in round %d", s.watches, round)
		}
		if _, err := store.PutJSON(t.Context(), s, instance(round+1).Key(), instance(round+1)); err != nil {
			t.Fatal(err)
		}
		for i, c := range clients {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if err := c.Wait(ctx, round+1); err != nil {
				t.Error(err)
			}
			cancel()
			if i%2 == 0 {
				c.Close()
			}
		}
		late, err := runtime.NewClient(t.Context(), runtime.Config{Store: s}, "backend", "generate")
		if err != nil {
			t.Fatal(err)
		}
		if n := len(late.Instances()); n != round+1 {
			t.Errorf("a late client knows %d instances, want %d", n, round+1)
		}
		late.Close()
		for i, c := range clients {
			if i%2 == 1 {
				c.Close()
			}
		}
	}
}

// A client that joins others knows what was registered before, although their watch may
// not have seen it.
func TestClientKnowsWhatWasRegistered(t *testing.T) {
	s := store.NewMemory(nil)
	defer s.Close()
	first, err := runtime.NewClient(t.Context(), runtime.Config{Store: s}, "backend", "generate")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for n := 1; n <= 200; n++ {
		if _, err := store.PutJSON(t.Context(), s, instance(n).Key(), instance(n)); err != nil {
			t.Fatal(err)
		}
		c, err := runtime.NewClient(t.Context(), runtime.Config{Store: s}, "backend", "generate")
		if err != nil {
			t.Fatal(err)
		}
		if got := len(c.Instances()); got != n {
			t.Fatalf("%d instances after %d registrations", got, n)
		}
		c.Close()
	}
}

// Whoever begins the watch for others and gives up takes nobody along.
func TestClientOutlivesTheFirst(t *testing.T) {
	s := store.NewMemory(nil)
	defer s.Close()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := runtime.NewClient(cancelled, runtime.Config{Store: s}, "backend", "generate"); err == nil {
		t.Error("a client without a context to live in")
	}
	ctx, end := context.WithCancel(t.Context())
	first, err := runtime.NewClient(ctx, runtime.Config{Store: s}, "backend", "generate")
	if err != nil {
		t.Fatal(err)
	}
	second, err := runtime.NewClient(t.Context(), runtime.Config{Store: s}, "backend", "generate")
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	end()
	first.Close()
	if _, err := store.PutJSON(t.Context(), s, instance(1).Key(), instance(1)); err != nil {
		t.Fatal(err)
	}
	wait, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if err := second.Wait(wait, 1); err != nil {
		t.Error(err)
	}
}

// After any changes, clients list what the store has, sorted by id.
func TestClientListsWhatTheStoreHas(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := store.NewMemory(nil)
	defer s.Close()
	c, err := runtime.NewClient(t.Context(), runtime.Config{Store: s}, "backend", "generate")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	there := map[int]cluster.Instance{}
	agree := func(round int) {
		t.Helper()
		want := slices.SortedFunc(maps.Values(there), func(a, b cluster.Instance) int { return cmp.Compare(a.InstanceID, b.InstanceID) })
		for deadline := time.Now().Add(10 * time.Second); !slices.Equal(c.Instances(), want) || !slices.Equal(c.All(), want); {
			select {
			case <-c.Changed():
			case <-time.After(time.Until(deadline)):
				t.Fatalf("round %d: %v\nwant %v", round, c.Instances(), want)
			}
		}
	}
	for round := range 100 {
		before := c.Instances()
		kept := slices.Clone(before)
		for range 1 + r.IntN(8) {
			inst := instance(1 + r.IntN(30))
			id := int(inst.InstanceID)
			switch r.IntN(3) {
			case 0:
				delete(there, id)
				err = s.Delete(t.Context(), inst.Key())
			case 1:
				inst.Node = fmt.Sprint("node-", round)
				fallthrough
			default:
				there[id] = inst
				_, err = store.PutJSON(t.Context(), s, inst.Key(), inst)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		agree(round)
		if !slices.Equal(before, kept) {
			t.Fatalf("round %d changed a list that was handed out", round)
		}
		if r.IntN(10) == 0 { // what the store lists anew is delivered before the next deletion
			s.SetOutage(true)
			s.SetOutage(false)
			marker := instance(31)
			marker.Node = fmt.Sprint("node-", round)
			there[31] = marker
			if _, err := store.PutJSON(t.Context(), s, marker.Key(), marker); err != nil {
				t.Fatal(err)
			}
			agree(round)
		}
	}
}

// BenchmarkClients times a change of one of 1,000 instances until all clients of a process
// know it.
func BenchmarkClients(b *testing.B) {
	for _, n := range []int{1, 128} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := store.NewMemory(nil)
			defer s.Close()
			put := func(inst cluster.Instance) {
				if _, err := store.PutJSON(b.Context(), s, inst.Key(), inst); err != nil {
					b.Fatal(err)
				}
			}
			for id := range 1000 {
				put(instance(id + 1))
			}
			var clients []*runtime.Client
			for range n {
				c, err := runtime.NewClient(b.Context(), runtime.Config{Store: s}, "backend", "generate")
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				clients = append(clients, c)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				inst := instance(500)
				inst.Node = fmt.Sprint("node-", i)
				put(inst)
				for _, c := range clients {
					for c.Instances()[499].Node != inst.Node {
						<-c.Changed()
					}
				}
			}
		})
	}
}
