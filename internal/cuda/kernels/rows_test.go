package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/engine"
)

// oneUlp is for operations that round once: their float32 arithmetic moves a result to
// the neighbor at most.
var oneUlp = tolerance{ulps: 1, scale: 1e-3}

func TestEmbed(t *testing.T) {
	for _, scale := range []float32{1, 45.25} {
		for _, hidden := range []int{8, 1032} {
			t.Run(fmt.Sprintf("hidden %d scale %g", hidden, scale), func(t *testing.T) {
				compare(t, func(l *lab, q *kernels.Queue) {
					ids := []int32{3, 0, 12, -1, 3, 13, 1 << 30}
					l.must(q.Embed(kernels.Embed{
						Out: l.out("rows", 2*len(ids)*hidden, oneUlp), Table: l.values(13*hidden, 1), IDs: l.int32s(ids...),
						Tokens: len(ids), Hidden: hidden, Rows: 13, Scale: scale,
					}))
				})
			})
		}
	}
}

func TestRMSNorm(t *testing.T) {
	for _, hidden := range []int{8, 1000, 4096} {
		for _, residual := range []bool{false, true} {
			for _, offset := range []float32{0, 1} {
				t.Run(fmt.Sprintf("hidden %d residual %t offset %g", hidden, residual, offset), func(t *testing.T) {
					compare(t, func(l *lab, q *kernels.Queue) {
						const rows = 3
						o := kernels.Norm{
							Out: l.out("out", 2*rows*hidden, oneUlp), X: l.values(rows*hidden, 3), Weight: l.values(hidden, 0.5),
							Rows: rows, Hidden: hidden, Eps: 0.5, Offset: offset,
						}
						if residual {
							o.Residual = l.inOut("residual", rows*hidden, 5, oneUlp)
						}
						l.must(q.RMSNorm(o))
					})
				})
			}
		}
	}
}

// A row of zeros gives zeros, and the norm may be in place.
func TestRMSNormOfZeros(t *testing.T) {
	compare(t, func(l *lab, q *kernels.Queue) {
		x := l.inOut("out", 64, 0, exact)
		l.must(q.RMSNorm(kernels.Norm{Out: x, X: x, Weight: l.values(64, 1), Rows: 1, Hidden: 64, Eps: 1e-6}))
	})
}

func TestGLU(t *testing.T) {
	for _, act := range []kernels.Activation{kernels.SiLU, kernels.GELUTanh} {
		for _, inner := range []int{8, 2056} {
			t.Run(fmt.Sprintf("act %d inner %d", act, inner), func(t *testing.T) {
				compare(t, func(l *lab, q *kernels.Queue) {
					const tokens = 3
					// Beyond 88 float32 has no exp(-x) of negative gates.
					l.must(q.GLU(kernels.GLU{Out: l.out("out", 2*tokens*inner, oneUlp), In: l.values(2*tokens*inner, 30), Tokens: tokens, Inner: inner, Act: act}))
				})
			})
		}
	}
}

func TestRopeAppend(t *testing.T) {
	for _, c := range []struct {
		name                         string
		queries, heads, dim, rotary  int
		block, layers, layer, tokens int
		norm                         bool
		offset                       float32
	}{
		{"llama", 8, 2, 128, 128, 64, 2, 1, 5, false, 0},
		{"qwen3", 4, 1, 128, 128, 16, 3, 0, 3, true, 0},
		{"gemma", 2, 1, 256, 256, 32, 1, 0, 3, true, 1},
		{"part of a head", 3, 3, 80, 32, 16, 2, 1, 4, false, 0},
		{"no rotation", 1, 1, 16, 0, 16, 1, 0, 2, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			compare(t, func(l *lab, q *kernels.Queue) {
				shape := engine.KVShape{Layers: c.layers, KVHeads: c.heads, HeadDim: c.dim, BlockSize: c.block, DType: "bf16"}
				const blocks, positions = 3, 40
				cos, sin := make([]float32, positions*c.rotary/2+1), make([]float32, positions*c.rotary/2+1)
				for i := range cos {
					angle := l.Float64() * 7
					cos[i], sin[i] = float32(math.Cos(angle)), float32(math.Sin(angle))
				}
				at, slots := make([]int32, c.tokens), make([]int32, c.tokens)
				for i, slot := range l.Perm(blocks * c.block)[:c.tokens] {
					at[i], slots[i] = int32(l.IntN(positions)), int32(slot)
				}
				slots[c.tokens-1] = -1
				o := kernels.RopeAppend{
					Q:       l.out("queries", 2*c.tokens*c.queries*c.dim, oneUlp),
					QKV:     l.values(c.tokens*(c.queries+2*c.heads)*c.dim, 2),
					KV:      kernels.KV{Pool: l.out("pool", blocks*int(shape.BlockBytes()), oneUlp), Shape: shape, Layer: c.layer},
					Cosines: l.float32s(cos...), Sines: l.float32s(sin...), Positions: l.int32s(at...), Slots: l.int32s(slots...),
					Tokens: c.tokens, QueryHeads: c.queries, Rotary: c.rotary, Eps: 0.5, Offset: c.offset,
				}
				if c.norm {
					o.QWeight, o.KWeight = l.values(c.dim, 1), l.values(c.dim, 1)
				}
				l.must(q.RopeAppend(o))
			})
		})
	}
}
