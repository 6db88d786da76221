package clustertest_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/dial"
)

// asEver asks for a token every 100 ms, and counts the answers that are not as they were.
type asEver struct {
	n    atomic.Int64
	stop context.CancelFunc
	wg   sync.WaitGroup
}

func startAsEver(t *testing.T, c *clustertest.Cluster) *asEver {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &asEver{stop: stop}
	body := clustertest.Body{"prompt": texts(1, 30)[0], "max_tokens": 4, "temperature": 0, "ignore_eos": true}
	want, err := c.Complete(ctx, body)
	if err != nil {
		t.Fatal(err)
	}
	s.wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			s.wg.Go(func() {
				if got, err := c.Complete(t.Context(), body); err != nil || got.Text != want.Text {
					t.Errorf("an answer failed: %v, got %q, want %q", err, got.Text, want.Text)
				}
				s.n.Add(1)
			})
		}
	})
	t.Cleanup(s.end)
	return s
}

func (s *asEver) end() {
	s.stop()
	s.wg.Wait()
}

// Orders that cannot be carried out, whoever writes them, cost nobody an answer: the
// workers still serve, unchanged, the cluster says why, and it is as before when the order
// is taken back.
func TestImpossibleOrders(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, clustertest.Options{Prefill: 1, Decode: 1, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 512}})
	st, err := dial.Etcd(config.EtcdClient{}, []string{c.EtcdAddr}, dial.Identity{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	s := startAsEver(t, c)
	serving := func(v client.View) (out []cluster.WorkerStatus) {
		for _, w := range v.Workers() {
			if w.State.Serving() {
				out = append(out, w.WorkerStatus)
			}
		}
		return out
	}
	before := serving(settled(t, c, "1 and 1", 1, 1, nil))

	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.MkdirAll(broken, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(broken, "config.json"), []byte(`{"architectures":["NoSuchModel"]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		order func(*cluster.Topology)
		why   string
	}{
		{"more blocks than any memory", func(t *cluster.Topology) { t.Engine.KVBlocks = 1_000_000_000 }, "GiB free"},
		{"a context beyond the model's", func(t *cluster.Topology) { t.Engine.MaxModelLen = 1 << 30 }, "max_model_len"},
		{"a model that is not there", func(t *cluster.Topology) { t.Model.Path = "/no/such/model" }, "no such file"},
		{"a broken model", func(t *cluster.Topology) { t.Model.Path = broken }, "NoSuchModel"},
		{"a GPU", func(t *cluster.Topology) { t.Engine.Device = "gpu:9" }, "no node has a device gpu:9"},
		{"a backend", func(t *cluster.Topology) { t.Engine.Backend = cluster.BackendCUDA }, "no node has a device"},
		{"ranks that share no heads", func(t *cluster.Topology) { t.Engine.TensorParallel = 3 }, "3 ranks cannot share"},
		{"a type of KV that the backend does not know", func(t *cluster.Topology) { t.Engine.Backend, t.Engine.KVDType = cluster.BackendMock, "int8" }, "the mock backend keeps f32"},
	} {
		declared, err := c.Client.Topology(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		order := *declared
		tc.order(&order)
		order.Generation++
		body, err := json.Marshal(order)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Put(t.Context(), cluster.TopologyKey(c.Client.Namespace), body); err != nil {
			t.Fatal(err)
		}
		c.WaitView(tc.name+": it says why", func(v client.View) bool { return strings.Contains(strings.Join(v.Unmet(), "\n"), tc.why) })
		answers := s.n.Load() + 5
		c.WaitView(tc.name+": five more answers", func(v client.View) bool {
			for _, w := range before {
				if now := v.Status[w.Name]; now.InstanceID != w.InstanceID || !now.State.Serving() {
					t.Errorf("%s: %s is %s as %s, was %s", tc.name, w.Name, now.State, now.InstanceID, w.InstanceID)
					return true
				}
			}
			return s.n.Load() >= answers
		})
		if _, err := c.Client.Declare(t.Context(), func(now *cluster.Topology, _ bool) error { now.Take(*declared); return nil }); err != nil {
			t.Fatal(err)
		}
		after := serving(settled(t, c, "as before", 1, 1, nil))
		if !slices.Equal(ids(after), ids(before)) {
			t.Errorf("%s: workers are %v, were %v", tc.name, ids(after), ids(before))
		}
		if unmet := c.Watch.View().Unmet(); len(unmet) > 0 {
			t.Errorf("%s: still %q", tc.name, unmet)
		}
	}
	s.end()
	t.Logf("%d answers", s.n.Load())
}

func ids(list []cluster.WorkerStatus) (out []string) {
	for _, st := range list {
		out = append(out, st.Name+" "+st.InstanceID.String())
	}
	return out
}
