package profile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// ErrArray is returned for a NumPy array that this package does not read: another type, byte
// order, dimension or version, or bytes that are none. The message says which.
var ErrArray = errors.New("not a readable NumPy array")

const (
	npyMagic  = "\x93NUMPY"
	maxHeader = 64 << 10
)

// npyHeader is the literal of a Python dictionary that NumPy writes, with its keys in order.
var npyHeader = regexp.MustCompile(`^\{'descr': '([^']{1,16})', 'fortran_order': (False|True), 'shape': \(([0-9, ]{0,64})\), \} *\n?$`)

// parseArray reads an array in the format of numpy.save, version 1.0 or 2.0: float64, float32
// or int64, little endian, in C order, of no dimension or one.
func parseArray(b []byte) ([]float64, error) {
	fail := func(format string, args ...any) ([]float64, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{ErrArray}, args...)...)
	}
	if len(b) < 10 || string(b[:6]) != npyMagic {
		return fail("it does not begin with the magic number")
	}
	at, n := 10, int(binary.LittleEndian.Uint16(b[8:]))
	switch {
	case b[6] == 1 && b[7] == 0:
	case b[6] == 2 && b[7] == 0:
		if len(b) < 12 {
			return fail("its header ends too soon")
		}
		at, n = 12, int(binary.LittleEndian.Uint32(b[8:]))
	default:
		return fail("version %d.%d", b[6], b[7])
	}
	if n > maxHeader || n > len(b)-at {
		return fail("its header of %d bytes ends too soon", n)
	}
	header := npyHeader.FindSubmatch(b[at : at+n])
	if header == nil {
		return fail("header %.80q", b[at:at+n])
	}
	size, value := valueOf(string(header[1]))
	if value == nil {
		return fail("type %q is not <f8, <f4 or <i8", header[1])
	}
	count, dimensions, err := shape(string(header[3]))
	if err != nil {
		return fail("shape (%s): %w", header[3], err)
	}
	if dimensions > 1 {
		return fail("%d dimensions", dimensions)
	}
	if string(header[2]) == "True" {
		return fail("order of Fortran")
	}
	data := b[at+n:]
	if len(data) != count*size {
		return fail("%d bytes for %d values of %d bytes", len(data), count, size)
	}
	out := make([]float64, count)
	for i := range out {
		out[i] = value(data[i*size:])
	}
	return out, nil
}

// valueOf returns the size of a value of a type, and what reads one; nil for other types.
func valueOf(descr string) (int, func([]byte) float64) {
	switch descr {
	case "<f8":
		return 8, func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }
	case "<f4":
		return 4, func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) }
	case "<i8":
		return 8, func(b []byte) float64 { return float64(int64(binary.LittleEndian.Uint64(b))) }
	}
	return 0, nil
}

// shape returns how many values a tuple like "3, 4" or "5," means, and how many dimensions.
func shape(tuple string) (count, dimensions int, err error) {
	count = 1
	if strings.TrimSpace(tuple) == "" {
		return 1, 0, nil
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(tuple), ","), ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return 0, 0, errors.New("not a tuple of numbers")
		}
		if n < 0 || n > maxPoints || n*count > maxPoints {
			return 0, 0, fmt.Errorf("more than %d values", maxPoints)
		}
		count *= n
		dimensions++
	}
	return count, dimensions, nil
}

// formatArray writes an array of one dimension as numpy.save does: version 1.0, padded to 64
// bytes.
func formatArray(descr string, values []float64) []byte {
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", descr, len(values))
	const before = 10
	padded := (before + len(header) + 1 + 63) / 64 * 64
	header += strings.Repeat(" ", padded-before-len(header)-1) + "\n"
	var b bytes.Buffer
	b.WriteString(npyMagic + "\x01\x00")
	b.Write(binary.LittleEndian.AppendUint16(nil, uint16(len(header))))
	b.WriteString(header)
	for _, v := range values {
		bits := math.Float64bits(v)
		if descr == "<i8" {
			bits = uint64(int64(v))
		}
		b.Write(binary.LittleEndian.AppendUint64(nil, bits))
	}
	return b.Bytes()
}
