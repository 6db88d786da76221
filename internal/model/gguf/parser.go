package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// parser reads the parts of a header. Every length is compared with what is left of
// the file before anything of that length is allocated.
type parser struct {
	r      *bufio.Reader
	size   int64
	left   int64 // bytes of the file not yet read
	memory int64 // bytes of values read so far
	buf    [8]byte
}

func newParser(file io.Reader, size int64) *parser {
	return &parser{r: bufio.NewReaderSize(io.LimitReader(file, size), 1<<16), size: size, left: size}
}

// at is the position in the file.
func (p *parser) at() int64 { return p.size - p.left }

// take reads up to eight bytes; they are valid until the next call.
func (p *parser) take(n int) ([]byte, error) {
	if int64(n) > p.left {
		return nil, badf("the file ends at byte %d, inside the header", p.size)
	}
	p.left -= int64(n)
	_, err := io.ReadFull(p.r, p.buf[:n])
	return p.buf[:n], err
}

func (p *parser) u32() (uint32, error) {
	b, err := p.take(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (p *parser) u64() (uint64, error) {
	b, err := p.take(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// spend counts the memory that values take.
func (p *parser) spend(n int64) error {
	if p.memory += n; p.memory > maxMemory {
		return badf("the values of the keys take over %d bytes", int64(maxMemory))
	}
	return nil
}

// str reads a string of at most limit bytes.
func (p *parser) str(limit int) (string, error) {
	n, err := p.u64()
	if err != nil {
		return "", err
	}
	if n > uint64(p.left) {
		return "", badf("a string of %d bytes is past the end of the file", n)
	}
	if n > uint64(limit) {
		return "", badf("a string of %d bytes is over %d", n, limit)
	}
	if err := p.spend(int64(n) + 16); err != nil {
		return "", err
	}
	p.left -= int64(n)
	b := make([]byte, n)
	_, err = io.ReadFull(p.r, b)
	return string(b), err
}

// key reads one key with its value.
func (p *parser) key(into Keys) error {
	name, err := p.str(maxKey)
	if err != nil {
		return err
	}
	if name == "" {
		return badf("empty name")
	}
	if into.Has(name) {
		return badf("duplicate key %q", name)
	}
	kind, err := p.u32()
	if err != nil {
		return err
	}
	var value any
	if t := valueType(kind); t == typeArray {
		value, err = p.array()
	} else {
		value, err = p.scalar(t)
	}
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	into[name] = value
	return nil
}

func (p *parser) scalar(t valueType) (any, error) {
	if t == typeString {
		return p.str(maxString)
	}
	n := t.size()
	if n == 0 {
		return nil, badf("unknown value type %d", uint32(t))
	}
	b, err := p.take(int(n))
	if err != nil {
		return nil, err
	}
	return decode(t, b)
}

// decode makes a value of its bytes.
func decode(t valueType, b []byte) (any, error) {
	le := binary.LittleEndian
	switch t {
	case typeU8:
		return uint64(b[0]), nil
	case typeI8:
		return int64(int8(b[0])), nil
	case typeU16:
		return uint64(le.Uint16(b)), nil
	case typeI16:
		return int64(int16(le.Uint16(b))), nil
	case typeU32:
		return uint64(le.Uint32(b)), nil
	case typeI32:
		return int64(int32(le.Uint32(b))), nil
	case typeF32:
		return math.Float32frombits(le.Uint32(b)), nil
	case typeU64:
		return le.Uint64(b), nil
	case typeI64:
		return int64(le.Uint64(b)), nil
	case typeF64:
		return math.Float64frombits(le.Uint64(b)), nil
	}
	if b[0] > 1 {
		return nil, badf("a bool is %d, not 0 or 1", b[0])
	}
	return b[0] == 1, nil
}

// array reads an array; its elements may not be arrays.
func (p *parser) array() (any, error) {
	kind, err := p.u32()
	if err != nil {
		return nil, err
	}
	n, err := p.u64()
	if err != nil {
		return nil, err
	}
	t := valueType(kind)
	least := t.size()
	switch {
	case t == typeArray:
		return nil, badf("an array of arrays")
	case t == typeString:
		least = 8
	case least == 0:
		return nil, badf("unknown value type %d in an array", kind)
	}
	if n > maxArray {
		return nil, badf("an array of %d elements is over %d", n, maxArray)
	}
	if int64(n)*least > p.left {
		return nil, badf("an array of %d elements is past the end of the file", n)
	}
	if err := p.spend(int64(n) * 16); err != nil {
		return nil, err
	}
	switch t {
	case typeString:
		return elements(p, t, n, "")
	case typeBool:
		return elements(p, t, n, false)
	case typeF32:
		return elements(p, t, n, float32(0))
	case typeF64:
		return elements(p, t, n, float64(0))
	case typeI8, typeI16, typeI32, typeI64:
		return elements(p, t, n, int64(0))
	}
	return elements(p, t, n, uint64(0))
}

// elements reads the elements of an array; decode gives T for t.
func elements[T any](p *parser, t valueType, n uint64, _ T) ([]T, error) {
	list := make([]T, n)
	if t == typeString {
		for i := range list {
			v, err := p.str(maxString)
			if err != nil {
				return nil, err
			}
			list[i], _ = any(v).(T)
		}
		return list, nil
	}
	var chunk [4096]byte
	size := int(t.size())
	for done := 0; done < len(list); {
		b := chunk[:size*min(len(list)-done, len(chunk)/size)]
		p.left -= int64(len(b))
		if _, err := io.ReadFull(p.r, b); err != nil {
			return nil, err
		}
		for ; len(b) > 0; b = b[size:] {
			v, err := decode(t, b[:size])
			if err != nil {
				return nil, err
			}
			list[done], _ = v.(T)
			done++
		}
	}
	return list, nil
}
