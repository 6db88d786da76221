package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The errors of malformed messages.
var (
	// ErrTruncated is returned when a message ends before its last value does.
	ErrTruncated = errors.New("message is truncated")
	// ErrTrailing is returned when bytes follow the value.
	ErrTrailing = errors.New("bytes after the end of the message")
	// ErrNesting is returned when arrays and maps are nested too deeply.
	ErrNesting = errors.New("message is nested too deeply")
	// ErrCode is returned for a byte that begins no value.
	ErrCode = errors.New("not msgpack")
	// ErrValue is returned for a value that its field cannot hold.
	ErrValue = errors.New("value does not fit")
)

// maxNesting is far above the nesting of every message. The decoder skips unknown fields
// recursively. Without this limit, a message of nothing but opening arrays would overflow
// the stack, which ends the process: Go cannot recover from that.
const maxNesting = 64

// wellFormed checks that b is exactly one value, with lengths and nesting that the
// decoder can trust.
func wellFormed(b []byte) error {
	var open [maxNesting]uint64 // values still due in each open array or map
	depth := 0
	left := uint64(1) // values still due at this depth
	for {
		for left == 0 {
			if depth == 0 {
				if len(b) > 0 {
					return fmt.Errorf("%w: %d", ErrTrailing, len(b))
				}
				return nil
			}
			depth--
			left = open[depth]
		}
		if b, left = skipNumbers(b, left); left == 0 {
			continue
		}
		left--
		size, values, err := header(b)
		if err != nil {
			return err
		}
		if size > uint64(len(b)) || values > uint64(len(b)) {
			return ErrTruncated
		}
		b = b[size:]
		if values == 0 {
			continue
		}
		if depth == maxNesting {
			return ErrNesting
		}
		open[depth] = left
		depth++
		left = values
	}
}

// numberSizes holds the sizes of numbers by their first byte, 0 for that of other values.
var numberSizes = func() (sizes [256]uint8) {
	for c := range sizes {
		switch {
		case c <= 0x7f, c >= 0xe0:
			sizes[c] = 1
		case c >= 0xcc && c <= 0xd3: // unsigned, then signed
			sizes[c] = 1 + 1<<(c&3)
		}
	}
	return sizes
}()

// skipNumbers passes over at most n numbers, of which long lists consist. It returns what
// follows, and how many values are still due.
func skipNumbers(b []byte, n uint64) ([]byte, uint64) {
	at := 0
	for ; n > 0 && at < len(b); n-- {
		size := int(numberSizes[b[at]])
		if size == 0 || size > len(b)-at {
			break
		}
		at += size
	}
	return b[at:], n
}

// header reads the beginning of a value. size is its length in bytes up to its elements,
// values the number of elements that follow.
func header(b []byte) (size, values uint64, err error) {
	if len(b) == 0 {
		return 0, 0, ErrTruncated
	}
	c := b[0]
	length := func(bytes int) uint64 { // the big-endian number after the code
		if len(b) <= bytes {
			return 1 << 40 // longer than any message: truncated
		}
		var n [8]byte
		copy(n[8-bytes:], b[1:1+bytes])
		return binary.BigEndian.Uint64(n[:])
	}
	switch {
	case c <= 0x7f, c >= 0xe0: // small integer
		return 1, 0, nil
	case c <= 0x8f:
		return 1, 2 * uint64(c&0x0f), nil
	case c <= 0x9f:
		return 1, uint64(c & 0x0f), nil
	case c <= 0xbf:
		return 1 + uint64(c&0x1f), 0, nil
	}
	switch c {
	case 0xc0, 0xc2, 0xc3: // nil, false, true
		return 1, 0, nil
	case 0xc4, 0xc5, 0xc6: // binary
		w := 1 << (c - 0xc4)
		return 1 + uint64(w) + length(w), 0, nil
	case 0xc7, 0xc8, 0xc9: // extension
		w := 1 << (c - 0xc7)
		return 2 + uint64(w) + length(w), 0, nil
	case 0xca: // float
		return 5, 0, nil
	case 0xcb:
		return 9, 0, nil
	case 0xcc, 0xcd, 0xce, 0xcf: // unsigned
		return 1 + 1<<(c-0xcc), 0, nil
	case 0xd0, 0xd1, 0xd2, 0xd3: // signed
		return 1 + 1<<(c-0xd0), 0, nil
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8: // extension of fixed size
		return 2 + 1<<(c-0xd4), 0, nil
	case 0xd9, 0xda, 0xdb: // string
		w := 1 << (c - 0xd9)
		return 1 + uint64(w) + length(w), 0, nil
	case 0xdc, 0xdd: // array
		w := 2 << (c - 0xdc)
		return 1 + uint64(w), length(w), nil
	case 0xde, 0xdf: // map
		w := 2 << (c - 0xde)
		return 1 + uint64(w), 2 * length(w), nil
	}
	return 0, 0, fmt.Errorf("%w: %#x", ErrCode, c)
}
