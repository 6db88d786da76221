package clustertest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// strategies are the settings for each way of a remote prefill.
var strategies = []struct {
	way      protocol.PrefillWay
	settings map[string]any
}{
	{protocol.WayQueue, map[string]any{"disagg.strategy": protocol.StrategyDecodeFirst}},
	{protocol.WayPull, map[string]any{"disagg.strategy": "prefill-first", "disagg.overlap_kv_transfer": false}},
	{protocol.WayBackground, map[string]any{"disagg.strategy": "prefill-first", "disagg.overlap_kv_transfer": true}},
}

// spoken is what a client gets for a prompt of token ids.
type spoken struct {
	text, finish string
	tokens       int
}

func speak(ctx context.Context, c *clustertest.Cluster, prompt []uint32) (spoken, error) {
	a, err := c.Complete(ctx, clustertest.Body{"prompt": prompt, "max_tokens": outTokens, "temperature": 0})
	return spoken{a.Text, a.Finish, a.Usage.CompletionTokens}, err
}

// local is what decode workers say that prefill for themselves.
func local(t *testing.T, c *clustertest.Cluster, inputs [][]uint32) (want []spoken) {
	t.Helper()
	c.Set(map[string]any{"disagg.max_local_prefill_tokens": 100000})
	for try := range 1000 {
		before := remote(c)
		want = nil
		for _, p := range inputs {
			s, err := speak(t.Context(), c, p)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, s)
		}
		if remote(c) == before {
			c.Set(map[string]any{"disagg.max_local_prefill_tokens": 0})
			return want
		}
		c.ClearCaches()
		t.Logf("try %d: the setting is not seen yet", try)
	}
	t.Fatal("prompts are still prefilled remotely")
	return nil
}

// remote is how many prompts came from prefill workers.
func remote(c *clustertest.Cluster) (n int) {
	for way, of := range c.Ways() {
		if way != "" {
			n += of
		}
	}
	return n
}

// The same greedy answers come out of both strategies, in every way and over every
// transport, while the strategy changes between them.
func TestSameAnswersOfStrategies(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("TestStrategyChangesUnderLoad has the same goroutines")
	}
	t.Parallel()
	dir := modeltest.Generate(t, modeltest.Spec{Family: "qwen3", Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2})
	for _, tc := range []struct {
		name            string
		prefill, decode int
		nodes           []clustertest.Node
		transport       string
	}{
		{name: "one process", prefill: 1, decode: 1},
		{name: "tcp", prefill: 2, decode: 2, transport: "tcp"},
		{name: "two processes", prefill: 1, decode: 1, nodes: []clustertest.Node{{Roles: []string{"decode"}}, {Roles: []string{"prefill"}, Process: true}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if testing.Short() && tc.prefill == 1 {
				t.Skip("shorter than with two workers of each role, and the same code")
			}
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			inputs := prompts(rand.New(rand.NewPCG(seed, 1)), 250)
			c := clustertest.Start(t, clustertest.Options{
				Model: dir, Prefill: tc.prefill, Decode: tc.decode, Nodes: tc.nodes,
				Engine: cluster.EngineSpec{BlockSize: blockSize, KVBlocks: 256},
				Config: func(cfg *config.Dynamod) {
					if tc.transport != "" {
						cfg.NIXL.Transports = []string{tc.transport}
					}
				},
			})
			c.WaitRemotePrefill()
			want := local(t, c, inputs)
			for _, s := range strategies {
				c.Set(s.settings)
				c.WaitWay(s.way)
				before := c.Ways()
				for round := range 2 { // the second one finds prefixes in the caches
					if round == 0 {
						c.ClearCaches()
					}
					var wg sync.WaitGroup
					for i, p := range inputs {
						wg.Go(func() {
							if got, err := speak(t.Context(), c, p); err != nil || got != want[i] {
								t.Errorf("%s, round %d, prompt of %d tokens: got %+v %v, want %+v", s.way, round, len(p), got, err, want[i])
							}
						})
					}
					wg.Wait()
				}
				now := c.Ways()
				for _, other := range strategies {
					if n := now[other.way] - before[other.way]; (n > 0) != (other.way == s.way) {
						t.Errorf("strategy for %s: %d prompts came by %s", s.way, n, other.way)
					}
				}
				c.WaitRest()
			}
			switch {
			case tc.transport != "":
				wantTransport(t, c, tc.transport)
			case tc.nodes != nil:
				wantTransport(t, c, sameHost)
			default:
				wantTransport(t, c, "local")
			}
		})
	}
}

// The strategy may change at any time under load: no stream fails, no token is wrong,
// and no block is lost.
func TestStrategyChangesUnderLoad(t *testing.T) {
	t.Parallel()
	dir := modeltest.Generate(t, modeltest.Spec{Family: "llama", Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	inputs := prompts(rand.New(rand.NewPCG(seed, 1)), 250)
	c := clustertest.Start(t, clustertest.Options{
		Model: dir, Prefill: 2, Decode: 2, Engine: cluster.EngineSpec{BlockSize: blockSize, KVBlocks: 256},
	})
	c.WaitRemotePrefill()
	want := local(t, c, inputs)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var answered atomic.Int64
	var wg sync.WaitGroup
	for stream := range 6 {
		wg.Go(func() {
			for n := stream; ctx.Err() == nil; n++ {
				i := n % len(inputs)
				if got, err := speak(t.Context(), c, inputs[i]); err != nil || got != want[i] {
					t.Errorf("prompt of %d tokens: got %+v %v, want %+v", len(inputs[i]), got, err, want[i])
				}
				answered.Add(1)
			}
		})
	}
	changes := 12
	if patience.RaceDetector {
		changes = 4 // each strategy comes and goes
	}
	for change := range changes {
		s := strategies[change%len(strategies)]
		c.Set(s.settings)
		c.WaitWay(s.way)
		if change%4 == 0 {
			c.ClearCaches() // or else most is found there
		}
		until := answered.Load() + 20
		c.WaitView(fmt.Sprintf("20 more are answered by %s", s.way), func(client.View) bool { return answered.Load() >= until })
	}
	stop()
	wg.Wait()
	c.WaitRest()
	t.Logf("%d answers, by way %v", answered.Load(), c.Ways())
}

// Frontends that have seen a change and others that have not share the workers.
func TestStrategiesOfTwoFrontends(t *testing.T) {
	t.Parallel()
	dir := modeltest.Generate(t, modeltest.Spec{Family: "llama", Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	inputs := prompts(rand.New(rand.NewPCG(seed, 1)), 250)
	c := clustertest.Start(t, clustertest.Options{
		Model: dir, Prefill: 1, Decode: 2, Engine: cluster.EngineSpec{BlockSize: blockSize, KVBlocks: 256},
		Nodes: []clustertest.Node{
			{Roles: []string{"decode"}},
			{Roles: []string{"prefill"}, Config: func(cfg *config.Dynamod) {
				cfg.Frontend.Enabled, cfg.Disagg.Strategy, cfg.Disagg.OverlapKVTransfer = true, protocol.StrategyPrefillFirst, false
			}},
		},
	})
	c.WaitRemotePrefill()
	var fronts []*clustertest.Cluster
	for _, n := range c.Watch.View().Nodes {
		if n.FrontendURL != "" {
			other := *c
			other.URL = n.FrontendURL
			other.WaitServed(2)
			fronts = append(fronts, &other)
			if n.Name == "node-1" {
				c.URL = n.FrontendURL // the metrics of the decode workers are there
			}
		}
	}
	if len(fronts) != 2 {
		t.Fatalf("%d frontends", len(fronts))
	}
	want := local(t, c, inputs)
	c.ClearCaches()
	for round := 0; ; round++ {
		var wg sync.WaitGroup
		for i, p := range inputs {
			for _, f := range fronts {
				wg.Go(func() {
					if got, err := speak(t.Context(), f, p); err != nil || got != want[i] {
						t.Errorf("prompt of %d tokens: got %+v %v, want %+v", len(p), got, err, want[i])
					}
				})
			}
		}
		wg.Wait()
		ways := c.Ways()
		if t.Failed() || ways[protocol.WayQueue] > 0 && ways[protocol.WayPull] > 0 {
			break
		}
		if round == 50 {
			t.Fatalf("ways %v", ways)
		}
		c.ClearCaches()
	}
	c.WaitRest()
}
