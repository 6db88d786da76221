package gpu_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/model/safetensors"
	"github.com/dynctl/dynctl/internal/patience"
)

// fp8Specs are models whose rows have more than one block of 128 weights, and whose matrices
// end within blocks.
func fp8Specs() map[string]modeltest.Spec {
	return map[string]modeltest.Spec{
		"dense": {Family: "qwen3", Layers: 1, Hidden: 144, Heads: 4, KVHeads: 2, HeadDim: 48, FFN: 160, Vocab: 288, DType: "bf16", Tied: true, Seed: 6},
		"fused": {Family: "phi3", Layers: 1, Hidden: 144, Heads: 4, KVHeads: 2, HeadDim: 48, FFN: 144, Vocab: 288, DType: "bf16", Seed: 6},
		"experts": {Family: "mixtral", Layers: 1, Hidden: 144, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 144, Vocab: 288, DType: "bf16", Seed: 9,
			Extra: map[string]any{"num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": nil}},
	}
}

// TestFP8 is TestFamilies for weights of fp8, with scales for matrices, rows and blocks. They
// take a byte each on the device.
func TestFP8(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("other arithmetic in the goroutines of TestFamilies")
	}
	for shape, spec := range fp8Specs() {
		dir := modeltest.Generate(t, spec)
		for _, name := range []string{"blocks of 128", "compressed, rows", "one scale, static"} {
			if shape != "dense" && name != "blocks of 128" {
				continue
			}
			t.Run(shape+", "+name, func(t *testing.T) {
				t.Parallel()
				stored, plain := modeltest.FP8(t, dir, modeltest.FP8Specs()[name])
				coded, wide := open(t, stored, model.Options{}), open(t, plain, model.Options{})
				compareSteps(t, newRig(t, coded, 16, options), reference{t: t, m: coded, c: coded.Config(), exact: true}, newCPURig(t, coded, 16, blockSize))
				d := newDevice(t, newDriver(t, 1<<30))
				bytes := func(m *model.Model) int64 {
					w, err := d.Load(t.Context(), m)
					if err != nil {
						t.Fatal(err)
					}
					if why := w.Warning(); why != "" {
						t.Error(why)
					}
					if err := w.Close(t.Context()); err != nil {
						t.Error(err)
					}
					return w.Bytes()
				}
				var matrices int64
				for _, tensor := range coded.Tensors() {
					if stored, err := coded.Tensor(tensor.Name); err == nil && stored.DType == safetensors.F8_E4M3 {
						matrices += int64(len(stored.Data))
					}
				}
				// Scales and the rounding of sizes up to what devices like are a tenth of such small matrices.
				if saved := bytes(wide) - bytes(coded); saved < matrices*85/100 || saved > matrices {
					t.Errorf("%d bytes are saved by matrices of %d", saved, matrices)
				}
			})
		}
	}
}

// Matrices that lie next to others of another type, or whose rows no kernel knows, are bf16,
// which is said.
func TestFP8BesideBF16(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("other arithmetic in the goroutines of TestFamilies")
	}
	mixed := modeltest.FP8Specs()["compressed, rows"]
	mixed.Keep = func(name string) bool { return strings.Contains(name, "v_proj") }
	odd := fp8Specs()["dense"]
	odd.FFN = 152 // not a multiple of 16
	for name, tt := range map[string]struct {
		spec modeltest.Spec
		fp8  modeltest.FP8Spec
	}{"beside others": {fp8Specs()["dense"], mixed}, "rows of 152": {odd, modeltest.FP8Specs()["blocks of 128"]}} {
		stored, _ := modeltest.FP8(t, modeltest.Generate(t, tt.spec), tt.fp8)
		coded := open(t, stored, model.Options{})
		d := newDevice(t, newDriver(t, 1<<30))
		w, err := d.Load(t.Context(), coded)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(w.Warning(), "F8_E4M3") {
			t.Errorf("%s: warning %q", name, w.Warning())
		}
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
		compareSteps(t, newRig(t, coded, 16, options), reference{t: t, m: coded, c: coded.Config(), exact: true}, newCPURig(t, coded, 16, blockSize))
	}
}

// A code or a scale that is no number ends the load with the tensor's name.
func TestFP8RefusesNaN(t *testing.T) {
	dir, _ := modeltest.FP8(t, modeltest.Generate(t, fp8Specs()["dense"]), modeltest.FP8Specs()["blocks of 128"])
	path := filepath.Join(dir, safetensors.SingleName)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := open(t, dir, model.Options{})
	const name = "model.layers.0.mlp.down_proj.weight"
	for part, bad := range map[string][]byte{name: {0x7f}, name + "_scale_inv": {0, 0, 0xc0, 0x7f}} {
		tensor, err := m.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		if part != name {
			tensor = tensor.Scales.Tensor
		}
		changed := bytes.Clone(file)
		at := bytes.Index(changed, tensor.Data[:min(64, len(tensor.Data))])
		copy(changed[at:], bad)
		broken := filepath.Join(t.TempDir(), "model")
		if err := os.CopyFS(broken, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(broken, safetensors.SingleName), changed, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err = newDevice(t, newDriver(t, 1<<30)).Load(t.Context(), open(t, broken, model.Options{}))
		if !errors.Is(err, safetensors.ErrNotANumber) || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", part, err)
		}
	}
}

// TestFP8Groups is TestGroups for weights of fp8: columns are shared in blocks of their scales,
// three of them by two ranks. A matrix that is cut within blocks becomes bf16.
func TestFP8Groups(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("other arithmetic in the goroutines of TestGroups")
	}
	for headDim, cut := range map[int]bool{64: false, 48: true} {
		spec := modeltest.Spec{Family: "llama", Layers: 1, Hidden: 144, Heads: 4, KVHeads: 2, HeadDim: headDim, FFN: 384, Vocab: 288, DType: "bf16", Seed: 9}
		stored, _ := modeltest.FP8(t, modeltest.Generate(t, spec), modeltest.FP8Specs()["blocks of 128"])
		m := open(t, stored, model.Options{})
		compareSteps(t, newGroupRig(t, m, 16, options, []int{0, 1}), reference{t: t, m: m, c: m.Config(), exact: true}, newCPURig(t, m, 16, blockSize))
		w, err := newGroup(t, closed(t, newFakes(t, 1<<28, 2)), 0, 1).Load(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if (w.Warning() != "") != cut {
			t.Errorf("heads of %d: warning %q", headDim, w.Warning())
		}
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
