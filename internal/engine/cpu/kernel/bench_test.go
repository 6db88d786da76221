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

// BenchmarkProductBF16 is BenchmarkProduct with activations in bf16. On tiles more
// rows go into one call.
func BenchmarkProductBF16(b *testing.B) {
	const cols = 1024
	for _, l := range Levels() {
		if !l.BF16() {
			continue
		}
		for _, m := range []int{1, 2, 4, 8, 12, 32, 128} {
			if m > l.RowsBF16(cols) {
				continue
			}
			b.Run(fmt.Sprintf("%s/%d-rows", l, m), func(b *testing.B) {
				c := callBF16(zeros(m, cols), make([]byte, Width*cols*2), cols, l)
				for b.Loop() {
					l.ProductBF16(c)
				}
				b.ReportMetric(2*float64(m*Width*cols*b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

func zeros(rows, cols int) [][]float32 {
	x := make([][]float32, rows)
	for i := range x {
		x[i] = make([]float32, cols)
	}
	return x
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

// BenchmarkStreamBF16 is BenchmarkStream with activations in bf16.
func BenchmarkStreamBF16(b *testing.B) {
	const cols, panels = 1024, 8192
	data := aligned(panels * PanelBytes(BF16, cols))
	for i := range data {
		data[i] = byte(i)
	}
	for _, l := range Levels() {
		if !l.BF16() {
			continue
		}
		for _, m := range []int{1, 2, 8} {
			b.Run(fmt.Sprintf("%s/%d-rows", l, m), func(b *testing.B) {
				c := callBF16(zeros(m, cols), make([]byte, Width*cols*2), cols, l)
				for b.Loop() {
					for p := 0; p < len(data); p += PanelBytes(BF16, cols) {
						c.Panel = unsafe.Pointer(&data[p])
						c.Fetch(0, 1)
						l.ProductBF16(c)
					}
				}
				b.ReportMetric(float64(len(data)*b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
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
					c := Score{Queries: unsafe.Pointer(&q[0]), Dims: dims, Stride: 4 * tokens}
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
							l.Mix(kind, m, w, &Mix{unsafe.Pointer(&weights[0]), 4 * tokens, at, dims * kind.Size(), at, &sums[d], 4 * dims, tokens})
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

// BenchmarkAttentionPairs is BenchmarkScore and BenchmarkMix for pairs of bf16, and the
// weights between them.
func BenchmarkAttentionPairs(b *testing.B) {
	const dims, tokens = 128, 64
	keys, out, weights := aligned(tokens*dims*2), make([]float32, pairQueries*max(tokens, dims)), make([]uint16, pairQueries*256)
	for _, l := range Levels() {
		if !l.AttentionPairs() {
			continue
		}
		for _, queries := range []int{1, 2, 4, 36} {
			rate := func(b *testing.B, m int) {
				b.ReportMetric(2*float64(m*tokens*dims*b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				b.ReportMetric(float64(tokens*dims*2*b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
			}
			b.Run(fmt.Sprintf("%s/score/%d-queries", l, queries), func(b *testing.B) {
				m, groups := l.ScoreShape(queries)
				c := Score{Queries: unsafe.Pointer(&weights[0]), Dims: dims, Stride: 4 * tokens}
				for b.Loop() {
					for g := 0; g < tokens/KVGroup; g += groups {
						for j := range groups {
							at := unsafe.Pointer(&keys[(g+j)*dims*KVGroup*2])
							c.Keys[j], c.Next[j], c.Scores[j] = at, at, &out[(g+j)*KVGroup]
						}
						l.ScorePairs(m, &c)
					}
				}
				rate(b, m)
			})
			b.Run(fmt.Sprintf("%s/mix/%d-rows", l, queries), func(b *testing.B) {
				m := l.MixPairsShare(queries)
				c := Mix{Weights: unsafe.Pointer(&weights[0]), WeightStride: 2 * tokens, ValueStride: dims * 2, SumStride: 4 * dims, Count: tokens}
				for b.Loop() {
					for d := 0; d < dims; {
						w := l.MixPairsWidth(m, dims-d)
						c.Values, c.Sums = unsafe.Pointer(&keys[2*d]), &out[d]
						c.Next = c.Values
						l.MixPairs(m, w, &c)
						d += w
					}
				}
				rate(b, m)
			})
		}
		b.Run(l.String()+"/softmax", func(b *testing.B) {
			for b.Loop() {
				l.SoftmaxPairs(weights[:256], out[:256], 0, 256)
			}
		})
		b.Run(l.String()+"/softmax of float32", func(b *testing.B) {
			for b.Loop() {
				l.Softmax(out[:256], 0, 256)
			}
		})
	}
}

// BenchmarkPackMemory packs 64 MiB, more than caches hold.
func BenchmarkPackMemory(b *testing.B) {
	for _, ty := range []Type{BF16, Q8_0, Q4_0} {
		for _, cols := range []int{1024, 2048, 3072} {
			b.Run(fmt.Sprintf("type-%d/%d", ty, cols), func(b *testing.B) {
				const size = 64 << 20
				src, dst := aligned(size), aligned(size)
				panel := PanelBytes(ty, cols)
				for b.Loop() {
					for at := 0; at+panel <= size; at += panel {
						Pack(ty, unsafe.Pointer(&dst[at]), unsafe.Pointer(&src[at]), Width, cols)
					}
				}
				b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
			})
		}
	}
}
