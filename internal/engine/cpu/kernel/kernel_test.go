package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// levels runs a test at every level with kernels that this machine has.
func levels(t *testing.T, run func(t *testing.T, l Level)) {
	ran := false
	for _, l := range Levels() {
		if l != Portable {
			ran = true
			t.Run(l.String(), func(t *testing.T) { run(t, l) })
		}
	}
	if !ran {
		t.Skip("this machine has no kernels")
	}
}

func normals(r *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(r.NormFloat64())
	}
	return out
}

func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
			t.Fatalf("%s: element %d is %v (%#08x), want %v (%#08x)", what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// weights are random ones of a type, [row][col], as they lie in a file.
func weights(r *rand.Rand, t Type, rows, cols int) []byte {
	values := normals(r, rows*cols+1)
	out := make([]byte, 0, 4*len(values))
	for i, v := range values {
		bits := math.Float32bits(v)
		switch t {
		case F32:
			out = append(out, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
		case BF16:
			out = append(out, byte(bits>>16), byte(bits>>24))
		case F16: // any finite bits, subnormal ones among them
			h := uint16(r.UintN(0x7C00)) | uint16(i%2)<<15
			if i%3 > 0 {
				h = h&0x83FF | 0x3400 // of a usual size
			}
			out = append(out, byte(h), byte(h>>8))
		}
	}
	return out
}

func element(t Type, data []byte, i int) float32 {
	switch t {
	case F32:
		return *(*float32)(unsafe.Pointer(&data[4*i]))
	case F16:
		return safetensors.FromF16(*(*uint16)(unsafe.Pointer(&data[2*i])))
	}
	return widen(*(*uint16)(unsafe.Pointer(&data[2*i])))
}

// aligned returns n bytes that start at a multiple of 64.
func aligned(n int) []byte {
	b := make([]byte, n+64)
	off := -int(uintptr(unsafe.Pointer(&b[0]))) & 63
	return b[off : off+n : off+n]
}

// TestPack checks where each weight goes and that the rest is zero.
func TestPack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, ty := range []Type{F32, BF16, F16} {
		for _, rows := range []int{1, 7, 8, 9, 31, 32} {
			for _, cols := range []int{1, 2, 3, 16, 37, 64, 70, 102} {
				src := weights(r, ty, rows, cols)
				panel := aligned(PanelBytes(ty, cols))
				for i := range panel {
					panel[i] = 0xAA
				}
				Pack(ty, unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[0]), rows, cols)
				for o := range Width {
					for k := range (cols + 1) &^ 1 {
						var want float32
						if o < rows && k < cols {
							want = element(ty, src, o*cols+k)
						}
						if got := weight(ty, unsafe.Pointer(&panel[0]), Width, cols, o, k); got != want {
							t.Fatalf("type %d, %d × %d: weight %d of output %d is %v, want %v", ty, rows, cols, k, o, got, want)
						}
					}
				}
			}
		}
	}
}

// TestProduct compares every kernel with the same sums in Go, in all bits.
func TestProduct(t *testing.T) {
	levels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(2, uint64(l)))
		for _, ty := range []Type{F32, BF16, F16} {
			for _, width := range []int{16, 32} {
				for m := 1; m <= l.Rows(width); m++ {
					for _, cols := range []int{1, 2, 3, 31, 32, 33, 64, 129} {
						testProduct(t, r, l, ty, width, m, cols)
					}
				}
			}
		}
	})
}

func testProduct(t *testing.T, r *rand.Rand, l Level, ty Type, width, m, cols int) {
	panel := aligned(PanelBytes(ty, cols))
	if width == Width {
		src := weights(r, ty, Width, cols)
		Pack(ty, unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[0]), Width, cols)
	} else { // half a panel: its order is the same, with 16 outputs
		copy(panel, weights(r, ty, 16, (cols+1)&^1))
	}
	var got, want Call
	const guard = 12345
	var outs [2][maxRows][]float32
	for i := range m {
		x := normals(r, cols+1)
		x[cols] = float32(math.NaN()) // must not be read
		got.Src[i], want.Src[i] = &x[0], &x[0]
		for j := range outs {
			outs[j][i] = make([]float32, width+1)
			outs[j][i][width] = guard
		}
		got.Dst[i], want.Dst[i] = &outs[0][i][0], &outs[1][i][0]
	}
	got.Panel, got.Cols = unsafe.Pointer(&panel[0]), cols
	want.Panel, want.Cols = got.Panel, cols
	l.Product(ty, width, m, &got)
	productGo(ty, width, m, &want)
	for i := range m {
		same(t, fmt.Sprintf("type %d, width %d, %d rows, %d columns, row %d", ty, width, m, cols, i), outs[0][i], outs[1][i])
	}
}

// TestProductAgainstFloat64 bounds the error of the order that the kernels and their
// Go form share: n roundings of at most 2^-24 of the sum of absolute products.
func TestProductAgainstFloat64(t *testing.T) {
	levels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(3, 3))
		const cols = 3072
		src := weights(r, BF16, Width, cols)
		panel := aligned(PanelBytes(BF16, cols))
		Pack(BF16, unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[0]), Width, cols)
		x, out := normals(r, cols), make([]float32, Width)
		c := Call{Panel: unsafe.Pointer(&panel[0]), Cols: cols}
		c.Src[0], c.Dst[0] = &x[0], &out[0]
		l.Product(BF16, Width, 1, &c)
		for o, got := range out {
			var want, size float64
			for k, v := range x {
				p := float64(v) * float64(element(BF16, src, o*cols+k))
				want, size = want+p, size+math.Abs(p)
			}
			if math.Abs(float64(got)-want) > size*1e-6 {
				t.Errorf("output %d is %v, want %v", o, got, want)
			}
		}
	})
}

func TestFMA(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 200000 {
		x, y := float32(r.NormFloat64()), float32(r.NormFloat64())
		z := float32(r.NormFloat64() * math.Pow(2, r.NormFloat64()*12))
		// Exactly: the product has 48 bits; the sum is taken in two parts.
		p := float64(x) * float64(y)
		got := float64(fma(x, y, z))
		below, above := float64(math.Nextafter32(float32(got), float32(math.Inf(-1)))), float64(math.Nextafter32(float32(got), float32(math.Inf(1))))
		dist := func(v float64) float64 { return math.Abs((float64(z) - v) + p) }
		if dist(got) > dist(below)*(1+1e-9) || dist(got) > dist(above)*(1+1e-9) {
			t.Fatalf("%v · %v + %v = %v", x, y, z, got)
		}
	}
}

func TestVectors(t *testing.T) {
	levels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(5, uint64(l)))
		for _, n := range []int{1, 15, 16, 17, 32, 48, 128, 131, 1024} {
			what := fmt.Sprint(n, " elements")
			x, w := normals(r, n), normals(r, n)
			even := n &^ 15
			want := sumSquaresGo(x[:even])
			for _, v := range x[even:] {
				want = fma(v, v, want)
			}
			same(t, "sum of squares, "+what, []float32{l.SumSquares(x)}, []float32{want})

			a, b := make([]float32, n), make([]float32, n)
			l.ScaleBy(a, x, w, 0.37)
			scaleByGo(b, x, w, 0.37)
			same(t, "scale, "+what, a, b)

			copy(a, x)
			copy(b, x)
			if got := l.Swiglu(a, w); got != even {
				t.Fatalf("swiglu of %s does %d", what, got)
			}
			swigluGo(b[:even], w)
			same(t, "swiglu, "+what, a, b)

			copy(a, x)
			copy(b, x)
			if got := l.GELU(a, 1.6, 0.07); got != even {
				t.Fatalf("gelu of %s does %d", what, got)
			}
			geluGo(b[:even], 1.6, 0.07)
			same(t, "gelu, "+what, a, b)

			y, cos, sin := normals(r, n), normals(r, n), normals(r, n)
			lo, hi := append([]float32(nil), x...), append([]float32(nil), y...)
			copy(a, x)
			copy(b, y)
			l.Rotate(lo, hi, cos, sin, 0.5)
			rotateGo(a[:even], b, cos, sin, 0.5)
			same(t, "rotate, low, "+what, lo, a)
			same(t, "rotate, high, "+what, hi, b)

			copy(a, x)
			copy(b, x)
			l.Blend(a[:even], y, 0.3, 1.7)
			blendGo(b[:even], y, 0.3, 1.7)
			same(t, "blend, "+what, a, b)

			l.Scale(a, x, 0.77)
			scaleGo(b, x, 0.77)
			same(t, "scale, "+what, a, b)

			half := make([]uint16, n)
			for i := range half {
				half[i] = uint16(r.UintN(1 << 16))
			}
			l.WidenBF16(a, half)
			widenBF16Go(b, half)
			same(t, "widen, "+what, a, b)
		}
	})
}

// TestExp runs the exponential of the kernels over its range and its limits.
func TestExp(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	x := []float32{0, inf, -inf, nan, 88.72283, 88.72284, 89, 1e30, -87.33654, -87.33655, -88, -1e30, 1e-30, float32(math.Copysign(0, -1))}
	for v := float32(-100); v < 100; v += 0.01731 {
		x = append(x, v)
	}
	for len(x)%16 != 0 {
		x = append(x, 1)
	}
	levels(t, func(t *testing.T, l Level) {
		got, want, up := append([]float32(nil), x...), append([]float32(nil), x...), make([]float32, len(x))
		for i := range up {
			up[i] = 1
		}
		l.Swiglu(got, up)
		swigluGo(want, up)
		for i := range x {
			if got[i] != got[i] && want[i] != want[i] {
				continue
			}
			same(t, fmt.Sprint("silu of ", x[i]), got[i:i+1], want[i:i+1])
		}
		copy(got, x)
		copy(want, x)
		l.GELU(got, 1.6, 0.07)
		geluGo(want, 1.6, 0.07)
		for i := range x {
			if got[i] != got[i] && want[i] != want[i] {
				continue
			}
			same(t, fmt.Sprint("gelu of ", x[i]), got[i:i+1], want[i:i+1])
		}
	})
}
