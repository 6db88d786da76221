package cpu

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// notFinite returns the index of the first of n weights that is infinite or not a number, -1
// for none. Eight bytes at a time, it looks for exponents of ones: adding one in the lowest
// place of the exponent carries out of it only then. It knows no quantized types.
func notFinite(kind kernel.Type, src unsafe.Pointer, n int) int {
	var exponent, one uint64
	size := 2
	switch kind {
	case kernel.F32:
		size, exponent, one = 4, 0x7F80_0000_7F80_0000, 0x0080_0000_0080_0000
	case kernel.BF16:
		exponent, one = 0x7F80_7F80_7F80_7F80, 0x0080_0080_0080_0080
	case kernel.F16:
		exponent, one = 0x7C00_7C00_7C00_7C00, 0x0400_0400_0400_0400
	default:
		return -1
	}
	const whole = 8
	words := unsafe.Slice((*uint64)(src), n*size/whole)
	carries := (exponent + one) &^ exponent
	found := uint64(0)
	for _, w := range words {
		found |= w&exponent + one
	}
	if found&carries == 0 && n*size%whole == 0 {
		return -1
	}
	for i := range n { // rarely: the last ones, or to find it
		bits := uint64(0)
		if size == 4 {
			bits = uint64(*(*uint32)(unsafe.Add(src, i*size)))
		} else {
			bits = uint64(*(*uint16)(unsafe.Add(src, i*size)))
		}
		low := uint64(1)<<(8*size) - 1
		if bits&exponent&low == exponent&low {
			return i
		}
	}
	return -1
}

// checkFinite returns an error that matches [safetensors.ErrNotANumber] if one of n rows from
// first on has a weight that is infinite or not a number.
func (m *matrix) checkFinite(kind kernel.Type, src unsafe.Pointer, first, n int) error {
	if i := notFinite(kind, src, n*m.cols); i >= 0 {
		return fmt.Errorf("tensor %q: %w: row %d, column %d", m.name, safetensors.ErrNotANumber, first+i/m.cols, i%m.cols)
	}
	return nil
}

// checkVector does the same for a small tensor.
func checkVector(name string, v []float32) error {
	for i, x := range v {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return fmt.Errorf("tensor %q: %w: element %d", name, safetensors.ErrNotANumber, i)
		}
	}
	return nil
}
