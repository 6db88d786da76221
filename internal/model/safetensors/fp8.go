package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrNotANumber is returned for weights and scales of fp8 that are no finite numbers.
var ErrNotANumber = errors.New("not a finite number")

// E4M3IsNaN reports whether a code stands for no number.
func E4M3IsNaN(b byte) bool { return b&0x7f == 0x7f }

// e4m3 are the floats of eight bits, by code: a sign, four bits of exponent, three of
// mantissa, and no infinities ("e4m3fn"). Every value is exact; 0x7f and 0xff are NaN.
var e4m3 = func() (all [256]float32) {
	for i := range all {
		exponent, mantissa := i>>3&15, i&7
		v := float32(mantissa) * 0x1p-9 // a multiple of the smallest one
		if exponent > 0 {
			v = math.Float32frombits(uint32(exponent+127-7)<<23 | uint32(mantissa)<<20)
		}
		if E4M3IsNaN(byte(i)) {
			v = float32(math.NaN())
		}
		if i >= 0x80 {
			v = -v
		}
		all[i] = v
	}
	return all
}()

// Scales holds the factors for the weights of a matrix of F8_E4M3: one for each
// block of Rows × Cols weights, row by row. Blocks at the right and at the bottom of the
// matrix may be smaller.
type Scales struct {
	Tensor     // without scales of its own: of F32, BF16 or F16
	Rows, Cols int
	Across     int // blocks from left to right
	First      int // row of the matrix that the weights begin with
}

// At gives the scales of a row of the weights, from left to right. It reads the mapping.
// An error matches [ErrNotANumber].
func (s *Scales) At(dst []float32, row int) error {
	from := (s.First + row) / s.Rows * s.Across
	for i := range dst[:s.Across] {
		var v float32
		switch at := from + i; s.DType {
		case BF16:
			v = FromBF16(binary.LittleEndian.Uint16(s.Data[2*at:]))
		case F16:
			v = FromF16(binary.LittleEndian.Uint16(s.Data[2*at:]))
		default:
			v = math.Float32frombits(binary.LittleEndian.Uint32(s.Data[4*at:]))
		}
		if v-v != 0 {
			return fmt.Errorf("scale %d of %q is %v: %w", from+i, s.Name, v, ErrNotANumber)
		}
		dst[i] = v
	}
	return nil
}

// Widener makes numbers of a matrix of F8_E4M3; it keeps what that needs from row to row,
// and is for one goroutine.
type Widener struct {
	tensor Tensor
	scales []float32
}

// NewWidener is for a tensor that has scales.
func NewWidener(t Tensor) *Widener {
	return &Widener{t, make([]float32, t.Scales.Across)}
}

// Row writes a row as float32: each weight times its scale, rounded once. It reads the
// mapping. An error names the tensor and matches [ErrNotANumber].
func (w *Widener) Row(dst []float32, row int) error {
	t := &w.tensor
	if err := t.Scales.At(w.scales, row); err != nil {
		return err
	}
	codes := t.Data[row*len(dst):][:len(dst)]
	for block, scale := range w.scales {
		first := block * t.Scales.Cols
		for i := first; i < min(first+t.Scales.Cols, len(dst)); i++ {
			if dst[i] = e4m3[codes[i]] * scale; dst[i]-dst[i] != 0 {
				return fmt.Errorf("weight %d of row %d of %q is code %#02x with scale %v: %w", i, row, t.Name, codes[i], scale, ErrNotANumber)
			}
		}
	}
	return nil
}
