package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// BenchmarkPut compares durable puts: one after the other, and of many callers.
func BenchmarkPut(b *testing.B) {
	for name, open := range map[string]func(*testing.B) store.Store{"file": benchFile, "etcd": benchEtcd} {
		s := open(b)
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

// BenchmarkFileWatch measures the time from the beginning of a put to its event at another
// opener of the directory, and reports its median and 99th percentile.
func BenchmarkFileWatch(b *testing.B) {
	dir := b.TempDir()
	writer, reader := benchFileAt(b, dir), benchFileAt(b, dir)
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
}

func benchFile(b *testing.B) store.Store { return benchFileAt(b, b.TempDir()) }

func benchFileAt(b *testing.B, dir string) store.Store {
	s, err := store.NewFile(store.FileConfig{Dir: dir}, storetest.Discard)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

func benchEtcd(b *testing.B) store.Store {
	e, err := embedded.StartEtcd(b.Context(), embedded.EtcdOptions{Dir: b.TempDir(), ClientAddr: "127.0.0.1:0", Log: storetest.Discard})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { e.Close() })
	s, err := store.NewEtcd(store.EtcdConfig{Endpoints: []string{e.Endpoint()}}, storetest.Discard)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}
