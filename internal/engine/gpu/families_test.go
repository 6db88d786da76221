package gpu_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/engine/gpu"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
)

// specs are models of all families with sizes that kernels know, and bf16 weights, which
// neither side rounds.
func specs() map[string]modeltest.Spec {
	out := map[string]modeltest.Spec{}
	for name, s := range modeltest.Families() {
		s.Hidden, s.HeadDim, s.DType = 64, 64, "bf16"
		if _, ok := s.Extra["moe_intermediate_size"]; ok {
			s.Extra["moe_intermediate_size"] = 24
		}
		if s.Family == "phi3" { // longrope has a factor for each pair of rotated values
			s.Hidden = 64 * s.Heads
			short, long := make([]float64, 24), make([]float64, 24)
			for i := range short {
				short[i], long[i] = 1+float64(i)/100, 1+float64(i)
			}
			s.Extra["rope_scaling"] = map[string]any{"type": "longrope", "short_factor": short, "long_factor": long}
		}
		if tower, ok := s.Images["vision_config"].(map[string]any); ok && s.RopeScaling != nil { // Qwen's, as wide as the text model
			s.RopeScaling = map[string]any{"type": "mrope", "mrope_section": []int{8, 12, 12}}
			if tower["out_hidden_size"] == nil {
				tower["hidden_size"] = s.Hidden
			} else {
				tower["out_hidden_size"] = s.Hidden
			}
		}
		out[name] = s
	}
	out["llama, biases, f32"] = modeltest.Spec{Family: "llama", Layers: 2, Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 128, FFN: 104, Vocab: 333, AttentionBias: true, MLPBias: true, Seed: 3}
	wide, narrow := out["qwen3"], out["llama"]
	wide.HeadDim, narrow.HeadDim = 96, 16
	out["qwen3, heads of 96"], out["llama, heads of 16"] = wide, narrow
	return out
}

const blockSize = 16

// Prompts with images of Qwen's models rotate by three positions, which kernels do not know:
// they are refused, and text is computed as by any other family.
func TestPositionsAreRefused(t *testing.T) {
	r := newRig(t, modeltest.Open(t, specs()["qwen2_vl"]), 16, options)
	info := r.Info()
	if info.Grids || info.Embedding != 0 {
		t.Errorf("%+v", info)
	}
	err := r.Step(t.Context(), []engine.BatchSeq{{Tokens: []uint32{1}, Blocks: []int32{0}, Positions: new(engine.Positions)}})
	if !errors.Is(err, engine.ErrBatch) || !strings.Contains(err.Error(), "positions in several dimensions") {
		t.Error(err)
	}
}

// TestFamilies computes several sequences side by side, in chunks, passes and single tokens,
// with blocks in no order, and compares the logits with those of plain arithmetic, which
// rounds in the same places, and with those of the CPU engine, which rounds in others and
// has the same KV in the same blocks.
func TestFamilies(t *testing.T) {
	for name, spec := range specs() {
		if patience.RaceDetector && name != "qwen3" {
			continue // other arithmetic in the same goroutines
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := modeltest.Open(t, spec)
			compareSteps(t, newRig(t, m, 16, options), reference{t: t, m: m, c: m.Config()}, newCPURig(t, m, 16, blockSize))
		})
	}
	t.Run("batch-invariant", func(t *testing.T) {
		if patience.RaceDetector {
			t.Skip("other arithmetic in the same goroutines")
		}
		t.Parallel()
		m := modeltest.Open(t, specs()["gemma2"])
		o := options
		o.BatchInvariant = true
		compareSteps(t, newRig(t, m, 16, o), reference{t: t, m: m, c: m.Config()}, newCPURig(t, m, 16, blockSize))
	})
}

var options = gpu.Options{BlockSize: blockSize, MaxTokens: 29, MaxSeqs: 5}

// TestQuantized is TestFamilies for weights of Q8_0, of a GGUF file and quantized when they are
// loaded.
func TestQuantized(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("other arithmetic in the goroutines of TestFamilies")
	}
	for name, family := range map[string]string{"dense": "llama", "experts": "mixtral"} {
		spec := modeltest.Spec{Family: family, Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 96, Vocab: 288, DType: "bf16", Seed: 9}
		if family == "mixtral" {
			spec.Extra = map[string]any{"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": nil}
		}
		dir := modeltest.Generate(t, spec)
		wide := open(t, modeltest.Quantized(t, dir, gguf.Q8_0), model.Options{})
		for from, m := range map[string]*model.Model{
			"of a file": open(t, modeltest.GGUF(t, dir, gguf.Q8_0), model.Options{}), "when loaded": open(t, dir, model.Options{Quantize: "q8_0"}),
		} {
			t.Run(name+" "+from, func(t *testing.T) {
				compareSteps(t, newRig(t, m, 16, options), reference{t: t, m: wide, c: wide.Config(), exact: true}, newCPURig(t, m, 16, blockSize))
			})
		}
	}
}

// TestInt8KV is TestFamilies for KV of int8, which CPUs have in the same bytes.
func TestInt8KV(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("other arithmetic in the goroutines of TestFamilies")
	}
	for _, name := range []string{"gemma2", "qwen3, heads of 96", "llama, heads of 16"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := modeltest.Open(t, specs()[name])
			o := options
			o.KVDType = "int8"
			compareSteps(t, newRig(t, m, 16, o), reference{t: t, m: m, c: m.Config(), int8: true}, newCPURigOf(t, m, 16, cpu.Options{BlockSize: blockSize, KVDType: cpu.KVInt8}))
		})
	}
}

// open opens a model until the test ends.
func open(t *testing.T, path string, o model.Options) *model.Model {
	t.Helper()
	m, err := model.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := m.Prepare(t.Context(), model.Cache{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	return m
}

func compareSteps(t *testing.T, g rig, plain reference, c rig) {
	t.Helper()
	others := 0.2
	if plain.c.MoE.Experts > 0 { // a rounding may choose another expert, and then all is different
		others = math.Inf(1)
	}
	if plain.int8 { // its steps are coarser, and so is what a rounding to the other side does
		others *= 1.5
	}
	r := rand.New(rand.NewPCG(7, 3))
	// Lengths of the chunks of each sequence, of which some are longer than a pass.
	chunks := [][]int{{40, 1, 3, 1, 1, 1}, {1, 1, 1, 33, 1, 1}, {7, 7, 7, 7, 1, 1}}
	tables := [][]int32{{3, 0, 9, 6}, {1, 2, 4, 5}, {8, 7, 10, 11}}
	texts, want := make([][]uint32, len(chunks)), make([][][]float64, len(chunks))
	for i, lengths := range chunks {
		for _, n := range lengths {
			for range n {
				texts[i] = append(texts[i], uint32(r.IntN(plain.c.Vocab)))
			}
		}
		want[i] = plain.logits(texts[i])
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
			sameValues(t, fmt.Sprintf("logits of sequence %d after step %d", i, step), got, exact, 0.05)
			sameValues(t, fmt.Sprintf("logits of sequence %d after step %d, beside the CPU engine's,", i, step), got, batches[1][i].Logits, others)
		}
	}
	sameValues(t, "KV blocks, beside the CPU engine's,", g.kvValues(g.kv()), c.kvValues(c.memory[0].Bytes()), others/2)
}

// kvValues returns the values in a pool.
func (r rig) kvValues(memory []byte) (all []float32) {
	shape := r.Info().KV
	if shape.DType == "bf16" {
		return kerneltest.Widen(memory)
	}
	for kv := 0; len(memory) >= shape.RegionBytes(); kv = 1 - kv {
		for token := range shape.BlockSize {
			scale := math.Float32frombits(binary.LittleEndian.Uint32(memory[shape.ScaleOffset()+4*token:]))
			for d := range shape.HeadDim {
				all = append(all, float32(int8(memory[kerneltest.KVIndex(shape, kv, token, d)]))*scale)
			}
		}
		memory = memory[shape.RegionBytes():]
	}
	return all
}

// sameValues bounds the size of a difference by a share of the size of what is wanted.
// Against plain arithmetic it is what sums in another order leave, and roundings to the other
// side now and then; against the CPU engine, with weights that are noise and rows that are short, several
// percent.
func sameValues(t *testing.T, what string, got, want []float32, limit float64) {
	t.Helper()
	if share := kerneltest.Off(got, want); !(share < limit) {
		t.Errorf("%s are off by %.2g of their size, more than %g", what, share, limit)
	}
}
