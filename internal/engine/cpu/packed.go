package cpu

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/sharedmem"
)

// panels are a matrix's weights in the order of the kernels. The zero value means that
// weights are read directly from the mapped file.
type panels struct {
	level kernel.Level
	kind  kernel.Type
	data  []byte
	// rounded reports that the matrix multiplies activations in bf16.
	rounded bool
	// int8Tiles reports that many rows are multiplied with quantized weights on tiles.
	int8Tiles bool
}

// source returns the matrix as stored in the file. fp8 has no pointer, and its type is
// the one after packing, bf16.
func (m *matrix) source() (unsafe.Pointer, kernel.Type) {
	switch {
	case m.blocks.data != nil:
		return unsafe.Pointer(unsafe.SliceData(m.blocks.data)), m.blocks.kind
	case m.f32 != nil:
		return unsafe.Pointer(unsafe.SliceData(m.f32)), kernel.F32
	case m.fp8 != nil:
		return nil, kernel.BF16
	case m.half:
		return unsafe.Pointer(unsafe.SliceData(m.u16)), kernel.F16
	}
	return unsafe.Pointer(unsafe.SliceData(m.u16)), kernel.BF16
}

// packedBytes returns the size of the matrix in panels.
func (m *matrix) packedBytes() int {
	_, kind := m.source()
	return kernel.Panels(m.rows) * kernel.PanelBytes(kind, m.cols)
}

// packPanel packs one panel. rows is scratch that the caller reuses.
func (m *matrix) packPanel(i int, rows *fp8Rows) error {
	src, kind := m.source()
	size := kernel.PanelBytes(kind, m.cols)
	r := i * kernel.Width
	n := min(kernel.Width, m.rows-r)
	if m.fp8 == nil {
		src = unsafe.Add(src, r*kind.RowBytes(m.cols))
		if err := m.checkFinite(kind, src, r, n); err != nil {
			return err
		}
	} else {
		halves, err := rows.narrow(m, r, n)
		if err != nil {
			return err
		}
		src = unsafe.Pointer(unsafe.SliceData(halves))
	}
	kernel.Pack(kind, unsafe.Pointer(&m.packed.data[i*size]), src, n, m.cols)
	return nil
}

// applyPanels does what apply does, for packed weights. from is a multiple of the panels'
// width.
func (m *matrix) applyPanels(l *lane, from, to int, src, dst [][]float32) {
	p, c := &m.packed, &l.call
	c.Cols = m.cols
	size := kernel.PanelBytes(p.kind, m.cols)
	share := p.level.Share(len(src), kernel.Width)
	for r := from; r < to; r += kernel.Width {
		c.Panel = unsafe.Pointer(&p.data[r/kernel.Width*size])
		whole := r+kernel.Width <= m.rows
		for t := 0; t < len(src); t += share {
			n := min(share, len(src)-t)
			for i := range n {
				c.Src[i] = &src[t+i][:m.cols][0]
				if whole {
					c.Dst[i] = &dst[t+i][r : r+kernel.Width][0]
				} else {
					c.Dst[i] = &l.edge[i][0]
				}
			}
			p.level.Product(p.kind, kernel.Width, n, c)
			if !whole {
				for i := range n {
					copy(dst[t+i][r:m.rows], l.edge[i][:])
				}
			}
		}
	}
}

// pack converts matrices to panels, with all cores of the device. The weights own the
// memory.
func (w *Weights) pack(matrices []*matrix) error {
	if w.device.level == kernel.Portable || len(matrices) == 0 {
		return nil
	}
	// Panels start at multiples of 64, because their sizes are.
	total := 0
	for _, m := range matrices {
		total += m.packedBytes()
	}
	memory, err := sharedmem.Private(total)
	if err != nil {
		return fmt.Errorf("memory for packed weights: %w", err)
	}
	data := memory.Bytes()
	adviseHugePages(data)
	preferNode(data, w.device.node)
	w.unmap = append(w.unmap, memory.Close)
	for _, m := range matrices {
		_, kind := m.source()
		n := m.packedBytes()
		m.packed, data = panels{level: w.device.level, kind: kind, data: data[:n:n]}, data[n:]
		m.packed.rounded = kind == kernel.BF16 && w.device.bf16 && !m.exact
		m.packed.int8Tiles = kind.Quantized() && w.device.int8Tiles
	}
	return w.eachPanel(matrices, (*matrix).packPanel)
}

// eachPanel calls do for each panel of all matrices, on all cores of the device.
func (w *Weights) eachPanel(matrices []*matrix, do func(m *matrix, panel int, rows *fp8Rows) error) error {
	type piece struct {
		m     *matrix
		panel int
	}
	var pieces []piece
	for _, m := range matrices {
		for i := range kernel.Panels(m.rows) {
			pieces = append(pieces, piece{m, i})
		}
	}
	var next atomic.Int64
	errs := make([]error, w.device.cores)
	var wait sync.WaitGroup
	for i := range errs {
		wait.Go(func() {
			debug.SetPanicOnFault(true)
			defer func() {
				if r := recover(); r != nil {
					errs[i] = faultError(r)
				}
			}()
			var rows fp8Rows
			for n := next.Add(1) - 1; int(n) < len(pieces) && errs[i] == nil; n = next.Add(1) - 1 {
				errs[i] = do(pieces[n].m, pieces[n].panel, &rows)
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
