package gguftest

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/model/gguf"
)

// Builder collects what goes into a file. The zero value is an empty file of
// version 3.
type Builder struct {
	Version   uint32 // 3 when 0
	Alignment int    // 32 when 0; written as a key when set
	keys      []byte
	numKeys   int
	tensors   []tensor
}

type tensor struct {
	name  string
	kind  gguf.Type
	shape []int
	data  []byte
}

// Key adds a key. The type of the value is the one in the file: uint8 to int64,
// float32, float64, bool, string, or a slice of these.
func (b *Builder) Key(name string, value any) {
	b.keys = appendString(b.keys, name)
	b.keys = appendValue(b.keys, value)
	b.numKeys++
}

// Tensor adds a tensor with its data; the last dimension of shape lies side by side.
func (b *Builder) Tensor(name string, kind gguf.Type, shape []int, data []byte) {
	b.tensors = append(b.tensors, tensor{name, kind, shape, data})
}

// Bytes is the whole file.
func (b *Builder) Bytes() []byte {
	keys := Builder{keys: slices.Clone(b.keys), numKeys: b.numKeys}
	align := 32
	if b.Alignment != 0 {
		align = b.Alignment
		keys.Key("general.alignment", uint32(align))
	}
	version := b.Version
	if version == 0 {
		version = 3
	}
	le := binary.LittleEndian
	out := append([]byte("GGUF"), le.AppendUint32(nil, version)...)
	out = le.AppendUint64(out, uint64(len(b.tensors)))
	out = le.AppendUint64(out, uint64(keys.numKeys))
	out = append(out, keys.keys...)
	var data []byte
	for _, t := range b.tensors {
		out = appendString(out, t.name)
		out = le.AppendUint32(out, uint32(len(t.shape)))
		for _, d := range slices.Backward(t.shape) {
			out = le.AppendUint64(out, uint64(d))
		}
		out = le.AppendUint32(out, uint32(t.kind))
		out = le.AppendUint64(out, uint64(len(data)))
		data = pad(append(data, t.data...), align)
	}
	if len(b.tensors) == 0 {
		return out
	}
	return append(pad(out, align), data...)
}

// Write writes the file.
func (b *Builder) Write(t testing.TB, path string) {
	t.Helper()
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func pad(b []byte, align int) []byte {
	for len(b)%align != 0 {
		b = append(b, 0)
	}
	return b
}

func appendString(out []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(out, uint64(len(s))), s...)
}

// appendValue writes the number of the value's type and the value.
func appendValue(out []byte, value any) []byte {
	array := func(kind uint32, n int, at func(out []byte, i int) []byte) []byte {
		out = binary.LittleEndian.AppendUint32(out, 9)
		out = binary.LittleEndian.AppendUint32(out, kind)
		out = binary.LittleEndian.AppendUint64(out, uint64(n))
		for i := range n {
			out = at(out, i)
		}
		return out
	}
	switch v := value.(type) {
	case []string:
		return array(8, len(v), func(out []byte, i int) []byte { return appendString(out, v[i]) })
	case []uint8:
		return array(0, len(v), func(out []byte, i int) []byte { return appendPlain(out, v[i]) })
	case []uint32:
		return array(4, len(v), func(out []byte, i int) []byte { return appendPlain(out, v[i]) })
	case []int32:
		return array(5, len(v), func(out []byte, i int) []byte { return appendPlain(out, v[i]) })
	case []float32:
		return array(6, len(v), func(out []byte, i int) []byte { return appendPlain(out, v[i]) })
	case []bool:
		return array(7, len(v), func(out []byte, i int) []byte { return appendPlain(out, v[i]) })
	}
	return appendPlain(binary.LittleEndian.AppendUint32(out, kindOf(value)), value)
}

// kindOf is the number of a scalar's type.
func kindOf(value any) uint32 {
	switch value.(type) {
	case uint8:
		return 0
	case int8:
		return 1
	case uint16:
		return 2
	case int16:
		return 3
	case uint32:
		return 4
	case int32:
		return 5
	case float32:
		return 6
	case bool:
		return 7
	case string:
		return 8
	case uint64:
		return 10
	case int64:
		return 11
	case float64:
		return 12
	}
	panic(fmt.Sprintf("gguftest: no value type for %T", value)) // a mistake in a test
}

func appendPlain(out []byte, value any) []byte {
	le := binary.LittleEndian
	switch v := value.(type) {
	case string:
		return appendString(out, v)
	case float32:
		return le.AppendUint32(out, math.Float32bits(v))
	case float64:
		return le.AppendUint64(out, math.Float64bits(v))
	}
	out, err := binary.Append(out, le, value)
	if err != nil {
		panic("gguftest: " + err.Error()) // a mistake in a test
	}
	return out
}
