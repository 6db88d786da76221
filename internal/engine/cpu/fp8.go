package cpu

import (
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// fp8Rows converts rows of fp8 to bf16: each weight times its scale is rounded to float32
// and then to bf16. It is not safe for concurrent use.
type fp8Rows struct {
	of     *matrix
	w      *safetensors.Widener
	floats []float32
	halves []uint16
}

// narrow returns n rows from first on, valid until the next call. An error matches
// [safetensors.ErrNotANumber].
func (r *fp8Rows) narrow(m *matrix, first, n int) ([]uint16, error) {
	if r.of != m {
		r.of, r.w = m, safetensors.NewWidener(*m.fp8)
		r.floats, r.halves = make([]float32, m.cols), make([]uint16, kernel.Width*m.cols)
	}
	for i := range n {
		if err := r.w.Row(r.floats, first+i); err != nil {
			return nil, err
		}
		narrowBF16(r.halves[i*m.cols:][:m.cols], r.floats)
	}
	return r.halves[:n*m.cols], nil
}

// unpackFP8 converts fp8 to bf16 where packing does not: all matrices on a portable
// device, and an embedding.
func (w *Weights) unpackFP8() error {
	matrices := []*matrix{&w.embed}
	for _, m := range w.matrices() {
		w.fp8 = w.fp8 || m.fp8 != nil
		if w.device.level == kernel.Portable {
			matrices = append(matrices, m)
		}
	}
	return w.widenFP8(matrices)
}

// widenFP8 converts matrices of fp8 to bf16.
func (w *Weights) widenFP8(matrices []*matrix) error {
	var kept []*matrix
	for _, m := range matrices {
		if m.fp8 != nil {
			m.u16 = make([]uint16, m.rows*m.cols)
			kept = append(kept, m)
		}
	}
	err := w.eachPanel(kept, func(m *matrix, panel int, rows *fp8Rows) error {
		first := panel * kernel.Width
		halves, err := rows.narrow(m, first, min(kernel.Width, m.rows-first))
		copy(m.u16[first*m.cols:], halves)
		return err
	})
	for _, m := range kept {
		m.fp8 = nil
	}
	return err
}

// fp8Bytes returns the memory that tensors of fp8 among specs take as bf16.
func fp8Bytes(m *model.Model, specs ...model.TensorSpec) (n int64) {
	for _, spec := range specs {
		if t, err := m.Tensor(spec.Name); err == nil && t.DType == safetensors.F8_E4M3 {
			n += 2 * m.TensorBytes(spec.Name)
		}
	}
	return n
}

// Warning returns which weights were converted to another type than the file's, or "".
func (w *Weights) Warning() string {
	if w.fp8 {
		return "matrices of F8_E4M3 are computed as bf16, which takes twice their memory"
	}
	return ""
}
