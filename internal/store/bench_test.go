package store_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/natsconn"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// BenchmarkPut compares durable puts: one after the other, and of many callers.
func BenchmarkPut(b *testing.B) {
	for name, open := range benchStores {
		s := open(b)()
		value := make([]byte, 300)
		b.Run(name+"/one", func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Put(b.Context(), "k", value); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/many", func(b *testing.B) {
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := s.Put(b.Context(), "k", value); err != nil {
						b.Error(err)
					}
				}
			})
		})
		b.Run(name+"/get", func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Get(b.Context(), "k"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWatch measures the time from the beginning of a put to its event at another opener
// of the store, and reports its median and 99th percentile.
func BenchmarkWatch(b *testing.B) {
	for name, open := range benchStores {
		b.Run(name, func(b *testing.B) {
			another := open(b)
			writer, reader := another(), another()
			w, err := reader.Watch(b.Context(), "k")
			if err != nil {
				b.Fatal(err)
			}
			<-w.Events()
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				go func() { _, _ = writer.Put(b.Context(), "k", nil) }()
				<-w.Events()
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-median")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99")
		})
	}
}

// benchStores start what holds a store, and return what opens it.
var benchStores = map[string]func(*testing.B) (open func() store.Store){
	"file": func(b *testing.B) func() store.Store {
		dir := b.TempDir()
		return func() store.Store {
			s, err := store.NewFile(store.FileConfig{Dir: dir}, storetest.Discard)
			return opened(b, s, err)
		}
	},
	"etcd": func(b *testing.B) func() store.Store {
		e, err := embedded.StartEtcd(b.Context(), embedded.EtcdOptions{Dir: b.TempDir(), ClientAddr: "127.0.0.1:0", Log: storetest.Discard})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { e.Close() })
		return func() store.Store {
			s, err := store.NewEtcd(store.EtcdConfig{Endpoints: []string{e.Endpoint()}}, storetest.Discard)
			return opened(b, s, err)
		}
	},
	"nats":          func(b *testing.B) func() store.Store { return benchNATS(b, true) },
	"nats-unsynced": func(b *testing.B) func() store.Store { return benchNATS(b, false) },
}

func benchNATS(b *testing.B, durable bool) func() store.Store {
	e, err := embedded.StartNATS(b.Context(), embedded.NATSOptions{Dir: b.TempDir(), Addr: "127.0.0.1:0", Durable: durable, Log: storetest.Discard})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { e.Close() })
	return func() store.Store {
		s, err := store.NewNATS(store.NATSConfig{Config: natsconn.Config{URL: e.URL()}}, storetest.Discard)
		return opened(b, s, err)
	}
}

func opened(b *testing.B, s store.Store, err error) store.Store {
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	if err := storetest.AwaitAnswer(b.Context(), s); err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkRegistrations registers 10,000 instances under 1,000 leases while another opener
// follows them. It reports how many are registered in a second, how long after the last one the
// follower has all of them, how long a later opener takes to have them, what they take of its
// memory, and how long after the end of a lease both know it.
func BenchmarkRegistrations(b *testing.B) {
	const leases, each = 1000, 10
	prefix := cluster.InstancePrefix("", "", "")
	for name, open := range benchStores {
		b.Run(name, func(b *testing.B) {
			another := open(b)
			writer := another()
			var ids []cluster.InstanceID
			for range leases {
				lease, err := writer.GrantLease(b.Context(), time.Hour)
				if err != nil {
					b.Fatal(err)
				}
				ids = append(ids, lease.ID)
			}
			early := followAll(b, another(), prefix)
			begin := time.Now()
			for b.Loop() {
				register(b, writer, ids, each)
			}
			written := time.Now()
			early.await(b, leases*each)
			b.ReportMetric(leases*each/written.Sub(begin).Seconds(), "registrations/s")
			b.ReportMetric(float64(time.Since(written).Microseconds())/1000, "ms-until-known")
			b.ReportMetric(0, "ns/op")

			before := heap()
			begin = time.Now()
			late := followAll(b, another(), prefix)
			late.await(b, leases*each)
			b.ReportMetric(float64(time.Since(begin).Microseconds())/1000, "ms-to-list")
			b.ReportMetric(float64(heap()-before)/(leases*each), "bytes/registration")

			begin = time.Now()
			if err := writer.RevokeLease(b.Context(), ids[0]); err != nil {
				b.Fatal(err)
			}
			early.await(b, (leases-1)*each)
			late.await(b, (leases-1)*each)
			b.ReportMetric(float64(time.Since(begin).Microseconds())/1000, "ms-until-gone")
		})
	}
}

// register writes the instances of all leases, by 64 callers at once.
func register(b *testing.B, s store.Store, ids []cluster.InstanceID, each int) {
	var group sync.WaitGroup
	turns := make(chan struct{}, 64)
	for _, id := range ids {
		for i := range each {
			turns <- struct{}{}
			group.Go(func() {
				defer func() { <-turns }()
				inst := cluster.Instance{
					Type: cluster.InstanceType, Namespace: cluster.DefaultNamespace, Component: "backend", Endpoint: fmt.Sprint("e", i), InstanceID: id,
					Transport: cluster.TransportTo("tcp://10.0.0.1:7370/" + id.String() + "/generate"), Worker: "worker-" + id.String(), Node: "node-1",
				}
				body, err := json.Marshal(inst)
				if err == nil {
					_, err = s.Put(b.Context(), inst.Key(), body, store.WithLease(id))
				}
				if err != nil {
					b.Error(err)
				}
			})
		}
	}
	group.Wait()
}

// follower has the instances that it knows.
type follower struct {
	*store.Prefix[cluster.Instance]
}

func followAll(b *testing.B, s store.Store, prefix string) follower {
	p, err := store.WatchPrefix(b.Context(), s, prefix, store.DecodeJSON[cluster.Instance], storetest.Discard)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	return follower{p}
}

func (f follower) await(b *testing.B, n int) {
	limit := time.After(time.Minute)
	for len(f.Snapshot()) != n {
		select {
		case <-f.Changed():
		case <-limit:
			b.Fatalf("%d instances are known, want %d", len(f.Snapshot()), n)
		}
	}
}

// heap returns the bytes that are in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
