package clustertest_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/nixl/ucx"
)

// ranksOf is a node of a role whose workers have so many ranks.
func ranksOf(role cluster.Role, n int) clustertest.Node {
	return clustertest.Node{Roles: []string{string(role)}, Config: func(cfg *config.Dynamod) { cfg.Engine.TensorParallel = n }}
}

// The same greedy answers come out whatever the tensor-parallel degrees of prefill and
// decode workers are, in every way of a remote prefill and over every transport, as out
// of a worker of one rank that does everything.
func TestSameAnswersOfDegrees(t *testing.T) {
	dir := modeltest.Generate(t, modeltest.Spec{Family: "qwen3", Layers: 2, Hidden: 64, Heads: 8, KVHeads: 4})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	inputs := prompts(rand.New(rand.NewPCG(seed, 1)), 250)
	engine := cluster.EngineSpec{BlockSize: blockSize, KVBlocks: 256}

	var want []spoken
	t.Run("one rank, aggregated", func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{Model: dir, Decode: 1, Engine: engine})
		for _, p := range inputs {
			s, err := speak(t.Context(), c, p)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, s)
		}
	})
	if t.Failed() {
		return
	}
	for _, tc := range []struct {
		prefill   int
		decode    []int // of each decode worker
		transport string
		process   bool // prefill worker
	}{
		{1, []int{2}, "tcp", false},
		{2, []int{1}, sameHost, true},
		{2, []int{4, 1}, sameHost, false},
		{4, []int{2}, "tcp", false},
		{1, []int{4}, ucx.Name, false},
	} {
		t.Run(fmt.Sprintf("prefill %d, decode %v over %s", tc.prefill, tc.decode, tc.transport), func(t *testing.T) {
			if err := ucx.Available(); tc.transport == ucx.Name && err != nil {
				t.Skip(err)
			}
			var nodes []clustertest.Node
			for _, n := range tc.decode {
				nodes = append(nodes, ranksOf(cluster.RoleDecode, n))
			}
			prefill := ranksOf(cluster.RolePrefill, tc.prefill)
			prefill.Process = tc.process
			c := clustertest.Start(t, clustertest.Options{
				Model: dir, Prefill: 1, Decode: len(tc.decode), Nodes: append(nodes, prefill), Engine: engine,
				Config: func(cfg *config.Dynamod) { cfg.NIXL.Transports = []string{tc.transport} },
			})
			c.WaitRemotePrefill()
			for _, s := range strategies {
				c.Set(s.settings)
				c.WaitWay(s.way)
				c.ClearCaches()
				before := c.Ways()
				var wg sync.WaitGroup
				for i, p := range inputs {
					wg.Go(func() {
						if got, err := speak(t.Context(), c, p); err != nil || got != want[i] {
							t.Errorf("%s, prompt of %d tokens: got %+v %v, want %+v", s.way, len(p), got, err, want[i])
						}
					})
				}
				wg.Wait()
				if now := c.Ways(); now[s.way] == before[s.way] {
					t.Errorf("no prompt came by %s", s.way)
				}
				c.WaitRest()
			}
			wantTransport(t, c, tc.transport)
		})
	}
}

// A degree that does not divide the heads of the model is refused by name and numbers,
// and does no harm to the cluster.
func TestDegreeRefused(t *testing.T) {
	dir := modeltest.Generate(t, modeltest.Spec{Family: "llama", Layers: 1, Hidden: 64, Heads: 6, KVHeads: 2})
	c := clustertest.Start(t, clustertest.Options{Model: dir, Decode: 1})
	_, err := c.Client.Declare(t.Context(), func(topo *cluster.Topology, _ bool) error {
		topo.Engine.TensorParallel = 3
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c.WaitView("the worker says why it does not start", func(v client.View) bool {
		for _, w := range v.Workers() {
			if strings.Contains(w.Reason, "3 ranks cannot share 6 query heads and 2 KV heads evenly, possible are 1, 2") {
				return true
			}
		}
		return false
	})
	c.Declare(0, 1) // as before
	c.WaitReady(0, 1)
}
