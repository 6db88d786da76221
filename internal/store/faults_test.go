package store_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/kubetest"
	"github.com/dynctl/dynctl/internal/proxytest"
	"github.com/dynctl/dynctl/internal/store"
)

// A slow, broken or silent network fails calls in time, and loses nothing that was written.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, at := range []*site{{nats: true, access: open}, newSite(t, "", open)} {
		name := "etcd"
		if at.nats {
			name = "nats"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := at.start(t, t.TempDir())
			p := proxytest.New(t, server.addr)
			testFaults(t, p, at.open(t, p.Addr()), at.open(t, server.addr))
		})
	}
	t.Run("kubernetes", func(t *testing.T) {
		t.Parallel()
		server := kubetest.New(t)
		far, direct := server.Client("test"), server.Client("test")
		p := proxytest.New(t, strings.TrimPrefix(far.Server, "http://"))
		far.Server = "http://" + p.Addr()
		testFaults(t, p, openKubernetes(t, far, kube.Pod{}), openKubernetes(t, direct, kube.Pod{}))
	})
}

func testFaults(t *testing.T, p *proxytest.Proxy, far, direct store.Store) {
	proxytest.Faults(t, p, proxytest.Client{
		Call: func(ctx context.Context, n int) error {
			_, err := far.Create(ctx, fmt.Sprint("faults/", n), []byte("x"))
			return err
		},
		Seen: func() map[int]int {
			seen := map[int]int{}
			kvs, _, err := direct.List(t.Context(), "faults/")
			if err != nil {
				t.Fatal(err)
			}
			for _, kv := range kvs {
				n, err := strconv.Atoi(strings.TrimPrefix(kv.Key, "faults/"))
				if err != nil {
					t.Error(err)
				}
				seen[n]++
			}
			return seen
		},
		Failure: func(err error, _ bool) bool { return errors.Is(err, store.ErrUnavailable) },
	})
}
