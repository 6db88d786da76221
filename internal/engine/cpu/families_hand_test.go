package cpu

import (
	"math"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/kvlayout"
)

// The cases below were worked out by hand from the published formulas. They share
// nothing with the recorded results of other implementations.

func TestTanhAndGELU(t *testing.T) {
	for x := -12.0; x <= 12; x += 1.0 / 1024 {
		if got, want := float64(tanhf(float32(x))), math.Tanh(x); math.Abs(got-want) > 3e-7*math.Abs(want) {
			t.Fatalf("tanh(%v) = %v, want %v", x, got, want)
		}
	}
	for x, want := range map[float32]float32{100: 1, -100: -1, 0: 0} {
		if got := tanhf(x); got != want {
			t.Errorf("tanh(%v) = %v, want %v", x, got, want)
		}
	}
	for x, want := range map[float32]float64{0: 0, 1: 0.8411919906, -1: -0.1588080094, 2: 1.9545976400, -0.5: -0.1542859874, 20: 20, -20: 0} {
		if got := float64(geluTanh(x)); math.Abs(got-want) > 2e-7*max(1, math.Abs(want)) {
			t.Errorf("gelu(%v) = %v, want %v", x, got, want)
		}
	}
}

// TestEmbedScale: √3072 is 55.4256, √3584 is 59.8665, and √2304 is 48.
func TestEmbedScale(t *testing.T) {
	bf16, f16, f32 := matrix{u16: []uint16{0}}, matrix{u16: []uint16{0}, half: true}, matrix{f32: []float32{0}}
	for _, tt := range []struct {
		m      matrix
		hidden float64
		want   float32
	}{
		{bf16, 3072, 55.5}, {bf16, 3584, 59.75}, {bf16, 2304, 48},
		{f16, 3072, 55.4375}, {f16, 3584, 59.875}, {f16, 2304, 48},
		{f32, 3072, float32(math.Sqrt(3072))},
	} {
		if got := tt.m.round(float32(math.Sqrt(tt.hidden))); got != tt.want {
			t.Errorf("√%v is %v, want %v", tt.hidden, got, tt.want)
		}
	}
}

// TestPick: scores of the logarithms of 1, 4, 2, 3 are shares of tenths.
func TestPick(t *testing.T) {
	ln := func(x float64) float32 { return float32(math.Log(x)) }
	tests := []struct {
		name      string
		scores    []float32
		active    int
		normalize bool
		experts   []int
		shares    []float64
	}{
		{"two of four", []float32{ln(1), ln(4), ln(2), ln(3)}, 2, false, []int{1, 3}, []float64{0.4, 0.3}},
		{"normalized", []float32{ln(1), ln(4), ln(2), ln(3)}, 2, true, []int{1, 3}, []float64{4.0 / 7, 3.0 / 7}},
		{"all", []float32{ln(1), ln(4), ln(2), ln(3)}, 4, false, []int{1, 3, 2, 0}, []float64{0.4, 0.3, 0.2, 0.1}},
		{"one", []float32{ln(1), ln(4), ln(2), ln(3)}, 1, true, []int{1}, []float64{1}},
		{"ties go to the first", []float32{7, 7, 7, 7}, 3, false, []int{0, 1, 2}, []float64{0.25, 0.25, 0.25}},
		{"far apart", []float32{-200, 200}, 2, true, []int{1, 0}, []float64{1, 0}},
	}
	for _, tt := range tests {
		chosen := make([]choice, tt.active)
		pick(chosen, tt.scores, tt.normalize)
		var experts []int
		for i, c := range chosen {
			experts = append(experts, c.expert)
			if math.Abs(float64(c.share)-tt.shares[i]) > 1e-6 {
				t.Errorf("%s: share %d is %v, want %v", tt.name, i, c.share, tt.shares[i])
			}
		}
		if !slices.Equal(experts, tt.experts) {
			t.Errorf("%s: experts %v, want %v", tt.name, experts, tt.experts)
		}
	}
	nan := float32(math.NaN())
	chosen := make([]choice, 2)
	pick(chosen, []float32{nan, nan, nan}, true) // from broken weights: no crash
	if chosen[0].expert == chosen[1].expert {
		t.Errorf("the same expert twice: %v", chosen)
	}
}

// attend computes attention of one head with two values for the query at pos, in so
// many items. Keys and values are functions of the position.
func attend(a attention, parts, pos int, query [2]float32, key, value func(p int) [2]float32) []float32 {
	return attendWithin(a, engine.Span{}, parts, pos, query, key, value)
}

// attendWithin is attend of a query that is in a mutual run, which need not reach its own
// position.
func attendWithin(a attention, mutual engine.Span, parts, pos int, query [2]float32, key, value func(p int) [2]float32) []float32 {
	shape := kvlayout.Shape{Layers: 1, KVHeads: 1, HeadDim: 2, BlockSize: 8, DType: "f32"}
	n := pos/8 + 1
	c := newCache(shape, n, make([]byte, n*int(shape.BlockBytes())))
	l := new(lane)
	for p := range pos + 1 {
		k, v := key(p), value(p)
		c.write(a.level, &l.write, int32(p/8), 0, 0, p%8, k[:])
		c.write(a.level, &l.write, int32(p/8), 0, 1, p%8, v[:])
	}
	a.ranks, a.group, a.headDim, a.blockSize, a.plan = ranks{c}, 1, 2, 8, new(attnPlan)
	a.query, a.out = [][]float32{query[:]}, [][]float32{make([]float32, 2)}
	t := tile{blocks: table(0, n), count: 1, start: pos, mutual: mutual}
	whole := attnItem{from: a.oldest(t, pos) / segment, to: (t.end(pos)-1)/segment + 1, split: -1}
	if parts = min(parts, whole.to-whole.from); parts == 1 {
		a.run(l, t, whole)
		return a.out[0]
	}
	a.plan.split(whole, parts, 1, padded(2))
	a.plan.splits[0].left.Store(int32(parts))
	for _, item := range slices.Backward(a.plan.items) { // in any order
		a.run(new(lane), t, item)
	}
	return a.out[0]
}

// attendAll is attend at all levels of the machine and in one, two and three items,
// and demands that the number of items changes nothing.
func attendAll(t *testing.T, a attention, pos int, query [2]float32, key, value func(p int) [2]float32, check func(got []float32)) {
	t.Helper()
	for _, a.level = range kernel.Levels() {
		one := attend(a, 1, pos, query, key, value)
		check(one)
		for parts := 2; parts <= 3; parts++ {
			sameBits(t, a.level.String(), attend(a, parts, pos, query, key, value), one)
		}
	}
}

// TestWindowByHand: with equal scores attention is the mean of what is seen, and
// the mean of a run of positions is its middle.
func TestWindowByHand(t *testing.T) {
	zero := func(int) [2]float32 { return [2]float32{} }
	place := func(p int) [2]float32 { return [2]float32{float32(p), 1} }
	for _, tt := range []struct {
		window, pos int
		want        float64
	}{
		{0, 10, 5}, {1, 10, 10}, {3, 10, 9}, {11, 10, 5}, {12, 10, 5}, {100, 10, 5},
		{2, 256, 255.5},    // over the border of two segments
		{1, 255, 255},      // the last of a segment
		{1, 256, 256},      // the first of one
		{256, 511, 383.5},  // a whole segment
		{257, 511, 383},    // and one before
		{100, 700, 650.5},  // the first two segments are not seen
		{600, 1000, 700.5}, // over three segments
		{0, 1000, 500},     //
	} {
		attendAll(t, attention{window: tt.window}, tt.pos, [2]float32{1, 1}, zero, place, func(got []float32) {
			if math.Abs(float64(got[0])-tt.want) > 1e-4*max(tt.want, 1) || math.Abs(float64(got[1])-1) > 1e-6 {
				t.Errorf("window %d at %d: mean %v, want %v", tt.window, tt.pos, got[0], tt.want)
			}
		})
	}
}

// TestScoreCapByHand: scores 0 and 8 with a cap of 5 are 0 and 5·tanh(1.6) = 4.6083;
// e to that power is 100.318.
func TestScoreCapByHand(t *testing.T) {
	last := func(p int) [2]float32 { return [2]float32{float32(p)} }
	for limit, want := range map[float32]float64{5: 100.318 / 101.318, 0: 1 / (1 + math.Exp(-8))} {
		attendAll(t, attention{limit: limit}, 1, [2]float32{8}, last, last, func(got []float32) {
			if math.Abs(float64(got[0])-want) > 1e-5 {
				t.Errorf("cap %v: share %v, want %v", limit, got[0], want)
			}
		})
	}
}

// TestRotatePart: a quarter turn of the first pair of a head of six, of which four
// values turn.
func TestRotatePart(t *testing.T) {
	x := []float32{1, 2, 3, 4, 5, 6}
	rotate(kernel.Portable, x, []float32{0, 1}, []float32{1, 0}, 10)
	if want := []float32{-30, 20, 10, 40, 50, 60}; !slices.Equal(x, want) {
		t.Errorf("got %v, want %v", x, want)
	}
}
