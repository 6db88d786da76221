package kerneltest

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

type matMulCase struct {
	tokens, rows, in int
	bias, wide       bool
	large            bool
}

func matMulCases() []Case {
	var all []Case
	add := func(op string, run func(q *kernels.Queue, o kernels.MatMul) error, c matMulCase) {
		name := fmt.Sprintf("%s/tokens=%d,rows=%d,in=%d", op, c.tokens, c.rows, c.in)
		if c.bias {
			name += ",bias"
		}
		if c.wide {
			name += ",wide"
		}
		all = append(all, Case{Name: name, Large: c.large, Prepare: func(l *Lab) func(q *kernels.Queue) error {
			size := 2
			if c.wide {
				size = 4
			}
			o := kernels.MatMul{
				Out: l.Out("out", c.tokens*c.rows*size, SumOf(c.in, c.wide)), X: l.Values(c.tokens*c.in, 1), W: l.Values(c.rows*c.in, 1),
				Tokens: c.tokens, Rows: c.rows, In: c.in, Wide: c.wide,
			}
			if c.bias {
				o.Bias = l.Values(c.rows, 10)
			}
			return func(q *kernels.Queue) error { return run(q, o) }
		}})
	}
	for tokens := 1; tokens <= kernels.MaxGEMV; tokens++ {
		add("gemv", (*kernels.Queue).GEMV, matMulCase{tokens: tokens, rows: 11, in: 520, bias: tokens%2 == 0, wide: tokens%3 == 0})
	}
	add("gemv", (*kernels.Queue).GEMV, matMulCase{tokens: 1, rows: 1, in: 8, bias: true})
	add("gemv", (*kernels.Queue).GEMV, matMulCase{tokens: 5, rows: 6144, in: 4096, large: true})
	for _, c := range []matMulCase{
		{tokens: 1, rows: 1, in: 8, bias: true},                     // less than anything
		{tokens: 128, rows: 128, in: 32},                            // one tile, one step
		{tokens: 130, rows: 264, in: 136, bias: true},               // ragged on all sides
		{tokens: 66, rows: 129, in: 200, bias: true},                // an odd number of rows
		{tokens: 65, rows: 131, in: 104, bias: true, wide: true},    // float32
		{tokens: 64, rows: 32, in: 64},                              // one tile for few tokens, one step
		{tokens: 63, rows: 77, in: 520, bias: true},                 // ragged, and more steps than stages
		{tokens: 9, rows: 34, in: 88, bias: true, wide: true},       // float32
		{tokens: 17, rows: 1030, in: 4096, large: true},             // few tokens
		{tokens: 300, rows: 300, in: 4096, bias: true, large: true}, // many
	} {
		add("gemm", (*kernels.Queue).GEMM, c)
	}
	return all
}
