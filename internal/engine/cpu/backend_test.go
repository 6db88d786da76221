package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// rig is a backend with its pool.
type rig struct {
	*Backend
	device *Device
	memory engine.KVMemory
}

// newRig loads a model on a device of its own.
func newRig(t testing.TB, m *model.Model, cores, blocks int, opts Options) rig {
	t.Helper()
	d := NewDevice("cpu:0", cores)
	t.Cleanup(func() { _ = d.Close() })
	return newRigOn(t, d, m, blocks, opts)
}

func newRigOn(t testing.TB, d *Device, m *model.Model, blocks int, opts Options) rig {
	t.Helper()
	w, err := d.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	b, err := w.NewBackend(opts)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := b.AllocKV(blocks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.Close()
		_ = mem.Close()
	})
	return rig{b, d, mem}
}

// step runs a batch and fails the test on an error.
func (r rig) step(t testing.TB, batch ...engine.BatchSeq) {
	t.Helper()
	if err := r.Step(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

func (r rig) newLogits() []float32 { return make([]float32, r.Info().VocabSize) }

// table lists n blocks from first on.
func table(first, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(first + i)
	}
	return out
}

// prompt makes n token ids from a seed.
func prompt(seed uint64, n, vocab int) []uint32 {
	rng := rand.New(rand.NewPCG(seed, 0))
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(rng.IntN(vocab))
	}
	return out
}

func llama3Scaling() map[string]any {
	return map[string]any{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
		"original_max_position_embeddings": 64}
}

// specs are shapes that cover the families and awkward sizes.
func specs() map[string]modeltest.Spec {
	return map[string]modeltest.Spec{
		"llama":                {Family: "llama", Seed: 1},
		"llama, tied, grouped": {Family: "llama", Tied: true, Heads: 8, KVHeads: 2, Seed: 2},
		"llama, odd sizes, biases": {Family: "llama", Layers: 3, Hidden: 60, Heads: 6, KVHeads: 3, HeadDim: 10,
			FFN: 77, Vocab: 391, AttentionBias: true, MLPBias: true, Seed: 3},
		"llama, llama3 rope, bf16": {Family: "llama", DType: "bf16", RopeScaling: llama3Scaling(), Seed: 4},
		"llama, linear rope, one head": {Family: "llama", Heads: 1, HeadDim: 64, Transformers5: true,
			RopeScaling: map[string]any{"rope_type": "linear", "factor": 4.0}, Seed: 5},
		"llama, yarn, f16": {Family: "llama", DType: "f16", Heads: 4, KVHeads: 1, Seed: 6,
			RopeScaling: map[string]any{"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
		"qwen3": {Family: "qwen3", Heads: 6, KVHeads: 2, HeadDim: 32, Seed: 7},
		"qwen3, tied, bf16, odd sizes": {Family: "qwen3", Layers: 3, Hidden: 50, Heads: 5, KVHeads: 1, HeadDim: 26,
			FFN: 131, Vocab: 333, DType: "bf16", Tied: true, RopeTheta: 1e6, Seed: 8},
		"qwen3, sharded, biases": {Family: "qwen3", Shards: 3, AttentionBias: true, HeadDim: 24, Seed: 9},
	}
}

// TestAgainstReference compares logits with float64 arithmetic. Logits have a
// standard deviation of about 4; sums of a few hundred float32 products and their
// way through the layers leave errors of some 1e-5, and 2e-3 is the bound.
func TestAgainstReference(t *testing.T) {
	for name, spec := range specs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := modeltest.Open(t, spec)
			r := newRig(t, m, 2, 16, Options{BlockSize: 7})
			tokens := prompt(spec.Seed, 70, m.TokenLimit())
			want := reference{t, m, m.Config()}.logits(tokens)
			logits, worst := r.newLogits(), 0.0
			for i := range tokens {
				r.step(t, engine.BatchSeq{Tokens: tokens[i : i+1], Start: i, Blocks: table(0, 16), Logits: logits})
				for v := range logits {
					worst = max(worst, math.Abs(float64(logits[v])-want[i][v]))
				}
			}
			t.Logf("largest difference %.2g", worst)
			if !(worst < 2e-3) {
				t.Errorf("largest difference of a logit %v, want below 2e-3", worst)
			}
		})
	}
}

// TestKVBF16 allows what rounding keys and values to 8 bits costs.
func TestKVBF16(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{Family: "qwen3", KVHeads: 2, Seed: 3})
	r := newRig(t, m, 2, 8, Options{BlockSize: 16, KVDType: "bf16"})
	tokens := prompt(1, 100, m.TokenLimit())
	want := reference{t, m, m.Config()}.logits(tokens)
	logits := r.newLogits()
	r.step(t, engine.BatchSeq{Tokens: tokens, Blocks: table(0, 8), Logits: logits})
	var sum, ref float64
	for v := range logits {
		diff := float64(logits[v]) - want[99][v]
		sum += diff * diff
		ref += want[99][v] * want[99][v]
	}
	if rel := math.Sqrt(sum / ref); !(rel < 0.02) {
		t.Errorf("relative error %v, want below 0.02", rel)
	} else if rel == 0 {
		t.Error("no error at all: keys were not rounded")
	}
}

// sameBits fails when two rows of logits differ in any bit.
func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: logit %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// bits is a model of the tests on equal bits, and how many tokens they use. Two
// segments of attention need more than 256, two passes more than 512.
type bits struct {
	spec   modeltest.Spec
	kv     string
	tokens int
}

// bitSpecs are the models of the tests on equal bits: both families, weights and
// KV of both widths.
func bitSpecs() map[string]bits {
	small := modeltest.Spec{Hidden: 32, HeadDim: 8, FFN: 48, Vocab: 260}
	with := func(change func(s *modeltest.Spec)) modeltest.Spec {
		s := small
		change(&s)
		return s
	}
	return map[string]bits{
		"llama f32": {with(func(s *modeltest.Spec) {
			s.KVHeads, s.RopeScaling = 2, llama3Scaling()
		}), "f32", 560},
		"qwen3 bf16, odd sizes": {with(func(s *modeltest.Spec) {
			s.Family, s.DType, s.Tied = "qwen3", "bf16", true
			s.Layers, s.Hidden, s.Heads, s.KVHeads, s.HeadDim, s.FFN, s.Vocab = 3, 38, 6, 2, 14, 51, 291
		}), "f32", 270},
		"qwen3 bf16, bf16 KV": {with(func(s *modeltest.Spec) {
			s.Family, s.DType, s.KVHeads = "qwen3", "bf16", 1
		}), "bf16", 270},
		"llama f16": {with(func(s *modeltest.Spec) {
			s.DType, s.AttentionBias, s.MLPBias = "f16", true, true
		}), "f32", 270},
	}
}

// TestBits proves that logits are the same bits whatever the chunks, the batch,
// the cores, the blocks and the block size.
func TestBits(t *testing.T) {
	for name, tt := range bitSpecs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := modeltest.Open(t, tt.spec)
			tokens := prompt(7, tt.tokens, m.TokenLimit())
			opts := Options{BlockSize: 16, KVDType: tt.kv}
			base := newRig(t, m, 1, 40, opts)
			// want[n] are the logits after n+1 tokens, made token by token.
			want := make([][]float32, len(tokens))
			for i := range tokens {
				want[i] = base.newLogits()
				base.step(t, engine.BatchSeq{Tokens: tokens[i : i+1], Start: i, Blocks: table(0, 40), Logits: want[i]})
			}
			t.Run("one chunk", func(t *testing.T) {
				for _, n := range []int{2, 257, len(tokens)} {
					got := base.newLogits()
					base.step(t, engine.BatchSeq{Tokens: tokens[:n], Blocks: table(0, 40), Logits: got})
					sameBits(t, fmt.Sprint(n, " tokens"), got, want[n-1])
				}
			})
			for _, cores := range []int{1, 2, 7} {
				t.Run(fmt.Sprint("random chunks, ", cores, " cores"), func(t *testing.T) {
					testChunks(t, newRig(t, m, cores, 40, opts), tokens, want)
				})
			}
			t.Run("other blocks", func(t *testing.T) { testScattered(t, m, opts, tokens, want) })
			t.Run("batches", func(t *testing.T) { testBatches(t, newRig(t, m, 2, 200, opts), tokens, want) })
		})
	}
}

// testChunks runs the prompt in random chunks and compares the logits at their ends.
func testChunks(t *testing.T, r rig, tokens []uint32, want [][]float32) {
	rng := rand.New(rand.NewPCG(uint64(r.device.cores), 1))
	got := r.newLogits()
	for at := 0; at < len(tokens); {
		n := min(1+rng.IntN(1+rng.IntN(200)), len(tokens)-at)
		r.step(t, engine.BatchSeq{Tokens: tokens[at : at+n], Start: at, Blocks: table(0, 40), Logits: got})
		at += n
		sameBits(t, fmt.Sprintf("%d tokens at %d", n, at-n), got, want[at-1])
	}
}

// testScattered uses blocks in random order and of other sizes.
func testScattered(t *testing.T, m *model.Model, opts Options, tokens []uint32, want [][]float32) {
	for _, size := range []int{1, 5, 64, 300, 1000} {
		opts.BlockSize = size
		n := (len(tokens) + size - 1) / size
		r := newRig(t, m, 2, 2*n, opts)
		// What the memory held before must not matter.
		for i := range r.memory.Bytes() {
			r.memory.Bytes()[i] = 0xFF
		}
		blocks := make([]int32, n)
		for i, b := range rand.New(rand.NewPCG(uint64(size), 2)).Perm(2 * n)[:n] {
			blocks[i] = int32(b)
		}
		got := r.newLogits()
		r.step(t, engine.BatchSeq{Tokens: tokens[:100], Blocks: blocks})
		r.step(t, engine.BatchSeq{Tokens: tokens[100:], Start: 100, Blocks: blocks, Logits: got})
		sameBits(t, fmt.Sprint("block size ", size), got, want[len(want)-1])
	}
}

// testBatches runs five prompts together, each in its own random chunks.
func testBatches(t *testing.T, r rig, tokens []uint32, want [][]float32) {
	rng := rand.New(rand.NewPCG(3, 3))
	type progress struct {
		at, end int
		blocks  []int32
		logits  []float32
	}
	var seqs []*progress
	for i, end := range []int{len(tokens), 17, 200, 1, 258} {
		seqs = append(seqs, &progress{end: end, blocks: table(i*40, 40), logits: r.newLogits()})
	}
	for len(seqs) > 0 {
		var batch []engine.BatchSeq
		for _, s := range seqs {
			n := min(1+rng.IntN(1+rng.IntN(120)), s.end-s.at)
			seq := engine.BatchSeq{Tokens: tokens[s.at : s.at+n], Start: s.at, Blocks: s.blocks}
			s.at += n
			if rng.IntN(3) > 0 || s.at == s.end {
				seq.Logits = s.logits
			}
			batch = append(batch, seq)
		}
		r.step(t, batch...)
		rest := seqs[:0]
		for i, s := range seqs {
			if batch[i].Logits != nil {
				sameBits(t, fmt.Sprintf("sequence at %d in a batch of %d", s.at, len(batch)), s.logits, want[s.at-1])
			}
			if s.at < s.end {
				rest = append(rest, s)
			}
		}
		seqs = rest
	}
}

// TestBlocksMoveBetweenBackends prefills on one backend, copies the blocks to
// other places of another one's pool and goes on there.
func TestBlocksMoveBetweenBackends(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{Family: "qwen3", KVHeads: 2})
	opts := Options{BlockSize: 8}
	from, to := newRig(t, m, 2, 8, opts), newRig(t, m, 1, 8, opts)
	tokens := prompt(1, 31, m.TokenLimit())
	want, got := from.newLogits(), to.newLogits()
	from.step(t, engine.BatchSeq{Tokens: tokens[:30], Blocks: table(0, 4)})
	size := int(from.Info().KV.BlockBytes())
	blocks := []int32{6, 1, 7, 3}
	for i, b := range blocks {
		copy(to.memory.Bytes()[int(b)*size:][:size], from.memory.Bytes()[i*size:][:size])
	}
	last := engine.BatchSeq{Tokens: tokens[30:], Start: 30, Blocks: table(0, 4), Logits: want}
	from.step(t, last)
	last.Blocks, last.Logits = blocks, got
	to.step(t, last)
	sameBits(t, "after the move", got, want)
}

// TestBlockLayout checks that a token's K and V lie where engine.KVShape says,
// and nowhere else.
func TestBlockLayout(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{Family: "llama", Layers: 2, KVHeads: 2})
	r := newRig(t, m, 1, 3, Options{BlockSize: 4})
	shape := r.Info().KV
	r.step(t, engine.BatchSeq{Tokens: []uint32{1, 2, 3, 4, 5, 6}, Blocks: []int32{2, 0}})
	data := floats(r.memory.Bytes())
	written := make([]bool, len(data))
	for token := range 6 {
		block := []int{2, 0}[token/4]
		for layer := range shape.Layers {
			for kv := range 2 {
				for head := range shape.KVHeads {
					at := block*int(shape.BlockBytes())/4 + shape.Offset(layer, kv, head, token%4)
					for d := range shape.HeadDim {
						written[at+d] = true
					}
				}
			}
		}
	}
	for i, v := range data {
		if (v != 0) != written[i] {
			t.Fatalf("element %d is %v, written = %v", i, v, written[i])
		}
	}
}
