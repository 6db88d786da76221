package runtime_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/store"
)

// BenchmarkRoutable compares how long it takes from serving an endpoint until a
// client elsewhere would send to it with the floor under it, which is from an
// etcd put until a bare etcd watch reports it.
func BenchmarkRoutable(b *testing.B) {
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	etcd, err := embedded.StartEtcd(ctx, embedded.EtcdOptions{Dir: b.TempDir(), ClientAddr: "127.0.0.1:0", Log: discard, UnsafeNoFsync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer etcd.Close()
	open := func() *store.Etcd {
		s, err := store.NewEtcd(store.EtcdConfig{Endpoints: []string{etcd.Endpoint()}}, discard)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { s.Close() })
		return s
	}
	writer, reader := open(), open()

	b.Run("raw watch", func(b *testing.B) {
		events := reader.Client().Watch(ctx, "raw/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		<-events
		for n := 0; b.Loop(); n++ {
			if _, err := writer.Client().Put(ctx, fmt.Sprint("raw/", n), "v"); err != nil {
				b.Fatal(err)
			}
			<-events
		}
	})
	b.Run("serve to routable", func(b *testing.B) {
		server, err := requestplane.ListenTCP(requestplane.ServerConfig{Key: testKey})
		if err != nil {
			b.Fatal(err)
		}
		defer server.Close()
		d, err := runtime.New(ctx, runtime.Config{Store: writer, Server: server, Worker: "worker-1"})
		if err != nil {
			b.Fatal(err)
		}
		defer d.Close(ctx)
		client, err := runtime.NewClient(ctx, runtime.Config{Store: reader}, "backend", "generate")
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		for b.Loop() {
			served, err := d.Serve(ctx, "backend", "generate", echo(""))
			if err != nil {
				b.Fatal(err)
			}
			if err := client.Wait(ctx, 1); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := served.Close(ctx); err != nil {
				b.Fatal(err)
			}
			for len(client.Instances()) > 0 {
				<-client.Changed()
			}
			b.StartTimer()
		}
	})
}
