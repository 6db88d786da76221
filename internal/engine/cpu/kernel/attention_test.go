package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

var kvTypes = map[string]KVType{"f32": KVF32, "bf16": KVBF16, "int8": KVI8}

// kvValues are n random values of a type, in bytes.
func kvValues(r *rand.Rand, t KVType, n int) []byte {
	out := aligned(n * t.Size())
	for i := range n {
		v := math.Float32bits(float32(r.NormFloat64()))
		switch t {
		case KVF32:
			*(*uint32)(unsafe.Pointer(&out[4*i])) = v
		case KVBF16:
			*(*uint16)(unsafe.Pointer(&out[2*i])) = uint16(v >> 16)
		case KVI8:
			out[i] = byte(r.UintN(256))
		}
	}
	return out
}

// TestScore compares every kernel with the same sums in Go, in all bits, and looks
// whether anything beside the results was written.
func TestScore(t *testing.T) {
	levels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(8, uint64(l)))
		for name, kind := range kvTypes {
			for queries := 1; queries <= 40; queries++ {
				m, groups := l.ScoreShape(queries)
				for _, dims := range []int{1, 2, 3, 16, 33, 80, 128} {
					testScore(t, r, l, name, kind, m, groups, dims)
				}
			}
		}
	})
}

func testScore(t *testing.T, r *rand.Rand, l Level, name string, kind KVType, m, groups, dims int) {
	const stride, guard = 5*KVGroup + 3, 12345
	queries := normals(r, m*dims)
	var c Score
	c.Queries, c.Dims, c.Stride = unsafe.Pointer(&queries[0]), dims, 4*stride
	var outs [2][]float32
	for i, run := range []func(*Score){func(c *Score) { l.Score(kind, m, c) }, func(c *Score) { scoreGo(kind, m, groups, c) }} {
		outs[i] = make([]float32, m*stride+1)
		for j := range outs[i] {
			outs[i][j] = guard
		}
		for g := range groups {
			if i == 0 {
				keys := kvValues(r, kind, (dims+1)&^1*KVGroup)
				c.Keys[g], c.Next[g] = unsafe.Pointer(&keys[0]), unsafe.Pointer(&keys[0])
				c.Scales[g] = &normals(r, KVGroup)[0]
			}
			c.Scores[g] = &outs[i][1+g*KVGroup]
		}
		run(&c)
	}
	what := fmt.Sprintf("%s, %d queries, %d groups, %d dimensions", name, m, groups, dims)
	same(t, what, outs[0], outs[1])
	for i, v := range outs[0] {
		if at := (i - 1) % stride; i == 0 || at >= groups*KVGroup {
			if v != guard {
				t.Fatalf("%s: element %d beside the scores is %v", what, i, v)
			}
		}
	}
}

func TestSoftmax(t *testing.T) {
	levels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(6, uint64(l)))
		for range 300 {
			n := KVGroup * (1 + r.IntN(16))
			first := r.IntN(n)
			to := first + 1 + r.IntN(n-first)
			got := normals(r, n+1)
			for i := range got {
				got[i] *= 30 // so that some weights are below the smallest number
				if i < first || i >= to {
					got[i] = float32(math.NaN()) // must not matter
				}
			}
			want := append([]float32(nil), got...)
			top, norm := l.Softmax(got[:n], first, to)
			wantTop, wantNorm := softmaxGo(&want[0], n/KVGroup, float32(first), float32(to))
			what := fmt.Sprintf("%d to %d of %d positions", first, to, n)
			same(t, what, got, want)
			same(t, what+", top and norm", []float32{top, norm}, []float32{wantTop, wantNorm})
		}
	})
}

func TestMix(t *testing.T) {
	levels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(7, uint64(l)))
		for name, kind := range kvTypes {
			for _, dims := range []int{16, 32, 48, 64, 80, 128, 256, 272} {
				for rows := 1; rows <= 12; rows++ {
					m := l.MixShare(rows)
					for _, n := range []int{1, 2, 17} {
						weights, values, sums := normals(r, m*32), kvValues(r, kind, n*dims), normals(r, m*dims+1)
						run := func(mix func(kind KVType, rows, width int, c *Mix)) []float32 {
							out := append([]float32(nil), sums...)
							for d := 0; d < dims; {
								w, v := l.MixWidth(m, dims-d), unsafe.Pointer(&values[d*kind.Size()])
								mix(kind, m, w, &Mix{unsafe.Pointer(&weights[5]), 128, v, kind.Size() * dims, v, &out[d], 4 * dims, n})
								d += w
							}
							return out
						}
						same(t, fmt.Sprintf("%s, %d rows of %d, %d positions", name, m, dims, n), run(l.Mix), run(mixGo))
					}
				}
			}
		}
	})
}

// TestNarrowAndQuantize runs the roundings over ordinary numbers, ties and what is
// no ordinary number.
func TestNarrowAndQuantize(t *testing.T) {
	odd := []uint32{
		0, 1 << 31, 1, 0x7FFFFF, 0x3F808000, 0x3F818000, 0x3F808001, 0x3FFFFFFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000,
		0x7F800001, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF,
	}
	levels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(9, uint64(l)))
		for _, n := range []int{16, 48, 128} {
			for range 200 {
				x := normals(r, n)
				for i := range x {
					if r.IntN(4) == 0 {
						x[i] = math.Float32frombits(odd[r.IntN(9)])
					}
				}
				if r.IntN(3) == 0 {
					x[r.IntN(n)] = math.Float32frombits(odd[9+r.IntN(len(odd)-9)])
				}
				got, want := make([]uint16, n), make([]uint16, n)
				l.NarrowBF16(got, x)
				narrowBF16Go(want, x)
				for i := range want {
					if got[i] != want[i] {
						t.Fatalf("%v (%#08x) becomes %#04x, want %#04x", x[i], math.Float32bits(x[i]), got[i], want[i])
					}
				}
				a, b := make([]int8, n), make([]int8, n)
				scale, wantScale := l.QuantizeI8(a, x), Portable.QuantizeI8(b, x)
				same(t, "scale", []float32{scale}, []float32{wantScale})
				for i := range b {
					if a[i] != b[i] {
						t.Fatalf("%v becomes %d, want %d", x[i], a[i], b[i])
					}
				}
			}
		}
	})
}

// TestQuantizeI8 checks the rounding against its definition.
func TestQuantizeI8(t *testing.T) {
	for _, l := range Levels() {
		r := rand.New(rand.NewPCG(10, 1))
		for range 100 {
			x, q := normals(r, 32), make([]int8, 32)
			scale := l.QuantizeI8(q, x)
			top := 0.0
			for i, v := range x {
				top = max(top, math.Abs(float64(v)))
				if err := math.Abs(float64(scale)*float64(q[i]) - float64(v)); err > float64(scale)*0.50001 {
					t.Fatalf("%s: %v is %d of %v", l, v, q[i], scale)
				}
			}
			if math.Abs(float64(scale)*127-top) > 1e-6*top {
				t.Fatalf("%s: scale %v for a largest value of %v", l, scale, top)
			}
		}
		x, q := make([]float32, 16), make([]int8, 16)
		q[3] = 5
		if scale := l.QuantizeI8(q, x); scale != 0 || q[3] != 0 {
			t.Errorf("%s: zeros have scale %v, value %d", l, scale, q[3])
		}
		x[7] = 1e-42 // 127 of it have no inverse
		if scale := l.QuantizeI8(q, x); scale != 0 || q[7] != 0 {
			t.Errorf("%s: tiny values have scale %v, value %d", l, scale, q[7])
		}
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			x[9] = float32(bad)
			if scale := l.QuantizeI8(q, x); scale == scale {
				t.Errorf("%s: %v gives scale %v", l, bad, scale)
			}
		}
	}
}
