package cputest

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"

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
		dir = modeltest.Generate(t, modeltest.Spec{Family: family, Hidden: 256, Heads: 8, KVHeads: 4, HeadDim: 32, FFN: 256, Vocab: 300})
		for _, kind := range []gguf.Type{gguf.Q8_0, gguf.Q4_0, gguf.Q4K, gguf.Q5K, gguf.Q6K} {
			t.Run(family+" "+kind.String(), func(t *testing.T) {
				compare(t, prompt, modeltest.GGUF(t, dir, kind), modeltest.Quantized(t, dir, kind))
			})
		}
	}
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
