package kernel

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// bf16Levels runs a test at every level that multiplies in bf16.
func bf16Levels(t *testing.T, run func(t *testing.T, l Level)) {
	ran := false
	for _, l := range Levels() {
		if l.BF16() {
			ran = true
			t.Run(l.String(), func(t *testing.T) { run(t, l) })
		}
	}
	if !ran {
		t.Skip("this machine has none of AVX512_BF16, AMX and FEAT_BF16")
	}
}

// callBF16 is a call over memory of its own.
func callBF16(x [][]float32, src []byte, cols int, l Level) *CallBF16 {
	panel := aligned(PanelBytes(BF16, cols))
	Pack(BF16, unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[0]), Width, cols)
	stride := StrideBF16(cols)
	rows := aligned(len(x) * stride)
	c := &CallBF16{Src: (*uint16)(unsafe.Pointer(&rows[0])), Stride: stride, Panel: unsafe.Pointer(&panel[0]), Cols: cols, Scratch: new(ScratchBF16)}
	for i := range x {
		l.PrepareBF16(unsafe.Slice((*uint16)(unsafe.Pointer(&rows[i*stride])), stride/2), x[i])
		out := make([]float32, Width+1)
		out[Width] = 12345 // stays
		c.Dst = append(c.Dst, &out[0])
	}
	return c
}

// outs are the results of a call, with what must not have changed behind them.
func outs(c *CallBF16) (out []float32) {
	for _, d := range c.Dst {
		out = append(out, unsafe.Slice(d, Width+1)...)
	}
	return out
}

// TestProductBF16 compares every kernel with the same sums in Go, in all bits.
func TestProductBF16(t *testing.T) {
	bf16Levels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(21, uint64(l)))
		rows := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
		if l == AMX {
			rows = []int{1, 2, 15, 16, 17, 31, 32, 33, 50, 64, 97}
		}
		for _, m := range rows {
			for _, cols := range []int{1, 2, 3, 31, 32, 33, 64, 95, 130} {
				x := make([][]float32, m)
				for i := range x {
					x[i] = normals(r, cols)
				}
				src := weights(r, BF16, Width, cols)
				got, want := callBF16(x, src, cols, l), callBF16(x, src, cols, Portable)
				l.ProductBF16(got)
				productBF16Go(l, want)
				same(t, fmt.Sprintf("%d rows, %d columns", m, cols), outs(got), outs(want))
				if len(got.Dst) != m {
					t.Fatalf("the call has %d rows afterwards", len(got.Dst))
				}
			}
		}
	})
}

// TestProductBF16Limits does the same with values of all sizes: subnormal ones, ones
// whose products are, infinities and NaNs. The documents of both instructions say
// what becomes of these.
func TestProductBF16Limits(t *testing.T) {
	bf16Levels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(22, uint64(l)))
		// A value with an exponent of [from, from+n), of any sign.
		value := func(from, n int) uint32 { return r.Uint32()&0x7FFFFF | uint32(from+r.IntN(n))<<23 | r.Uint32()&(1<<31) }
		zeros, numbers, nans := 0, 0, 0
		for round := range 300 {
			// All exponents; products around the smallest normal number; arguments
			// around it.
			e := [...]struct{ x, xs, w, ws int }{{0, 254, 0, 254}, {60, 6, 60, 6}, {0, 3, 120, 10}}[round%3]
			cols := 1 + r.IntN(40)
			x := make([][]float32, [...]int{3, 11}[round%2]) // all kernels of arm64
			for i := range x {
				x[i] = make([]float32, cols)
				for k := range x[i] {
					x[i][k] = math.Float32frombits(value(e.x, e.xs))
				}
			}
			if round%10 == 9 {
				x[1][r.IntN(cols)] = float32(math.Inf(1 - 2*r.IntN(2)))
				x[2][r.IntN(cols)] = float32(math.NaN())
			}
			var src []byte
			for range Width * cols {
				w := value(e.w, e.ws)
				src = append(src, byte(w>>16), byte(w>>24))
			}
			got, want := callBF16(x, src, cols, l), callBF16(x, src, cols, Portable)
			l.ProductBF16(got)
			productBF16Go(l, want)
			same(t, fmt.Sprint("round ", round), outs(got), outs(want))
			for _, v := range outs(want) {
				switch {
				case v != v:
					nans++
				case v == 0:
					zeros++
				default:
					numbers++
				}
			}
		}
		if min(zeros, numbers, nans) < 100 {
			t.Errorf("%d zeros, %d numbers, %d NaNs do not test much", zeros, numbers, nans)
		}
	})
}

// TestProductBF16AgainstFloat64 bounds the error against exact sums of the rounded
// activations: n roundings of at most 2^-24 of the sum of absolute products.
func TestProductBF16AgainstFloat64(t *testing.T) {
	bf16Levels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(23, 3))
		const cols = 3072
		src := weights(r, BF16, Width, cols)
		x := normals(r, cols)
		c := callBF16([][]float32{x}, src, cols, l)
		l.ProductBF16(c)
		for o, got := range outs(c)[:Width] {
			var want, size float64
			for k, v := range x {
				p := float64(widen(toBF16(v))) * float64(element(BF16, src, o*cols+k))
				want, size = want+p, size+math.Abs(p)
			}
			if math.Abs(float64(got)-want) > size*1e-6 {
				t.Errorf("output %d is %v, want %v", o, got, want)
			}
		}
	})
}

// TestProductBF16Rows shows that a row has the same bits alone and among others.
func TestProductBF16Rows(t *testing.T) {
	bf16Levels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(24, 4))
		const cols = 96
		src := weights(r, BF16, Width, cols)
		x := make([][]float32, min(l.RowsBF16(cols), 70))
		for i := range x {
			x[i] = normals(r, cols)
		}
		all := callBF16(x, src, cols, l)
		l.ProductBF16(all)
		for i := range x {
			one := callBF16(x[i:i+1], src, cols, l)
			l.ProductBF16(one)
			same(t, fmt.Sprint("row ", i), outs(one), outs(all)[i*(Width+1):][:Width+1])
		}
	})
}

func TestPrepareBF16(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 5))
	for _, l := range Levels() {
		for _, n := range []int{1, 15, 16, 31, 32, 33, 64, 100} {
			x := make([]float32, n)
			for i := range x {
				x[i] = math.Float32frombits(r.Uint32())
			}
			x[0] = [...]float32{0x1.01p0, 0x1.03p0, 0x1.0100001p0, float32(math.NaN()), math.MaxFloat32, float32(math.Inf(-1)), math.Float32frombits(0x7F800001), 0x1p-149}[n%8]
			dst := make([]uint16, StrideBF16(n)/2)
			for i := range dst {
				dst[i] = 0xAAAA
			}
			l.PrepareBF16(dst, x)
			for i, got := range dst {
				var want uint16
				if i < n {
					want = toBF16(x[i])
				}
				if got != want {
					t.Fatalf("%s: %v, element %d of %d, is %#04x, want %#04x", l, x[min(i, n-1)], i, n, got, want)
				}
			}
		}
	}
}

// TestToBF16 compares with the nearest of both neighbors, found in float64.
func TestToBF16(t *testing.T) {
	r := rand.New(rand.NewPCG(26, 6))
	for range 200000 {
		bits := r.Uint32()
		if r.IntN(4) == 0 {
			bits = bits&^0xFFFF | 0x8000 // in the middle
		}
		v := math.Float32frombits(bits)
		got := toBF16(v)
		if v != v {
			if widen(got) == widen(got) {
				t.Fatalf("NaN %#08x became %#04x", bits, got)
			}
			continue
		}
		below := uint16(bits >> 16) // toward zero
		distance := func(h uint16) float64 {
			if w := float64(widen(h)); !math.IsInf(w, 0) {
				return math.Abs(float64(v) - w)
			}
			return math.Abs(math.Abs(float64(v)) - 0x1p128)
		}
		want := below
		if math.IsInf(float64(v), 0) {
		} else if lo, hi := distance(below), distance(below+1); hi < lo || hi == lo && below&1 == 1 {
			want++
		}
		if got != want {
			t.Fatalf("%v (%#08x) became %#04x, want %#04x", v, bits, got, want)
		}
	}
}

func TestShareBF16(t *testing.T) {
	for _, l := range []Level{AVX512, AMX} {
		for _, cols := range []int{1, 1024, 14336, 1 << 20} {
			most := l.RowsBF16(cols)
			if l == AMX && most > groupRows && most*cols*Width > callWork {
				t.Errorf("%s: calls of %d rows by %d columns", l, most, cols)
			}
			for n := 1; n < 300; n++ {
				share := l.ShareBF16(n, cols)
				if calls := (n + share - 1) / share; share > most || calls > (n+most-1)/most {
					t.Errorf("%s: %d rows in calls of %d, at most %d", l, n, share, most)
				}
			}
		}
	}
	for cols := 1; cols < 5000; cols++ {
		if s := StrideBF16(cols); s%64 != 0 || s < 2*cols || s >= 2*cols+192 || s/64%2 == 0 {
			t.Fatalf("rows of %d are %d bytes apart", cols, s)
		}
	}
}

// TestCheckBF16 shows that the check finds one wrong element.
func TestCheckBF16(t *testing.T) {
	for _, l := range []Level{AVX512, AMX, NEON} {
		twin := func(c *CallBF16) { productBF16Go(l, c) }
		if err := l.checkBF16(twin); err != nil {
			t.Error(err)
		}
		err := l.checkBF16(func(c *CallBF16) {
			twin(c)
			if len(c.Dst) == 65 || l != AMX && len(c.Dst) == 12 {
				last := unsafe.Slice(c.Dst[len(c.Dst)-1], Width)
				last[31] = math.Nextafter32(last[31], 2)
			}
		})
		if !errors.Is(err, ErrBF16) {
			t.Errorf("%s: err = %v, want ErrBF16", l, err)
		}
	}
	bf16Levels(t, func(t *testing.T, l Level) {
		if err := l.CheckBF16(); err != nil {
			t.Error(err)
		}
	})
}

// TestAddOdd compares with exact sums, rounded in arithmetic of any precision.
func TestAddOdd(t *testing.T) {
	r := rand.New(rand.NewPCG(27, 7))
	inexact := 0
	for range 100000 {
		x := math.Float32frombits(r.Uint32()&0x807FFFFF | uint32(1+r.IntN(254))<<23)
		e := int(math.Float32bits(x)>>23&0xFF) + r.IntN(61) - 30 // mostly near enough to count
		y := math.Float32frombits(r.Uint32()&0x807FFFFF | uint32(min(max(e, 1), 254))<<23)
		exact := new(big.Float).SetPrec(400)
		exact.Add(exact.SetFloat64(float64(x)), big.NewFloat(float64(y)))
		down := new(big.Float).SetMode(big.ToZero).SetPrec(24).Set(exact)
		value, _ := down.Float64() // has the exponents of float32 and more
		var want float32
		switch {
		case math.Abs(value) >= 0x1p128:
			want = float32(math.Inf(exact.Sign()))
		case math.Abs(value) < 0x1p-126:
			want = float32(math.Copysign(0, value))
		default:
			want = float32(value)
			if down.Cmp(exact) != 0 {
				inexact++
				want = math.Float32frombits(math.Float32bits(want) | 1)
			}
		}
		same(t, fmt.Sprint(x, " + ", y), []float32{addOdd(x, y)}, []float32{want})
	}
	if inexact < 50000 {
		t.Errorf("%d sums of 100000 were rounded", inexact)
	}
}
