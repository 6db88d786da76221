package store_test

import (
	"slices"
	"testing"
	"time"

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
