package kernel

import (
	"encoding/binary"
	"fmt"
	"testing"
	"unsafe"
)

// BenchmarkProduct multiplies activations with a panel that stays in the cache,
// as prefill does.
func BenchmarkProduct(b *testing.B) {
	const cols = 1024
	for _, l := range Levels()[1:] {
		for _, ty := range []Type{F32, BF16, F16} {
			for _, m := range []int{1, 2, 4, 8, l.Rows(Width)} {
				if m > l.Rows(Width) {
					continue
				}
				b.Run(fmt.Sprintf("%s/%s/%d-rows", l, [...]string{"f32", "bf16", "f16"}[ty], m), func(b *testing.B) {
					panel := aligned(PanelBytes(ty, cols))
					x, out := make([]float32, m*cols), make([]float32, m*Width)
					c := Call{Panel: unsafe.Pointer(&panel[0]), Cols: cols}
					for i := range m {
						c.Src[i], c.Dst[i] = &x[i*cols], &out[i*Width]
					}
					for b.Loop() {
						l.Product(ty, Width, m, &c)
					}
					b.ReportMetric(2*float64(m*Width*cols*b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}

// BenchmarkStream multiplies rows with panels from memory, as decoding does, beside
// plain reads of the same memory.
func BenchmarkStream(b *testing.B) {
	const cols, panels = 1024, 8192
	data := aligned(panels * PanelBytes(BF16, cols))
	for i := range data {
		data[i] = byte(i)
	}
	report := func(b *testing.B) {
		b.ReportMetric(float64(len(data)*b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
	}
	b.Run("read", func(b *testing.B) {
		var sum uint64
		for b.Loop() {
			for p := data; len(p) >= 256; p = p[256:] {
				sum += binary.LittleEndian.Uint64(p) + binary.LittleEndian.Uint64(p[64:]) +
					binary.LittleEndian.Uint64(p[128:]) + binary.LittleEndian.Uint64(p[192:])
			}
		}
		if sum == 1 {
			b.Log(sum)
		}
		report(b)
	})
	for _, l := range Levels()[1:] {
		for _, m := range []int{1, 2, 8} {
			if m > l.Rows(Width) {
				continue
			}
			b.Run(fmt.Sprintf("%s/bf16/%d-rows", l, m), func(b *testing.B) {
				x, out := make([]float32, m*cols), make([]float32, m*Width)
				c := Call{Cols: cols}
				for i := range m {
					c.Src[i], c.Dst[i] = &x[i*cols], &out[i*Width]
				}
				for b.Loop() {
					for p := 0; p < len(data); p += PanelBytes(BF16, cols) {
						c.Panel = unsafe.Pointer(&data[p])
						l.Product(BF16, Width, m, &c)
					}
				}
				report(b)
			})
		}
	}
}

// BenchmarkPack packs weights in the cache.
func BenchmarkPack(b *testing.B) {
	const cols = 1024
	for _, ty := range []Type{F32, BF16, F16} {
		b.Run([...]string{"f32", "bf16", "f16"}[ty], func(b *testing.B) {
			src, dst := aligned(Width*ty.RowBytes(cols)), aligned(PanelBytes(ty, cols))
			for b.Loop() {
				Pack(ty, unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), Width, cols)
			}
			b.ReportMetric(float64(len(src)*b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
		})
	}
}

// BenchmarkScore multiplies queries with keys that lie in the processor's own cache.
func BenchmarkScore(b *testing.B) {
	const dims, tokens = 128, 64
	for _, l := range Levels()[1:] {
		for name, kind := range map[string]KVType{"f32": KVF32, "bf16": KVBF16, "int8": KVI8} {
			for _, queries := range []int{1, 2, 4, 36} {
				b.Run(fmt.Sprintf("%s/%s/%d-queries", l, name, queries), func(b *testing.B) {
					m, groups := l.ScoreShape(queries)
					size := dims * KVGroup * kind.Size()
					keys, scales := aligned(tokens*dims*kind.Size()), make([]float32, KVGroup)
					q, out := make([]float32, m*dims), make([]float32, m*tokens)
					c := Score{Queries: &q[0], Dims: dims, Stride: 4 * tokens}
					for b.Loop() {
						for g := 0; g < tokens/KVGroup; g += groups {
							for j := range groups {
								at := unsafe.Pointer(&keys[(g+j)*size])
								c.Keys[j], c.Next[j], c.Scales[j], c.Scores[j] = at, at, &scales[0], &out[(g+j)*KVGroup]
							}
							l.Score(kind, m, &c)
						}
					}
					b.ReportMetric(2*float64(m*tokens*dims*b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
					b.ReportMetric(float64(tokens*dims*kind.Size()*b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
				})
			}
		}
	}
}

// BenchmarkMix adds up values that lie in the processor's own cache.
func BenchmarkMix(b *testing.B) {
	const dims, tokens = 128, 32
	for _, l := range Levels()[1:] {
		for name, kind := range map[string]KVType{"f32": KVF32, "bf16": KVBF16, "int8": KVI8} {
			for _, rows := range []int{1, 2, 4, 36} {
				b.Run(fmt.Sprintf("%s/%s/%d-rows", l, name, rows), func(b *testing.B) {
					m := l.MixShare(rows)
					values, weights, sums := aligned(tokens*dims*kind.Size()), make([]float32, m*tokens), make([]float32, m*dims)
					for b.Loop() {
						for d := 0; d < dims; {
							w := l.MixWidth(m, dims-d)
							at := unsafe.Pointer(&values[d*kind.Size()])
							l.Mix(kind, m, w, &Mix{&weights[0], 4 * tokens, at, dims * kind.Size(), at, &sums[d], 4 * dims, tokens})
							d += w
						}
					}
					b.ReportMetric(2*float64(m*tokens*dims*b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
					b.ReportMetric(float64(tokens*dims*kind.Size()*b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
				})
			}
		}
	}
}
