package tensorfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
)

// oneTensor is a safetensors file with one tensor.
func oneTensor(dtype, shape string, data []byte) []byte {
	header := fmt.Sprintf(`{"mm_embeddings":{"dtype":"%s","shape":%s,"data_offsets":[0,%d]}}`, dtype, shape, len(data))
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

func words(size int, bits ...uint32) (b []byte) {
	for _, v := range bits {
		if size == 2 {
			b = binary.LittleEndian.AppendUint16(b, uint16(v))
		} else {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
	}
	return b
}

func TestRows(t *testing.T) {
	f32 := func(v float32) uint32 { return math.Float32bits(v) }
	for name, tc := range map[string]struct {
		file []byte
		want [][]float32
		err  error
	}{
		"float32":         {oneTensor("F32", "[2,3]", words(4, f32(1), f32(-2), f32(0.1), f32(4), f32(5), f32(6))), [][]float32{{1, -2, 0.1}, {4, 5, 6}}, nil},
		"float16":         {oneTensor("F16", "[1,2]", words(2, 0x3c00, 0xc100)), [][]float32{{1, -2.5}}, nil},
		"bfloat16":        {oneTensor("BF16", "[2,1]", words(2, 0x3f80, 0xc020)), [][]float32{{1}, {-2.5}}, nil},
		"several images":  {oneTensor("BF16", "[2,1,2]", words(2, 0x3f80, 0x4000, 0x4040, 0x4080)), [][]float32{{1, 2}, {3, 4}}, nil},
		"one dimension":   {oneTensor("F32", "[2]", words(4, 0, 0)), nil, ErrFormat},
		"four dimensions": {oneTensor("F32", "[1,1,1,2]", words(4, 0, 0)), nil, ErrFormat},
		"no rows":         {oneTensor("F32", "[0,2]", nil), nil, ErrFormat},
		"whole numbers":   {oneTensor("I32", "[1,2]", words(4, 1, 2)), nil, ErrUnsupported},
		"not a number":    {oneTensor("F32", "[1,2]", words(4, f32(1), 0x7fc00000)), nil, ErrFormat},
		"no file":         {[]byte("hello"), nil, ErrFormat},
	} {
		rows, err := Embeddings(tc.file)
		if !errors.Is(err, tc.err) || fmt.Sprint(rows) != fmt.Sprint(tc.want) {
			t.Errorf("%s: %v %v", name, rows, err)
		}
		n, width, err := Rows(tc.file)
		switch {
		case tc.want != nil && (n != len(tc.want) || width != len(tc.want[0]) || err != nil):
			t.Errorf("%s: %d rows of %d, %v", name, n, width, err)
		case tc.want == nil && name != "not a number" && !errors.Is(err, tc.err): // values are read by those who use them
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The grid of patches is three whole numbers beside the embeddings.
func TestGrid(t *testing.T) {
	file := func(dtype, shape string, grid ...uint32) []byte {
		b := words(4, append([]uint32{0}, grid...)...)
		header := fmt.Sprintf(`{"mm_embeddings":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},"image_grid_thw":{"dtype":"%s","shape":%s,"data_offsets":[4,%d]}}`, dtype, shape, len(b))
		return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), b...)
	}
	for name, tc := range map[string]struct {
		file []byte
		want [3]int
		err  error
	}{
		"64 bits":       {file("I64", "[1,3]", 1, 0, 6, 0, 4, 0), [3]int{1, 6, 4}, nil},
		"32 bits":       {file("I32", "[3]", 1, 6, 4), [3]int{1, 6, 4}, nil},
		"none":          {oneTensor("F32", "[1,1]", words(4, 0)), [3]int{}, nil},
		"two images":    {file("I32", "[2,3]", 1, 6, 4, 1, 2, 2), [3]int{}, ErrFormat},
		"two numbers":   {file("I32", "[2]", 6, 4), [3]int{}, ErrFormat},
		"another type":  {file("F32", "[3]", 1, 6, 4), [3]int{}, ErrFormat},
		"nothing":       {file("I32", "[3]", 1, 0, 4), [3]int{}, ErrFormat},
		"below nothing": {file("I32", "[3]", 1, 1<<32-2, 4), [3]int{}, ErrFormat},
		"too much":      {file("I64", "[3]", 1, 0, 0, 1, 4, 0), [3]int{}, ErrFormat},
		"no file":       {[]byte("hello"), [3]int{}, ErrFormat},
	} {
		if got, ok, err := Grid(tc.file); got != tc.want && err == nil || !errors.Is(err, tc.err) || ok != (tc.want != [3]int{}) {
			t.Errorf("%s: %v %v %v", name, got, ok, err)
		}
	}
}
