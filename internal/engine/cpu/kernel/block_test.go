package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestQuantize checks blocks by their definition: each value is within half a step
// of what it stands for, and the sums are those of the values.
func TestQuantize(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 1))
	for _, size := range []float64{0, 1e-38, 1e-30, 1e-3, 1, 1e5, 1e38} {
		x := normals(r, 8*BlockSize)
		for i := range x {
			x[i] = float32(float64(x[i]) / 8 * size)
		}
		blocks := make([]Block, 8)
		Best().Quantize(blocks, x)
		for n, b := range blocks {
			top, sums := 0.0, [2]int32{}
			for i, v := range b.Values {
				w := float64(x[n*BlockSize+i])
				top = max(top, math.Abs(w))
				sums[i/16] += int32(v)
				if math.Abs(float64(v)*float64(b.Scale)-w) > max(float64(b.Scale)*(0.5+1e-4), leastAmax) {
					t.Errorf("size %v: %v stands for %v at scale %v", size, v, w, b.Scale)
				}
			}
			if math.Abs(float64(b.Scale)*127-top) > 1e-6*top+1e-43 {
				t.Errorf("size %v: scale %v of values up to %v", size, b.Scale, top)
			}
			sum := sums[0] + sums[1]
			if b.Sum != b.Scale*float32(sum) || b.Minus128 != -128*sum || b.Minus8 != -8*sum || b.Minus32 != [2]int32{-32 * sums[0], -32 * sums[1]} {
				t.Errorf("size %v: sums of %+v", size, b)
			}
		}
	}
}

// TestQuantizeBits compares the kernels with Go in all bits, over all sizes of numbers.
func TestQuantizeBits(t *testing.T) {
	levels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(13, 1))
		bits := func() float32 { return math.Float32frombits(r.Uint32()) }
		for n := range 2000 {
			x := normals(r, (n%5+1)*BlockSize)
			switch n % 4 {
			case 0: // any bits at all: some blocks have NaNs
				for i := range x {
					if x[i] = bits(); r.IntN(8) > 0 && x[i] != x[i] {
						x[i] = 1
					}
				}
			case 1: // all of about one size, also subnormal ones
				size := math.Ldexp(1, r.IntN(277)-149)
				for i := range x {
					x[i] = float32(float64(x[i]) / 4 * size)
				}
			case 2: // ties of the rounding
				for i := range x {
					x[i] = float32(r.IntN(509)-254) / 2
				}
				x[0] = 127
			}
			got, want := make([]Block, n%5+1), make([]Block, n%5+1)
			l.Quantize(got, x)
			quantizeGo(want, x)
			for i := range want {
				g, w := got[i], want[i]
				same(t, "scale and sum", []float32{g.Scale, g.Sum}, []float32{w.Scale, w.Sum})
				g.Scale, g.Sum, w.Scale, w.Sum = 0, 0, 0, 0
				if g != w {
					t.Fatalf("block %d of %v: %+v, want %+v", i, x[i*BlockSize:][:BlockSize], g, w)
				}
			}
		}
	})
}

// Values that are no numbers make the sums of their block none, too.
func TestQuantizeNoNumber(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		x := make([]float32, BlockSize)
		x[3], x[17] = 5, float32(bad)
		blocks := make([]Block, 1)
		Best().Quantize(blocks, x)
		if s := float64(blocks[0].Scale); !math.IsNaN(s) && !math.IsInf(s, 0) || blocks[0].Values != [BlockSize]int8{} {
			t.Errorf("%v: %+v", bad, blocks[0])
		}
	}
}
