package clustertest_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/engine/cpu/cputest"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/nixl/ucx"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

const (
	blockSize = 16
	outTokens = 12
)

// prompts are the inputs of the comparison: from one token to several blocks, with
// block borders on either side, and with prefixes that earlier prompts have left in
// the caches.
func prompts(r *rand.Rand, vocab int) [][]uint32 {
	random := func(n int) []uint32 {
		p := make([]uint32, n)
		for i := range p {
			p[i] = uint32(r.IntN(vocab))
		}
		return p
	}
	var out [][]uint32
	for _, n := range []int{1, 2, blockSize - 1, blockSize, blockSize + 1, 2*blockSize + 1, 5*blockSize + 3, 150} {
		out = append(out, random(n))
	}
	shared := random(3*blockSize + 5)
	for _, n := range []int{1, 7, blockSize, 60} {
		out = append(out, slices.Concat(shared, random(n)))
	}
	return out
}

// The same greedy tokens come out of the bare backend, of aggregated serving and of
// every disaggregated topology, over memory, shared memory and TCP.
func TestSameTokensEverywhere(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("what is computed, by the ways that shorter tests take, too")
	}
	for _, family := range []string{"llama", "qwen3"} {
		t.Run(family, func(t *testing.T) {
			if patience.RaceDetector && family != "qwen3" {
				t.Skip("other arithmetic in the same goroutines")
			}
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 1))
			spec := modeltest.Spec{Family: family, Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, Tied: r.IntN(2) == 0, Seed: seed}
			if r.IntN(2) == 0 {
				spec.DType, spec.Shards = "bf16", 2
			}
			dir := modeltest.Generate(t, spec)
			inputs, want := answers(t, r, dir, cpu.KVAuto, 300)
			for _, tc := range []struct {
				name            string
				prefill, decode int
				nodes           []clustertest.Node
				force           string
				transport       string
			}{
				{name: "aggregated", decode: 1},
				{name: "1+1 in one process", prefill: 1, decode: 1},
				{name: "1+1 over tcp", prefill: 1, decode: 1, transport: "tcp"},
				{name: "1+1 over shared memory", prefill: 1, decode: 1, transport: sameHost},
				{name: "1+1 over ucx", prefill: 1, decode: 1, transport: ucx.Name},
				{name: "1+1 in two processes", prefill: 1, decode: 1, nodes: []clustertest.Node{{Roles: []string{"decode"}}, {Roles: []string{"prefill"}, Process: true}}},
				{name: "2+4 over two nodes", prefill: 2, decode: 4, transport: "tcp", nodes: []clustertest.Node{{Roles: []string{"decode"}}, {Roles: []string{"prefill"}}}},
				{name: "1+1 forced local", prefill: 1, decode: 1, force: "local"},
			} {
				t.Run(tc.name, func(t *testing.T) {
					if err := ucx.Available(); tc.transport == ucx.Name && err != nil {
						t.Skip(err)
					}
					c := clustertest.Start(t, clustertest.Options{
						Model: dir, Prefill: tc.prefill, Decode: tc.decode, Nodes: tc.nodes,
						Engine: cluster.EngineSpec{BlockSize: blockSize, KVBlocks: 256},
						Config: func(cfg *config.Dynamod) {
							if tc.transport != "" {
								cfg.NIXL.Transports = []string{tc.transport}
							}
						},
					})
					if tc.prefill > 0 && tc.force == "" {
						c.WaitRemotePrefill()
						switch {
						case tc.transport != "":
							wantTransport(t, c, tc.transport)
						case tc.nodes != nil:
							wantTransport(t, c, sameHost)
						default:
							wantTransport(t, c, "local")
						}
					}
					compare(t, c, inputs, want, tc.force, tc.prefill > 0 && tc.force == "")
				})
			}
		})
	}
}

// Every family computes the same on one worker and on two, over TCP.
func TestSameTokensOfAllFamilies(t *testing.T) {
	t.Parallel()
	if patience.RaceDetector {
		t.Skip("other arithmetic in the same goroutines")
	}
	for name, spec := range modeltest.Families() {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			dir := modeltest.Generate(t, spec)
			inputs, want := answers(t, rand.New(rand.NewPCG(seed, 1)), dir, cpu.KVAuto, 250)
			c := clustertest.Start(t, clustertest.Options{
				Model: dir, Prefill: 1, Decode: 1, Engine: cluster.EngineSpec{BlockSize: blockSize, KVBlocks: 256},
				Config: func(cfg *config.Dynamod) { cfg.NIXL.Transports = []string{"tcp"} },
			})
			c.WaitRemotePrefill()
			compare(t, c, inputs, want, "", true)
		})
	}
}

// Every type of KV gives the same on one worker and on two, over TCP.
func TestSameTokensOfKVTypes(t *testing.T) {
	t.Parallel()
	if patience.RaceDetector {
		t.Skip("other arithmetic in the same goroutines")
	}
	dir := modeltest.Generate(t, modeltest.Spec{Family: "qwen3", Layers: 2, KVHeads: 2, HeadDim: 24})
	for _, kv := range []string{cpu.KVBF16, cpu.KVInt8} {
		t.Run(kv, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			inputs, want := answers(t, rand.New(rand.NewPCG(seed, 1)), dir, kv, 250)
			c := clustertest.Start(t, clustertest.Options{
				Model: dir, Prefill: 1, Decode: 1, Engine: cluster.EngineSpec{BlockSize: blockSize, KVBlocks: 256, KVDType: kv},
				Config: func(cfg *config.Dynamod) { cfg.NIXL.Transports = []string{"tcp"} },
			})
			c.WaitRemotePrefill()
			compare(t, c, inputs, want, "", true)
		})
	}
}

// answers are prompts, and what the bare backend says to them.
func answers(t *testing.T, r *rand.Rand, dir, kv string, vocab int) (inputs, want [][]uint32) {
	inputs = prompts(r, vocab)
	return inputs, greedy(cputest.New(t, dir, cpu.Options{BlockSize: blockSize, KVDType: kv}), inputs)
}

// greedy is what a backend says to prompts.
func greedy(run *cputest.Runner, inputs [][]uint32) (want [][]uint32) {
	for _, p := range inputs {
		want = append(want, run.Greedy(p, outTokens))
	}
	return want
}

// sameHost is the transport between two processes of one host.
var sameHost = map[bool]string{true: "shm", false: "tcp"}[runtime.GOOS == "linux"]

// wantTransport checks that KV has come to the decode workers of the first node
// over this transport only.
func wantTransport(t *testing.T, c *clustertest.Cluster, name string) {
	t.Helper()
	text := c.Metrics()
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^`+metrics.ComponentKVTransferBytes+`\{.*direction="in".*transport="(\w+)".*\} [1-9]`).FindAllStringSubmatch(text, -1) {
		used[m[1]] = true
	}
	if len(used) != 1 || !used[name] {
		t.Errorf("KV came over %v, want %s", used, name)
	}
}

// compare runs all prompts at once, twice (the second time with warm caches), on
// all decode workers in turn.
func compare(t *testing.T, c *clustertest.Cluster, inputs, want [][]uint32, force string, wantRemote bool) {
	instances := c.Instances("decode", cluster.EndpointGenerate)
	digest := c.Digest()
	var mu sync.Mutex
	remote := 0
	why := map[string]int{}
	for round := range 2 {
		var wg sync.WaitGroup
		for i, p := range inputs {
			wg.Go(func() {
				req := protocol.PreprocessedRequest{
					RequestID: fmt.Sprintf("r%d-%d", round, i), Model: c.Model, ModelSum: digest, TokenIDs: p,
					Stop: protocol.StopConditions{MaxTokens: outTokens}, Disagg: protocol.DisaggHints{Force: force},
				}
				got, timing, err := c.Generate(t.Context(), instances[(i+round)%len(instances)], req)
				if err != nil || !slices.Equal(got, want[i]) {
					t.Errorf("round %d, prompt of %d tokens (prefilled by %s %s): got %v %v, want %v", round, len(p), timing.Prefill, timing.PrefillWhy, got, err, want[i])
				}
				mu.Lock()
				defer mu.Unlock()
				if strings.HasPrefix(timing.Prefill, "worker-") {
					remote++
				} else {
					why[timing.PrefillWhy]++
				}
			})
		}
		wg.Wait()
	}
	t.Logf("%d prompts prefilled remotely, locally because of %v", remote, why)
	if wantRemote && remote == 0 {
		t.Error("no prompt was prefilled remotely: the case tests nothing")
	}
	if !wantRemote && remote > 0 {
		t.Errorf("%d prompts were prefilled remotely", remote)
	}
}
