package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"
)

var quantizedTypes = []struct {
	name string
	t    Type
}{{"q8_0", Q8_0}, {"q4_0", Q4_0}, {"q4_K", Q4K}, {"q5_K", Q5K}, {"q6_K", Q6K}}

// quantizedRows are random rows as a file has them: any bits are a block. Scales are
// of a usual size, with some that are zero or subnormal.
func quantizedRows(r *rand.Rand, t Type, rows, cols int) []byte {
	out := make([]byte, rows*t.RowBytes(cols))
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	l := layouts[t]
	for b := 0; b < len(out); b += l.bytes {
		for _, at := range scaleBytes(t) {
			h := uint16(0x2000 + r.UintN(0x1000))
			switch r.IntN(20) {
			case 0:
				h = uint16(r.UintN(0x400))
			case 1:
				h = 0x8000 * uint16(r.UintN(2))
			}
			out[b+at], out[b+at+1] = byte(h), byte(h>>8)
		}
	}
	return out
}

func randomBlocks(r *rand.Rand, n int) []Block {
	x := normals(r, n*BlockSize)
	if n > 2 {
		clear(x[BlockSize : 2*BlockSize])
	}
	out := make([]Block, n)
	quantizeGo(out, x)
	return out
}

// TestProductBlocks compares every kernel with sums over unpacked rows in Go, in all
// bits, for packed rows: that is a test of packing, too.
func TestProductBlocks(t *testing.T) {
	for name, product := range blockKernels() {
		for _, ty := range quantizedTypes {
			t.Run(name+"/"+ty.name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(12, uint64(ty.t)))
				unit := max(BlockSize, ty.t.BlockWeights())
				for m := 1; m <= blockRows; m++ {
					for _, n := range []int{1, 2, 3, 9} {
						for _, rows := range []int{Width, 5} {
							testBlocks(t, r, ty.t, product, m, n*unit, rows)
						}
					}
				}
			})
		}
	}
}

func testBlocks(t *testing.T, r *rand.Rand, ty Type, product func(Type, int, *BlockCall), m, cols, rows int) {
	src := quantizedRows(r, ty, rows, cols)
	panel := aligned(PanelBytes(ty, cols))
	for i := range panel {
		panel[i] = 0xAA
	}
	Pack(ty, unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[0]), rows, cols)
	c := BlockCall{Panel: unsafe.Pointer(&panel[0]), Blocks: cols / BlockSize}
	const guard = 12345
	var x [blockRows][]Block
	var out [blockRows][]float32
	for i := range m {
		x[i], out[i] = randomBlocks(r, c.Blocks), make([]float32, Width+1)
		out[i][Width] = guard
		c.Src[i], c.Dst[i] = &x[i][0], &out[i][0]
	}
	product(ty, m, &c)
	var row Row
	for o := range rows {
		row.Unpack(ty, src[o*ty.RowBytes(cols):][:ty.RowBytes(cols)])
		for i := range m {
			same(t, fmt.Sprintf("%d rows, %d columns, output %d of row %d", m, cols, o, i), out[i][o:o+1], []float32{row.Dot(x[i])})
		}
	}
	for i := range m {
		for o := rows; o < Width; o++ {
			if out[i][o] != 0 {
				t.Fatalf("%d rows, %d columns: output %d, which does not exist, is %v", m, cols, o, out[i][o])
			}
		}
		if out[i][Width] != guard {
			t.Fatalf("%d rows, %d columns: written behind row %d", m, cols, i)
		}
	}
}
