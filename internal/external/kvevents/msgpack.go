package kvevents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// packed reads MessagePack from a server: https://github.com/msgpack/msgpack/blob/master/spec.md.
// Values within values are bounded in depth, and nothing is allocated for what is not there.
type packed []byte

var errCut = errors.New("the message is cut")

// kind is the type of a value.
type kind uint8

const (
	isNil kind = iota
	isBool
	isUint // non-negative integers are all of this kind
	isInt  // negative
	isFloat
	isText
	isBytes
	isArray
	isMap
	isExt
)

func (k kind) String() string {
	return [...]string{"nil", "a boolean", "an integer", "a negative integer", "a float", "a text", "bytes", "an array", "a map", "an extension"}[k]
}

// value is the head of one value.
type value struct {
	kind kind
	n    uint64 // of a bool, an integer (as two's complement) or a float its bits, else the length
	b    []byte // of texts, bytes and extensions
}

// next reads a value, of an array or map only the head.
func (p *packed) next() (value, error) {
	tag, err := p.uint(1)
	if err != nil {
		return value{}, err
	}
	switch {
	case tag < 0x80:
		return value{kind: isUint, n: tag}, nil
	case tag < 0x90:
		return value{kind: isMap, n: tag & 0xf}, nil
	case tag < 0xa0:
		return value{kind: isArray, n: tag & 0xf}, nil
	case tag < 0xc0:
		return p.take(isText, tag&0x1f)
	case tag >= 0xe0:
		return value{kind: isInt, n: uint64(int64(int8(tag)))}, nil
	}
	switch tag {
	case 0xc0:
		return value{kind: isNil}, nil
	case 0xc2, 0xc3:
		return value{kind: isBool, n: tag & 1}, nil
	case 0xc4, 0xc5, 0xc6:
		return p.sized(isBytes, 1<<(tag-0xc4))
	case 0xc7, 0xc8, 0xc9:
		n, err := p.uint(1 << (tag - 0xc7))
		if err != nil {
			return value{}, err
		}
		return p.take(isExt, n+1) // and its type
	case 0xca:
		n, err := p.uint(4)
		return value{kind: isFloat, n: math.Float64bits(float64(math.Float32frombits(uint32(n))))}, err
	case 0xcb:
		n, err := p.uint(8)
		return value{kind: isFloat, n: n}, err
	case 0xcc, 0xcd, 0xce, 0xcf:
		n, err := p.uint(1 << (tag - 0xcc))
		return value{kind: isUint, n: n}, err
	case 0xd0, 0xd1, 0xd2, 0xd3:
		size := 1 << (tag - 0xd0)
		n, err := p.uint(size)
		shift := 64 - 8*size
		if signed := int64(n<<shift) >> shift; signed < 0 {
			return value{kind: isInt, n: uint64(signed)}, err
		}
		return value{kind: isUint, n: n}, err
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return p.take(isExt, 1<<(tag-0xd4)+1)
	case 0xd9, 0xda, 0xdb:
		return p.sized(isText, 1<<(tag-0xd9))
	case 0xdc, 0xdd:
		n, err := p.uint(2 << (tag - 0xdc))
		return value{kind: isArray, n: n}, err
	case 0xde, 0xdf:
		n, err := p.uint(2 << (tag - 0xde))
		return value{kind: isMap, n: n}, err
	}
	return value{}, fmt.Errorf("a value begins with %#x", tag)
}

func (p *packed) uint(size int) (uint64, error) {
	if len(*p) < size {
		return 0, errCut
	}
	var b [8]byte
	copy(b[8-size:], *p)
	*p = (*p)[size:]
	return binary.BigEndian.Uint64(b[:]), nil
}

func (p *packed) sized(k kind, size int) (value, error) {
	n, err := p.uint(size)
	if err != nil {
		return value{}, err
	}
	return p.take(k, n)
}

func (p *packed) take(k kind, n uint64) (value, error) {
	if n > uint64(len(*p)) {
		return value{}, errCut
	}
	v := value{kind: k, n: n, b: (*p)[:n]}
	*p = (*p)[n:]
	return v, nil
}

// deepest is how far values may nest.
const deepest = 16

// skip skips what belongs to a value whose head was read.
func (p *packed) skip(v value, depth int) error {
	n := v.n
	switch v.kind {
	case isArray:
	case isMap:
		n *= 2
	default:
		return nil
	}
	if depth == deepest {
		return fmt.Errorf("values nest deeper than %d", deepest)
	}
	for range n {
		v, err := p.next()
		if err == nil {
			err = p.skip(v, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// want reads a value of a kind.
func (p *packed) want(k kind) (value, error) {
	v, err := p.next()
	if err == nil && v.kind != k {
		err = fmt.Errorf("%s in place of %s", v.kind, k)
	}
	return v, err
}
