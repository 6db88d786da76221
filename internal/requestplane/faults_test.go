package requestplane_test

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/proxytest"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// A slow, broken or silent network fails calls in time, and no handler runs twice for an
// answer that arrived.
func TestNetworkFaults(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n network) {
		t.Parallel()
		s := n.serve(t, requestplane.ServerConfig{})
		var mu sync.Mutex
		seen := map[int]int{}
		handle(t, s, "1/count", func(_ context.Context, req *requestplane.Request, send func(any) error) error {
			var text string
			if err := req.Decode(&text); err != nil {
				return err
			}
			i, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			mu.Lock()
			seen[i]++
			mu.Unlock()
			return send(text)
		})
		p := n.proxy(t, s)
		c := newClient(t, requestplane.ClientConfig{})
		proxytest.Faults(t, p.Proxy, proxytest.Client{
			Call: func(ctx context.Context, i int) error { return ask(ctx, c, p.addr()+"/1/count", strconv.Itoa(i)) },
			Seen: func() map[int]int {
				mu.Lock()
				defer mu.Unlock()
				return maps.Clone(seen)
			},
			Failure: func(err error, late bool) bool {
				return errors.Is(err, requestplane.ErrCannotConnect) || errors.Is(err, requestplane.ErrDisconnected) || late && errors.Is(err, context.DeadlineExceeded)
			},
		})
	})
}
