package clustertest_test

import (
	"errors"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// A program without the cluster's secret knows every address of the request plane, and
// gets nothing there: no answer, no figures, and no cache is cleared.
func TestStrangersOfTheRequestPlane(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, clustertest.Options{Prefill: 1, Decode: 1, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 512}})
	body := clustertest.Body{"prompt": texts(1, 30)[0], "max_tokens": 2, "temperature": 0}
	want, err := c.Complete(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	stranger := requestplane.NewClient(requestplane.ClientConfig{Key: handshake.RandomKey()})
	defer stranger.Close()
	tried := map[string]int{}
	for _, i := range c.Watch.View().Instances {
		if i.Transport.Address() == "" { // a frontend's door for clients
			continue
		}
		tried[i.Endpoint]++
		if stream, err := stranger.Call(t.Context(), i.Transport.Address(), "r", nil, nil); !errors.Is(err, handshake.ErrSecret) {
			t.Errorf("%s of %s: %v", i.Endpoint, i.Worker, err)
			if err == nil {
				stream.Close()
			}
		}
	}
	for _, e := range []string{cluster.EndpointGenerate, cluster.EndpointStats, cluster.EndpointClearKV} {
		if tried[e] < 2 {
			t.Errorf("%s of %d workers was tried, want 2", e, tried[e])
		}
	}
	if got, err := c.Complete(t.Context(), body); err != nil || got.Text != want.Text {
		t.Errorf("afterwards: %q, %v, want %q", got.Text, err, want.Text)
	}
}
