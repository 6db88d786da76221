package cpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
)

// TestVisionBits: rows of a view have the same bits for any number of cores, in any
// company, and after any other view, at every level.
func TestVisionBits(t *testing.T) {
	if patience.RaceDetector {
		t.Skip(sameGoroutines)
	}
	visionGoldens(t, func(name string, g golden) {
		m := openGolden(t, g)
		for _, level := range kernel.Levels() {
			t.Run(name+" "+level.String(), func(t *testing.T) {
				var alone []float32
				for i := range g.Views {
					d := newDevice("cpu:0", 1, level)
					t.Cleanup(func() { _ = d.Close() })
					alone = append(alone, encode(t, newEncoder(t, d, m), g.view(i))...)
				}
				if got := apart(alone, g.rows()); got > visionBound {
					t.Errorf("largest difference %v of the largest value", got)
				}
				for _, cores := range []int{1, 2, 5} {
					d := newDevice("cpu:0", cores, level)
					t.Cleanup(func() { _ = d.Close() })
					e := newEncoder(t, d, m)
					for range 2 {
						sameBits(t, "together", encode(t, e, g.views()...), alone)
					}
					e.most = tokensPerItem
					sameBits(t, "in many parts", encode(t, e, g.views()...), alone)
				}
			})
		}
	})
}

// TestLevelsAgreeOnViews: kernels of all instruction sets give the same bits.
func TestLevelsAgreeOnViews(t *testing.T) {
	visionGoldens(t, func(name string, g golden) {
		m := openGolden(t, g)
		var all [][]float32
		for _, level := range kernel.Levels() {
			d := newDevice("cpu:0", 2, level)
			t.Cleanup(func() { _ = d.Close() })
			all = append(all, encode(t, newEncoder(t, d, m), g.views()...))
		}
		for i, rows := range all[:min(len(all), 2)] { // scripts/test-arm64.sh compares machines
			t.Logf("bits of views of %s, %s: %016x", name, [...]string{"portable", "with kernels"}[i], hash(rows))
		}
		for i, rows := range all[1:] {
			sameBits(t, fmt.Sprint(name, ", level ", i+1), rows, all[1])
		}
	})
}

// TestVisionInBF16: with activations in bf16, where the machine has them, rows stay near.
func TestVisionInBF16(t *testing.T) {
	for _, level := range kernel.Levels() {
		if !level.BF16() {
			continue
		}
		g := readGolden(t, "testdata/families/idefics3.json")
		d := newDevice("cpu:0", 2, level)
		d.bf16 = true
		t.Cleanup(func() { _ = d.Close() })
		got := apart(encode(t, newEncoder(t, d, openGolden(t, g)), g.views()...), g.rows())
		if got > 0.05 || got < noticed {
			t.Errorf("%s: largest difference %v of the largest value", level, got)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	view := func(w, h int) engine.View { return engine.View{W: w, H: h, Pixels: make([]float32, 3*w*h)} }
	with := func(v engine.View, change func(v *engine.View)) engine.View {
		change(&v)
		return v
	}
	patches := func(w, h int) engine.View { return engine.View{W: w, H: h, Patches: make([]float32, w*h*6)} }
	masked := func(shown ...int) func(v *engine.View) {
		return func(v *engine.View) {
			v.Mask = make([]bool, 36)
			for _, i := range shown {
				v.Mask[i] = true
			}
		}
	}
	for _, tt := range []struct {
		family string
		view   engine.View
		want   string // "" for a view that is read
	}{
		{"smolvlm", view(24, 24), ""},
		{"smolvlm", view(12, 12), ""},
		{"smolvlm", view(15, 15), ""}, // the last pixels are in no patch
		{"smolvlm", with(view(24, 24), masked(0, 1, 6, 7)), ""},
		{"smolvlm", view(0, 0), "0 × 0 pixels, want a square of at most 24 with a multiple of 3 patches of 4"},
		{"smolvlm", view(24, 12), "24 × 12 pixels, want a square"},
		{"smolvlm", view(16, 16), "16 × 16 pixels, want a square"},
		{"smolvlm", view(36, 36), "36 × 36 pixels, want a square"},
		{"smolvlm", with(view(24, 24), func(v *engine.View) { v.Pixels = v.Pixels[1:] }), "1727 values of pixels, want 3 × 24 × 24"},
		{"smolvlm", with(view(24, 24), func(v *engine.View) { v.Mask = make([]bool, 35) }), "a mask of 35 patches, want 36"},
		{"smolvlm", with(view(24, 24), masked()), "a rectangle at the top left"},
		{"smolvlm", with(view(24, 24), masked(1)), "a rectangle at the top left"},
		{"smolvlm", with(view(24, 24), masked(0, 1, 6)), "a rectangle at the top left"},
		{"smolvlm", with(view(24, 24), masked(0, 35)), "a rectangle at the top left"},
		{"llava", view(70, 70), ""},
		{"llava", view(56, 56), "56 × 56 pixels, want 70 × 70"},
		{"llava", with(view(70, 70), func(v *engine.View) { v.Mask = make([]bool, 25) }), "all patches of this tower count"},
		{"gemma3_text", view(24, 20), "24 × 20 pixels, want 24 × 24"},
		{"gemma3_text", with(view(24, 24), func(v *engine.View) { v.Patches = make([]float32, 1) }), "this tower takes pixels"},
		{"qwen2_vl", patches(8, 40), ""},
		{"qwen2_5_vl", patches(40, 24), ""},
		{"qwen2_vl", patches(0, 0), "0 × 0 pixels, want multiples of 8"},
		{"qwen2_vl", patches(12, 8), "12 × 8 pixels, want multiples of 8"},
		{"qwen2_vl", patches(8, 12), "8 × 12 pixels, want multiples of 8"},
		{"qwen2_vl", patches(-8, -8), "-8 × -8 pixels, want multiples of 8"},
		{"qwen2_vl", engine.View{W: 8 << 12, H: 8 << 12}, "have more than 65536 patches"},
		{"qwen2_vl", engine.View{W: 8 << 30, H: 8 << 31}, "have more than 65536 patches"},
		{"qwen2_vl", view(8, 8), "0 values of patches, want 4 × 96"},
		{"qwen2_vl", with(patches(8, 8), func(v *engine.View) { v.Patches = v.Patches[1:] }), "383 values of patches, want 4 × 96"},
		{"qwen2_vl", with(patches(8, 8), func(v *engine.View) { v.Mask = make([]bool, 4) }), "values of patches"},
	} {
		e := newEncoder(t, newTestDevice(t, 1), modeltest.Open(t, modeltest.Vision()[tt.family]))
		good := view(e.tower.ImageSize, e.tower.ImageSize)
		if e.tower.Grid {
			good = patches(16, 24)
		}
		rows, err := e.Encode(t.Context(), []engine.View{good, tt.view})
		if tt.want == "" {
			want := e.tower.Tokens() + e.tower.Rows(tt.view.W/e.tower.PatchSize)
			if e.tower.Grid {
				want = 6 + tt.view.W*tt.view.H/64
			}
			if err != nil || len(rows) != want {
				t.Errorf("%s, %d × %d: %d rows, want %d; %v", tt.family, tt.view.W, tt.view.H, len(rows), want, err)
			}
			continue
		}
		if !errors.Is(err, engine.ErrView) || !strings.Contains(err.Error(), "view 1: ") || !strings.Contains(err.Error(), tt.want) || rows != nil {
			t.Errorf("%s, %d × %d: %v, want %q", tt.family, tt.view.W, tt.view.H, err, tt.want)
		}
	}
}

func TestEncoderEnds(t *testing.T) {
	m := modeltest.Open(t, modeltest.Vision()["smolvlm"])
	d := newTestDevice(t, 2)
	e := newEncoder(t, d, m)
	if rows, err := e.Encode(t.Context(), nil); err != nil || len(rows) != 0 {
		t.Errorf("no views: %d rows, %v", len(rows), err)
	}
	views := []engine.View{{W: 24, H: 24, Pixels: make([]float32, 3*24*24)}}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("nobody waits for it")
	cancel(why)
	if _, err := e.Encode(ctx, views); !errors.Is(err, why) {
		t.Errorf("canceled: %v", err)
	}
	if _, err := e.Encode(t.Context(), views); err != nil {
		t.Errorf("after a canceled one: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := e.Encode(t.Context(), views); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	text, err := d.Load(modeltest.Open(t, modeltest.Spec{}))
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	if _, err := text.NewEncoder(); !errors.Is(err, ErrNoVision) {
		t.Errorf("a model of text alone: %v", err)
	}
}

// TestEncoderBytes compares what a device says that an encoder needs with what it packs.
func TestEncoderBytes(t *testing.T) {
	for name, spec := range modeltest.Vision() {
		m := modeltest.Open(t, spec)
		for _, level := range kernel.Levels() {
			d := newDevice("cpu:0", 1, level)
			w, err := d.Load(m)
			if err != nil {
				t.Fatal(err)
			}
			text := d.CopyBytes(m)
			for _, m := range w.matrices() {
				text -= int64(len(m.packed.data))
			}
			if text != 0 {
				t.Errorf("%s at %s: text alone is %d bytes off", name, level, text)
			}
			if _, err := w.NewEncoder(); err != nil {
				t.Fatal(err)
			}
			want := int64(0)
			for _, m := range w.tower.matrices() {
				want += int64(len(m.packed.data))
			}
			if in := w.tower.project.in; level == kernel.Portable && name == "gemma3_text" {
				want += int64(4*len(in.f32) + 2*len(in.u16))
			}
			if got := d.EncoderBytes(m); got != want {
				t.Errorf("%s at %s: %d bytes, want %d", name, level, got, want)
			}
			one, _ := w.NewEncoder()
			other, _ := w.NewEncoder()
			if one.tower != other.tower {
				t.Error("two encoders do not share their weights")
			}
			if err := errors.Join(w.Close(), d.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	if got := newTestDevice(t, 1).EncoderBytes(modeltest.Open(t, modeltest.Spec{})); got != 0 {
		t.Errorf("%d bytes for a model of text alone", got)
	}
}

// TestEncodeAllocates: beside results, encoding allocates nothing once it has run.
func TestEncodeAllocates(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("the race detector allocates")
	}
	visionGoldens(t, func(name string, g golden) {
		e := newEncoder(t, newTestDevice(t, 2), openGolden(t, g))
		views := g.views()
		if n := patience.Allocs(5, func() { _, _ = e.Encode(t.Context(), views) }); n > 2 {
			t.Errorf("%s: %v allocations", name, n)
		}
	})
}

// TestDecodeGoesBeforeEncoding: an encoder lets decode steps of other workers go first, and
// steps with prefill chunks take turns with it.
func TestDecodeGoesBeforeEncoding(t *testing.T) {
	g := readGolden(t, "testdata/families/smolvlm.json")
	for _, prefill := range []bool{false, true} {
		e := newEncoder(t, newTestDevice(t, 1), openGolden(t, g))
		others := []*turn{newTurn(), newTurn()}
		turns := &e.device.turns
		steps := 0
		inside := e.tasks.qkv.run
		e.tasks.qkv.run = func(l *lane, item int) {
			// From within the first layer of the encoder, which holds the device.
			if steps == 0 {
				steps++
				e.since = e.since.Add(-time.Hour) // its share is over
				for i, other := range others {
					other.prefill = prefill
					go func() {
						if turns.acquire(t.Context(), other, false) == nil {
							steps++
							turns.release(other)
						}
					}()
					patience.Until(t, "another step waits", func() bool {
						turns.mu.Lock()
						defer turns.mu.Unlock()
						return len(turns.decode)+len(turns.prefill) > i
					})
				}
			}
			inside(l, item)
		}
		last := 0
		ending := e.tasks.postNorm.run
		e.tasks.postNorm.run = func(l *lane, item int) {
			last = steps
			ending(l, item)
		}
		encode(t, e, g.view(0))
		if last != 3 {
			t.Errorf("prefill %v: %d of two other steps ran before the last norm", prefill, last-1)
		}
	}
}

// TestVisionQuantizedText: a model whose text weights are quantized reads images with the
// same bits.
func TestVisionQuantizedText(t *testing.T) {
	spec := modeltest.Vision()["idefics3"]
	dir := modeltest.Generate(t, spec)
	var want []float32
	for _, format := range []string{"", "q8_0"} {
		m, err := model.Open(dir, model.Options{Quantize: format})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		if err := m.Prepare(t.Context(), model.Cache{Dir: t.TempDir()}); err != nil {
			t.Fatal(err)
		}
		v := engine.View{W: 24, H: 24, Pixels: goldenTensor{name: "pixels", shape: []int{3, 24, 24}, width: 2}.values(1)}
		got := encode(t, newEncoder(t, newTestDevice(t, 1), m), v)
		if format == "" {
			want = got
		}
		sameBits(t, format, got, want)
	}
	if len(want) == 0 || math.IsNaN(float64(want[0])) {
		t.Errorf("rows %v", want)
	}
}
