package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
)

func parse(content []byte) (*gguf.Header, error) {
	return gguf.ParseHeader(bytes.NewReader(content), int64(len(content)))
}

func TestParseHeader(t *testing.T) {
	for _, version := range []uint32{2, 3} {
		b := gguftest.Builder{Version: version, Alignment: 64}
		b.Key("u8", uint8(200))
		b.Key("i8", int8(-3))
		b.Key("u16", uint16(60000))
		b.Key("i16", int16(-30000))
		b.Key("u32", uint32(1<<31))
		b.Key("i32", int32(-1<<31))
		b.Key("u64", uint64(1<<63))
		b.Key("i64", int64(-1<<63))
		b.Key("f32", float32(0.5))
		b.Key("f64", float64(0.25))
		b.Key("bool", true)
		b.Key("string", "ein Text")
		b.Key("strings", []string{"a", "", "ü"})
		b.Key("bytes", []uint8{1, 2})
		b.Key("numbers", []int32{-1, 2})
		b.Key("floats", []float32{1.5, -2})
		b.Key("flags", []bool{true, false})
		b.Key("none", []uint32{})
		b.Tensor("first", gguf.F32, []int{2, 3}, make([]byte, 24))
		b.Tensor("second", gguf.Q8_0, []int{2, 2, 64}, make([]byte, 2*2*2*34))
		h, err := parse(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		want := gguf.Keys{
			"u8": uint64(200), "i8": int64(-3), "u16": uint64(60000), "i16": int64(-30000), "u32": uint64(1 << 31), "i32": int64(-1 << 31),
			"u64": uint64(1 << 63), "i64": int64(-1 << 63), "f32": float32(0.5), "f64": 0.25, "bool": true, "string": "ein Text",
			"strings": []string{"a", "", "ü"}, "bytes": []uint64{1, 2}, "numbers": []int64{-1, 2}, "floats": []float32{1.5, -2},
			"flags": []bool{true, false}, "none": []uint64{}, "general.alignment": uint64(64),
		}
		if !reflect.DeepEqual(h.Keys, want) {
			t.Errorf("keys\n%v\nwant\n%v", h.Keys, want)
		}
		if h.Version != int(version) || h.DataStart%64 != 0 || len(h.Tensors) != 2 {
			t.Errorf("version %d, data at %d, %d tensors", h.Version, h.DataStart, len(h.Tensors))
		}
		wantTensor := gguf.Tensor{Name: "second", Type: gguf.Q8_0, Shape: []int{2, 2, 64}, Offset: 64, Size: 8 * 34}
		if !reflect.DeepEqual(h.Tensors[1], wantTensor) {
			t.Errorf("tensor %+v, want %+v", h.Tensors[1], wantTensor)
		}
	}
}

func TestParseHeaderWithoutTensors(t *testing.T) {
	var b gguftest.Builder
	b.Key("a", "b")
	if h, err := parse(b.Bytes()); err != nil || len(h.Tensors) != 0 {
		t.Errorf("err = %v", err)
	}
}

// raw puts numbers and texts together: uint32, uint64, string (as the bytes alone).
func raw(parts ...any) []byte {
	var out []byte
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			out = append(out, p...)
		case []byte:
			out = append(out, p...)
		case uint8:
			out = append(out, p)
		case uint32:
			out = binary.LittleEndian.AppendUint32(out, p)
		case uint64:
			out = binary.LittleEndian.AppendUint64(out, p)
		}
	}
	return out
}

// head is the start of a file with the given counts.
func head(tensors, keys uint64) []byte { return raw("GGUF", uint32(3), tensors, keys) }

// str is a string with its length.
func str(s string) []byte { return raw(uint64(len(s)), s) }

// info describes a tensor: dims in the file's order.
func info(name string, kind uint32, offset uint64, dims ...uint64) []byte {
	out := raw(str(name), uint32(len(dims)))
	for _, d := range dims {
		out = raw(out, d)
	}
	return raw(out, kind, offset)
}

// zeros stand for what comes after, so that a length is not past the end.
func zeros(n int) []byte { return make([]byte, n) }

func TestParseHeaderRefuses(t *testing.T) {
	key := func(kind uint32, value ...any) []byte { return raw(head(0, 1), str("k"), kind, raw(value...)) }
	tensors := func(list ...[]byte) []byte {
		out := head(uint64(len(list)), 0)
		for _, i := range list {
			out = raw(out, i)
		}
		for len(out)%32 != 0 {
			out = append(out, 0)
		}
		return raw(out, zeros(256))
	}
	tests := []struct {
		name    string
		content []byte
		want    string
	}{
		{"empty file", nil, "ends at byte 0"},
		{"three bytes", []byte("GGU"), "ends at byte 3"},
		{"wrong magic", raw("GGML", uint32(3), uint64(0), uint64(0)), `starts with "GGML"`},
		{"safetensors", raw(uint64(2), "{}", zeros(16)), "not with GGUF"},
		{"no version", []byte("GGUF"), "ends at byte 4"},
		{"version 1", raw("GGUF", uint32(1), uint32(0), uint32(0)), "version 1 is not supported"},
		{"version 4", raw("GGUF", uint32(4), uint64(0), uint64(0)), "version 4 is not supported"},
		{"version 0", raw("GGUF", uint32(0), uint64(0), uint64(0)), "version 0 is not supported"},
		{"big-endian", raw("GGUF", uint32(3<<24), uint64(0), uint64(0)), "big-endian"},
		{"no counts", raw("GGUF", uint32(3), uint64(0)), "ends at byte 16"},

		{"tensor count past the end", raw(head(5, 0), zeros(100)), "5 tensors do not fit"},
		{"tensor count that overflows", raw(head(1<<63, 0), zeros(100)), "tensors do not fit"},
		{"key count past the end", raw(head(0, 9), zeros(100)), "9 keys do not fit"},
		{"key count that overflows", raw(head(0, 1<<60), zeros(100)), "keys do not fit"},
		{"key name past the end", raw(head(0, 1), uint64(1000), "k", zeros(20)), "string of 1000 bytes is past the end"},
		{"key name of 2^64 bytes", raw(head(0, 1), uint64(1<<64-1), "k", zeros(20)), "is past the end"},
		{"key name too long", raw(head(0, 1), str(strings.Repeat("k", 1<<16)), uint32(0), uint8(1)), "is over 65535"},
		{"empty key", raw(head(0, 1), str(""), uint32(4), uint32(1)), "empty name"},
		{"duplicate key", raw(head(0, 2), str("k"), uint32(4), uint32(1), str("k"), uint32(4), uint32(1)), `duplicate key "k"`},
		{"unknown value type", key(13, zeros(20)), "unknown value type 13"},
		{"value cut short", key(10, uint32(1)), "ends at byte"},
		{"string value past the end", key(8, uint64(99), "short"), "is past the end"},
		{"bool of 2", key(7, uint8(2)), "a bool is 2"},
		{"bool of 2 in an array", key(9, uint32(7), uint64(2), uint8(1), uint8(2)), "a bool is 2"},
		{"array of arrays", key(9, uint32(9), uint64(1), uint32(0), uint64(0)), "array of arrays"},
		{"array of an unknown type", key(9, uint32(13), uint64(1), zeros(8)), "unknown value type 13 in an array"},
		{"array past the end", key(9, uint32(4), uint64(100), zeros(16)), "100 elements is past the end"},
		{"array of strings past the end", key(9, uint32(8), uint64(3), zeros(16)), "3 elements is past the end"},
		{"array length that overflows", key(9, uint32(10), uint64(1<<61), zeros(16)), "is over"},
		{"string in an array past the end", key(9, uint32(8), uint64(1), uint64(50), "x"), "is past the end"},

		{"empty tensor name", tensors(info("", 0, 0, 4)), "empty name"},
		{"tensor name of 64 bytes", tensors(info(strings.Repeat("n", 64), 0, 0, 4)), "is over 63"},
		{"duplicate tensor", tensors(info("a", 0, 0, 4), info("a", 0, 32, 4)), `duplicate tensor "a"`},
		{"no dimensions", tensors(info("a", 0, 0), zeros(8)), "0 dimensions"},
		{"five dimensions", tensors(info("a", 0, 0, 1, 1, 1, 1, 1)), "5 dimensions"},
		{"2^32-1 dimensions", raw(head(1, 0), str("a"), uint32(1<<32-1), zeros(64)), "dimensions"},
		{"dimension of zero", tensors(info("a", 0, 0, 4, 0)), "dimension 0"},
		{"dimension over 2^63", tensors(info("a", 0, 0, 1<<63)), "dimension 9223372036854775808"},
		{"shape that overflows", tensors(info("a", 0, 0, 1<<32, 1<<32)), "overflows"},
		{"shape times type that overflows", tensors(info("a", 0, 0, 1<<61)), "overflows"},
		{"unknown tensor type", tensors(info("a", 99, 0, 32)), "unknown tensor type 99"},
		{"removed tensor type", tensors(info("a", 4, 0, 32)), "unknown tensor type 4"},
		{"row that is no whole block", tensors(info("a", 8, 0, 48, 2)), "rows of 48 weights are not whole blocks of 32 (Q8_0)"},
		{"row that is no whole superblock", tensors(info("a", 12, 0, 128, 2)), "not whole blocks of 256 (Q4_K)"},
		{"offset not aligned", tensors(info("a", 0, 16, 4)), "offset 16 is not a multiple of 32"},
		{"offset past the end", tensors(info("a", 0, 1<<20, 4)), "ends past the end"},
		{"offset over 2^63", tensors(info("a", 0, 1<<63, 4)), "overflows"},
		{"offset and size that overflow", tensors(info("a", 0, 1<<63-32, 1<<40)), "ends past the end"},
		{"size past the end", tensors(info("a", 0, 0, 65)), "ends past the end"},
		{"overlap", tensors(info("a", 0, 0, 16), info("b", 0, 32, 4)), `"b" overlaps the one before it by 32 bytes`},
		{"same place twice", tensors(info("a", 0, 0, 8), info("b", 0, 0, 8)), "overlaps"},
		{"tensor info cut short", raw(head(1, 0), str("a"), uint32(4), uint64(1), uint64(1), uint64(1)), "ends at byte"},
		{"data part missing", raw(head(1, 0), info("a", 0, 0, 1)), "the data would start at byte 64 of"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(tt.content)
			if !errors.Is(err, gguf.ErrFormat) {
				t.Fatalf("err = %v, want ErrFormat", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want it to say %q", err, tt.want)
			}
		})
	}
}

func TestParseHeaderRefusesAlignment(t *testing.T) {
	for name, value := range map[string]any{
		"zero": uint32(0), "no power of two": uint32(48), "too large": uint64(1 << 40), "text": "32", "negative": int32(-32), "fraction": float32(32),
	} {
		t.Run(name, func(t *testing.T) {
			var b gguftest.Builder
			b.Key("general.alignment", value)
			if _, err := parse(b.Bytes()); !errors.Is(err, gguf.ErrFormat) || !strings.Contains(err.Error(), "general.alignment") {
				t.Errorf("err = %v, want ErrFormat", err)
			}
		})
	}
}

// TestParseHeaderBudget has arrays whose values would take more memory than the
// limit although each fits.
func TestParseHeaderBudget(t *testing.T) {
	const elements = 1 << 24
	content := head(0, 3)
	for _, name := range []string{"a", "b", "c"} {
		content = raw(content, str(name), uint32(9), uint32(7), uint64(elements), zeros(elements))
	}
	if _, err := parse(content); !errors.Is(err, gguf.ErrFormat) || !strings.Contains(err.Error(), "values of the keys") {
		t.Errorf("err = %v, want ErrFormat about memory", err)
	}
}

// FuzzParseHeader checks that no header panics and that accepted tensors lie in the
// file, whole, aligned and apart.
func FuzzParseHeader(f *testing.F) {
	b := gguftest.Builder{Alignment: 8}
	b.Key("general.architecture", "llama")
	b.Key("tokenizer.ggml.tokens", []string{"a", "b"})
	b.Key("flags", []bool{true})
	b.Tensor("t", gguf.Q8_0, []int{1, 32}, make([]byte, 34))
	b.Tensor("u", gguf.F16, []int{3}, make([]byte, 6))
	f.Add(b.Bytes())
	f.Add(head(1, 0))
	f.Add(raw(head(1, 1), str("k"), uint32(9), uint32(8), uint64(1), str("x"), info("a", 12, 0, 256), zeros(200)))
	f.Fuzz(func(t *testing.T, content []byte) {
		h, err := parse(content)
		if err != nil {
			if !errors.Is(err, gguf.ErrFormat) {
				t.Fatalf("err = %v, want ErrFormat", err)
			}
			return
		}
		var end int64
		for _, tensor := range h.Tensors {
			weights := int64(1)
			for _, d := range tensor.Shape {
				weights *= int64(d)
			}
			if tensor.Offset < end || h.DataStart+tensor.Offset+tensor.Size > int64(len(content)) ||
				weights/int64(tensor.Type.BlockWeights())*int64(tensor.Type.BlockBytes()) != tensor.Size {
				t.Fatalf("bad tensor %+v after %d", tensor, end)
			}
			end = tensor.Offset + tensor.Size
		}
	})
}
