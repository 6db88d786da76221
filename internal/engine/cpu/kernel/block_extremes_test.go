package kernel

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// TestProductBlocksExtremes multiplies the largest values of both signs, where sums of
// too few bits would overflow.
func TestProductBlocksExtremes(t *testing.T) {
	for name, product := range blockKernels() {
		for _, ty := range quantizedTypes {
			t.Run(name+"/"+ty.name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(14, uint64(ty.t)))
				const cols = 512
				for _, fill := range []byte{0x00, 0x7F, 0x80, 0xFF} {
					src := extremeRows(r, ty.t, fill, cols)
					panel := aligned(PanelBytes(ty.t, cols))
					Pack(ty.t, unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[0]), Width, cols)
					c := BlockCall{Panel: unsafe.Pointer(&panel[0]), Blocks: cols / BlockSize}
					var x [blockRows][]Block
					var out [blockRows][]float32
					for i := range x {
						values := make([]float32, cols)
						for k := range values { // all of one sign, of both, of one but for some
							values[k] = []float32{3, -3}[[...]int{0, 1, k % 2, k / 2 % 2, k / 16 % 2, r.IntN(2)}[i]]
						}
						x[i], out[i] = make([]Block, c.Blocks), make([]float32, Width)
						quantizeGo(x[i], values)
						c.Src[i], c.Dst[i] = &x[i][0], &out[i][0]
					}
					product(ty.t, blockRows, &c)
					var row Row
					row.Unpack(ty.t, src[:ty.t.RowBytes(cols)])
					for i := range x {
						want := row.Dot(x[i])
						for o := range out[i] {
							same(t, "product", out[i][o:o+1], []float32{want})
						}
					}
				}
			})
		}
	}
}

// extremeRows are the rows of a panel whose values have the same bits in all bytes, and
// whose scales are 1.
func extremeRows(r *rand.Rand, ty Type, fill byte, cols int) []byte {
	src := quantizedRows(r, ty, Width, cols)
	size := layouts[ty].bytes
	for b := 0; b < len(src); b += size {
		block := src[b : b+size]
		scales := [4]byte{0, 0x3C, 0, 0x3C} // 1 and 1
		values := block[map[Type]int{Q8_0: 2, Q4_0: 2, Q4K: 4, Q5K: 4}[ty]:]
		if ty == Q6K {
			values = block[:208]
		}
		copy(values, bytes.Repeat([]byte{fill}, len(values)))
		if ty == Q6K {
			copy(block[208:], scales[:2])
		} else {
			copy(block[:size-len(values)], scales[:])
		}
	}
	return src
}
