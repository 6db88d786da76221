package model_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/model/safetensors"
	"github.com/dynctl/dynctl/internal/patience"
)

// fp8Shape has matrices of more than one block of 128, of which the last ones are smaller.
func fp8Shape() modeltest.Spec {
	return modeltest.Spec{Layers: 1, Hidden: 160, Heads: 4, KVHeads: 2, HeadDim: 40, FFN: 288, Vocab: 300, DType: "bf16", Seed: 4}
}

// Matrices of all kinds of checkpoints, of all families, have the numbers that were stored.
func TestFP8(t *testing.T) {
	if testing.Short() {
		t.Skip("arithmetic in one goroutine")
	}
	shapes := modeltest.Families()
	shapes["wide llama"] = fp8Shape()
	for shape, model := range shapes {
		if model.Stacked {
			continue
		}
		for name, spec := range modeltest.FP8Specs() {
			if shape != "wide llama" && name != "blocks of 128" && name != "compressed, rows" {
				continue
			}
			t.Run(shape+", "+name, func(t *testing.T) {
				stored, plain := modeltest.FP8(t, modeltest.Generate(t, model), spec)
				sameNumbers(t, openGGUF(t, stored), openGGUF(t, plain))
			})
		}
	}
}

// sameNumbers compares each role's weights, those of fp8 rounded to bf16.
func sameNumbers(t *testing.T, got, want *model.Model) {
	t.Helper()
	coded := 0
	for role := model.RoleEmbed; role <= model.RoleExpertDown; role++ {
		for layer := range want.Config().Layers {
			for e := range max(want.Config().MoE.Experts, 1) {
				a, has := got.Expert(role, layer, e)
				b, ok := want.Expert(role, layer, e)
				if has != ok {
					t.Fatalf("role %d of layer %d: %v, want %v", role, layer, has, ok)
				}
				if !ok {
					continue
				}
				if a.DType == safetensors.F8_E4M3 {
					coded++
				}
				values := modeltest.Floats(t, b)
				for i, v := range modeltest.Floats(t, a) {
					if safetensors.FromBF16(safetensors.ToBF16(v)) != values[i] {
						t.Fatalf("weight %d of %s is %v, want %v", i, a.Name, v, values[i])
					}
				}
			}
		}
	}
	if coded == 0 {
		t.Error("no matrix is fp8")
	}
}

// What is told of a checkpoint of fp8: its type, its size, and what is not followed.
func TestFP8IsDescribed(t *testing.T) {
	patience.OneGoroutine(t)
	dir := modeltest.Generate(t, fp8Shape())
	for name, want := range map[string]string{
		"blocks of 128": "asks for weights and activations", "one scale, static": "7 scales of activations are not used", "fbgemm": "asks for weights and activations",
		"modelopt without a key": "7 scales of activations are not used", "compressed, blocks": "",
	} {
		stored, _ := modeltest.FP8(t, dir, modeltest.FP8Specs()[name])
		m := openGGUF(t, stored)
		if m.WeightType() != "f8_e4m3" || m.StoredType() != "F8_E4M3" || m.KVDType() != "bf16" {
			t.Errorf("%s: weights %s, stored as %s, KV %s", name, m.WeightType(), m.StoredType(), m.KVDType())
		}
		if told := strings.Join(m.Warnings(), "\n"); !strings.Contains(told, want) || (want == "") != (told == "") {
			t.Errorf("%s: warnings %q, want %q", name, told, want)
		}
		const gate = "model.layers.0.mlp.gate_proj.weight"
		if n := m.TensorBytes(gate); n != 160*288 {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
}

// A checkpoint of fp8 is quantized to what its numbers give.
func TestQuantizeFP8(t *testing.T) {
	spec := modeltest.FP8Specs()["blocks of 128"]
	dir, _ := modeltest.FP8(t, modeltest.Generate(t, fp8Shape()), spec)
	for _, format := range []string{"q8_0", "q4_0"} {
		sameAsRule(t, quantized(t, dir, format, t.TempDir(), nil), openGGUF(t, dir), format)
	}
}

// rewrite changes the weight file of a checkpoint: the same tensors under other names, or
// others in their place.
func rewrite(t *testing.T, dir string, change func(tensor *safetensors.Tensor)) {
	t.Helper()
	path := filepath.Join(dir, safetensors.SingleName)
	set, err := safetensors.OpenSet(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	var layout safetensors.Layout
	var data []byte
	for _, name := range set.Names() {
		tensor, _ := set.Tensor(name)
		tensor.Data = bytes.Clone(tensor.Data)
		change(&tensor)
		if _, err := layout.Add(tensor.Name, tensor.DType, tensor.Shape...); err != nil {
			t.Fatal(err)
		}
		data = append(data, tensor.Data...)
	}
	if err := set.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(layout.Header(nil), data...), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFP8Refuses(t *testing.T) {
	patience.OneGoroutine(t)
	source := modeltest.Generate(t, fp8Shape())
	const down = "model.layers.0.mlp.down_proj.weight"
	scale := func(change func(s *safetensors.Tensor)) func(*safetensors.Tensor) {
		return func(s *safetensors.Tensor) {
			if s.Name == down+"_scale_inv" {
				change(s)
			}
		}
	}
	for name, tt := range map[string]struct {
		change func(*safetensors.Tensor)
		want   string
	}{
		"no scales": {scale(func(s *safetensors.Tensor) { s.Name = "other" }), "has type F8_E4M3 and no scales"},
		"E5M2": {func(w *safetensors.Tensor) {
			w.DType = map[bool]safetensors.DType{true: "F8_E5M2", false: w.DType}[w.Name == down]
		}, "has type F8_E5M2; known are"},
		"another shape":  {scale(func(s *safetensors.Tensor) { s.Shape = []int{3, 2} }), "has scales of shape [3 2]: a matrix of 160 × 288 has one, one for each row (160), or one for each block of 128 × 128 ([2 3])"},
		"scales of E8M0": {scale(func(s *safetensors.Tensor) { s.DType, s.Data = "F8_E8M0", s.Data[:6] }), "has scales of type F8_E8M0"},
		"a norm": {func(w *safetensors.Tensor) {
			if w.Name == "model.norm.weight" {
				w.DType, w.Data = "F8_E4M3", w.Data[:160]
			}
		}, "and 1 dimensions"},
	} {
		dir, _ := modeltest.FP8(t, source, modeltest.FP8Specs()["blocks of 128"])
		rewrite(t, dir, tt.change)
		if _, err := model.Open(dir, model.Options{}); !errors.Is(err, model.ErrWeights) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// A weight that is no number is found when weights are quantized, by its tensor and row.
func TestQuantizeFP8RefusesNaN(t *testing.T) {
	dir, _ := modeltest.FP8(t, modeltest.Generate(t, fp8Shape()), modeltest.FP8Specs()["blocks of 128"])
	rewrite(t, dir, func(w *safetensors.Tensor) {
		if w.Name == "model.layers.0.self_attn.o_proj.weight" {
			w.Data[160*3+5] = 0xff
		}
	})
	m, err := model.Open(dir, model.Options{Quantize: "q8_0"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Prepare(t.Context(), model.Cache{Dir: t.TempDir()}); !errors.Is(err, safetensors.ErrNotANumber) || !strings.Contains(err.Error(), `weight 5 of row 3 of "model.layers.0.self_attn.o_proj.weight"`) {
		t.Errorf("%v", err)
	}
}

// What quantization_config says is followed, or refused by the name of the field.
func TestFP8Config(t *testing.T) {
	plain, err := os.ReadFile(filepath.Join(modeltest.Generate(t, fp8Shape()), model.ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	parse := func(quantization map[string]any) (model.Config, error) {
		config := map[string]any{}
		if err := json.Unmarshal(plain, &config); err != nil {
			t.Fatal(err)
		}
		config["quantization_config"] = quantization
		raw, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		return model.ParseConfig(raw)
	}
	group := func(changes map[string]any) map[string]any {
		weights := map[string]any{"num_bits": 8, "type": "float", "symmetric": true, "strategy": "channel"}
		maps.Copy(weights, changes)
		return map[string]any{"quant_method": "compressed-tensors", "config_groups": map[string]any{"group_0": map[string]any{"weights": weights}}}
	}
	for want, quantization := range map[string]map[string]any{
		`"gptq" is unknown; known are compressed-tensors, fbgemm_fp8, fp8 and modelopt`: {"quant_method": "gptq"},
		`fmt: "e5m2"`: {"quant_method": "fp8", "fmt": "e5m2"},
		"weight_block_size: [64 64]: a scale is known for blocks of 128 × 128": {"quant_method": "fp8", "weight_block_size": []int{64, 64}},
		`activation_scheme: "odd"`:    {"quant_method": "fp8", "activation_scheme": "odd"},
		`quant_algo: "W4A8_AWQ"`:      {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"},
		"config_groups: missing":      {"quant_method": "compressed-tensors"},
		`format: "pack-quantized"`:    {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": map[string]any{}},
		`format: "sparse-24-bitmask"`: {"quant_method": "compressed-tensors", "sparsity_config": map[string]any{"format": "sparse-24-bitmask"}, "config_groups": map[string]any{}},
		"type: int of 8 bits":         group(map[string]any{"type": "int"}),
		"type: float of 4 bits":       group(map[string]any{"num_bits": 4}),
		"symmetric: false":            group(map[string]any{"symmetric": false}),
		`strategy: "group"`:           group(map[string]any{"strategy": "group"}),
		"block_structure: [1 128]":    group(map[string]any{"strategy": "block", "block_structure": []int{1, 128}}),
	} {
		if _, err := parse(quantization); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", quantization, err, want)
		}
	}
	for name, spec := range modeltest.FP8Specs() {
		if spec.Config == nil {
			continue
		}
		c, err := parse(spec.Config)
		if err != nil || c.FP8.Method != spec.Config["quant_method"] || c.FP8.Static != spec.Inputs {
			t.Errorf("%s: %+v, %v", name, c.FP8, err)
		}
	}
	if c, err := parse(map[string]any{"quant_method": "modelopt", "quantization": map[string]any{"quant_algo": "FP8"}}); err != nil || !c.FP8.Static {
		t.Errorf("modelopt of 2024: %+v, %v", c.FP8, err)
	}
}
