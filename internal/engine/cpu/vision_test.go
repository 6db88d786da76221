package cpu

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/patience"
)

// goldenView is a view whose pixels follow from the seed, and the rows that the reference
// computed for it, as a family file has them.
type goldenView struct {
	W, H int
	Mask []int
	Rows []byte // [row][hidden] in float32, little-endian
}

// view makes the i-th view.
func (g golden) view(i int) engine.View {
	v := g.Views[i]
	name := "view." + strconv.Itoa(i)
	if patches := g.patches(name, v.W, v.H); patches != nil {
		return engine.View{W: v.W, H: v.H, Patches: patches}
	}
	out := engine.View{W: v.W, H: v.H, Pixels: goldenTensor{name: name, shape: []int{3, v.H, v.W}, width: 2}.values(g.Seed)}
	for _, m := range v.Mask {
		out.Mask = append(out.Mask, m == 1)
	}
	return out
}

// patches cuts a view for a tower that takes patches, whose frames differ from each other; nil
// for another tower.
func (g golden) patches(name string, w, h int) (out []float32) {
	var config struct {
		Vision struct {
			Frames int `json:"temporal_patch_size"`
			Patch  int `json:"patch_size"`
			Merge  int `json:"spatial_merge_size"`
		} `json:"vision_config"`
	}
	if err := json.Unmarshal(g.Config, &config); err != nil || config.Vision.Frames == 0 {
		return nil
	}
	v := config.Vision
	pixels := goldenTensor{name: name, shape: []int{3, v.Frames, h, w}, width: 2}.values(g.Seed)
	block := v.Patch * v.Merge
	for at := range w * h / (v.Patch * v.Patch) {
		square, inside := at/(v.Merge*v.Merge), at%(v.Merge*v.Merge)
		y := square/(w/block)*block + inside/v.Merge*v.Patch
		x := square%(w/block)*block + inside%v.Merge*v.Patch
		for plane := range 3 * v.Frames {
			for row := range v.Patch {
				out = append(out, pixels[(plane*h+y+row)*w+x:][:v.Patch]...)
			}
		}
	}
	return out
}

func (g golden) views() (out []engine.View) {
	for i := range g.Views {
		out = append(out, g.view(i))
	}
	return out
}

// rows are the recorded rows of all views.
func (g golden) rows() (out []float32) {
	for _, v := range g.Views {
		out = append(out, floats(v.Rows)...)
	}
	return out
}

// newEncoder makes an encoder that lives as long as the test.
func newEncoder(t testing.TB, d *Device, m *model.Model) *Encoder {
	t.Helper()
	w, err := d.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	e, err := w.NewEncoder()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func encode(t testing.TB, e *Encoder, views ...engine.View) (out []float32) {
	t.Helper()
	rows, err := e.Encode(t.Context(), views)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		out = append(out, row...)
	}
	return out
}

// apart returns the largest difference, as a share of the largest value.
func apart(got, want []float32) float64 {
	if len(got) != len(want) || len(got) == 0 {
		return math.Inf(1)
	}
	top, worst := 0.0, 0.0
	for i, w := range want {
		top, worst = max(top, math.Abs(float64(w))), max(worst, math.Abs(float64(got[i]-w)))
		if got[i] != got[i] {
			return math.Inf(1)
		}
	}
	return worst / top
}

// visionGoldens calls f for each recorded checkpoint that has views.
func visionGoldens(t *testing.T, f func(name string, g golden)) {
	t.Helper()
	paths, err := filepath.Glob("testdata/families/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if g := readGolden(t, path); len(g.Views) > 0 {
			f(strings.TrimSuffix(filepath.Base(path), ".json"), g)
		}
	}
}

func openGolden(t *testing.T, g golden) *model.Model {
	t.Helper()
	m, err := model.Open(g.write(t), model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// visionBound is the largest difference from the PyTorch references, as a share of the
// largest value: both compute in float32 from the same weights. It is smaller than that of
// TestFamilies, so that the changes of TestVisionNotices are far from it.
const visionBound = 1e-5

// TestVision compares the rows of every family with a plain PyTorch implementation.
func TestVision(t *testing.T) {
	if patience.RaceDetector {
		t.Skip(sameGoroutines)
	}
	n := 0
	visionGoldens(t, func(name string, g golden) {
		n++
		t.Run(name, func(t *testing.T) {
			e := newEncoder(t, newTestDevice(t, 2), openGolden(t, g))
			got := apart(encode(t, e, g.views()...), g.rows())
			t.Logf("largest difference %.1e of the largest value", got)
			if got > visionBound {
				t.Errorf("largest difference %v of the largest value, want below %v", got, visionBound)
			}
		})
	})
	if n < 6 {
		t.Errorf("%d recorded checkpoints", n)
	}
}

// newTestDevice is a device that keeps activations in float32, at the level that the
// environment chooses.
func newTestDevice(t testing.TB, cores int) *Device {
	d := NewDevice("cpu:0", cores)
	d.bf16 = false
	t.Cleanup(func() { _ = d.Close() })
	return d
}
