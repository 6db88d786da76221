package modeltest

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// FP8Spec says how [FP8] stores matrices.
type FP8Spec struct {
	// Rows and Cols are how many weights have one scale, 0 for all of them.
	Rows, Cols int
	Scale      string            // what is added to a tensor's name for its scales
	ScaleType  safetensors.DType // F32 by default
	// Column stores scales of rows with a second dimension of 1.
	Column bool
	// Inputs adds a scale for the activations of each matrix.
	Inputs bool
	// Config is the quantization_config of config.json, left out when it is nil.
	Config map[string]any
	// Keep says which matrices stay; embeddings, heads and routers do anyhow.
	Keep func(name string) bool
}

// FP8Specs are the ways of published checkpoints.
func FP8Specs() map[string]FP8Spec {
	group := func(strategy string, activations map[string]any) map[string]any {
		return map[string]any{
			"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": []string{"lm_head"}, "kv_cache_scheme": nil,
			"config_groups": map[string]any{"group_0": map[string]any{
				"targets": []string{"Linear"}, "input_activations": activations, "output_activations": nil,
				"weights": map[string]any{"num_bits": 8, "type": "float", "symmetric": true, "dynamic": false, "strategy": strategy, "group_size": nil},
			}},
		}
	}
	return map[string]FP8Spec{
		"blocks of 128": {Rows: 128, Cols: 128, Scale: "_scale_inv", Config: map[string]any{
			"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": []int{128, 128}, "modules_to_not_convert": []string{"lm_head"},
		}},
		"one scale, static":      {Scale: "_scale", Inputs: true, Config: map[string]any{"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": []string{"lm_head"}}},
		"compressed, one scale":  {Scale: "_scale", Inputs: true, ScaleType: safetensors.BF16, Config: group("tensor", map[string]any{"dynamic": false, "num_bits": 8, "type": "float"})},
		"compressed, rows":       {Rows: 1, Column: true, Scale: "_scale", ScaleType: safetensors.BF16, Config: group("channel", map[string]any{"dynamic": true, "num_bits": 8, "type": "float"})},
		"compressed, blocks":     {Rows: 128, Cols: 128, Scale: "_scale", Config: group("block", nil)},
		"fbgemm":                 {Rows: 1, Column: true, Scale: "_scale", Config: map[string]any{"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": []string{"lm_head"}}},
		"modelopt":               {Scale: "_scale", Inputs: true, Config: map[string]any{"quant_method": "modelopt", "quant_algo": "FP8", "ignore": []string{"lm_head"}}},
		"modelopt without a key": {Scale: "_scale", Inputs: true},
	}
}

// FP8 writes a copy of the checkpoint in dir, one file, whose matrices of layers are fp8,
// and another one that has their values as bf16. Codes and scales are made by arithmetic of
// its own: what reads them back proves something.
func FP8(t testing.TB, dir string, spec FP8Spec) (stored, plain string) {
	t.Helper()
	m := open(t, dir)
	stored, plain = t.TempDir(), t.TempDir()
	for _, f := range m.Files() {
		for _, to := range []string{stored, plain} {
			writeFile(t, filepath.Join(to, f.Name), f.Data)
		}
	}
	if spec.Config != nil {
		config := readJSON(t, filepath.Join(dir, model.ConfigName))
		config["quantization_config"] = spec.Config
		raw, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(stored, model.ConfigName), raw)
	}
	var coded, wide tensors
	for _, info := range m.Inventory() {
		v, name := values(t, m, info.Name), info.Name
		if len(info.Shape) != 2 || !strings.Contains(name, "_proj.weight") && !strings.Contains(name, ".experts.") || spec.Keep != nil && spec.Keep(name) {
			coded.add(t, name, safetensors.BF16, bf16Bytes(v), info.Shape...)
			wide.add(t, name, safetensors.BF16, bf16Bytes(v), info.Shape...)
			continue
		}
		codes, scales, shape := spec.encode(v, info.Shape[0], info.Shape[1])
		coded.add(t, name, safetensors.F8_E4M3, codes, info.Shape...)
		scaleType, data := safetensors.F32, floatBytes(scales)
		if spec.ScaleType == safetensors.BF16 {
			scaleType, data = safetensors.BF16, bf16Bytes(scales)
		}
		coded.add(t, name+spec.Scale, scaleType, data, shape...)
		if spec.Inputs {
			coded.add(t, strings.TrimSuffix(name, "weight")+"input_scale", safetensors.F32, floatBytes([]float32{0.5}))
		}
		wide.add(t, name, safetensors.BF16, bf16Bytes(v), info.Shape...)
	}
	coded.write(t, stored)
	wide.write(t, plain)
	return stored, plain
}

// encode makes codes and scales of a matrix, and leaves in v what they stand for.
func (s FP8Spec) encode(v []float32, rows, cols int) (codes []byte, scales []float32, shape []int) {
	height, width := s.Rows, s.Cols
	if height == 0 {
		height = rows
	}
	if width == 0 {
		width = cols
	}
	down, across := (rows+height-1)/height, (cols+width-1)/width
	most := make([]float64, down*across)
	for i, x := range v {
		block := i/cols/height*across + i%cols/width
		most[block] = max(most[block], math.Abs(float64(x)))
	}
	for _, m := range most {
		scale := float32(m / 448)
		if s.ScaleType == safetensors.BF16 {
			scale = safetensors.FromBF16(safetensors.ToBF16(scale))
		}
		scales = append(scales, scale)
	}
	for i, x := range v {
		scale := scales[i/cols/height*across+i%cols/width]
		code := nearestE4M3(float64(x) / float64(scale))
		codes = append(codes, code)
		v[i] = float32(e4m3Value(code)) * scale
	}
	switch {
	case s.Rows == 1 && s.Column:
		shape = []int{rows, 1}
	case s.Rows == 1:
		shape = []int{rows}
	case s.Rows != 0:
		shape = []int{down, across}
	}
	return codes, scales, shape
}

// e4m3Values are the numbers of the codes below 0x7f, which grow.
var e4m3Values = func() (all [0x7f]float64) {
	for code := range all {
		all[code] = float64(code&7) / 512
		if e := code >> 3; e > 0 {
			all[code] = float64(8|code&7) / 8 * math.Pow(2, float64(e-7))
		}
	}
	return all
}()

// e4m3Value is what a code below 0x7f, or that plus a sign, stands for.
func e4m3Value(code byte) float64 {
	if code >= 0x80 {
		return -e4m3Values[code-0x80]
	}
	return e4m3Values[code]
}

// nearestE4M3 is the code of the nearest number.
func nearestE4M3(v float64) byte {
	size := math.Abs(v)
	i, _ := slices.BinarySearch(e4m3Values[:], size)
	if i = min(i, len(e4m3Values)-1); i > 0 && size-e4m3Values[i-1] < e4m3Values[i]-size {
		i--
	}
	if v < 0 {
		i |= 0x80
	}
	return byte(i)
}

// tensors collects a file.
type tensors struct {
	layout safetensors.Layout
	data   []byte
}

func (f *tensors) add(t testing.TB, name string, dtype safetensors.DType, data []byte, shape ...int) {
	t.Helper()
	if _, err := f.layout.Add(name, dtype, shape...); err != nil {
		t.Fatal(err)
	}
	f.data = append(f.data, data...)
}

func (f *tensors) write(t testing.TB, dir string) {
	t.Helper()
	writeFile(t, filepath.Join(dir, safetensors.SingleName), append(f.layout.Header(nil), f.data...))
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func bf16Bytes(v []float32) (out []byte) {
	for _, x := range v {
		out = binary.LittleEndian.AppendUint16(out, safetensors.ToBF16(x))
	}
	return out
}

func floatBytes(v []float32) (out []byte) {
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

// fp8Floats gives the numbers of a matrix of fp8.
func fp8Floats(t testing.TB, tensor model.Tensor) []float32 {
	t.Helper()
	rows, cols := tensor.Shape[0], tensor.Shape[1]
	out, w := make([]float32, rows*cols), safetensors.NewWidener(tensor)
	for r := range rows {
		if err := w.Row(out[r*cols:][:cols], r); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
