package embedded

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dynctl/dynctl/internal/patience"
)

// The file of a fleet whose workers write their status again and again stays small.
func TestEtcdFileStaysSmall(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("one client writes 130 MB, byte by byte under the race detector")
	}
	etcd, err := StartEtcd(t.Context(), EtcdOptions{Dir: t.TempDir(), ClientAddr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler), UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	file := etcd.server.Server.Backend()
	value := string(bytes.Repeat([]byte("x"), 100<<10))
	write := func(n int) {
		for i := range n {
			if _, err := c.Put(t.Context(), fmt.Sprint("status/", i%10), value); err != nil {
				t.Fatal(err)
			}
		}
	}
	compact := func() {
		r, err := c.Get(t.Context(), "status/0")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
			t.Fatal(err)
		}
		file.ForceCommit()
	}
	write(1200)
	etcd.shrink()
	if file.Size() < 100<<20 {
		t.Fatalf("%d bytes before anything is compacted: it was defragmented, although all is in use", file.Size())
	}
	compact()
	etcd.shrink()
	if size := file.Size(); size > 10<<20 {
		t.Errorf("%d bytes after a defragmentation, for one megabyte in use", size)
	}
	if r, err := c.Get(t.Context(), "status/9"); err != nil || string(r.Kvs[0].Value) != value {
		t.Errorf("a value after a defragmentation: %v", err)
	}
	write(100)
	compact()
	before := file.Size()
	if etcd.shrink(); file.Size() != before {
		t.Error("defragmented for a few megabytes")
	}
}

func TestDefragmentationPays(t *testing.T) {
	const mb = 1 << 20
	for _, tc := range []struct {
		size, used int64
		want       bool
	}{
		{0, 0, false}, {60 * mb, 1 * mb, false}, {66 * mb, 1 * mb, true}, {1000 * mb, 600 * mb, false}, {1000 * mb, 499 * mb, true},
	} {
		if got := pays(tc.size, tc.used); got != tc.want {
			t.Errorf("%d bytes of %d in use: %t", tc.used, tc.size, got)
		}
	}
}
