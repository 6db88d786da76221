package clustertest_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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
	t.Parallel()
	if testing.Short() {
		t.Skip("what is computed, by the ways that shorter tests take, too")
	}
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
		{prefill: 1, decode: []int{2}, transport: "tcp"},
		{prefill: 2, decode: []int{1}, transport: sameHost, process: true},
		{prefill: 2, decode: []int{4, 1}, transport: sameHost},
		{prefill: 4, decode: []int{2}, transport: "tcp"},
		{prefill: 1, decode: []int{4}, transport: ucx.Name},
		{prefill: 1, decode: []int{2}, transport: "local"},
		{prefill: 4, decode: []int{2}, transport: "local"},
	} {
		t.Run(fmt.Sprintf("prefill %d, decode %v over %s", tc.prefill, tc.decode, tc.transport), func(t *testing.T) {
			if err := ucx.Available(); tc.transport == ucx.Name && err != nil {
				t.Skip(err)
			}
			o := clustertest.Options{
				Model: dir, Prefill: 1, Decode: len(tc.decode), Engine: engine,
				Config: func(cfg *config.Dynamod) { cfg.NIXL.Transports = []string{tc.transport} },
			}
			if tc.transport == "local" { // one node, whose roles differ by topology
				o.PrefillEngine.TensorParallel, o.DecodeEngine.TensorParallel = tc.prefill, tc.decode[0]
			} else {
				for _, n := range tc.decode {
					o.Nodes = append(o.Nodes, ranksOf(cluster.RoleDecode, n))
				}
				prefill := ranksOf(cluster.RolePrefill, tc.prefill)
				prefill.Process = tc.process
				o.Nodes = append(o.Nodes, prefill)
			}
			c := clustertest.Start(t, o)
			wantDegrees(t, c, tc.prefill, tc.decode)
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

// wantDegrees waits until the model cards of the workers say so: nodes prefer roles, and
// a worker that was placed before the better node was known moves there.
func wantDegrees(t *testing.T, c *clustertest.Cluster, prefill int, decode []int) {
	t.Helper()
	want := map[cluster.Role][]int{cluster.RolePrefill: {prefill}, cluster.RoleDecode: slices.Sorted(slices.Values(decode))}
	c.WaitView(fmt.Sprintf("workers have %v ranks", want), func(client.View) bool {
		cards, err := c.Client.ModelCards(t.Context())
		if err != nil {
			return false
		}
		got := map[cluster.Role][]int{}
		for _, card := range cards {
			if n := card.Runtime.TensorParallel; !slices.Contains(got[card.WorkerType], n) { // a worker may have several
				got[card.WorkerType] = append(got[card.WorkerType], n)
			}
		}
		slices.Sort(got[cluster.RoleDecode])
		return maps.EqualFunc(got, want, slices.Equal)
	})
	c.WaitReady(1, len(decode))
}

// A degree that does not divide the heads of the model is refused by name and numbers,
// and does no harm to the cluster.
func TestDegreeRefused(t *testing.T) {
	t.Parallel()
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
