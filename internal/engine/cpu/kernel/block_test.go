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
