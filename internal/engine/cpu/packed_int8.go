package cpu

import (
	"unsafe"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
)

// int8Room is a lane's memory for products with quantized weights on tiles.
type int8Room struct {
	call kernel.CallInt8
	dst  []*float32
	edge []float32      // the last outputs of a matrix, with the padding of their panel
	rows []kernel.Block // copies of rows that are not equally spaced
}

func (b *int8Room) forget() {
	b.call = kernel.CallInt8{Scratch: b.call.Scratch}
	clear(b.dst)
}

// leastRows is the least number of rows that tiles read.
const leastRows = 16

// blockStride returns the distance, in blocks, of rows with the given number of blocks.
// It is odd, so that sixteen rows that tiles read together do not share cache sets.
func blockStride(blocks int) int { return blocks | 1 }

// sideBySide returns the first of rows at equal distances, and the distance in bytes: the
// rows themselves, or copies. It also copies when there are fewer rows than tiles read;
// the content of the missing rows does not affect the result.
func (b *int8Room) sideBySide(rows [][]kernel.Block, blocks int) (first *kernel.Block, stride int) {
	const size = int(unsafe.Sizeof(kernel.Block{}))
	if len(rows) >= leastRows {
		first := unsafe.Pointer(&rows[0][0])
		stride := int(uintptr(unsafe.Pointer(&rows[1][0])) - uintptr(first))
		even := stride >= blocks*size
		for i := 2; i < len(rows) && even; i++ {
			even = unsafe.Pointer(&rows[i][0]) == unsafe.Add(first, i*stride)
		}
		if even {
			return (*kernel.Block)(first), stride
		}
	}
	distance := blockStride(blocks)
	b.rows = grow(b.rows, max(len(rows), leastRows)*distance)
	for i, row := range rows {
		copy(b.rows[i*distance:], row[:blocks])
	}
	return &b.rows[0], distance * size
}

// applyTiles computes the products of rows for which tiles are faster, and returns how
// many rows these are.
func (m *matrix) applyTiles(l *lane, from, to int, src [][]kernel.Block, dst [][]float32) int {
	n := kernel.RowsInt8(len(src))
	if n == 0 {
		return 0
	}
	p, b := &m.packed, &l.int8
	b.dst = grow(b.dst, n)
	if to == m.rows && m.rows%kernel.Width != 0 {
		b.edge = grow(b.edge, n*kernel.Width)
	}
	c := &b.call
	if c.Scratch == nil {
		c.Scratch = new(kernel.ScratchInt8)
	}
	c.Blocks, c.Dst = m.cols/kernel.BlockSize, b.dst[:n]
	c.Src, c.Stride = b.sideBySide(src[:n], c.Blocks)
	size := kernel.PanelBytes(p.kind, m.cols)
	for r := from; r < to; r += kernel.Width {
		c.Panel = unsafe.Pointer(&p.data[r/kernel.Width*size])
		whole := r+kernel.Width <= m.rows
		for i := range n {
			if whole {
				c.Dst[i] = &dst[i][r : r+kernel.Width][0]
			} else {
				c.Dst[i] = &b.edge[i*kernel.Width]
			}
		}
		p.level.ProductInt8(p.kind, c)
		if !whole {
			for i := range n {
				copy(dst[i][r:m.rows], b.edge[i*kernel.Width:])
			}
		}
	}
	return n
}
