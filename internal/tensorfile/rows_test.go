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
