package cpu

import (
	"fmt"
	"unsafe"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// blocks are quantized weights as stored in the file: rows of whole ggml blocks.
type blocks struct {
	data []byte
	kind kernel.Type
	file gguf.Type
}

// kindOf returns the kernels' type for a type of weights.
func kindOf(d safetensors.DType) (kernel.Type, bool) {
	switch d {
	case safetensors.F32:
		return kernel.F32, true
	case safetensors.BF16, safetensors.F8_E4M3: // which becomes bf16
		return kernel.BF16, true
	case safetensors.F16:
		return kernel.F16, true
	case safetensors.Q8_0:
		return kernel.Q8_0, true
	case safetensors.Q4_0:
		return kernel.Q4_0, true
	case safetensors.Q4_K:
		return kernel.Q4K, true
	case safetensors.Q5_K:
		return kernel.Q5K, true
	case safetensors.Q6_K:
		return kernel.Q6K, true
	}
	return 0, false
}

// newBlocks checks that a quantized tensor has the size that its shape requires.
func newBlocks(t model.Tensor) (blocks, error) {
	kind, known := kindOf(t.DType)
	file, ok := gguf.ParseType(string(t.DType))
	if !known || !ok || !kind.Quantized() {
		return blocks{}, fmt.Errorf("tensor %q has type %s; known are F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K, Q6_K", t.Name, t.DType)
	}
	b := blocks{kind: kind, file: file}
	rows, cols := t.Shape[0], t.Shape[1]
	if n := b.kind.BlockWeights(); cols == 0 || cols%n != 0 {
		return b, fmt.Errorf("tensor %q has rows of %d weights, which are no whole blocks of %d of %s", t.Name, cols, n, t.DType)
	}
	if want := rows * b.kind.RowBytes(cols); len(t.Data) != want {
		return b, fmt.Errorf("tensor %q has %d bytes, want %d for %d × %d weights of %s", t.Name, len(t.Data), want, rows, cols, t.DType)
	}
	b.data = t.Data
	return b, nil
}

// row returns the data of row r.
func (b *blocks) row(r, cols int) []byte {
	n := b.kind.RowBytes(cols)
	return b.data[r*n : (r+1)*n]
}

// widen writes row r as float32.
func (b *blocks) widen(buf []float32, r int) {
	if err := gguf.Dequantize(buf, b.file, b.row(r, len(buf))); err != nil {
		panic("cpu: " + err.Error()) // newBlocks checked the size
	}
}

// applyBlocks does what apply does, for quantized weights read directly from the mapped
// file. It unpacks each row once for all tokens.
func (m *matrix) applyBlocks(l *lane, from, to int, src [][]kernel.Block, dst [][]float32) {
	for r := from; r < to; r++ {
		l.row.Unpack(m.blocks.kind, m.blocks.row(r, m.cols))
		for t, x := range src {
			dst[t][r] = l.row.Dot(x)
		}
	}
}

// applyBlockPanels does what apply does, for packed quantized weights. from is a multiple
// of the panels' width.
func (m *matrix) applyBlockPanels(l *lane, from, to int, src [][]kernel.Block, dst [][]float32) {
	if m.packed.int8Tiles {
		n := m.applyTiles(l, from, to, src, dst)
		src, dst = src[n:], dst[n:]
	}
	if len(src) == 0 {
		return
	}
	p, c := &m.packed, &l.blockCall
	c.Blocks = m.cols / kernel.BlockSize
	size := kernel.PanelBytes(p.kind, m.cols)
	share := p.level.ShareBlocks(len(src))
	calls := (len(src) + share - 1) / share
	for r := from; r < to; r += kernel.Width {
		c.Panel = unsafe.Pointer(&p.data[r/kernel.Width*size])
		whole := r+kernel.Width <= m.rows
		for t := 0; t < len(src); t += share {
			n := min(share, len(src)-t)
			c.Fetch(p.kind, t/share, calls)
			for i := range n {
				c.Src[i] = &src[t+i][:c.Blocks][0]
				if whole {
					c.Dst[i] = &dst[t+i][r : r+kernel.Width][0]
				} else {
					c.Dst[i] = &l.edge[i][0]
				}
			}
			p.level.ProductBlocks(p.kind, n, c)
			if !whole {
				for i := range n {
					copy(dst[t+i][r:m.rows], l.edge[i][:])
				}
			}
		}
	}
}
