package safetensors

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// All codes are what the format's definition says, here by powers of two.
func TestE4M3(t *testing.T) {
	for code := range 256 {
		exponent, mantissa := code>>3&15, float64(code&7)
		want := mantissa / 8 * math.Pow(2, -6)
		if exponent > 0 {
			want = (1 + mantissa/8) * math.Pow(2, float64(exponent-7))
		}
		if code&0x80 != 0 {
			want = -want
		}
		got := e4m3[byte(code)]
		if code&0x7f == 0x7f {
			if got == got || !E4M3IsNaN(byte(code)) {
				t.Errorf("code %#02x is %v, and should be no number", code, got)
			}
			continue
		}
		if float64(got) != want || math.Signbit(float64(got)) != (code >= 0x80) || E4M3IsNaN(byte(code)) {
			t.Errorf("code %#02x is %v, want %v", code, got, want)
		}
	}
	if e4m3[0x7e] != 448 || e4m3[0x01] != 0x1p-9 || e4m3[0x38] != 1 {
		t.Errorf("largest %v, smallest %v, one %v", e4m3[0x7e], e4m3[0x01], e4m3[0x38])
	}
}

func floatScales(dtype DType, values ...float32) Tensor {
	t := Tensor{Name: "w_scale", DType: dtype}
	for _, v := range values {
		switch dtype {
		case BF16:
			t.Data = binary.LittleEndian.AppendUint16(t.Data, ToBF16(v))
		case F16:
			t.Data = binary.LittleEndian.AppendUint16(t.Data, map[float32]uint16{1: 0x3c00, 2: 0x4000, 3: 0x4200, 4: 0x4400}[v])
		default:
			t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
		}
	}
	return t
}

// Rows take the scales of their blocks, whose last ones are smaller, in all types of scales;
// a run of rows takes those of the whole matrix.
func TestWidener(t *testing.T) {
	const one = 0x38
	for _, dtype := range []DType{F32, BF16, F16} {
		w := Tensor{Name: "w", DType: F8_E4M3, Shape: []int{3, 5}, Data: slices.Repeat([]byte{one}, 15)}
		w.Scales = &Scales{Tensor: floatScales(dtype, 1, 2, 3, 4), Rows: 2, Cols: 3, Across: 2}
		row := make([]float32, 5)
		for r, want := range [][]float32{{1, 1, 1, 2, 2}, {1, 1, 1, 2, 2}, {3, 3, 3, 4, 4}} {
			if err := NewWidener(w).Row(row, r); err != nil || !slices.Equal(row, want) {
				t.Errorf("%s: row %d is %v, want %v: %v", dtype, r, row, want, err)
			}
		}
		run := w
		run.Data, run.Shape = w.Data[10:], []int{1, 5}
		scales := *w.Scales
		scales.First, run.Scales = 2, &scales
		if err := NewWidener(run).Row(row, 0); err != nil || !slices.Equal(row, []float32{3, 3, 3, 4, 4}) {
			t.Errorf("%s: a run of rows: %v, %v", dtype, row, err)
		}
	}
}

func TestWidenerRefusesWhatIsNoNumber(t *testing.T) {
	for name, tt := range map[string]struct {
		code  byte
		scale float32
		want  string
	}{
		"code":          {0x7f, 1, `weight 1 of row 0 of "w" is code 0x7f`},
		"negative code": {0xff, 1, "code 0xff"},
		"scale":         {0x38, float32(math.NaN()), `scale 0 of "w_scale"`},
		"infinite":      {0x38, float32(math.Inf(1)), `scale 0 of "w_scale"`},
		"too large":     {0x7e, math.MaxFloat32, "code 0x7e with scale 3.4"},
	} {
		w := Tensor{Name: "w", DType: F8_E4M3, Shape: []int{1, 2}, Data: []byte{0x38, tt.code}}
		w.Scales = &Scales{Tensor: floatScales(F32, tt.scale), Rows: 1, Cols: 2, Across: 1}
		if tt.scale == math.MaxFloat32 {
			w.Data[0] = 0
		}
		err := NewWidener(w).Row(make([]float32, 2), 0)
		if !errors.Is(err, ErrNotANumber) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
