package amxtest

import (
	"encoding/binary"
	"errors"
	"math"
)

const (
	numTiles = 8
	maxRows  = 16
	rowBytes = 64
)

// tile is a matrix of rows of bytes.
type tile struct {
	rows, colBytes int
	data           [maxRows][rowBytes]byte
}

// tiles are the state of one thread. The zero value is the one after tilerelease.
type tiles struct {
	configured bool
	config     [64]byte
	t          [numTiles]tile
}

// errUndefined is returned for an instruction that the processor refuses as
// undefined (#UD), errProtection for one with a general protection fault (#GP).
var (
	errUndefined  = errors.New("undefined instruction")
	errProtection = errors.New("general protection fault")
)

// memory is that of the process: rows lie stride bytes apart, and an error names the
// address of a fault, before which all rows were copied.
type memory interface {
	read(address, stride uint64, rows ...[]byte) error
	write(address, stride uint64, rows ...[]byte) error
}

// do executes an instruction. address is that of its operand in memory, stride what
// its index register holds, scaled.
func (s *tiles) do(in instruction, address, stride uint64, m memory) error {
	switch in.op {
	case ldtilecfg:
		var config [64]byte
		if err := m.read(address, 0, config[:]); err != nil {
			return err
		}
		return s.configure(config)
	case sttilecfg:
		return m.write(address, 0, s.config[:])
	case tilerelease:
		*s = tiles{}
		return nil
	}
	if !s.configured || in.dst >= numTiles || s.t[in.dst].rows == 0 {
		return errUndefined
	}
	d := &s.t[in.dst]
	switch in.op {
	case tilezero:
		d.data = [maxRows][rowBytes]byte{}
		return nil
	case tileloadd:
		return d.load(address, stride, m)
	case tilestored:
		return m.write(address, stride, d.slices(&d.data)...)
	}
	return s.multiply(in, d)
}

func (d *tile) load(address, stride uint64, m memory) error {
	var data [maxRows][rowBytes]byte
	if err := m.read(address, stride, d.slices(&data)...); err != nil {
		return err
	}
	d.data = data
	return nil
}

// slices are the rows of data that the tile has.
func (d *tile) slices(data *[maxRows][rowBytes]byte) [][]byte {
	rows := make([][]byte, d.rows)
	for r := range rows {
		rows[r] = data[r][:d.colBytes]
	}
	return rows
}

// configure takes the operand of ldtilecfg: palette 1, eight tiles of up to sixteen
// rows of up to 64 bytes.
func (s *tiles) configure(config [64]byte) error {
	next := tiles{configured: true, config: config}
	if config[0] == 0 {
		*s = tiles{}
		return nil
	}
	for i, b := range config {
		unused := i >= 2 && i < 16 || i >= 16+2*numTiles && i < 48 || i >= 48+numTiles
		if unused && b != 0 || i == 0 && b != 1 {
			return errProtection
		}
	}
	for t := range next.t {
		rows, cols := int(config[48+t]), int(binary.LittleEndian.Uint16(config[16+2*t:]))
		if rows > maxRows || cols > rowBytes || (rows == 0) != (cols == 0) {
			return errProtection
		}
		next.t[t].rows, next.t[t].colBytes = rows, cols
	}
	*s = next
	return nil
}

// multiply adds the products of the rows of a with the columns of b to d. An element
// of a row holds four bytes: two bf16 or four integers, of consecutive k.
func (s *tiles) multiply(in instruction, d *tile) error {
	if in.a == in.dst || in.b == in.dst || in.a == in.b {
		return errUndefined
	}
	a, b := &s.t[in.a], &s.t[in.b]
	if a.rows != d.rows || b.colBytes != d.colBytes || a.colBytes != 4*b.rows || b.rows == 0 || a.colBytes%4+d.colBytes%4 != 0 {
		return errUndefined
	}
	for m := range d.rows {
		for n := 0; n < d.colBytes; n += 4 {
			out := d.data[m][n : n+4]
			at := func(k int) (x, y []byte) { return a.data[m][4*k : 4*k+4], b.data[k][n : n+4] }
			if in.op == tdpbf16ps {
				dotBF16(out, b.rows, at)
			} else {
				dotInt8(out, in.op, b.rows, at)
			}
		}
	}
	return nil
}

// dotBF16 is TDPBF16PS for one element: sums of even and of odd k, which start at
// zero, are added, and then added to the element.
func dotBF16(out []byte, n int, at func(k int) (x, y []byte)) {
	value := func(b []byte) float32 {
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
	}
	var sums [2]float32
	for k := range n {
		x, y := at(k)
		for i := range sums {
			sums[i] = fma(value(x[2*i:]), value(y[2*i:]), sums[i])
		}
	}
	sum := fma(1, math.Float32frombits(binary.LittleEndian.Uint32(out)), fma(1, sums[0], sums[1]))
	binary.LittleEndian.PutUint32(out, math.Float32bits(sum))
}

// fma is x·y + z for x and y with at most 24 bits together, or one of them 1,
// rounded to nearest even, with all subnormal numbers as zeros (DAZ and FTZ).
//
// The sum is exact in float64, or one part is so small beside the other that it
// changes nothing.
func fma(x, y, z float32) float32 {
	normal := func(v float32) float64 {
		if math.Abs(float64(v)) < 0x1p-126 {
			return math.Copysign(0, float64(v))
		}
		return float64(v)
	}
	s := normal(x)*normal(y) + normal(z)
	// What rounds to 2^-126 with 24 bits is not tiny.
	if math.Abs(s) < 0x1p-126-0x1p-151 {
		return float32(math.Copysign(0, s))
	}
	return float32(s)
}

// dotInt8 is the family of TDPBUSD for one element. Sums wrap around.
func dotInt8(out []byte, o op, n int, at func(k int) (x, y []byte)) {
	sum := int32(binary.LittleEndian.Uint32(out))
	for k := range n {
		x, y := at(k)
		for i := range 4 {
			p, q := int32(x[i]), int32(y[i])
			if o == tdpbsud || o == tdpbssd {
				p = int32(int8(x[i]))
			}
			if o == tdpbusd || o == tdpbssd {
				q = int32(int8(y[i]))
			}
			sum += p * q
		}
	}
	binary.LittleEndian.PutUint32(out, uint32(sum))
}
