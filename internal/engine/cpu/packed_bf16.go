package cpu

import (
	"unsafe"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
)

// bf16Room is a lane's memory for products with activations in bf16.
type bf16Room struct {
	call    kernel.CallBF16
	scratch kernel.ScratchBF16
	dst     []*float32
	edge    []float32 // the last outputs of a matrix, with the padding of their panel
	rows    []uint16  // copies of rows that are not contiguous
}

func (b *bf16Room) forget() {
	b.call = kernel.CallBF16{}
	clear(b.dst)
}

// reserveHalves does what reserveRows does, for activations in bf16: rows are contiguous
// and start at multiples of 64 bytes.
func reserveHalves(rows [][]uint16, n, cols, limit int) [][]uint16 {
	if n <= cap(rows) {
		return rows[:n]
	}
	size, stride := min(max(n, 2*cap(rows)), max(n, limit)), kernel.StrideBF16(cols)/2
	data := alignedHalves(size * stride)
	rows = make([][]uint16, size)
	for i := range rows {
		rows[i] = data[i*stride : (i+1)*stride : (i+1)*stride]
	}
	return rows[:n]
}

// alignedHalves returns n zeros that start at a multiple of 64 bytes.
func alignedHalves(n int) []uint16 {
	data := make([]uint16, n+32)
	off := -int(uintptr(unsafe.Pointer(&data[0]))) & 63 / 2
	return data[off : off+n]
}

// sideBySide returns the first of rows that are kernel.StrideBF16 apart: the rows
// themselves, or copies.
func (b *bf16Room) sideBySide(rows [][]uint16, cols int) *uint16 {
	stride := kernel.StrideBF16(cols)
	first := unsafe.Pointer(&rows[0][0])
	for i := range rows {
		if unsafe.Pointer(&rows[i][0]) == unsafe.Add(first, i*stride) {
			continue
		}
		if n := len(rows) * stride / 2; len(b.rows) < n {
			b.rows = alignedHalves(n)
		}
		for i, row := range rows {
			copy(b.rows[i*stride/2:], row)
		}
		return &b.rows[0]
	}
	return &rows[0][0]
}

// applyBF16 does what applyPanels does, for activations in bf16.
func (m *matrix) applyBF16(l *lane, from, to int, src [][]uint16, dst [][]float32) {
	p, b := &m.packed, &l.bf16
	stride := kernel.StrideBF16(m.cols)
	base := unsafe.Pointer(b.sideBySide(src, m.cols))
	share := p.level.ShareBF16(len(src), m.cols)
	b.dst = grow(b.dst, share)
	if to == m.rows && m.rows%kernel.Width != 0 {
		b.edge = grow(b.edge, share*kernel.Width)
	}
	calls := (len(src) + share - 1) / share
	c := &b.call
	c.Stride, c.Cols, c.Scratch = stride, m.cols, &b.scratch
	size := kernel.PanelBytes(p.kind, m.cols)
	for r := from; r < to; r += kernel.Width {
		c.Panel = unsafe.Pointer(&p.data[r/kernel.Width*size])
		whole := r+kernel.Width <= m.rows
		for t := 0; t < len(src); t += share {
			n := min(share, len(src)-t)
			c.Fetch(t/share, calls)
			c.Src, c.Dst = (*uint16)(unsafe.Add(base, t*stride)), b.dst[:n]
			for i := range n {
				if whole {
					c.Dst[i] = &dst[t+i][r : r+kernel.Width][0]
				} else {
					c.Dst[i] = &b.edge[i*kernel.Width]
				}
			}
			p.level.ProductBF16(c)
			if !whole {
				for i := range n {
					copy(dst[t+i][r:m.rows], b.edge[i*kernel.Width:])
				}
			}
		}
	}
}
