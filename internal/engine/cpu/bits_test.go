package cpu

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel/amxtest"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
)

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
// segments of attention need more than 256, two passes more than 512; large matrices
// leave that to others.
type bits struct {
	spec   modeltest.Spec
	kv     string
	tokens int
	// quantized gives the types of matrices in a GGUF file, by their names there;
	// nil: the model is a folder.
	quantized func(name string) gguf.Type
	// quantize is the format that a folder gets when it is opened; "": its own.
	quantize string
}

func (b bits) open(t testing.TB) *model.Model {
	t.Helper()
	path := modeltest.Generate(t, b.spec)
	if b.quantized != nil {
		path = modeltest.MixedGGUF(t, path, b.quantized)
	}
	m, err := model.Open(path, model.Options{Quantize: b.quantize})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if err := m.Prepare(t.Context(), model.Cache{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	return m
}

// bitSpecs are the models of the tests on equal bits: all families, weights and KV
// of both widths, and windows that end inside of segments and go over their borders.
func bitSpecs() map[string]bits {
	specs := make(map[string]bits)
	for name, spec := range modeltest.Families() {
		specs[name] = bits{spec: spec, kv: "f32", tokens: 270}
	}
	window := modeltest.Families()["gemma3_text"]
	window.Extra = maps.Clone(window.Extra)
	window.Extra["sliding_window"] = 261
	specs["gemma3, long window, bf16 KV"] = bits{spec: window, kv: "bf16", tokens: 560}
	specs["gemma2, int8 KV"] = bits{spec: modeltest.Families()["gemma2"], kv: "int8", tokens: 270}
	maps.Copy(specs, plainBitSpecs())
	if os.Getenv(ActivationsVariable) == "bf16" { // which only weights of bf16 meet
		for name, s := range specs {
			s.spec.DType = "bf16"
			specs[name] = s
		}
	}
	maps.Copy(specs, quantizedBitSpecs())
	if os.Getenv(ISAVariable) != "" { // those left use every kernel; TestLevelsAgree runs all at each level
		for _, name := range []string{"gemma2", "llama", "mistral", "mixtral", "phi3", "qwen2", "qwen3", "qwen3_moe_stacked"} {
			delete(specs, name)
		}
	}
	if os.Getenv(ISAVariable) != "" || os.Getenv(ActivationsVariable) == "bf16" {
		for name, s := range specs { // passes are the same with other arithmetic, and two segments are left to one spec for each type of KV
			s.tokens = max(110, s.tokens/2)
			specs[name] = s
		}
	}
	if patience.RaceDetector { // other arithmetic in the same goroutines
		maps.DeleteFunc(specs, func(name string, _ bits) bool {
			return name != "llama f32" && name != "mixtral" && name != "gemma3 as q4_0"
		})
	}
	if amxtest.Emulated() { // products are slow, and attention uses no tiles
		for name, s := range specs {
			s.tokens = 110
			specs[name] = s
		}
	}
	return specs
}

// plainBitSpecs returns specs without the features of only some families.
func plainBitSpecs() map[string]bits {
	small := modeltest.Spec{Hidden: 32, HeadDim: 8, FFN: 48, Vocab: 260}
	with := func(change func(s *modeltest.Spec)) modeltest.Spec {
		s := small
		change(&s)
		return s
	}
	return map[string]bits{
		"llama f32": {with(func(s *modeltest.Spec) {
			s.KVHeads, s.RopeScaling = 2, llama3Scaling()
		}), "f32", 560, nil, ""},
		"qwen3 bf16, odd sizes": {with(func(s *modeltest.Spec) {
			s.Family, s.DType, s.Tied = "qwen3", "bf16", true
			s.Layers, s.Hidden, s.Heads, s.KVHeads, s.HeadDim, s.FFN, s.Vocab = 3, 38, 6, 2, 14, 51, 291
		}), "f32", 270, nil, ""},
		"qwen3 bf16, bf16 KV": {with(func(s *modeltest.Spec) {
			s.Family, s.DType, s.KVHeads = "qwen3", "bf16", 1
		}), "bf16", 270, nil, ""},
		"llama f32, int8 KV": {with(func(s *modeltest.Spec) {
			s.KVHeads, s.HeadDim = 2, 18
		}), "int8", 560, nil, ""},
		"llama f16": {with(func(s *modeltest.Spec) {
			s.DType, s.AttentionBias, s.MLPBias = "f16", true, true
		}), "f32", 270, nil, ""},
	}
}

// TestBits proves that logits are the same bits whatever the chunks, the batch,
// the cores, the blocks and the block size.
func TestBits(t *testing.T) {
	for name, tt := range bitSpecs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := tt.open(t)
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
				for _, n := range []int{2, min(257, len(tokens)), len(tokens)} {
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
	for _, size := range []int{1, 3, 16, 64, 300, 1000} {
		opts.BlockSize = size
		n := (len(tokens) + size - 1) / size
		r := newRig(t, m, 2, 2*n, opts)
		// What the memory held before must not matter.
		for _, m := range r.memory {
			for i := range m.Bytes() {
				m.Bytes()[i] = 0xFF
			}
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
	for i, end := range []int{len(tokens), 17, min(200, len(tokens)), 1, min(258, len(tokens))} {
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
