package kernels_test

import (
	"bytes"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
)

const (
	modelBlock  = 16 // tokens of a KV block
	modelBlocks = 3
	modelSteps  = 3 // tokens that are generated
)

// TestModel computes small models of the Qwen3 family with all kernels, by the functions in
// Go, on the shim and as PTX in the emulator, and compares logits and KV blocks with those of
// the CPU engine, which knows nothing of kernels: a prompt in two chunks, then tokens one by
// one.
func TestModel(t *testing.T) {
	if patience.RaceDetector {
		t.Skip(noRaces)
	}
	spec := modeltest.Spec{
		Family: "qwen3", Layers: 3, Hidden: 128, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 200, Vocab: 520, DType: "bf16", Tied: true, Seed: 11,
	}
	t.Run("dense", func(t *testing.T) { testModel(t, spec, "", 0.05, 0.015) })
	// The CPU engine rounds activations to eight bits for these weights, which kernels do not.
	// Rows of the down matrix are no whole blocks, and it stays as it is.
	spec.Seed = 12
	t.Run("quantized", func(t *testing.T) { testModel(t, spec, "q8_0", 0.06, 0.03) })
	// With this seed no two experts are nearly equal for any token: where they are, roundings
	// choose another one than the CPU engine.
	spec.Seed = 13
	spec.Family, spec.Extra = "qwen3_moe", map[string]any{
		"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 72, "norm_topk_prob": true, "mlp_only_layers": []int{1},
	}
	t.Run("experts", func(t *testing.T) { testModel(t, spec, "", 0.05, 0.015) })
}

// testModel has limits of how far logits and KV may be off.
func testModel(t *testing.T, spec modeltest.Spec, quantize string, logitLimit, kvLimit float64) {
	t.Helper()
	m, err := model.Open(modeltest.Generate(t, spec), model.Options{Quantize: quantize})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Prepare(t.Context(), model.Cache{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	prompt := make([]uint32, 19)
	for i := range prompt {
		prompt[i] = uint32(3 + i*i*37%500)
	}
	tokens, logits, blocks := onCPU(t, m, prompt)
	compute := func(t *testing.T, d device) {
		t.Helper()
		r := newModelRun(newLab(d, t.Name()), m)
		r.step(prompt[:12], 0)
		next, at := prompt[12:], 12
		for i := range modelSteps {
			got, token := r.step(next, at)
			sameValues(t, "logits", got, logits[i], logitLimit)
			if best := largest(got); token != best {
				t.Fatalf("token %d is %d, and %d has the largest logit", i, token, best)
			}
			at += len(next)
			next = tokens[i : i+1]
		}
		// Blocks hold the same in the same places: they can be exchanged.
		sameValues(t, "KV blocks", kerneltest.Widen(r.blocks), kerneltest.Widen(blocks), kvLimit)
	}
	t.Run("functions in Go", func(t *testing.T) { compute(t, newTwin(t)) })
	t.Run("shim", func(t *testing.T) { compute(t, newHostDevice(t, 5)) })
	t.Run("emulator", func(t *testing.T) { compute(t, newEmulated(t, 0)) })
}

// largest is the index of the largest value, the first of several.
func largest(v []float32) (best uint32) {
	for i, x := range v {
		if x > v[best] {
			best = uint32(i)
		}
	}
	return best
}

// onCPU returns the tokens that the CPU engine chooses after a prompt, the logits of each
// choice, and the KV blocks in the end.
func onCPU(t *testing.T, m *model.Model, prompt []uint32) (tokens []uint32, logits [][]float32, blocks []byte) {
	t.Helper()
	d, err := cpu.OpenDevice("cpu:0", cpu.DeviceOptions{Cores: 1, ISA: "portable", Activations: "f32"}) // the same on all machines
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	b, err := w.NewBackend(cpu.Options{BlockSize: modelBlock, KVDType: cpu.KVBF16})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := b.AllocKV(modelBlocks)
	if err != nil {
		t.Fatal(err)
	}
	next, at := prompt, 0
	for range modelSteps {
		row := make([]float32, b.Info().VocabSize)
		if err := b.Step(t.Context(), []engine.BatchSeq{{Tokens: next, Start: at, Blocks: []int32{2, 0, 1}, Logits: row}}); err != nil {
			t.Fatal(err)
		}
		tokens, logits = append(tokens, largest(row)), append(logits, row)
		at += len(next)
		next = tokens[len(tokens)-1:]
	}
	blocks = bytes.Clone(pool[0].Bytes())
	for _, err := range []error{b.Close(), pool.Close(), w.Close(), d.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
	return tokens, logits, blocks
}

// sameValues compares what was computed with bf16 activations with what the CPU engine has,
// which rounds in other places. With weights that are noise, and rows that are short, the
// roundings of three layers come to 1 % of KV and 4 % of logits.
func sameValues(t *testing.T, what string, got, want []float32, limit float64) {
	t.Helper()
	if share := kerneltest.Off(got, want); !(share < limit) {
		t.Errorf("%s are off by %.2g of their size, more than %g", what, share, limit)
	}
}
