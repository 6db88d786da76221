package clustertest_test

import (
	"math/rand/v2"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/engine/cpu/cputest"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
)

// Quantized weights give the tokens of the bare backend with the same weights, on one
// worker and on two. Workers change to another format one after the other, and say
// which they have.
func TestQuantizedIsServed(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("other arithmetic in the same goroutines")
	}
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dir := modeltest.Generate(t, modeltest.Spec{Family: "qwen3", Hidden: 64, Heads: 4, KVHeads: 2, FFN: 96, DType: "bf16", Seed: seed})
	inputs := prompts(rand.New(rand.NewPCG(seed, 1)), 300)
	c := clustertest.Start(t, clustertest.Options{
		Model: dir, Quantize: "q8_0", Prefill: 1, Decode: 1, Engine: cluster.EngineSpec{BlockSize: blockSize, KVBlocks: 256},
	})
	digests := map[string]bool{}
	for i, format := range []string{"q8_0", "q4_0"} {
		t.Run(format, func(t *testing.T) {
			if i > 0 {
				c.Quantize(format, 1, 1)
			}
			for _, w := range c.Watch.View().Workers() {
				if w.Weights != format {
					t.Errorf("%s has %q, want %s", w.Name, w.Weights, format)
				}
			}
			cards, err := c.Client.ModelCards(t.Context())
			if err != nil || len(cards) != 2 {
				t.Fatalf("%d cards, %v", len(cards), err)
			}
			for _, card := range cards {
				digests[card.Digest] = true
				if card.Weights != format || card.Digest != cards[0].Digest {
					t.Errorf("card says %q and digest %s, want %s and %s", card.Weights, card.Digest, format, cards[0].Digest)
				}
			}
			c.WaitRemotePrefill()
			run := cputest.NewQuantized(t, dir, format, cpu.Options{BlockSize: blockSize, KVDType: cpu.KVAuto})
			compare(t, c, inputs, greedy(run, inputs), "", true)
		})
	}
	if len(digests) != 2 {
		t.Errorf("%d digests of two formats: their KV blocks would be exchanged", len(digests))
	}
}
