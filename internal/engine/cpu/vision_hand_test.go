package cpu

import (
	"math"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
)

// The cases below were worked out by hand from the published formulas.

func TestGELUs(t *testing.T) {
	logistic := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	exact := map[model.Activation]func(x float64) float64{
		model.GELU:      func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) },
		model.QuickGELU: func(x float64) float64 { return x * logistic(1.702*x) },
		model.GELUTanh: func(x float64) float64 {
			return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
		},
	}
	var x []float32
	for v := -12.0; v <= 12; v += 1.0 / 256 {
		x = append(x, float32(v))
	}
	x = append(x, 100, -100, 1e18, -1e18, 0) // not a multiple of the kernels' sixteen
	for act, f := range exact {
		var first []float32
		for _, level := range kernel.Levels() {
			got := slices.Clone(x)
			gelu(level, act, got)
			for i, v := range x {
				want := f(float64(v))
				if math.Abs(float64(got[i])-want) > 5e-7*max(1, math.Abs(want)) {
					t.Fatalf("%s at %s: of %v is %v, want %v", act, level, v, got[i], want)
				}
			}
			if first == nil {
				first = got
			}
			sameBits(t, string(act)+" at "+level.String(), got, first)
		}
	}
}

func TestErrorFunction(t *testing.T) {
	for x := -6.0; x <= 6; x += 1.0 / 1024 {
		if got, want := float64(erff(float32(x))), math.Erf(x); math.Abs(got-want) > 2e-7 {
			t.Fatalf("erf(%v) = %v, want %v", x, got, want)
		}
	}
}

// TestLayerNorm: 1, 2, 3, 6 have the mean 3 and the variance 3.5.
func TestLayerNorm(t *testing.T) {
	n := layerNorm{weight: []float32{1, 2, 1, 1}, bias: []float32{0, 10, 0, -1}}
	for _, level := range kernel.Levels() {
		x := []float32{1, 2, 3, 6}
		n.apply(level, x, x, 0.5)
		for i, want := range []float32{-1, 9, 0, 0.5} {
			if math.Abs(float64(x[i]-want)) > 1e-6 {
				t.Errorf("%s: value %d is %v, want %v", level, i, x[i], want)
			}
		}
	}
}

// TestPlaces: patches of smaller views take the position at the same share of a side.
func TestPlaces(t *testing.T) {
	for _, tt := range []struct {
		side, n int
		want    []int
	}{
		{8, 8, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{8, 4, []int{0, 2, 4, 6}},
		{8, 3, []int{0, 2, 5}}, // 0, 2.67, 5.33 eighths
		{8, 1, []int{0}},
		{4, 7, []int{0, 0, 1, 1, 2, 2, 3}}, // more patches than positions
		{5, 5, []int{0, 1, 2, 3, 4}},
	} {
		tower := tower{Vision: model.Vision{ImageSize: 4 * tt.side, PatchSize: 4, Bucketed: true}}
		var got []int
		for i := range tt.n {
			got = append(got, tower.place(i, tt.n))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%d of %d: %v, want %v", tt.n, tt.side, got, tt.want)
		}
	}
	for _, side := range []int{26, 27, 32} {
		tower := tower{Vision: model.Vision{ImageSize: side, PatchSize: 1, Bucketed: true}}
		for n := 1; n <= side; n++ {
			for i := range n {
				if got := tower.place(i, n); got != i*side/n {
					t.Errorf("%d of %d in %d: %d", i, n, side, got)
				}
			}
		}
	}
}

// TestGatherByHand: 4 × 4 patches, numbered row by row, in squares of 2 × 2.
func TestGatherByHand(t *testing.T) {
	e := Encoder{runner: runner{device: new(Device)}, tower: &tower{Vision: model.Vision{Hidden: 1, PatchSize: 2, ImageSize: 8}}, view: &engine.View{W: 8, H: 8}}
	for i := range 16 {
		e.x = append(e.x, []float32{float32(i)})
	}
	gather := func(kind model.ProjectorKind, width, row int) []float32 {
		e.tower.Projector = model.Projector{Kind: kind, Factor: 2, NormEps: 0}
		out := make([]float32, width)
		e.gather(out, row)
		return out
	}
	for row, want := range [][]float32{{0, 1, 4, 5}, {2, 3, 6, 7}, {8, 9, 12, 13}, {10, 11, 14, 15}} {
		if got := gather(model.ProjectShuffle, 4, row); !slices.Equal(got, want) {
			t.Errorf("row %d: %v, want %v", row, got, want)
		}
	}
	// One value that is scaled to a root mean square of one is its sign, times the weight.
	e.tower.project.norm.weight = []float32{7}
	if got := gather(model.ProjectPool, 1, 3); got[0] != 7 {
		t.Errorf("average: %v, want 7", got)
	}
	e.tower.ClassToken = true
	for _, keep := range []bool{false, true} {
		e.tower.KeepClass = keep
		want := []float32{4}
		if keep {
			want[0] = 3
		}
		if got := gather(model.ProjectMLP, 1, 3); !slices.Equal(got, want) {
			t.Errorf("class token kept is %v: %v, want %v", keep, got, want)
		}
	}
}

// TestAttendBothWaysByHand: with equal scores attention is the mean of all positions that
// count, whatever the query's own.
func TestAttendBothWaysByHand(t *testing.T) {
	zero := func(int) [2]float32 { return [2]float32{} }
	place := func(p int) [2]float32 { return [2]float32{float32(p), 1} }
	for _, tt := range []struct{ both, pos int }{{1, 10}, {11, 10}, {8, 600}, {256, 600}, {257, 600}, {500, 600}} {
		for _, level := range kernel.Levels() {
			a := attention{level: level}
			got := attendWithin(a, engine.Span{End: tt.both}, 1, tt.pos, [2]float32{1, 1}, zero, place)
			if want := float64(tt.both-1) / 2; math.Abs(float64(got[0])-want) > 1e-4*max(want, 1) || math.Abs(float64(got[1])-1) > 1e-6 {
				t.Errorf("%s: %d positions: mean %v, want %v", level, tt.both, got[0], want)
			}
		}
	}
}
