package kernel

import (
	"math"
	"unsafe"
)

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

// blockRows is the largest number of rows of activations in one product of blocks.
const blockRows = 6

// BlockCall is one product with quantized weights: for each of some rows of
// activations, the sums with all 32 outputs of a panel.
//
// A block's products of integers are added up exactly. Its sum s is made a float32
// and added to the output's in one fused multiply-add, s · (w · x): w is the scale of
// the weights, x that of the activations. Where weights have minima another one adds
// -min · Block.Sum. Weights of Q6_K have a scale for each 16, and so two sums a
// block. Sums start at zero and go from the first block to the last, whatever the
// number of rows and the level; [Row] states the same in Go.
//
// Kernels may change what lies behind the rows in Src and Dst.
type BlockCall struct {
	Src    [blockRows]*Block   // Blocks blocks each
	Dst    [blockRows]*float32 // room for 32 outputs
	Panel  unsafe.Pointer      // see [Pack]
	Blocks int                 // at least 1
	// Ahead is the offset at which kernels begin to prefetch, and Pace the bytes they advance
	// with each turn, see [BlockCall.Fetch]. Kernels for arm64 choose themselves.
	Ahead uintptr
	Pace  int
	// Sums are the kernels' own.
	Sums [blockRows][Width]float32
}

// Fetch says what the call-th of so many calls with a panel prefetches, with weights of a
// quantized type: see fetch.
func (c *BlockCall) Fetch(t Type, call, calls int) {
	l := &layouts[t]
	c.Ahead, c.Pace = fetch(c.Panel, c.Blocks*BlockSize/l.weights*l.panel, l.turn, call, calls)
}

// ShareBlocks returns the number of rows, of n, that the next product of blocks should take:
// all products of n rows get about the same.
func (l Level) ShareBlocks(n int) int {
	calls := (n + blockRows - 1) / blockRows
	return (n + calls - 1) / calls
}

// ProductBlocks computes a call for m rows, at most six, with weights of a quantized
// type.
func (l Level) ProductBlocks(t Type, m int, c *BlockCall) { l.productBlocks(t, m, c) }

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
	switch {
	case len(dst) == 0:
	case l == Portable:
		quantizeGo(dst, x)
	default:
		l.quantize(dst, x)
	}
}

func quantizeGo(dst []Block, x []float32) {
	for i := range dst {
		quantizeBlock(&dst[i], x[i*BlockSize:][:BlockSize])
	}
}

// quantizeBlock is Quantize for one block.
//
//go:norace
func quantizeBlock(b *Block, x []float32) {
	var top uint32 // bits of absolute values are ordered like these, and NaNs follow
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^(1<<31))
	}
	amax := math.Float32frombits(top)
	inv := 127 / amax
	usable := amax >= leastAmax && amax <= math.MaxFloat32
	var sums [2]int32
	for i, v := range x {
		var q int32
		if usable {
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
