package cpu

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/model/safetensors"
	"github.com/dynctl/dynctl/internal/patience"
)

func all(kind gguf.Type) func(string) gguf.Type { return func(string) gguf.Type { return kind } }

// mixed are the types of a file as it is usually made: most matrices of a small type,
// some of a larger one. Here layers differ, too, and one has plain types beside others.
func mixed(name string) gguf.Type {
	for _, rule := range []struct {
		part string
		kind gguf.Type
	}{
		{"blk.2.", gguf.F32}, {"blk.1.attn_q", gguf.F16}, {"blk.1.attn_output", gguf.BF16}, {"blk.1.ffn_up", gguf.Q4_0},
		{"attn_k", gguf.Q5K}, {"attn_v", gguf.Q6K}, {"ffn_down", gguf.Q6K}, {"ffn_up", gguf.Q8_0}, {"token_embd", gguf.Q6K},
	} {
		if strings.Contains(name, rule.part) {
			return rule.kind
		}
	}
	return gguf.Q4K
}

// quantizedBitSpecs are quantized models for the tests on equal bits: rows that are no
// multiple of a panel, experts, fused matrices, and types that differ within a layer.
func quantizedBitSpecs() map[string]bits {
	experts := map[string]any{"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": true}
	return map[string]bits{
		"llama Q8_0": {modeltest.Spec{Hidden: 64, HeadDim: 8, Heads: 4, KVHeads: 2, FFN: 96, Vocab: 291, AttentionBias: true}, "f32", 270, all(gguf.Q8_0), ""},
		"qwen3 moe Q4_0": {modeltest.Spec{Family: "qwen3_moe", Hidden: 32, HeadDim: 16, Heads: 4, KVHeads: 2, FFN: 64, Vocab: 260,
			Extra: experts}, "bf16", 270, all(gguf.Q4_0), ""},
		"phi3 Q8_0":      {modeltest.Spec{Family: "phi3", Hidden: 64, HeadDim: 16, KVHeads: 2, FFN: 96, Vocab: 260}, "f32", 270, all(gguf.Q8_0), ""},
		"gemma3 as q4_0": {modeltest.Families()["gemma3_text"], "f32", 270, nil, "q4_0"},
		"llama mixed":    {modeltest.Spec{Layers: 3, Hidden: 256, HeadDim: 32, Heads: 8, KVHeads: 1, FFN: 256, Vocab: 270, Tied: true}, "f32", 150, mixed, ""},
	}
}

// quantizedTensor makes a tensor of random weights.
func quantizedTensor(kind gguf.Type, rows, cols int, seed uint64) model.Tensor {
	data := gguftest.Quantize(kind, randomFloats(seed, rows*cols))
	return model.Tensor{Name: "w", DType: safetensors.DType(kind.String()), Shape: []int{rows, cols}, Data: data}
}

var quantizedKinds = []gguf.Type{gguf.Q8_0, gguf.Q4_0, gguf.Q4K, gguf.Q5K, gguf.Q6K}

// quantizedMatrix is a matrix of the tensor, packed for the level.
func quantizedMatrix(t testing.TB, tensor model.Tensor, level kernel.Level) *matrix {
	t.Helper()
	m, err := newMatrix(tensor)
	if err != nil {
		t.Fatal(err)
	}
	d := newDevice("cpu:0", 2, level)
	t.Cleanup(func() { _ = d.Close() })
	w := &Weights{device: d}
	if err := w.pack([]*matrix{&m}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return &m
}

// TestApplyQuantized holds products at every level, of every type and over odd
// numbers of rows and tokens, to float64 sums of the weights that the file stands for
// and of activations rounded to int8: what is left are the roundings of float32 sums,
// one for each block. All levels give the same bits.
func TestApplyQuantized(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("arithmetic of one goroutine")
	}
	const cols = 512
	for _, kind := range quantizedKinds {
		for _, rows := range []int{1, 31, 32, 77} {
			tensor := quantizedTensor(kind, rows, cols, 1)
			weights := make([]float32, rows*cols)
			if err := gguf.Dequantize(weights, kind, tensor.Data); err != nil {
				t.Fatal(err)
			}
			for _, tokens := range []int{1, 2, 5, 6, 7, 14, 22, 39} {
				var first [][]float32
				for _, level := range kernel.Levels() {
					m := quantizedMatrix(t, tensor, level)
					if m.form() != int8Form {
						t.Fatalf("%s: form %d", kind, m.form())
					}
					var src activations
					src.reserve(tokens, cols, tokens, m.form())
					dst := make([][]float32, tokens)
					for i := range tokens {
						copy(src.rows[i], randomFloats(uint64(i+2), cols))
						dst[i] = make([]float32, rows)
					}
					src.form = m.form()
					src.prepare(level, 0, tokens)
					m.apply(new(lane), 0, rows, src, dst)
					for i := range dst {
						for r, got := range dst[i] {
							want, size := roundedDot(weights[r*cols:][:cols], src.rows[i])
							if math.Abs(float64(got)-want) > size*1e-6 {
								t.Fatalf("%s, %s, %d rows, %d tokens: row %d of token %d is %v, want %v", kind, level, rows, tokens, r, i, got, want)
							}
						}
						if level != kernel.Portable {
							sameBits(t, fmt.Sprintf("%s, %s, %d rows, token %d", kind, level, rows, i), dst[i], first[i])
						}
					}
					if level == kernel.Portable {
						first = dst
					}
				}
			}
		}
	}
}

// TestApplyScatteredBlocks multiplies rows that lie in any order, as those of experts
// do, some of them twice: all numbers of rows give the bits of single ones.
func TestApplyScatteredBlocks(t *testing.T) {
	const rows, cols, tokens = 40, 256, 40
	level := kernel.Best()
	for _, kind := range quantizedKinds {
		m := quantizedMatrix(t, quantizedTensor(kind, rows, cols, 3), level)
		src := activations{form: m.form()}
		src.reserve(tokens, cols, tokens, m.form())
		scattered := activations{form: m.form(), rows: make([][]float32, tokens), blocks: make([][]kernel.Block, tokens)}
		want := make([][]float32, tokens)
		for i := range tokens {
			copy(src.rows[i], randomFloats(uint64(i+2), cols))
			scattered.refer(i, &src, i*i%tokens)
			want[i] = make([]float32, rows)
		}
		src.prepare(level, 0, tokens)
		l := new(lane)
		for i := range tokens {
			m.apply(l, 0, rows, scattered.span(i, i+1), want[i:i+1])
		}
		for _, n := range []int{8, 9, 16, 17, 23, tokens} {
			got := reserveRows[float32](nil, n, rows, n)
			m.apply(l, 0, rows, scattered.span(0, n), got)
			for i := range got {
				sameBits(t, fmt.Sprintf("%s, %d tokens, token %d", kind, n, i), got[i], want[i])
			}
			if a := patience.Allocs(1, func() { m.apply(l, 0, rows, scattered.span(0, n), got) }); a > 0 {
				t.Errorf("%s, %d tokens: %v allocations", kind, n, a)
			}
		}
	}
}

// roundInt8 is x as int8 with one scale for each 32 values stands for it. Quotients
// that lie between two integers are rounded as float32 arithmetic rounds them.
func roundInt8(x []float32) []float64 {
	out := make([]float64, len(x))
	for b := 0; b < len(x); b += 32 {
		var most float32
		for _, v := range x[b:][:32] {
			most = max(most, float32(math.Abs(float64(v))))
		}
		if most == 0 {
			continue
		}
		for i, v := range x[b:][:32] {
			out[b+i] = math.RoundToEven(float64(v*(127/most))) * float64(most) / 127
		}
	}
	return out
}

// roundedDot is the product and the sum of the absolute products.
func roundedDot(w, x []float32) (sum, size float64) {
	for k, v := range roundInt8(x) {
		p := float64(w[k]) * v
		sum, size = sum+p, size+math.Abs(p)
	}
	return sum, size
}

// TestQuantizedAgainstReference compares logits with two kinds of float64 arithmetic.
//
// With activations rounded by the same rule most prompts agree as those of plain models
// do. The others have a value so near the middle of two integers that float32 and
// float64 round it to different ones, about one in a hundred thousand; that moves
// logits as far as rounding moves them at all. Prompts are short, so that these are few.
//
// With exact activations the difference is what int8 costs. Weights are random and
// amplify it: trained ones lose less.
func TestQuantizedAgainstReference(t *testing.T) {
	if patience.RaceDetector {
		t.Skip(sameGoroutines)
	}
	shape := modeltest.Spec{Layers: 2, Hidden: 256, HeadDim: 32, Heads: 8, KVHeads: 2, FFN: 256, Vocab: 300}
	qwen := shape
	qwen.Family, qwen.Tied = "qwen3", true
	for name, tt := range map[string]bits{
		"Q8_0": {spec: shape, quantized: all(gguf.Q8_0)}, "Q4_0": {spec: shape, quantized: all(gguf.Q4_0)},
		"Q4_K": {spec: shape, quantized: all(gguf.Q4K)}, "Q5_K": {spec: shape, quantized: all(gguf.Q5K)},
		"Q6_K": {spec: shape, quantized: all(gguf.Q6K)}, "mixed": {spec: qwen, quantized: mixed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := tt.open(t)
			kept := make(map[matrixKey][][]float64)
			same, exact := reference{t: t, m: m, c: m.Config(), int8: true, kept: kept}, reference{t: t, m: m, c: m.Config(), kept: kept}
			r := newRig(t, m, 2, 1, Options{BlockSize: 7})
			const prompts = 20
			logits, worst, kl := r.newLogits(), 0.0, 0.0
			near, agree := 0, 0
			for i := range uint64(prompts) {
				tokens := prompt(i, 2, m.TokenLimit())
				r.step(t, engine.BatchSeq{Tokens: tokens, Blocks: table(0, 1), Logits: logits})
				want, top, diff := same.logits(tokens)[1], 0.0, 0.0
				for v, l := range logits {
					top, diff = max(top, math.Abs(want[v])), max(diff, math.Abs(float64(l)-want[v]))
				}
				if worst = max(worst, diff/top); diff < 1e-5*top {
					near++
				}
				want = exact.logits(tokens)[1]
				kl += divergence(want, logits) / prompts
				if slices.Index(logits, slices.Max(logits)) == slices.Index(want, slices.Max(want)) {
					agree++
				}
			}
			t.Logf("same rule: %d of %d prompts within 1e-5 of the largest logit, all within %.1e; exact activations: KL %.1e, %d same best tokens", near, prompts, worst, kl, agree)
			if near < prompts*8/10 || !(worst < 0.05) {
				t.Errorf("%d of %d prompts are within 1e-5 of the largest logit, all within %v", near, prompts, worst)
			}
			if !(kl < 5e-3) || agree < prompts*85/100 {
				t.Errorf("KL divergence %v, the same best token for %d of %d prompts", kl, agree, prompts)
			}
			if kl < 1e-9 {
				t.Error("no difference at all: activations were not rounded")
			}
		})
	}
}

// divergence is the Kullback-Leibler divergence of the probabilities of logits from
// those wanted.
func divergence(want []float64, logits []float32) (kl float64) {
	exact := make([]float32, len(want))
	for i, v := range want {
		exact[i] = float32(v)
	}
	p, q := probabilities(exact), probabilities(logits)
	for i := range p {
		if p[i] > 0 {
			kl += p[i] * math.Log(p[i]/q[i])
		}
	}
	return kl
}

// TestWidenQuantized looks rows up as the embedding does.
func TestWidenQuantized(t *testing.T) {
	for _, kind := range quantizedKinds {
		tensor := quantizedTensor(kind, 5, 256, 3)
		m, err := newMatrix(tensor)
		if err != nil {
			t.Fatal(err)
		}
		want := make([]float32, 5*256)
		if err := gguf.Dequantize(want, kind, tensor.Data); err != nil {
			t.Fatal(err)
		}
		for _, r := range []int{0, 4, 2} {
			buf := make([]float32, 256)
			sameBits(t, fmt.Sprint(kind, " row ", r), m.widen(buf, r), want[r*256:][:256])
			if n := patience.Allocs(10, func() { m.widen(buf, r) }); n > 0 {
				t.Errorf("%s: %v allocations", kind, n)
			}
		}
	}
}

func TestNewMatrixRefuses(t *testing.T) {
	good := quantizedTensor(gguf.Q8_0, 2, 64, 1)
	for _, tt := range []struct {
		name   string
		change func(t *model.Tensor)
		want   string
	}{
		{"unknown type", func(t *model.Tensor) { t.DType = "Q2_K" }, "has type Q2_K; known are"},
		{"rows of a part of a block", func(t *model.Tensor) { t.Shape = []int{4, 48} }, "no whole blocks of 32"},
		{"rows of a part of a large block", func(t *model.Tensor) { t.DType = safetensors.Q4_K }, "no whole blocks of 256"},
		{"too few bytes", func(t *model.Tensor) { t.Data = t.Data[1:] }, "has 135 bytes, want 136"},
		{"no columns", func(t *model.Tensor) { t.Shape = []int{4, 0} }, "no whole blocks"},
	} {
		tensor := good
		tt.change(&tensor)
		if _, err := newMatrix(tensor); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), `"w"`) {
			t.Errorf("%s: err = %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestCopyBytes compares what a device says that it needs with what it packs.
func TestCopyBytes(t *testing.T) {
	for name, tt := range bitSpecs() {
		m := tt.open(t)
		for _, level := range kernel.Levels() {
			d := newDevice("cpu:0", 2, level)
			w, err := d.Load(m)
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			for _, m := range w.matrices() {
				want += len(m.packed.data)
			}
			if got := d.CopyBytes(m); got != int64(want) || (got == 0) != (level == kernel.Portable) {
				t.Errorf("%s, %s: %d bytes, %d are packed", name, level, got, want)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			_ = d.Close()
		}
	}
}

// A node asks before weights are quantized.
func TestCopyBytesOfPlannedWeights(t *testing.T) {
	dir := modeltest.Generate(t, modeltest.Spec{Hidden: 64, FFN: 96, Tied: true})
	for _, level := range kernel.Levels() {
		m, err := model.Open(dir, model.Options{Quantize: "q4_0"})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		d := newDevice("cpu:0", 1, level)
		defer d.Close()
		before := d.CopyBytes(m)
		if err := m.Prepare(t.Context(), model.Cache{Dir: t.TempDir()}); err != nil {
			t.Fatal(err)
		}
		if after := d.CopyBytes(m); before != after || (after == 0) != (level == kernel.Portable) {
			t.Errorf("%s: %d bytes before weights are quantized, %d after", level, before, after)
		}
	}
}

// FuzzQuantized multiplies with blocks of any bits: scales may be infinite, no
// numbers, or tiny. Nothing may crash, and all levels must agree where a result is a
// number.
func FuzzQuantized(f *testing.F) {
	for i, kind := range quantizedKinds {
		f.Add(uint8(i), quantizedTensor(kind, 3, 256, 5).Data[:kind.BlockBytes()], float32(1))
	}
	f.Add(uint8(0), []byte{0, 0x7C, 1, 2, 3}, float32(1e30))     // infinite scale
	f.Add(uint8(2), []byte{1, 0xFE, 0xFF, 0x7F}, float32(1e-40)) // NaNs
	f.Add(uint8(4), []byte{1, 0, 0, 0}, float32(math.NaN()))
	f.Fuzz(func(t *testing.T, n uint8, seed []byte, size float32) {
		const rows, cols = 3, 256
		kind := quantizedKinds[int(n)%len(quantizedKinds)]
		tensor := quantizedTensor(kind, rows, cols, 9)
		for i := range tensor.Data {
			if len(seed) > 0 {
				tensor.Data[i] = seed[i%len(seed)] + byte(i/len(seed))
			}
		}
		copy(tensor.Data, seed)
		x := randomFloats(1, cols)
		for i := range x {
			x[i] *= size
		}
		var first []float32
		for _, level := range kernel.Levels() {
			m := quantizedMatrix(t, tensor, level)
			src := activations{form: int8Form}
			src.reserve(1, cols, 1, int8Form)
			copy(src.rows[0], x)
			src.prepare(level, 0, 1)
			dst := make([]float32, rows)
			m.apply(new(lane), 0, rows, src, [][]float32{dst})
			if first == nil {
				first = dst
			}
			for r := range dst {
				if dst[r] != first[r] && (dst[r] == dst[r] || first[r] == first[r]) {
					t.Errorf("%s, %s: row %d is %v, portable gives %v", kind, level, r, dst[r], first[r])
				}
			}
		}
	})
}

// TestNoAllocationsQuantized is TestNoAllocations for quantized models.
func TestNoAllocationsQuantized(t *testing.T) {
	for name, tt := range quantizedBitSpecs() {
		r := newRig(t, tt.open(t), 2, 64, Options{BlockSize: 16})
		batch := []engine.BatchSeq{
			{Tokens: []uint32{1}, Start: 40, Blocks: table(0, 4), Logits: r.newLogits()},
			{Tokens: prompt(1, 40, 260), Blocks: table(8, 10)},
		}
		r.step(t, batch...)
		if n := patience.Allocs(10, func() { r.step(t, batch...) }); n > 0 {
			t.Errorf("%s: %v allocations a step", name, n)
		}
	}
}
