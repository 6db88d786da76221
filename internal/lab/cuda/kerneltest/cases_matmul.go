package kerneltest

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

type matMulCase struct {
	kind             kernels.WeightType
	tokens, rows, in int
	bias, wide       bool
	large            bool
	tuning           kernels.Tuning
}

func matMulCases() []Case {
	var all []Case
	add := func(op string, run func(q *kernels.Queue, o kernels.MatMul) error, c matMulCase) {
		name := fmt.Sprintf("%s/type=%s,tokens=%d,rows=%d,in=%d", op, weightNames[c.kind], c.tokens, c.rows, c.in)
		if c.bias {
			name += ",bias"
		}
		if c.wide {
			name += ",wide"
		}
		all = append(all, Case{Name: name, Large: c.large, Exact: c.tuning.Tile != "", Prepare: func(l *Lab) func(q *kernels.Queue) error {
			size := 2
			if c.wide {
				size = 4
			}
			o := kernels.MatMul{
				Out: l.Out("out", c.tokens*c.rows*size, SumOf(c.in, c.wide)), X: l.Values(c.tokens*c.in, 1),
				Tokens: c.tokens, Rows: c.rows, In: c.in, Type: c.kind, Wide: c.wide,
			}
			o.W, o.Scales = l.Weights(c.kind, c.rows, c.in)
			if c.bias {
				o.Bias = l.Values(c.rows, 10)
			}
			return func(q *kernels.Queue) error { return run(q.Tune(c.tuning), o) }
		}})
	}
	for tokens := 1; tokens <= kernels.MaxGEMV; tokens++ {
		add("gemv", (*kernels.Queue).GEMV, matMulCase{tokens: tokens, rows: 11, in: 520, bias: tokens%2 == 0, wide: tokens%3 == 0})
		add("gemv", (*kernels.Queue).GEMV, matMulCase{kind: kernels.Q8_0, tokens: tokens, rows: 11, in: 544, bias: tokens%2 == 0, wide: tokens%3 == 0}) // an odd number of blocks
		add("gemv", (*kernels.Queue).GEMV, matMulCase{kind: kernels.E4M3, tokens: tokens, rows: 11, in: 528, bias: tokens%2 == 0, wide: tokens%3 == 0})
		add("gemv", (*kernels.Queue).GEMV, matMulCase{kind: kernels.E4M3Blocks, tokens: tokens, rows: 11, in: 528, bias: tokens%2 == 0, wide: tokens%3 == 0})
	}
	add("gemv", (*kernels.Queue).GEMV, matMulCase{tokens: 1, rows: 1, in: 8, bias: true})
	add("gemv", (*kernels.Queue).GEMV, matMulCase{kind: kernels.Q8_0, tokens: 1, rows: 1, in: 32, bias: true})
	add("gemv", (*kernels.Queue).GEMV, matMulCase{kind: kernels.E4M3, tokens: 1, rows: 1, in: 16, bias: true})
	add("gemv", (*kernels.Queue).GEMV, matMulCase{kind: kernels.E4M3Blocks, tokens: 1, rows: 1, in: 16, bias: true})
	add("gemv", (*kernels.Queue).GEMV, matMulCase{tokens: 5, rows: 2050, in: 4096, large: true})
	add("gemv", (*kernels.Queue).GEMV, matMulCase{kind: kernels.Q8_0, tokens: 3, rows: 2050, in: 4096, large: true})
	add("gemv", (*kernels.Queue).GEMV, matMulCase{kind: kernels.E4M3, tokens: 3, rows: 2050, in: 4096, large: true})
	add("gemv", (*kernels.Queue).GEMV, matMulCase{kind: kernels.E4M3Blocks, tokens: 3, rows: 2050, in: 4096, large: true})
	for _, c := range []matMulCase{
		{tokens: 1, rows: 1, in: 8, bias: true},                  // less than anything
		{tokens: 128, rows: 128, in: 32},                         // one tile, one step
		{tokens: 130, rows: 264, in: 136, bias: true},            // ragged on all sides
		{tokens: 66, rows: 129, in: 200, bias: true},             // an odd number of rows
		{tokens: 65, rows: 131, in: 104, bias: true, wide: true}, // float32
		{tokens: 64, rows: 32, in: 64},                           // one tile for few tokens, one step
		{tokens: 63, rows: 77, in: 520, bias: true},              // ragged, and more steps than stages
		{tokens: 9, rows: 34, in: 88, bias: true, wide: true},    // float32

		{kind: kernels.Q8_0, tokens: 1, rows: 1, in: 32, bias: true},
		{kind: kernels.Q8_0, tokens: 128, rows: 128, in: 64},
		{kind: kernels.Q8_0, tokens: 130, rows: 131, in: 352, bias: true, wide: true}, // ragged, more steps than stages, an odd number of blocks
		{kind: kernels.Q8_0, tokens: 66, rows: 34, in: 96, bias: true},
		{kind: kernels.Q8_0, tokens: 64, rows: 32, in: 64},
		{kind: kernels.Q8_0, tokens: 33, rows: 45, in: 608, bias: true},
		{kind: kernels.E4M3, tokens: 1, rows: 1, in: 16, bias: true},
		{kind: kernels.E4M3Blocks, tokens: 1, rows: 1, in: 16, bias: true},
		{kind: kernels.E4M3, tokens: 128, rows: 128, in: 64},
		{kind: kernels.E4M3Blocks, tokens: 128, rows: 128, in: 64},
		{kind: kernels.E4M3, tokens: 130, rows: 131, in: 336, bias: true, wide: true},
		{kind: kernels.E4M3Blocks, tokens: 130, rows: 131, in: 336, bias: true, wide: true},
		{kind: kernels.E4M3, tokens: 64, rows: 32, in: 64},
		{kind: kernels.E4M3Blocks, tokens: 64, rows: 32, in: 64},
		{kind: kernels.E4M3, tokens: 33, rows: 45, in: 592, bias: true},
		{kind: kernels.E4M3Blocks, tokens: 33, rows: 45, in: 592, bias: true},

		{tokens: 17, rows: 1030, in: 4096, large: true},             // few tokens
		{tokens: 300, rows: 140, in: 4096, bias: true, large: true}, // many
		{kind: kernels.Q8_0, tokens: 17, rows: 1030, in: 4096, large: true},
		{kind: kernels.Q8_0, tokens: 300, rows: 140, in: 4096, bias: true, large: true},
		{kind: kernels.E4M3, tokens: 17, rows: 1030, in: 4096, large: true},
		{kind: kernels.E4M3Blocks, tokens: 17, rows: 1030, in: 4096, large: true},
		{kind: kernels.E4M3, tokens: 300, rows: 140, in: 4096, bias: true, large: true},
		{kind: kernels.E4M3Blocks, tokens: 300, rows: 140, in: 4096, bias: true, large: true},
	} {
		c.tuning.Portable = true
		add("gemm", (*kernels.Queue).GEMM, c)
	}
	for _, t := range kernels.Tiles {
		for _, c := range []matMulCase{
			{tokens: 1, rows: 8, in: 8, bias: true},                            // less than anything
			{tokens: t.Tokens, rows: t.Rows, in: 64},                           // one tile, one step
			{tokens: 70, rows: t.Rows + 8, in: 648, bias: true, wide: true},    // more steps than stages
			{tokens: 2*t.Tokens + 2, rows: 2*t.Rows + 40, in: 136, bias: true}, // nine ragged tiles
			{tokens: 300, rows: 1032, in: 4096, bias: true, large: true},       // as in models
			{tokens: 2048, rows: 512, in: 1024, large: true},                   // without an edge
		} {
			c.tuning = kernels.Tuning{Tile: t.Kernel}
			if !c.large {
				c.tuning.Multiprocessors = 2 // that compute several tiles each
			}
			add(t.Kernel, (*kernels.Queue).GEMM, c)
		}
	}
	return all
}
