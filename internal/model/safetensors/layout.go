package safetensors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Layout plans a weight file: tensors are added in the order in which they shall
// lie, then Header gives the start of the file. The bytes depend only on what
// was added, so equal layouts give equal files.
type Layout struct {
	entries []Entry
	size    int64
}

// Add appends a tensor and returns its byte offset in the data part.
func (l *Layout) Add(name string, dtype DType, shape ...int) (offset int64, err error) {
	size, err := byteSize(dtype, shape)
	if err != nil {
		return 0, fmt.Errorf("add %s: %w", name, err)
	}
	offset = l.size
	l.size += int64(size)
	l.entries = append(l.entries, Entry{Name: name, DType: dtype, Shape: shape, Begin: offset, End: l.size})
	return offset, nil
}

// Size is the length of the data part in bytes.
func (l *Layout) Size() int64 { return l.size }

// Header returns the bytes before the data part, padded so that the data starts
// at a multiple of 64 bytes.
func (l *Layout) Header(metadata map[string]string) []byte {
	out := []byte("        {")
	if len(metadata) > 0 {
		out = append(out, `"__metadata__":{`...)
		for i, key := range slices.Sorted(maps.Keys(metadata)) {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(quote(out, key), ':')
			out = quote(out, metadata[key])
		}
		out = append(out, '}')
	}
	for _, e := range l.entries {
		if out[len(out)-1] != '{' {
			out = append(out, ',')
		}
		out = append(quote(out, e.Name), `:{"dtype":`...)
		out = append(quote(out, string(e.DType)), `,"shape":[`...)
		for i, d := range e.Shape {
			if i > 0 {
				out = append(out, ',')
			}
			out = fmt.Append(out, d)
		}
		out = fmt.Appendf(out, `],"data_offsets":[%d,%d]}`, e.Begin, e.End)
	}
	out = append(out, '}')
	for len(out)%64 != 0 {
		out = append(out, ' ')
	}
	binary.LittleEndian.PutUint64(out, uint64(len(out)-8))
	return out
}

func quote(out []byte, s string) []byte {
	q, err := json.Marshal(s)
	if err != nil { // strings always marshal
		panic("safetensors: marshal string: " + err.Error())
	}
	return append(out, q...)
}
