package gpu_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/gpu"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// specs are models of all families that kernels compute, with heads of a size that they
// know, and bf16 weights, which neither side rounds.
func specs() map[string]modeltest.Spec {
	out := map[string]modeltest.Spec{}
	for name, s := range modeltest.Families() {
		if _, sparse := s.Extra["num_local_experts"]; sparse || strings.HasPrefix(name, "qwen3_moe") {
			continue
		}
		s.Hidden, s.HeadDim, s.DType = 64, 64, "bf16"
		if s.Family == "phi3" { // longrope has a factor for each pair of rotated values
			s.Hidden = 64 * s.Heads
			short, long := make([]float64, 24), make([]float64, 24)
			for i := range short {
				short[i], long[i] = 1+float64(i)/100, 1+float64(i)
			}
			s.Extra["rope_scaling"] = map[string]any{"type": "longrope", "short_factor": short, "long_factor": long}
		}
		out[name] = s
	}
	out["llama, biases, f32"] = modeltest.Spec{Family: "llama", Layers: 2, Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 128, FFN: 104, Vocab: 333, AttentionBias: true, MLPBias: true, Seed: 3}
	return out
}

const blockSize = 16

// TestFamilies computes several sequences side by side, in chunks, passes and single tokens,
// with blocks in no order, and compares the logits with those of plain arithmetic, which
// rounds in the same places, and with those of the CPU engine, which rounds in others and
// has the same KV in the same blocks.
func TestFamilies(t *testing.T) {
	for name, spec := range specs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := modeltest.Open(t, spec)
			compareSteps(t, m, newRig(t, m, 16, gpu.Options{BlockSize: blockSize, MaxTokens: 29, MaxSeqs: 5}))
		})
	}
	t.Run("batch-invariant", func(t *testing.T) {
		t.Parallel()
		m := modeltest.Open(t, specs()["gemma2"])
		compareSteps(t, m, newRig(t, m, 16, gpu.Options{BlockSize: blockSize, MaxTokens: 29, MaxSeqs: 5, BatchInvariant: true}))
	})
}

func compareSteps(t *testing.T, m *model.Model, g rig) {
	t.Helper()
	c := newCPURig(t, m, 16, blockSize)
	r := rand.New(rand.NewPCG(7, 3))
	// Lengths of the chunks of each sequence, of which some are longer than a pass.
	chunks := [][]int{{40, 1, 3, 1, 1, 1}, {1, 1, 1, 33, 1, 1}, {7, 7, 7, 7, 1, 1}}
	tables := [][]int32{{3, 0, 9, 6}, {1, 2, 4, 5}, {8, 7, 10, 11}}
	texts, want := make([][]uint32, len(chunks)), make([][][]float64, len(chunks))
	for i, lengths := range chunks {
		for _, n := range lengths {
			for range n {
				texts[i] = append(texts[i], uint32(r.IntN(m.Config().Vocab)))
			}
		}
		want[i] = reference{t, m, m.Config()}.logits(texts[i])
	}
	at := make([]int, len(chunks))
	for step := range chunks[0] {
		var batches [2][]engine.BatchSeq
		for i := range chunks {
			part := engine.BatchSeq{Tokens: texts[i][at[i]:][:chunks[i][step]], Start: at[i], Blocks: tables[i]}
			at[i] += len(part.Tokens)
			for side, rig := range []rig{g, c} {
				if step != 1 || i != 1 { // there nobody wants them
					part.Logits = rig.logits()
				}
				batches[side] = append(batches[side], part)
			}
		}
		g.step(t, batches[0]...)
		c.step(t, batches[1]...)
		for i := range chunks {
			got := batches[0][i].Logits
			if got == nil {
				continue
			}
			exact := make([]float32, len(got))
			for n, v := range want[i][at[i]-1] {
				exact[n] = float32(v)
			}
			sameValues(t, fmt.Sprintf("logits of sequence %d after step %d", i, step), got, exact, 0.03)
			sameValues(t, fmt.Sprintf("logits of sequence %d after step %d, beside the CPU engine's,", i, step), got, batches[1][i].Logits, 0.2)
		}
	}
	sameValues(t, "KV blocks, beside the CPU engine's,", widened(g.kv()), widened(c.memory[0].Bytes()), 0.05)
}

// sameValues bounds the size of a difference by a share of the size of what is wanted.
// Against plain arithmetic it is what sums in another order leave, and roundings to the other
// side now and then; against the CPU engine, with weights that are noise and rows that are short, several
// percent.
func sameValues(t *testing.T, what string, got, want []float32, limit float64) {
	t.Helper()
	var off, size float64
	for i, w := range want {
		off += math.Pow(float64(got[i]-w), 2)
		size += float64(w) * float64(w)
	}
	if share := math.Sqrt(off / size); !(share < limit) {
		t.Errorf("%s are off by %.2g of their size, more than %g", what, share, limit)
	}
}

func widened(b []byte) []float32 {
	values := make([]float32, len(b)/2)
	for i := range values {
		values[i] = safetensors.FromBF16(binary.LittleEndian.Uint16(b[2*i:]))
	}
	return values
}
