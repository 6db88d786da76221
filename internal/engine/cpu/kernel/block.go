package kernel

import "math"

// BlockSize is the number of activations in a [Block].
const BlockSize = 32

// Block is 32 activations as products with quantized weights read them: bytes with
// one scale, and what their sums are needed for. It fills a cache line.
type Block struct {
	Scale float32 // of the values
	Sum   float32 // Scale · the sum of the values

	// Weights are stored without sign, so a sum of products starts at what their
	// offset adds to it: minus 128 or 8 times the sum of all values, or minus 32
	// times the sum of each half.
	Minus128, Minus8 int32
	Minus32          [2]int32
	_                [2]int32

	Values [BlockSize]int8
}

// leastAmax is the smallest largest value of a block whose inverse is used: those
// of blocks below it are taken as zeros.
const leastAmax = 0x1p-100

// Quantize brings whole blocks of activations into int8: each block's scale is its
// largest absolute value / 127, and its values are x · (127 / the largest value),
// rounded to the nearest integer and to even. Where the largest value is no number
// or infinite the scale is, too, and the values are zero, so that sums become NaN.
//
// len(x) is BlockSize · len(dst).
func (l Level) Quantize(dst []Block, x []float32) {
	x = x[:BlockSize*len(dst)]
	quantizeGo(dst, x)
}

func quantizeGo(dst []Block, x []float32) {
	for i := range dst {
		quantizeBlock(&dst[i], x[i*BlockSize:][:BlockSize])
	}
}

func quantizeBlock(b *Block, x []float32) {
	var top uint32 // bits of absolute values are ordered like these, and NaNs follow
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^(1<<31))
	}
	amax := math.Float32frombits(top)
	inv := 127 / amax
	var sums [2]int32
	for i, v := range x {
		var q int32
		if amax >= leastAmax && amax <= math.MaxFloat32 {
			q = int32(math.RoundToEven(float64(v * inv)))
		}
		b.Values[i] = int8(q)
		sums[i/16] += q
	}
	sum := sums[0] + sums[1]
	b.Scale = amax / 127
	b.Sum = b.Scale * float32(sum)
	b.Minus128, b.Minus8 = -128*sum, -8*sum
	b.Minus32 = [2]int32{-32 * sums[0], -32 * sums[1]}
}
