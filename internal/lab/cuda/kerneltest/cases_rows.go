package kerneltest

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/kvlayout"
)

func embedCases() (all []Case) {
	add := func(kind kernels.WeightType, hidden int, scale float32) {
		all = append(all, Case{
			Name: fmt.Sprintf("embed/type=%s,hidden=%d,scale=%g", weightNames[kind], hidden, scale),
			Prepare: func(l *Lab) func(q *kernels.Queue) error {
				ids := []int32{3, 0, 12, -1, 3, 13, 1 << 30} // some that the table does not have
				o := kernels.Embed{
					Out: l.Out("rows", 2*len(ids)*hidden, OneUlp), IDs: l.Int32s(ids...), Type: kind,
					Tokens: len(ids), Hidden: hidden, Rows: 13, Scale: scale,
				}
				o.Table, o.Scales = l.Weights(kind, o.Rows, hidden)
				return func(q *kernels.Queue) error { return q.Embed(o) }
			},
		})
	}
	for _, scale := range []float32{1, 45.25} {
		for _, hidden := range []int{8, 1032, 4096} {
			add(kernels.BF16, hidden, scale)
		}
		for _, hidden := range []int{32, 1056} {
			add(kernels.Q8_0, hidden, scale)
		}
	}
	return all
}

func normCases() (all []Case) {
	add := func(rows, hidden int, residual bool, offset float32) {
		all = append(all, Case{
			Name: fmt.Sprintf("norm/rows=%d,hidden=%d,residual=%t,offset=%g", rows, hidden, residual, offset), Large: rows > 100,
			Prepare: func(l *Lab) func(q *kernels.Queue) error {
				o := kernels.Norm{
					Out: l.Out("out", 2*rows*hidden, OneUlp), X: l.Values(rows*hidden, 3), Weight: l.Values(hidden, 0.5),
					Rows: rows, Hidden: hidden, Eps: 0.5, Offset: offset,
				}
				if residual {
					o.Residual = l.InOut("residual", rows*hidden, 5, OneUlp)
				}
				return func(q *kernels.Queue) error { return q.RMSNorm(o) }
			},
		})
	}
	for _, hidden := range []int{8, 1000, 4096} {
		for _, residual := range []bool{false, true} {
			for _, offset := range []float32{0, 1} {
				add(3, hidden, residual, offset)
			}
		}
	}
	add(2048, 4096, true, 0)
	return append(all, Case{
		Name: "norm/zeros-in-place", // a row of zeros gives zeros
		Prepare: func(l *Lab) func(q *kernels.Queue) error {
			x := l.InOut("out", 64, 0, Exact)
			o := kernels.Norm{Out: x, X: x, Weight: l.Values(64, 1), Rows: 1, Hidden: 64, Eps: 1e-6}
			return func(q *kernels.Queue) error { return q.RMSNorm(o) }
		},
	})
}

func gluCases() (all []Case) {
	names := map[kernels.Activation]string{kernels.SiLU: "silu", kernels.GELUTanh: "gelu"}
	add := func(tokens, inner int, act kernels.Activation) {
		all = append(all, Case{
			Name: fmt.Sprintf("glu/tokens=%d,inner=%d,%s", tokens, inner, names[act]), Large: tokens > 100,
			Prepare: func(l *Lab) func(q *kernels.Queue) error {
				// Beyond 88 float32 has no exp(-x) of negative gates.
				o := kernels.GLU{Out: l.Out("out", 2*tokens*inner, OneUlp), In: l.Values(2*tokens*inner, 30), Tokens: tokens, Inner: inner, Act: act}
				return func(q *kernels.Queue) error { return q.GLU(o) }
			},
		})
	}
	for _, act := range []kernels.Activation{kernels.SiLU, kernels.GELUTanh} {
		for _, inner := range []int{8, 2056} {
			add(3, inner, act)
		}
	}
	add(300, 14336, kernels.SiLU)
	return all
}

// brokenRows are rows of bf16: zeros, one that is no number, an infinite one, one that is too
// small for a scale, and ones.
func brokenRows(rows, width int) []byte {
	b := make([]byte, 2*rows*width)
	for i := range rows * width {
		var code uint16
		switch row := i / width; {
		case row == 1 && i%8 == 5:
			code = 0x7fc0
		case row == 2 && i%8 == 3:
			code = 0xff80
		case row == 3:
			code = 1 // 2^-133
		case row == 4:
			code = 0x3f80
		}
		binary.LittleEndian.PutUint16(b[2*i:], code)
	}
	return b
}

func gatedCases() (all []Case) {
	for _, c := range []struct {
		tokens, inner, in int
		act               kernels.Activation
		bias, large       bool
	}{
		{1, 8, 8, kernels.SiLU, false, false}, {128, 128, 64, kernels.GELUTanh, false, false},
		{70, 136, 328, kernels.GELUTanh, true, false}, {258, 296, 136, kernels.SiLU, true, false}, // nine ragged tiles
		{300, 1544, 2048, kernels.SiLU, false, true},
	} {
		name := fmt.Sprintf("gated_sm90a/tokens=%d,inner=%d,in=%d,%d", c.tokens, c.inner, c.in, c.act)
		all = append(all, Case{Name: name, Large: c.large, Exact: true, Prepare: func(l *Lab) func(q *kernels.Queue) error {
			// A gate or what it gates may round to the neighbor, which is times the other.
			size := math.Sqrt(float64(c.in)) / 4
			near := Tolerance{Ulps: 3, Scale: size * size / 64}
			o := kernels.GatedMatMul{
				MatMul: kernels.MatMul{X: l.Values(c.tokens*c.in, 1), W: l.Values(2*c.inner*c.in, 0.25), Out: l.Working(4 * c.tokens * c.inner), Tokens: c.tokens, Rows: 2 * c.inner, In: c.in},
				Gated:  l.Out("gated", 2*c.tokens*c.inner, near), Act: c.act,
			}
			if c.bias {
				o.Bias = l.Values(2*c.inner, 3)
			}
			tuning := kernels.Tuning{Tile: "gated_sm90a_128x256"}
			if !c.large {
				tuning.Multiprocessors = 2
			}
			return func(q *kernels.Queue) error { return q.Tune(tuning).GatedGEMM(o) }
		}})
	}
	return all
}

func ropeCases() (all []Case) {
	for _, c := range []struct {
		name                         string
		queries, heads, dim, rotary  int
		block, layers, layer, tokens int
		norm                         bool
		offset                       float32
		kv                           string
	}{
		{"llama", 8, 2, 128, 128, 64, 2, 1, 5, false, 0, "bf16"},
		{"qwen3", 4, 1, 128, 128, 16, 3, 0, 3, true, 0, "bf16"},
		{"gemma", 2, 1, 256, 256, 32, 1, 0, 3, true, 1, "bf16"},
		{"part-of-a-head", 3, 3, 80, 32, 16, 2, 1, 4, false, 0, "bf16"},
		{"no-rotation", 1, 1, 16, 0, 16, 1, 0, 2, true, 0, "bf16"},
		{"many-tokens", 32, 8, 128, 128, 64, 2, 1, 150, true, 0, "bf16"},
		{"int8", 8, 2, 128, 128, 64, 2, 1, 5, true, 0, "int8"},
		{"int8,part-of-a-head", 3, 3, 80, 32, 16, 2, 1, 4, false, 0, "int8"},
		{"int8,broken", 2, 1, 32, 32, 16, 1, 0, 6, false, 0, "int8"},
	} {
		all = append(all, Case{
			Name: "rope/" + c.name, Large: c.tokens > 100,
			Prepare: func(l *Lab) func(q *kernels.Queue) error {
				shape := kvlayout.Shape{Layers: c.layers, KVHeads: c.heads, HeadDim: c.dim, BlockSize: c.block, DType: c.kv}
				near := OneUlp
				if c.kv == "int8" {
					near = Tolerance{KV: &shape}
				}
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
					Q:       l.Out("queries", 2*c.tokens*c.queries*c.dim, OneUlp),
					QKV:     l.Values(c.tokens*(c.queries+2*c.heads)*c.dim, 2),
					KV:      kernels.KV{Pool: l.Out("pool", blocks*int(shape.BlockBytes()), near), Shape: shape, Layer: c.layer},
					Cosines: l.Float32s(cos...), Sines: l.Float32s(sin...), Positions: l.Int32s(at...), Slots: l.Int32s(slots...),
					Tokens: c.tokens, QueryHeads: c.queries, Rotary: c.rotary, Eps: 0.5, Offset: c.offset,
				}
				if strings.HasSuffix(c.name, "broken") {
					o.QKV = l.Bytes(brokenRows(c.tokens, (c.queries+2*c.heads)*c.dim))
				}
				if c.norm {
					o.QWeight, o.KWeight = l.Values(c.dim, 1), l.Values(c.dim, 1)
				}
				return func(q *kernels.Queue) error { return q.RopeAppend(o) }
			},
		})
	}
	return all
}

// copyCases have pieces that are as long as what a block copies, shorter and longer.
func copyCases() (all []Case) {
	for _, size := range []int{16, 4096, 64<<10 + 48, 8 << 20} {
		all = append(all, Case{
			Name: fmt.Sprintf("copy/bytes=%d", size), Large: size > 1<<20,
			Prepare: func(l *Lab) func(q *kernels.Queue) error {
				const room, pieces = 7, 4
				var to, from []int64
				for _, i := range l.Perm(room)[:pieces] {
					to = append(to, int64(i*size))
				}
				for range pieces {
					from = append(from, int64(l.IntN(room)*size)) // one piece may go to several places
				}
				o := kernels.Copy{
					To: l.Out("pieces", room*size, Exact), From: l.Values(room*size/2, 1),
					ToOffsets: l.Int64s(to...), FromOffsets: l.Int64s(from...), Pieces: pieces, Bytes: size,
				}
				return func(q *kernels.Queue) error { return q.Copy(o) }
			},
		})
	}
	return all
}
