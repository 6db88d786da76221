package cputest

import (
	"errors"
	"math"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// TestGGUFGivesTheSameTokens runs a model from a folder and from a GGUF file.
func TestGGUFGivesTheSameTokens(t *testing.T) {
	prompt := []uint32{5, 77, 200, 13, 13, 91}
	for _, family := range []string{"llama", "qwen3"} {
		dir := modeltest.Generate(t, modeltest.Spec{Family: family, KVHeads: 2, Vocab: 400, RopeTheta: 5e5})
		for _, kind := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16} {
			t.Run(family+" "+kind.String(), func(t *testing.T) {
				twin := dir
				if kind != gguf.F32 { // the file holds less
					twin = modeltest.Quantized(t, dir, kind)
				}
				compare(t, prompt, modeltest.GGUF(t, dir, kind), twin)
			})
		}
	}
}

// TestQuantizedGGUFStaysClose compares probabilities from a file of blocks with those
// from a folder that holds the same weights as float32. That the weights are the same
// is tested where they are read; the difference here is that activations become int8
// where blocks are multiplied, which random weights amplify: trained ones lose less.
func TestQuantizedGGUFStaysClose(t *testing.T) {
	for _, family := range []string{"llama", "qwen3"} {
		dir := modeltest.Generate(t, modeltest.Spec{Family: family, Hidden: 256, Heads: 8, KVHeads: 4, HeadDim: 32, FFN: 256, Vocab: 300})
		for _, kind := range []gguf.Type{gguf.Q8_0, gguf.Q4_0, gguf.Q4K, gguf.Q5K, gguf.Q6K} {
			t.Run(family+" "+kind.String(), func(t *testing.T) {
				got, want := New(t, modeltest.GGUF(t, dir, kind), cpu.Options{}), New(t, modeltest.Quantized(t, dir, kind), cpu.Options{})
				prompt := []uint32{5, 77, 200, 13, 13, 91}
				tokens := append(prompt, want.Greedy(prompt, 40)...)
				kl, agree := 0.0, 0
				for i := range tokens {
					got.token(tokens, i)
					want.token(tokens, i)
					p, q := logProbabilities(want.logits), logProbabilities(got.logits)
					for v := range p {
						kl += math.Exp(p[v]) * (p[v] - q[v])
					}
					if Argmax(got.logits) == Argmax(want.logits) {
						agree++
					}
				}
				kl /= float64(len(tokens))
				t.Logf("KL %.1e, the same best token at %d of %d positions", kl, agree, len(tokens))
				if !(kl < 1.5e-2) || agree < len(tokens)*8/10 {
					t.Errorf("KL %v, the same best token at %d of %d positions", kl, agree, len(tokens))
				}
			})
		}
	}
}

// token computes the logits after token i.
func (r *Runner) token(tokens []uint32, i int) {
	r.t.Helper()
	table := make([]int32, r.blocks)
	for b := range table {
		table[b] = int32(b)
	}
	seq := engine.BatchSeq{Tokens: tokens[i : i+1], Start: i, Blocks: table, Logits: r.logits}
	if err := r.Backend.Step(r.t.Context(), []engine.BatchSeq{seq}); err != nil {
		r.t.Fatal(err)
	}
}

func logProbabilities(logits []float32) []float64 {
	top, sum := float64(slices.Max(logits)), 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l) - top)
	}
	out := make([]float64, len(logits))
	for i, l := range logits {
		out[i] = float64(l) - top - math.Log(sum)
	}
	return out
}

func compare(t *testing.T, prompt []uint32, path, dir string) {
	t.Helper()
	got := New(t, path, cpu.Options{}).Greedy(prompt, 40)
	if want := New(t, dir, cpu.Options{}).Greedy(prompt, 40); !slices.Equal(got, want) {
		t.Errorf("tokens %v, want %v", got, want)
	}
}

// TestShortenedGGUF cuts a file between opening and loading: dequantizing reads the
// mapping in goroutines of its own, and must end in an error all the same.
func TestShortenedGGUF(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be cut")
	}
	dir := modeltest.Generate(t, modeltest.Spec{Family: "llama", Hidden: 256, Heads: 8, FFN: 512, Vocab: 2000})
	for _, kind := range []gguf.Type{gguf.Q8_0, gguf.F16} {
		t.Run(kind.String(), func(t *testing.T) {
			path := modeltest.GGUF(t, dir, kind)
			m, err := model.Open(path, model.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if err := os.Truncate(path, 64<<10); err != nil {
				t.Fatal(err)
			}
			d := cpu.NewDevice("cpu:0", 2)
			defer d.Close()
			if _, err := d.Load(m); !errors.Is(err, cpu.ErrMemory) && !errors.Is(err, gguf.ErrChanged) {
				t.Errorf("err = %v, want ErrMemory or ErrChanged", err)
			}
		})
	}
}
