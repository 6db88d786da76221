package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// matrix is a linear layer: rows × cols weights as stored in the file, and an optional
// bias per row. One of f32, u16, fp8 and blocks holds the weights.
type matrix struct {
	name       string // of the tensor
	rows, cols int
	f32        []float32
	u16        []uint16
	half       bool          // u16 is IEEE half precision rather than bf16
	fp8        *model.Tensor // waits for conversion to bf16
	blocks     blocks
	bias       []float32
	exact      bool // its activations stay float32
	packed     panels
}

func newMatrix(t model.Tensor) (matrix, error) {
	m := matrix{name: t.Name, rows: t.Shape[0], cols: t.Shape[1]}
	switch t.DType {
	case safetensors.F32:
		m.f32 = floats(t.Data)
	case safetensors.BF16, safetensors.F16:
		m.u16 = halves(t.Data)
		m.half = t.DType == safetensors.F16
	case safetensors.F8_E4M3:
		m.fp8 = &t
	default:
		var err error
		m.blocks, err = newBlocks(t)
		return m, err
	}
	return m, nil
}

// widen returns row r in float32: the row itself, or buf filled with it.
func (m *matrix) widen(buf []float32, r int) []float32 {
	at := r * m.cols
	if m.f32 != nil {
		return m.f32[at : at+m.cols]
	}
	buf = buf[:m.cols]
	switch {
	case m.blocks.data != nil:
		m.blocks.widen(buf, r)
	case m.half:
		widenF16(buf, m.u16[at:])
	default:
		widenBF16(buf, m.u16[at:])
	}
	return buf
}

// round returns v rounded to the type of the weights. Quantized weights stand for float32
// values, so v stays as it is.
func (m *matrix) round(v float32) float32 {
	switch {
	case m.f32 != nil || m.blocks.data != nil:
		return v
	case m.half:
		return roundF16(v)
	}
	return safetensors.FromBF16(safetensors.ToBF16(v))
}

// form returns the forms of activations that the matrix needs beside float32.
func (m *matrix) form() form {
	switch {
	case m.blocks.data != nil:
		return int8Form
	case m.packed.rounded:
		return bf16Form
	}
	return 0
}

// apply computes rows [from, to) of the product for each row of src, which must have the
// matrix's form: dst[t][r] = row r · src[t] + bias[r].
func (m *matrix) apply(l *lane, from, to int, src activations, dst [][]float32) {
	if len(src.rows) == 0 {
		return
	}
	switch packed := m.packed.data != nil; {
	case packed && m.blocks.data != nil:
		m.applyBlockPanels(l, from, to, src.blocks, dst)
	case m.blocks.data != nil:
		m.applyBlocks(l, from, to, src.blocks, dst)
	case m.packed.rounded:
		m.applyBF16(l, from, to, src.halves, dst)
	case packed:
		m.applyPanels(l, from, to, src.rows, dst)
	default:
		m.applyRows(l, from, to, src.rows, dst)
	}
	if m.bias != nil {
		for t := range src.rows {
			out := dst[t]
			for r := from; r < to; r++ {
				out[r] += m.bias[r]
			}
		}
	}
}

// applyRows multiplies with weights read directly from the mapped file.
func (m *matrix) applyRows(l *lane, from, to int, src, dst [][]float32) {
	r := from
	if len(src) == 1 && m.u16 != nil && !m.half {
		x, out := src[0][:m.cols], dst[0]
		for ; r+4 <= to; r += 4 {
			w := m.u16[r*m.cols : (r+4)*m.cols]
			out[r], out[r+1], out[r+2], out[r+3] = dot4BF16(w, w[m.cols:], w[2*m.cols:], w[3*m.cols:], x)
		}
	}
	l.reserveRows(m.cols)
	for ; r+4 <= to; r += 4 {
		w0, w1, w2, w3 := m.widen(l.rows[0], r), m.widen(l.rows[1], r+1), m.widen(l.rows[2], r+2), m.widen(l.rows[3], r+3)
		t := 0
		for ; t+2 <= len(src); t += 2 {
			x, y := src[t][:m.cols], src[t+1][:m.cols]
			a, b := dst[t][r:r+4], dst[t+1][r:r+4]
			a[0], a[1], b[0], b[1] = dot2x2(w0, w1, x, y)
			a[2], a[3], b[2], b[3] = dot2x2(w2, w3, x, y)
		}
		if t < len(src) {
			a := dst[t][r : r+4]
			a[0], a[1], a[2], a[3] = dot4(w0, w1, w2, w3, src[t][:m.cols])
		}
	}
	for ; r < to; r++ {
		w := m.widen(l.rows[0], r)
		for t := range src {
			dst[t][r] = dot(w, src[t][:m.cols])
		}
	}
}

// vector reads a small tensor into float32 and refuses values that are not finite.
func vector(t model.Tensor) ([]float32, error) {
	v, err := widened(t)
	if err == nil {
		err = checkVector(t.Name, v)
	}
	return v, err
}

func widened(t model.Tensor) ([]float32, error) {
	switch t.DType {
	case safetensors.F32:
		return append([]float32(nil), floats(t.Data)...), nil
	case safetensors.BF16:
		out := make([]float32, len(t.Data)/2)
		widenBF16(out, halves(t.Data))
		return out, nil
	case safetensors.F16:
		out := make([]float32, len(t.Data)/2)
		widenF16(out, halves(t.Data))
		return out, nil
	}
	return nil, fmt.Errorf("tensor %q has type %s", t.Name, t.DType)
}

// floats views little-endian bytes as float32. It copies them if the machine's byte order
// or the file's alignment requires that.
func floats(data []byte) []float32 {
	if len(data) == 0 {
		return []float32{}
	}
	if littleEndian() && uintptr(unsafe.Pointer(&data[0]))%4 == 0 {
		return unsafe.Slice((*float32)(unsafe.Pointer(&data[0])), len(data)/4)
	}
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}

// halves does the same for 16-bit elements.
func halves(data []byte) []uint16 {
	if len(data) == 0 {
		return []uint16{}
	}
	if littleEndian() && uintptr(unsafe.Pointer(&data[0]))%2 == 0 {
		return unsafe.Slice((*uint16)(unsafe.Pointer(&data[0])), len(data)/2)
	}
	out := make([]uint16, len(data)/2)
	for i := range out {
		out[i] = binary.LittleEndian.Uint16(data[2*i:])
	}
	return out
}

func littleEndian() bool {
	return binary.NativeEndian.Uint16([]byte{1, 0}) == 1
}
