package amxtest

import (
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// bytesMemory starts at address 4096.
type bytesMemory []byte

const memoryStart = 4096

func (m bytesMemory) read(address, stride uint64, rows ...[]byte) error {
	for i, r := range rows {
		own, err := m.row(address+uint64(i)*stride, len(r))
		if err != nil {
			return err
		}
		copy(r, own)
	}
	return nil
}

func (m bytesMemory) write(address, stride uint64, rows ...[]byte) error {
	for i, r := range rows {
		own, err := m.row(address+uint64(i)*stride, len(r))
		if err != nil {
			return err
		}
		copy(own, r)
	}
	return nil
}

func (m bytesMemory) row(address uint64, n int) ([]byte, error) {
	if address < memoryStart || address-memoryStart+uint64(n) > uint64(len(m)) {
		return nil, errors.New("no memory")
	}
	return m[address-memoryStart:][:n], nil
}

// config is a configuration by rows and bytes of each tile.
func config(shapes ...[2]int) (c [64]byte) {
	c[0] = 1
	for t, s := range shapes {
		c[48+t] = byte(s[0])
		binary.LittleEndian.PutUint16(c[16+2*t:], uint16(s[1]))
	}
	return c
}

func configured(t *testing.T, shapes ...[2]int) *tiles {
	t.Helper()
	s := new(tiles)
	if err := s.configure(config(shapes...)); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConfigure(t *testing.T) {
	bad := map[string]func(c *[64]byte){
		"palette 2":           func(c *[64]byte) { c[0] = 2 },
		"a reserved byte":     func(c *[64]byte) { c[5] = 1 },
		"a ninth tile":        func(c *[64]byte) { c[56] = 1 },
		"17 rows":             func(c *[64]byte) { c[48] = 17 },
		"65 bytes":            func(c *[64]byte) { c[16] = 65 },
		"rows without bytes":  func(c *[64]byte) { c[16] = 0 },
		"bytes without rows":  func(c *[64]byte) { c[48] = 0 },
		"256 bytes and more":  func(c *[64]byte) { c[17] = 1 },
		"bytes of tile eight": func(c *[64]byte) { c[32] = 64 },
	}
	for name, change := range bad {
		c := config([2]int{16, 64})
		change(&c)
		if err := new(tiles).configure(c); !errors.Is(err, errProtection) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := configured(t, [2]int{3, 8})
	if s.t[0].rows != 3 || s.t[0].colBytes != 8 || s.t[1].rows != 0 {
		t.Errorf("tiles %+v", s.t[:2])
	}
	if err := s.configure([64]byte{}); err != nil || s.configured {
		t.Errorf("palette 0: %v, configured %v", err, s.configured)
	}
}

// TestMemory loads and stores rows at a distance and leaves the rest alone.
func TestMemory(t *testing.T) {
	m := make(bytesMemory, 1024)
	for i := range m {
		m[i] = byte(i*7 + i/256)
	}
	s := configured(t, [2]int{3, 8})
	do := func(in instruction, address, stride uint64) {
		t.Helper()
		if err := s.do(in, memoryStart+address, stride, m); err != nil {
			t.Fatal(err)
		}
	}
	s.t[0].data[2][63] = 9 // what lies beyond the tile becomes zero
	do(instruction{op: tileloadd}, 40, 100)
	before := append(bytesMemory(nil), m...)
	do(instruction{op: tilestored}, 500, 32)
	for r := range 3 {
		for i := range 32 {
			want := before[500+32*r+i]
			if i < 8 {
				want = before[40+100*r+i]
			}
			if got := m[500+32*r+i]; got != want {
				t.Errorf("row %d, byte %d is %d, want %d", r, i, got, want)
			}
		}
	}
	if s.t[0].data[2][63] != 0 {
		t.Error("a load left what was beyond the tile")
	}
	if err := s.do(instruction{op: tileloadd}, memoryStart+1000, 100, m); err == nil {
		t.Error("a load beyond memory")
	}
	do(instruction{op: tilezero}, 0, 0)
	if s.t[0].data != [maxRows][rowBytes]byte{} {
		t.Error("tilezero left something")
	}
	do(instruction{op: tilerelease}, 0, 0)
	for _, in := range []instruction{{op: tilezero}, {op: tileloadd}, {op: tilestored}, {op: tdpbf16ps, a: 1, b: 2}} {
		if err := s.do(in, memoryStart, 8, m); !errors.Is(err, errUndefined) {
			t.Errorf("%s without a configuration: %v", in.op, err)
		}
	}
}

func TestShapes(t *testing.T) {
	for name, shapes := range map[string][][2]int{
		"rows of a":    {{4, 8}, {3, 12}, {3, 8}},
		"columns of b": {{4, 8}, {4, 12}, {3, 12}},
		"k":            {{4, 8}, {4, 12}, {2, 8}},
		"no b":         {{4, 8}, {4, 12}},
	} {
		s := configured(t, shapes...)
		if err := s.do(instruction{op: tdpbf16ps, dst: 0, a: 1, b: 2}, 0, 0, nil); !errors.Is(err, errUndefined) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := configured(t, [2]int{4, 8}, [2]int{4, 12}, [2]int{3, 8})
	if err := s.do(instruction{op: tdpbf16ps, dst: 0, a: 1, b: 2}, 0, 0, nil); err != nil {
		t.Error(err)
	}
	if err := s.do(instruction{op: tdpbf16ps, dst: 0, a: 1, b: 1}, 0, 0, nil); !errors.Is(err, errUndefined) {
		t.Errorf("the same tile twice: %v", err)
	}
}

// TestBF16 multiplies small integers, whose sums are exact in any order.
func TestBF16(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	const rows, cols, k = 3, 5, 7 // k in pairs
	s := configured(t, [2]int{rows, 4 * cols}, [2]int{rows, 4 * k}, [2]int{k, 4 * cols})
	bf16 := func(b []byte, v int) { binary.LittleEndian.PutUint16(b, uint16(math.Float32bits(float32(v))>>16)) }
	var x [rows][2 * k]int
	var y [2 * k][cols]int
	for m := range x {
		for i := range x[m] {
			x[m][i] = r.IntN(200) - 100
			bf16(s.t[1].data[m][2*i:], x[m][i])
		}
	}
	for i := range y {
		for n := range y[i] {
			y[i][n] = r.IntN(200) - 100
			bf16(s.t[2].data[i/2][4*n+2*(i%2):], y[i][n])
		}
	}
	for m := range rows {
		for n := range cols {
			binary.LittleEndian.PutUint32(s.t[0].data[m][4*n:], math.Float32bits(float32(1000*m+n)))
		}
	}
	if err := s.do(instruction{op: tdpbf16ps, dst: 0, a: 1, b: 2}, 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	for m := range rows {
		for n := range cols {
			want := 1000*m + n
			for i := range y {
				want += x[m][i] * y[i][n]
			}
			if got := math.Float32frombits(binary.LittleEndian.Uint32(s.t[0].data[m][4*n:])); got != float32(want) {
				t.Errorf("%d, %d is %v, want %d", m, n, got, want)
			}
		}
	}
}

// TestOrder shows that even and odd k have sums of their own, and that the element
// comes last: each value vanishes beside a larger one that it is added to too early.
func TestOrder(t *testing.T) {
	s := configured(t, [2]int{1, 4}, [2]int{1, 8}, [2]int{2, 4})
	put := func(tile, row, at int, v float32) {
		binary.LittleEndian.PutUint16(s.t[tile].data[row][at:], uint16(math.Float32bits(v)>>16))
	}
	for i := range 4 {
		put(2, i/2, 2*(i%2), 1)
	}
	for i, v := range []float32{0x1p30, 1, -0x1p30, 2} { // (2^30 - 2^30) + (1 + 2)
		put(1, 0, 2*i, v)
	}
	binary.LittleEndian.PutUint32(s.t[0].data[0][:], math.Float32bits(0.5))
	if err := s.do(instruction{op: tdpbf16ps, dst: 0, a: 1, b: 2}, 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	if got := math.Float32frombits(binary.LittleEndian.Uint32(s.t[0].data[0][:])); got != 3.5 {
		t.Errorf("%v, want 3.5", got)
	}
}

func TestInt8(t *testing.T) {
	for o, want := range map[op]int32{
		tdpbuud: 7 + 200*250 + 3*4 + 200*4 + 3*250,
		tdpbusd: 7 + 200*-6 + 3*4 + 200*4 + 3*-6,
		tdpbsud: 7 + -56*250 + 3*4 + -56*4 + 3*250,
		tdpbssd: 7 + -56*-6 + 3*4 + -56*4 + 3*-6,
	} {
		s := configured(t, [2]int{1, 4}, [2]int{1, 4}, [2]int{1, 4})
		copy(s.t[1].data[0][:], []byte{200, 3, 200, 3})
		copy(s.t[2].data[0][:], []byte{250, 4, 4, 250})
		s.t[0].data[0][0] = 7
		if err := s.do(instruction{op: o, dst: 0, a: 1, b: 2}, 0, 0, nil); err != nil {
			t.Fatal(err)
		}
		if got := int32(binary.LittleEndian.Uint32(s.t[0].data[0][:])); got != want {
			t.Errorf("%s: %d, want %d", o, got, want)
		}
	}
}

// TestFMA compares with exact arithmetic, rounded to 24 bits without a smallest
// exponent and then flushed.
func TestFMA(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	value := func(mask uint32, from, n int) float32 {
		return math.Float32frombits(r.Uint32()&0x807FFFFF&mask | uint32(from+r.IntN(n))<<23)
	}
	exact := func(v float32) *big.Float {
		if math.Float32bits(v)&0x7F800000 == 0 {
			v = float32(math.Copysign(0, float64(v)))
		}
		return new(big.Float).SetFloat64(float64(v))
	}
	tiny := 0
	for round := range 300000 {
		e := [][4]int{{1, 253, 1, 253}, {100, 50, 110, 40}, {60, 8, 0, 10}, {0, 4, 0, 4}}[round%4]
		x, y, z := value(0xFFFF0000, e[0], e[1]), value(0xFFFF0000, e[0], e[1]), value(0xFFFFFFFF, e[2], e[3])
		if round%4 == 3 {
			y = value(0xFFFF0000, 120, 10)
		}
		sum := new(big.Float).SetPrec(800).Mul(exact(x).SetPrec(800), exact(y))
		sum.Add(sum, exact(z).SetPrec(800))
		sum.SetMode(big.ToNearestEven).SetPrec(24)
		want, _ := sum.Float64()
		got := fma(x, y, z)
		switch {
		case math.Abs(want) < 0x1p-126:
			want = 0
			tiny++
		case math.Abs(want) >= 0x1p128:
			want = math.Inf(int(math.Copysign(1, want)))
		}
		if float64(got) != want {
			t.Fatalf("%v · %v + %v is %v, want %v", x, y, z, got, want)
		}
	}
	if tiny < 1000 {
		t.Errorf("only %d tiny results", tiny)
	}
}
