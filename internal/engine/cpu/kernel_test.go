package cpu

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

func randomFloats(seed uint64, n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(rng.NormFloat64())
	}
	return out
}

func TestDotTilesAgree(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 7, 64, 129} {
		w, x := randomFloats(1, 4*n), randomFloats(2, 2*n)
		row := func(i int) []float32 { return w[i*n : (i+1)*n] }
		var want [2][4]float32
		for i := range 2 {
			for j := range 4 {
				want[i][j] = dot(row(j), x[i*n:(i+1)*n])
			}
		}
		var got [2][4]float32
		got[0][0], got[0][1], got[1][0], got[1][1] = dot2x2(row(0), row(1), x[:n], x[n:])
		got[0][2], got[0][3], got[1][2], got[1][3] = dot2x2(row(2), row(3), x[:n], x[n:])
		if got != want {
			t.Errorf("%d elements: dot2x2 gives %v, want %v", n, got, want)
		}
		got[0][0], got[0][1], got[0][2], got[0][3] = dot4(row(0), row(1), row(2), row(3), x[:n])
		if got != want {
			t.Errorf("%d elements: dot4 gives %v, want %v", n, got, want)
		}
		half := make([]uint16, len(w))
		narrowBF16(half, w)
		widenBF16(w, half)
		hrow := func(i int) []uint16 { return half[i*n : (i+1)*n] }
		for j := range 4 {
			want[0][j] = dot(row(j), x[:n])
		}
		got[0][0], got[0][1], got[0][2], got[0][3] = dot4BF16(hrow(0), hrow(1), hrow(2), hrow(3), x[:n])
		if got[0] != want[0] {
			t.Errorf("%d elements: dot4BF16 gives %v, want %v", n, got[0], want[0])
		}
	}
}

func TestDotAgainstFloat64(t *testing.T) {
	w, x := randomFloats(1, 5000), randomFloats(2, 5000)
	var want, size float64
	for i := range w {
		want += float64(w[i]) * float64(x[i])
		size += math.Abs(float64(w[i]) * float64(x[i]))
	}
	if got := float64(dot(w, x)); math.Abs(got-want) > 1e-5*size {
		t.Errorf("dot = %v, want %v", got, want)
	}
}

func TestAxpyAgree(t *testing.T) {
	for _, n := range []int{1, 5, 64} {
		v, a, b := randomFloats(1, 4*n), randomFloats(2, n), make([]float32, n)
		copy(b, a)
		p := [4]float32{0.5, -3, 7, 0.1}
		axpy4(a, v, v[n:], v[2*n:], v[3*n:], &p)
		for i := range p {
			axpy(b, v[i*n:(i+1)*n], p[i])
		}
		for i := range a {
			if a[i] != b[i] {
				t.Fatalf("%d elements: element %d is %v, want %v", n, i, a[i], b[i])
			}
		}
	}
}

// TestApply runs every tile of the product, for all types, against single rows.
func TestApply(t *testing.T) {
	const cols = 37
	for _, dtype := range []string{"f32", "bf16", "f16"} {
		for _, rows := range []int{1, 3, 4, 5, 8, 11} {
			for _, tokens := range []int{1, 2, 3, 4} {
				m := matrix{rows: rows, cols: cols, bias: randomFloats(9, rows)}
				half := make([]uint16, rows*cols)
				for i := range half {
					half[i] = uint16(0x3C00 + i*7%512) // finite in both types
				}
				switch dtype {
				case "f32":
					m.f32 = randomFloats(1, rows*cols)
				default:
					m.u16, m.half = half, dtype == "f16"
				}
				var src, dst [][]float32
				for i := range tokens {
					src = append(src, randomFloats(uint64(i), cols))
					dst = append(dst, make([]float32, rows))
				}
				m.apply(new(lane), 0, rows, activations{rows: src}, dst)
				for r := range rows {
					w := m.widen(make([]float32, cols), r)
					for i := range src {
						if want := dot(w, src[i]) + m.bias[r]; dst[i][r] != want {
							t.Fatalf("%s, %d rows, %d tokens: row %d of token %d is %v, want %v", dtype, rows, tokens, r, i, dst[i][r], want)
						}
					}
				}
			}
		}
	}
	new(matrix).apply(new(lane), 0, 0, activations{}, nil) // no tokens, nothing to do
}

func TestConvertAllHalves(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		if got, want := float64(safetensors.FromF16(h)), halfValue(h); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Fatalf("f16 %#04x is %v, want %v", h, got, want)
		}
		if math.Signbit(float64(safetensors.FromF16(h))) != (h>>15 == 1) && h&0x7FFF <= 0x7C00 {
			t.Fatalf("f16 %#04x has the wrong sign", h)
		}
		var wide [1]float32
		widenBF16(wide[:], []uint16{h})
		if got := safetensors.ToBF16(wide[0]); got != h && wide[0] == wide[0] {
			t.Fatalf("bf16 %#04x becomes %#04x", h, got)
		}
	}
}

func TestNarrowBF16(t *testing.T) {
	tests := []struct {
		name string
		in   float32
		want uint16
	}{
		{"one", 1, 0x3F80},
		{"tie to even, down", math.Float32frombits(0x3F808000), 0x3F80},
		{"tie to even, up", math.Float32frombits(0x3F818000), 0x3F82},
		{"above a tie", math.Float32frombits(0x3F808001), 0x3F81},
		{"into the next exponent", math.Float32frombits(0x3FFFFFFF), 0x4000},
		{"minus zero", float32(math.Copysign(0, -1)), 0x8000},
		{"infinity", float32(math.Inf(-1)), 0xFF80},
		{"largest finite", math.MaxFloat32, 0x7F80},
		{"quiet NaN", math.Float32frombits(0x7FFFFFFF), 0x7FFF},
		{"NaN with low bits only", math.Float32frombits(0xFF800001), 0xFFC0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := safetensors.ToBF16(tt.in); got != tt.want {
				t.Errorf("got %#04x, want %#04x", got, tt.want)
			}
		})
	}
}

func TestExp(t *testing.T) {
	for x := float32(-88); x < 89; x += 0.00137 {
		got, want := float64(expf(x)), math.Exp(float64(x))
		if want < 0x1p-126 { // below the smallest normal number
			want = got
		}
		if want < math.MaxFloat32 && math.Abs(got-want) > 2e-7*want {
			t.Fatalf("exp(%v) = %v, want %v", x, got, want)
		}
	}
	inf := float32(math.Inf(1))
	for _, tt := range []struct{ x, want float32 }{{0, 1}, {inf, inf}, {-inf, 0}, {89, inf}, {-200, 0}} {
		if got := expf(tt.x); got != tt.want {
			t.Errorf("exp(%v) = %v, want %v", tt.x, got, tt.want)
		}
	}
	if nan := expf(float32(math.NaN())); nan == nan {
		t.Errorf("exp(NaN) = %v", nan)
	}
	if silu(-200) != 0 || silu(200) != 200 {
		t.Errorf("silu(±200) = %v, %v", silu(-200), silu(200))
	}
}

func TestGridCoversOnce(t *testing.T) {
	for _, rows := range []int{1, 4, 7, 1000, 151936} {
		for _, tokens := range []int{1, 63, 64, 65, 512} {
			for i, workers := range []int{1, 2, 64, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3} {
				g := newGrid(rows, 512, tokens, workers)
				if i >= 3 {
					size := []itemSize{itemF32, itemBF16, itemTiles, itemBlocks, itemInt8}[(i-3)/2]
					if g = newPackedGrid(size, rows, 512, tokens, workers); g.rowStep%kernel.Width != 0 {
						t.Fatalf("%d × %d: items of %d rows", rows, tokens, g.rowStep)
					}
				}
				if n := g.items(); n > itemMask {
					t.Fatalf("%d × %d: %d items", rows, tokens, n)
				}
				area := 0
				for i := range g.items() {
					r0, r1, t0, t1 := g.cell(i)
					if r0 >= r1 || t0 >= t1 || r1 > rows || t1 > tokens || r0%4 != 0 {
						t.Fatalf("%d × %d: item %d is rows %d-%d, tokens %d-%d", rows, tokens, i, r0, r1, t0, t1)
					}
					area += (r1 - r0) * (t1 - t0)
				}
				if area != rows*tokens {
					t.Fatalf("%d × %d: items cover %d", rows, tokens, area)
				}
			}
		}
	}
}

func TestViewsOfUnalignedBytes(t *testing.T) {
	buf := make([]byte, 32)
	for i := range buf {
		buf[i] = byte(i)
	}
	base := 0
	for uintptr(unsafe.Pointer(&buf[base]))%4 != 0 {
		base++
	}
	for off := range 4 {
		data := buf[base+off:][:8]
		f, h := floats(data), halves(data)
		if want := math.Float32frombits(uint32(data[4]) | uint32(data[5])<<8 | uint32(data[6])<<16 | uint32(data[7])<<24); f[1] != want {
			t.Errorf("offset %d: float %v, want %v", off, f[1], want)
		}
		if want := uint16(data[6]) | uint16(data[7])<<8; h[3] != want {
			t.Errorf("offset %d: half %v, want %v", off, h[3], want)
		}
	}
	if len(floats(nil)) != 0 || len(halves(nil)) != 0 {
		t.Error("views of nothing are not empty")
	}
}
