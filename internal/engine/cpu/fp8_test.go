package cpu

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/model/safetensors"
	"github.com/dynctl/dynctl/internal/patience"
)

// TestFP8 holds checkpoints of fp8 to those that have the same numbers as bf16: the same
// bits at every level, whatever the scales are for.
func TestFP8(t *testing.T) {
	shapes := map[string]modeltest.Spec{
		"llama": {Layers: 2, Hidden: 160, Heads: 4, KVHeads: 2, HeadDim: 40, FFN: 288, Vocab: 300, DType: "bf16"},
		"phi3":  {Family: "phi3", Layers: 1, Hidden: 96, Heads: 6, KVHeads: 2, HeadDim: 16, FFN: 200, Vocab: 260, DType: "bf16"},
		"qwen3_moe": {Family: "qwen3_moe", Layers: 1, Hidden: 144, Heads: 4, KVHeads: 2, HeadDim: 16, FFN: 64, Vocab: 260, DType: "bf16", Tied: true,
			Extra: map[string]any{"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 136, "norm_topk_prob": true}},
	}
	for shape, spec := range shapes {
		dir := modeltest.Generate(t, spec)
		for name, fp8 := range modeltest.FP8Specs() {
			if shape != "llama" && name != "blocks of 128" || patience.RaceDetector && name != "compressed, blocks" {
				continue
			}
			t.Run(shape+", "+name, func(t *testing.T) {
				stored, plain := modeltest.FP8(t, dir, fp8)
				coded, wide := openFP8(t, stored), openFP8(t, plain)
				tokens := prompt(3, 24, wide.TokenLimit())
				logits := func(d *Device, m *model.Model) []float32 {
					r := newRigOn(t, d, m, 2, Options{BlockSize: 16, KVDType: "bf16"})
					out := r.newLogits()
					r.step(t, engine.BatchSeq{Tokens: tokens[:23], Blocks: table(0, 2)})
					r.step(t, engine.BatchSeq{Tokens: tokens[23:], Start: 23, Blocks: table(0, 2), Logits: out})
					return out
				}
				for _, level := range kernel.Levels() {
					d := newDevice("cpu:0", 2, level)
					t.Cleanup(func() { _ = d.Close() })
					sameBits(t, fmt.Sprint(level), logits(d, coded), logits(d, wide))
					packed := int64(0)
					if level == kernel.Portable {
						packed = fp8Bytes(coded, coded.Tensors()...)
					}
					if got, want := d.CopyBytes(coded), d.CopyBytes(wide)+packed; got != want || got == 0 {
						t.Errorf("%s: %d bytes are copied, want %d", level, got, want)
					}
					for m, told := range map[*model.Model]bool{coded: true, wide: false} {
						w, err := d.Load(m)
						if err != nil || strings.Contains(w.Warning(), "as bf16") != told {
							t.Errorf("%s: %v, %q", level, err, w.Warning())
						}
						if err := w.Close(); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
	}
}

// A code or a scale that is no number is an error of loading, at every level.
func TestFP8RefusesNaN(t *testing.T) {
	w := model.Tensor{Name: "w", DType: safetensors.F8_E4M3, Shape: []int{40, 8}, Data: make([]byte, 320)}
	w.Data[39*8+2] = 0x7f
	w.Scales = &safetensors.Scales{Tensor: model.Tensor{Name: "w_scale", DType: safetensors.F32, Data: []byte{0, 0, 0x80, 0x3f}}, Rows: 40, Cols: 8, Across: 1}
	for _, level := range kernel.Levels() {
		m, err := newMatrix(w)
		if err != nil {
			t.Fatal(err)
		}
		d := newDevice("cpu:0", 2, level)
		t.Cleanup(func() { _ = d.Close() })
		weights := &Weights{device: d, head: m}
		err = weights.unpackFP8()
		if err == nil {
			err = weights.pack(weights.matrices())
		}
		if !errors.Is(err, safetensors.ErrNotANumber) || !strings.Contains(err.Error(), `weight 2 of row 39 of "w"`) {
			t.Errorf("%s: %v", level, err)
		}
		_ = weights.Close()
	}
}

func openFP8(t *testing.T, dir string) *model.Model {
	t.Helper()
	m, err := model.Open(dir, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}
