package safetensors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// ErrFormat is returned when a weight file or an index breaks the format. The
// text around it names the file, the tensor and the rule.
var ErrFormat = errors.New("invalid safetensors")

// maxHeader is the limit of the reference implementation, in bytes.
const maxHeader = 100_000_000

// Entry is one tensor of a header: where it lies in the data part of the file.
type Entry struct {
	Name  string
	DType DType
	Shape []int
	// Begin and End are byte offsets from the start of the data part.
	Begin, End int64
}

// ParseHeader reads the JSON header of a file whose data part has dataLen bytes.
// The entries come back sorted by offset and cover the data part exactly: no
// hole, no overlap, no trailing byte. All errors match [ErrFormat].
func ParseHeader(header []byte, dataLen int64) (entries []Entry, metadata map[string]string, err error) {
	if len(header) == 0 || header[0] != '{' {
		return nil, nil, badf("header does not start with {")
	}
	if err := checkJSON(header); err != nil {
		return nil, nil, err
	}
	w := newWalker(header)
	if err := w.object(func(name string) error {
		if name == "__metadata__" {
			metadata, err = w.strings()
			return err
		}
		e, err := w.entry()
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		e.Name = name
		entries = append(entries, e)
		return nil
	}); err != nil {
		return nil, nil, err
	}
	if err := checkCoverage(entries, dataLen); err != nil {
		return nil, nil, err
	}
	return entries, metadata, nil
}

// entry reads {"dtype": …, "shape": […], "data_offsets": [begin, end]} and checks
// that the three agree.
func (w *walker) entry() (Entry, error) {
	var e Entry
	var seen [3]bool
	err := w.object(func(field string) error {
		switch field {
		case "dtype":
			seen[0] = true
			name, err := w.str()
			if err != nil {
				return fmt.Errorf("dtype: %w", err)
			}
			e.DType = DType(name)
			if e.DType.Bits() == 0 {
				return badf("unknown dtype %q", name)
			}
		case "shape":
			seen[1] = true
			dims, err := w.ints()
			if err != nil {
				return fmt.Errorf("shape: %w", err)
			}
			e.Shape = make([]int, len(dims))
			for i, d := range dims {
				if d > math.MaxInt {
					return badf("dimension %d of the shape does not fit", d)
				}
				e.Shape[i] = int(d)
			}
		case "data_offsets":
			seen[2] = true
			offsets, err := w.ints()
			if err != nil {
				return fmt.Errorf("data_offsets: %w", err)
			}
			if len(offsets) != 2 {
				return badf("data_offsets has %d numbers, want 2", len(offsets))
			}
			e.Begin, e.End = offsets[0], offsets[1]
		default:
			return badf("unknown field %q", field)
		}
		return nil
	})
	if err != nil {
		return e, err
	}
	for i, field := range []string{"dtype", "shape", "data_offsets"} {
		if !seen[i] {
			return e, badf("missing field %q", field)
		}
	}
	if e.Begin > e.End {
		return e, badf("data_offsets begin %d after end %d", e.Begin, e.End)
	}
	size, err := byteSize(e.DType, e.Shape)
	if err != nil {
		return e, err
	}
	if uint64(e.End-e.Begin) != size {
		return e, badf("data_offsets span %d bytes, shape and dtype need %d", e.End-e.Begin, size)
	}
	return e, nil
}

// byteSize multiplies the shape and the element size, refusing overflow and
// packed types that do not fill whole bytes.
func byteSize(dtype DType, shape []int) (uint64, error) {
	size := uint64(1)
	for _, d := range append(slices.Clip(shape), int(dtype.Bits())) {
		hi, lo := bits.Mul64(size, uint64(d))
		if hi != 0 {
			return 0, badf("shape %v overflows", shape)
		}
		size = lo
	}
	if size%8 != 0 {
		return 0, badf("%d bits are not whole bytes", size)
	}
	return size / 8, nil
}

// checkCoverage sorts by offset and proves that the tensors tile the data part.
func checkCoverage(entries []Entry, dataLen int64) error {
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End), cmp.Compare(a.Name, b.Name))
	})
	var at int64
	for _, e := range entries {
		switch {
		case e.Begin > at:
			return badf("tensor %q: %d bytes before it belong to no tensor", e.Name, e.Begin-at)
		case e.Begin < at:
			return badf("tensor %q: overlaps the one before it by %d bytes", e.Name, at-e.Begin)
		}
		at = e.End
	}
	if at != dataLen {
		return badf("tensors end at byte %d of %d", at, dataLen)
	}
	return nil
}

// checkJSON refuses what json.Decoder would repair silently: invalid UTF-8 and
// lone surrogates. It also proves the grammar, so that the walk only meets
// well-formed tokens.
func checkJSON(raw []byte) error {
	if !utf8.Valid(raw) {
		return badf("not UTF-8")
	}
	if !json.Valid(raw) {
		return badf("not JSON")
	}
	// In valid JSON a backslash stands only inside strings, always before a
	// complete escape.
	for rest := raw; ; {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 {
			return nil
		}
		unit, ok := utf16Unit(rest[i:])
		switch {
		case !ok:
			rest = rest[i+2:]
		case unit < 0xD800 || unit > 0xDFFF:
			rest = rest[i+6:]
		default:
			low, ok := utf16Unit(rest[i+6:])
			if unit > 0xDBFF || !ok || low < 0xDC00 || low > 0xDFFF {
				return badf("lone surrogate escape")
			}
			rest = rest[i+12:]
		}
	}
}

// utf16Unit reads the \uXXXX escape at the start of s.
func utf16Unit(s []byte) (unit uint32, ok bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	for _, c := range s[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		default:
			c = (c | 0x20) - 'a' + 10
		}
		unit = unit<<4 | uint32(c)
	}
	return unit, true
}

func badf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
}
