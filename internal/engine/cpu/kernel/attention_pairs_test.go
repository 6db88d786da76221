package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// pairLevels runs a test at every level with attention in pairs.
func pairLevels(t *testing.T, run func(t *testing.T, l Level)) {
	ran := false
	for _, l := range Levels() {
		if l.AttentionPairs() {
			ran = true
			t.Run(l.String(), func(t *testing.T) { run(t, l) })
		}
	}
	if !ran {
		t.Skip("this machine has no attention in pairs")
	}
}

// halves are n random values of bf16, some of them subnormal or not finite.
func halves(r *rand.Rand, n int) []uint16 {
	out := make([]uint16, n)
	for i := range out {
		out[i] = toBF16(float32(r.NormFloat64()))
		switch r.IntN(200) {
		case 0:
			out[i] = uint16(r.UintN(0x80)) | uint16(r.UintN(2))<<15
		case 1:
			out[i] = uint16(0x7F80 + r.UintN(2)*0x40)
		}
	}
	return out
}

// TestScorePairs compares every kernel with the same sums in Go, in all bits, and looks
// whether anything beside the results was written.
func TestScorePairs(t *testing.T) {
	const stride, guard = 5*KVGroup + 3, 12345
	pairLevels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(31, uint64(l)))
		for queries := 1; queries <= 40; queries++ {
			m, groups := l.ScoreShape(queries)
			for _, dims := range []int{1, 2, 3, 16, 33, 80, 128} {
				padded := (dims + 1) &^ 1
				q := halves(r, m*padded)
				var c Score
				c.Queries, c.Dims, c.Stride = unsafe.Pointer(&q[0]), dims, 4*stride
				var outs [2][]float32
				for i, run := range []func(*Score){func(c *Score) { l.ScorePairs(m, c) }, func(c *Score) { scorePairsGo(m, groups, c) }} {
					outs[i] = make([]float32, m*stride+1)
					for j := range outs[i] {
						outs[i][j] = guard
					}
					for g := range groups {
						if i == 0 {
							keys := halves(r, padded*KVGroup)
							c.Keys[g], c.Next[g] = unsafe.Pointer(&keys[0]), unsafe.Pointer(&keys[0])
						}
						c.Scores[g] = &outs[i][1+g*KVGroup]
					}
					run(&c)
				}
				what := fmt.Sprintf("%d queries, %d groups, %d dimensions", m, groups, dims)
				same(t, what, outs[0], outs[1])
				for i, v := range outs[0] {
					if at := (i - 1) % stride; (i == 0 || at >= groups*KVGroup) && v != guard {
						t.Fatalf("%s: element %d beside the scores is %v", what, i, v)
					}
				}
			}
		}
	})
}

func TestSoftmaxPairs(t *testing.T) {
	pairLevels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(32, uint64(l)))
		for i := range 600 {
			n := KVGroup * (1 + r.IntN(16))
			first := r.IntN(KVGroup)
			to := n - r.IntN(KVGroup)
			if first >= to {
				first = to - 1
			}
			scores := normals(r, n)
			for j := range scores {
				scores[j] *= 30 // so that some weights are below the smallest number
				switch {
				case j < first || j >= to:
					scores[j] = float32(math.NaN()) // must not matter
				case i%10 == 0:
					scores[j] = float32(math.Inf(-1))
				case i%10 == 1 && j%7 == 0:
					scores[j] = -1e30
				case i%10 == 2: // about where weights become zero
					scores[j] = -87.5 + float32(r.Float64())
				}
			}
			if i%10 == 0 || i%10 == 2 {
				scores[first+r.IntN(to-first)] = 0
			}
			got, want := make([]uint16, n+1), make([]uint16, n)
			got[n] = 12345
			top, norm := l.SoftmaxPairs(got[:n], scores, first, to)
			head, tail := uint32(0xFFFF)<<first&0xFFFF, uint32(0xFFFF)>>(n-to)
			if n == KVGroup {
				head &= tail
			}
			wantTop, wantNorm := softmaxPairsGo(&want[0], &scores[0], n/KVGroup, head, tail)
			what := fmt.Sprintf("%d to %d of %d positions", first, to, n)
			same(t, what+", top and norm", []float32{top, norm}, []float32{wantTop, wantNorm})
			for j, w := range want {
				if got[j] != w {
					t.Fatalf("%s: weight %d of %v is %#04x, want %#04x", what, j, scores[j], got[j], w)
				}
				if j < first || j >= to {
					continue
				}
				exact := math.Exp(float64(scores[j]) - float64(top))
				if err := math.Abs(float64(widen(w)) - exact); err > exact*0x1.01p-8+0x1p-126 {
					t.Fatalf("%s: weight %d is %v, want %v", what, j, widen(w), exact)
				}
			}
			if got[n] != 12345 {
				t.Fatalf("%s: what follows the weights became %d", what, got[n])
			}
		}
	})
}

func TestMixPairs(t *testing.T) {
	pairLevels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(33, uint64(l)))
		for _, dims := range []int{16, 32, 48, 64, 80, 128, 256, 272} {
			for rows := 1; rows <= 14; rows++ {
				m := l.MixPairsShare(rows)
				for _, n := range []int{1, 2, 3, 16, 17} {
					weights, values, sums := halves(r, m*32), halves(r, (n+1)*dims), normals(r, m*dims+1)
					for d := range dims { // behind the last position
						values[n*dims+d] = 0x7FC0
					}
					run := func(mix func(rows, width int, c *Mix)) []float32 {
						out := append([]float32(nil), sums...)
						for d := 0; d < dims; {
							w, v := l.MixPairsWidth(m, dims-d), unsafe.Pointer(&values[d])
							mix(m, w, &Mix{unsafe.Pointer(&weights[5]), 64, v, 2 * dims, v, &out[d], 4 * dims, n})
							d += w
						}
						return out
					}
					got, want := run(l.MixPairs), run(mixPairsGo)
					same(t, fmt.Sprintf("%d rows of %d, %d positions", m, dims, n), got, want)
					if got[m*dims] != sums[m*dims] {
						t.Fatal("something behind the sums was written")
					}
				}
			}
		}
	})
}

// TestOrderPairs compares sums in order with those of float64.
func TestOrderPairs(t *testing.T) {
	pairLevels(t, func(t *testing.T, l Level) {
		r := rand.New(rand.NewPCG(34, uint64(l)))
		const count = 9
		for _, dims := range []int{16, 32, 48, 128, 272} {
			weights, values := make([]uint16, count), make([]uint16, count*dims)
			roundBF16Go(weights, normals(r, len(weights)))
			roundBF16Go(values, normals(r, len(values)))
			sums, got := make([]float32, dims), make([]float32, dims-3)
			for d := 0; d < dims; {
				w := l.MixPairsWidth(1, dims-d)
				at := unsafe.Pointer(&values[d])
				l.MixPairs(1, w, &Mix{unsafe.Pointer(&weights[0]), 0, at, 2 * dims, at, &sums[d], 0, count})
				d += w
			}
			OrderPairs(got, sums)
			for d, v := range got {
				var want, size float64
				for p, w := range weights {
					x := float64(widen(w)) * float64(widen(values[p*dims+d]))
					want, size = want+x, size+math.Abs(x)
				}
				if math.Abs(float64(v)-want) > 1e-6*size {
					t.Fatalf("dimension %d of %d is %v, want %v", d, dims, v, want)
				}
			}
		}
	})
}
