package kernels_test

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// What a file has as Q8_0 is the same numbers after the split.
func TestSplitQ8_0(t *testing.T) {
	const rows, in = 3, 96
	random := rand.New(rand.NewPCG(3, 4))
	values := make([]float32, rows*in)
	for i := range values {
		values[i] = float32(random.NormFloat64())
	}
	file := make([]byte, rows*in/32*34)
	if err := gguf.Quantize(file, gguf.Q8_0, values); err != nil {
		t.Fatal(err)
	}
	if err := gguf.Dequantize(values, gguf.Q8_0, file); err != nil {
		t.Fatal(err)
	}
	n, m := kernels.Q8_0.Bytes(rows, in)
	weights, scales := make([]byte, n), make([]byte, m)
	for i := range scales {
		scales[i] = 0xff
	}
	if err := kernels.SplitQ8_0(weights, scales, file, in); err != nil {
		t.Fatal(err)
	}
	for i, want := range values {
		scale := safetensors.FromF16(binary.LittleEndian.Uint16(scales[i/in*8+i%in/32*2:])) // four to a row
		if got := scale * float32(int8(weights[i])); got != want {
			t.Fatalf("weight %d is %g, and should be %g", i, got, want)
		}
	}
	for row := range rows {
		if last := scales[row*8+6 : row*8+8]; last[0] != 0 || last[1] != 0 {
			t.Errorf("the scale of nothing of row %d is %x", row, last)
		}
	}
	for what, err := range map[string]error{
		"not rows of 40":   kernels.SplitQ8_0(weights, scales, file, 40),
		"not rows of 0":    kernels.SplitQ8_0(weights, scales, file, 0),
		"there is room":    kernels.SplitQ8_0(weights[1:], scales, file, in),
		"scales 24, there": kernels.SplitQ8_0(weights, scales[2:], file, in),
		"not rows of 96":   kernels.SplitQ8_0(weights, scales, file[1:], in),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
