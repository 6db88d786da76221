package kerneltest_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

func bf16s(v ...float64) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint16(b, uint16(kerneltest.Round(x)))
	}
	return b
}

func float32s(v ...float32) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// What is tolerated, and what is not: a difference that no test finds is no comparison.
func TestDiffers(t *testing.T) {
	nan := math.NaN()
	half := kerneltest.Tolerance{Ulps: 0.5, Scale: 1, Float: true}
	for _, c := range []struct {
		near      kerneltest.Tolerance
		got, want []byte
		differs   string
	}{
		{kerneltest.Exact, []byte{1, 2}, []byte{1, 2}, ""},
		{kerneltest.Exact, []byte{1, 3}, []byte{1, 2}, "byte 1 is 0x3, and should be 0x2"},
		{kerneltest.OneUlp, bf16s(1, -256), bf16s(1.0078125, -258), ""},
		{kerneltest.OneUlp, bf16s(1, -256), bf16s(1, -260), "value 1 is -256, and should be -260 ± 2"},
		{kerneltest.OneUlp, bf16s(1e-6), bf16s(-1e-6), ""}, // far below the scale
		{kerneltest.OneUlp, bf16s(nan, math.Inf(1)), bf16s(nan, math.Inf(1)), ""},
		{kerneltest.OneUlp, bf16s(nan), bf16s(1), "value 0 is NaN"},
		{kerneltest.OneUlp, bf16s(1), bf16s(nan), "should be NaN"},
		{kerneltest.OneUlp, bf16s(1), bf16s(math.Inf(1)), "should be +Inf"},
		{half, float32s(1), float32s(1 + 1./256), ""},
		{half, float32s(1), float32s(1 + 1./64), "value 0 is 1, and should be 1.015625"},
	} {
		err := kerneltest.Output{Memory: c.got, Near: c.near}.Differs(kerneltest.Output{Memory: c.want, Near: c.near})
		if (c.differs == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.differs) {
			t.Errorf("%v for %v: %v, want %q", c.got, c.want, err, c.differs)
		}
	}
}
