package gguf

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
)

// ErrFormat is returned when a file breaks the format. The text around it names
// the key or tensor and the rule.
var ErrFormat = errors.New("invalid GGUF")

// Limits on what a header may hold. They are far above any file in use.
const (
	maxKeys    = 1 << 16
	maxTensors = 1 << 20
	maxKey     = 1<<16 - 1 // bytes of a key's name, as the format says
	maxName    = 63        // bytes of a tensor's name, as ggml has it
	maxDims    = 4
	maxString  = 64 << 20  // bytes
	maxArray   = 1 << 24   // elements
	maxMemory  = 512 << 20 // bytes of all values once they are read
	maxAlign   = 1 << 30
)

// alignmentKey holds what tensors are aligned to; defaultAlignment stands for it.
const (
	alignmentKey     = "general.alignment"
	defaultAlignment = 32
)

// Header is everything before the data of a file.
type Header struct {
	Version int // 2 or 3, which have the same layout
	Keys    Keys
	Tensors []Tensor // by offset; without Data
	// DataStart is the byte offset of the data part in the file.
	DataStart int64
}

// Tensor is one tensor. Row-major: the last dimension of Shape is the one whose
// weights lie side by side. Rows are whole blocks of the type.
type Tensor struct {
	Name   string
	Type   Type
	Shape  []int
	Offset int64 // bytes, from the start of the data part
	Size   int64 // bytes
	Data   []byte
}

// ParseHeader reads the header of a file of the given size in bytes, from its
// start. Errors match [ErrFormat] unless reading itself fails.
func ParseHeader(file io.Reader, size int64) (*Header, error) {
	p := newParser(file, size)
	h := &Header{Keys: Keys{}}
	tensors, keys, err := p.counts(h)
	if err != nil {
		return nil, err
	}
	for i := range keys {
		if err := p.key(h.Keys); err != nil {
			return nil, fmt.Errorf("key %d: %w", i, err)
		}
	}
	align, err := alignment(h.Keys)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	for i := range tensors {
		t, err := p.tensor(align)
		if err != nil {
			return nil, fmt.Errorf("tensor %d: %w", i, err)
		}
		if seen[t.Name] {
			return nil, badf("duplicate tensor %q", t.Name)
		}
		seen[t.Name] = true
		h.Tensors = append(h.Tensors, t)
	}
	h.DataStart = (p.at() + align - 1) / align * align
	return h, h.checkPlaces(size)
}

// counts reads magic, version and the two counts.
func (p *parser) counts(h *Header) (tensors, keys uint64, err error) {
	magic, err := p.take(4)
	if err != nil {
		return 0, 0, err
	}
	if string(magic) != "GGUF" {
		return 0, 0, badf("the file starts with %q, not with GGUF", magic)
	}
	version, err := p.u32()
	if err != nil {
		return 0, 0, err
	}
	switch {
	case version == 2 || version == 3:
		h.Version = int(version)
	case version == 1:
		return 0, 0, badf("version 1 is not supported: convert the model again")
	case version != 0 && version&0xFFFF == 0:
		return 0, 0, badf("big-endian file: convert the model again for little-endian machines")
	default:
		return 0, 0, badf("version %d is not supported; known are 2 and 3", version)
	}
	if tensors, err = p.u64(); err != nil {
		return 0, 0, err
	}
	if keys, err = p.u64(); err != nil {
		return 0, 0, err
	}
	const leastTensor, leastKey = 8 + 1 + 4 + 8 + 4 + 8, 8 + 1 + 4 + 1 // bytes
	if tensors > maxTensors || tensors*leastTensor > uint64(p.left) {
		return 0, 0, badf("%d tensors do not fit into the file, or are over %d", tensors, maxTensors)
	}
	if keys > maxKeys || keys*leastKey > uint64(p.left) {
		return 0, 0, badf("%d keys do not fit into the file, or are over %d", keys, maxKeys)
	}
	return tensors, keys, nil
}

func alignment(keys Keys) (int64, error) {
	if !keys.Has(alignmentKey) {
		return defaultAlignment, nil
	}
	n, ok := keys[alignmentKey].(uint64)
	if !ok {
		return 0, badf("%s is %s, not a whole number", alignmentKey, describe(keys[alignmentKey]))
	}
	if n == 0 || n > maxAlign || bits.OnesCount64(n) != 1 {
		return 0, badf("%s %d is not a power of two up to %d", alignmentKey, n, maxAlign)
	}
	return int64(n), nil
}

// tensor reads one tensor's description and proves that it makes sense by itself.
func (p *parser) tensor(align int64) (Tensor, error) {
	var t Tensor
	name, err := p.str(maxName)
	if err != nil {
		return t, fmt.Errorf("name: %w", err)
	}
	if name == "" {
		return t, badf("empty name")
	}
	t.Name = name
	if err := p.shape(&t); err != nil {
		return t, fmt.Errorf("%q: %w", name, err)
	}
	kind, err := p.u32()
	if err != nil {
		return t, err
	}
	offset, err := p.u64()
	if err != nil {
		return t, err
	}
	t.Type = Type(kind)
	if err := t.measure(offset, align); err != nil {
		return t, fmt.Errorf("%q: %w", name, err)
	}
	return t, nil
}

func (p *parser) shape(t *Tensor) error {
	dims, err := p.u32()
	if err != nil {
		return err
	}
	if dims == 0 || dims > maxDims {
		return badf("%d dimensions, not 1 to %d", dims, maxDims)
	}
	for range dims {
		d, err := p.u64()
		if err != nil {
			return err
		}
		if d == 0 || d > math.MaxInt64 {
			return badf("dimension %d of the shape", d)
		}
		t.Shape = append(t.Shape, int(d))
	}
	slices.Reverse(t.Shape) // the file has the fastest one first
	return nil
}

// measure fills Size and Offset.
func (t *Tensor) measure(offset uint64, align int64) error {
	l, ok := layoutOf(t.Type)
	if !ok {
		return badf("unknown tensor type %d", uint32(t.Type))
	}
	row := t.Shape[len(t.Shape)-1]
	if row%l.weights != 0 {
		return badf("rows of %d weights are not whole blocks of %d (%s)", row, l.weights, l.name)
	}
	size := uint64(l.bytes)
	for i, d := range t.Shape {
		if i == len(t.Shape)-1 {
			d /= l.weights
		}
		hi, lo := bits.Mul64(size, uint64(d))
		if hi != 0 || lo > math.MaxInt64 {
			return badf("shape %v overflows", t.Shape)
		}
		size = lo
	}
	if offset > math.MaxInt64 {
		return badf("offset %d overflows", offset)
	}
	if offset%uint64(align) != 0 {
		return badf("offset %d is not a multiple of %d", offset, align)
	}
	t.Size, t.Offset = int64(size), int64(offset)
	return nil
}

// checkPlaces sorts the tensors by offset and proves that they lie in the file and
// apart from each other.
func (h *Header) checkPlaces(size int64) error {
	slices.SortFunc(h.Tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Name, b.Name))
	})
	if len(h.Tensors) > 0 && h.DataStart > size {
		return badf("the data would start at byte %d of %d", h.DataStart, size)
	}
	room := size - h.DataStart
	var end int64
	for _, t := range h.Tensors {
		if t.Offset < end {
			return badf("tensor %q overlaps the one before it by %d bytes", t.Name, end-t.Offset)
		}
		if t.Size > room || t.Offset > room-t.Size {
			return badf("tensor %q ends past the end of the file", t.Name)
		}
		end = t.Offset + t.Size
	}
	return nil
}

func badf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
}
