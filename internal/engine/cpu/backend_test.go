package cpu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
)

// rig is a backend with its pool.
type rig struct {
	*Backend
	device *Device
	memory engine.KVPool
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
		_ = w.Close()
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

// sameGoroutines is why a test is left out under the race detector.
const sameGoroutines = "other arithmetic in the goroutines of TestBits"

// TestAgainstReference compares logits with float64 arithmetic. Logits have a
// standard deviation of about 4; sums of a few hundred float32 products and their
// way through the layers leave errors of some 1e-5, and 2e-3 is the bound.
func TestAgainstReference(t *testing.T) {
	if patience.RaceDetector {
		t.Skip(sameGoroutines)
	}
	for name, spec := range specs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := modeltest.Open(t, spec)
			r := newRig(t, m, 2, 16, Options{BlockSize: 7})
			tokens := prompt(spec.Seed, 70, m.TokenLimit())
			want := reference{t: t, m: m, c: m.Config()}.logits(tokens)
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

// TestKVTypes measures what rounding keys and values costs: the error of all logits of
// a prompt, relative to their size.
func TestKVTypes(t *testing.T) {
	if patience.RaceDetector {
		t.Skip(sameGoroutines)
	}
	m := modeltest.Open(t, modeltest.Spec{Family: "qwen3", KVHeads: 2, HeadDim: 64, Seed: 3})
	tokens := prompt(1, 100, m.TokenLimit())
	want := reference{t: t, m: m, c: m.Config()}.logits(tokens)
	for _, tt := range []struct {
		kv           string
		least, bound float64
	}{{KVF32, 0, 1e-5}, {KVBF16, 1e-4, 0.015}, {KVInt8, 1e-4, 0.05}} {
		r := newRig(t, m, 2, 8, Options{BlockSize: 16, KVDType: tt.kv})
		logits := r.newLogits()
		var sum, ref float64
		for i := range tokens {
			r.step(t, engine.BatchSeq{Tokens: tokens[i : i+1], Start: i, Blocks: table(0, 8), Logits: logits})
			for v := range logits {
				diff := float64(logits[v]) - want[i][v]
				sum += diff * diff
				ref += want[i][v] * want[i][v]
			}
		}
		rel := math.Sqrt(sum / ref)
		t.Logf("%s: relative error %.2g", tt.kv, rel)
		if !(rel > tt.least && rel < tt.bound) {
			t.Errorf("%s: relative error %v, want between %v and %v", tt.kv, rel, tt.least, tt.bound)
		}
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
		copy(to.memory[0].Bytes()[int(b)*size:][:size], from.memory[0].Bytes()[i*size:][:size])
	}
	last := engine.BatchSeq{Tokens: tokens[30:], Start: 30, Blocks: table(0, 4), Logits: want}
	from.step(t, last)
	last.Blocks, last.Logits = blocks, got
	to.step(t, last)
	sameBits(t, "after the move", got, want)
}

// TestBlockLayout checks that a token's K and V lie where kvlayout.Shape says,
// and that nothing else is written.
func TestBlockLayout(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{Family: "llama", Layers: 2, KVHeads: 2, HeadDim: 18})
	for _, blockSize := range []int{4, 20, 32} {
		var exact []float64 // what f32 holds, of the first layer
		for _, kv := range []string{KVF32, KVBF16, KVInt8} {
			r := newRig(t, m, 1, 12, Options{BlockSize: blockSize, KVDType: kv})
			tokens := prompt(1, 42, m.TokenLimit())
			blocks := []int32{11, 0, 3, 8, 2, 4, 7, 1, 10, 9, 6}
			r.step(t, engine.BatchSeq{Tokens: tokens, Blocks: blocks})
			l := layout{r.Info().KV, r.memory[0].Bytes()}
			written := make([]bool, len(l.data))
			var got []float64
			for token := range tokens {
				block := int(blocks[token/blockSize])
				for layer := range l.shape.Layers {
					for kv := range 2 {
						for head := range l.shape.KVHeads {
							scale := l.scale(written, block, layer, kv, head, token%blockSize)
							for d := range l.shape.HeadDim {
								v := l.value(written, block, layer, kv, head, token%blockSize, d) * scale
								if layer == 0 {
									got = append(got, v)
								}
							}
						}
					}
				}
			}
			for i, v := range l.data {
				if v != 0 && !written[i] {
					t.Fatalf("%s, block size %d: byte %d is %v", kv, blockSize, i, v)
				}
			}
			if exact == nil {
				exact = got
			}
			var sum, size float64
			for i := range got {
				sum, size = sum+(got[i]-exact[i])*(got[i]-exact[i]), size+exact[i]*exact[i]
			}
			if !(size > 1) {
				t.Fatalf("%s: nothing was written", kv)
			}
			if bound := map[string]float64{KVF32: 0, KVBF16: 0.003, KVInt8: 0.01}[kv]; !(math.Sqrt(sum/size) <= bound) {
				t.Errorf("%s, block size %d: relative error %v", kv, blockSize, math.Sqrt(sum/size))
			}
		}
	}
}

// layout finds values by what kvlayout.Shape says in prose.
type layout struct {
	shape kvlayout.Shape
	data  []byte
}

func (l layout) sizes() (dims, tokens, region int) {
	dims, tokens = (l.shape.HeadDim+15)/16*16, (l.shape.BlockSize+15)/16*16
	switch l.shape.DType {
	case KVBF16:
		return dims, tokens, dims * tokens * 2
	case KVInt8:
		return dims, tokens, dims*tokens + 4*tokens
	}
	return dims, tokens, dims * tokens * 4
}

func (l layout) region(block, layer, kv, head int) int {
	_, _, size := l.sizes()
	return (((block*l.shape.KVHeads+head)*l.shape.Layers+layer)*2 + kv) * size
}

// take marks n bytes as written.
func (l layout) take(written []bool, at, n int) []byte {
	for i := range n {
		written[at+i] = true
	}
	return l.data[at : at+n]
}

func (l layout) scale(written []bool, block, layer, kv, head, token int) float64 {
	if l.shape.DType != KVInt8 {
		return 1
	}
	dims, tokens, _ := l.sizes()
	b := l.take(written, l.region(block, layer, kv, head)+dims*tokens+4*token, 4)
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
}

func (l layout) value(written []bool, block, layer, kv, head, token, d int) float64 {
	dims, _, _ := l.sizes()
	index := token*dims + d // of V
	if kv == 0 {
		index = token/16*16*dims + d*16 + token%16
		if l.shape.DType == KVBF16 {
			index = token/16*16*dims + d/2*32 + token%16*2 + d%2
		}
	}
	at := l.region(block, layer, kv, head)
	switch l.shape.DType {
	case KVBF16:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(l.take(written, at+2*index, 2))) << 16))
	case KVInt8:
		return float64(int8(l.take(written, at+index, 1)[0]))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(l.take(written, at+4*index, 4))))
}
