package kernels_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// sumOf is for sums of n products of values around 1, which are around the root of n.
// The sum of float32 may be off by n units of 2^-24 of that; a result in bf16 is far
// coarser, unless it is small by cancellation.
func sumOf(n int, float bool) tolerance {
	size := math.Sqrt(float64(n))
	if float {
		return tolerance{ulps: size * 0x1p-16, scale: size, float: true}
	}
	return tolerance{ulps: 1, scale: size / 256}
}

func testMatMul(t *testing.T, run func(q *kernels.Queue, o kernels.MatMul) error, tokens, rows, in int, bias, wide bool) {
	t.Helper()
	t.Run(fmt.Sprintf("%dx%dx%d bias %t wide %t", tokens, rows, in, bias, wide), func(t *testing.T) {
		compare(t, func(l *lab, q *kernels.Queue) {
			size := 2
			if wide {
				size = 4
			}
			o := kernels.MatMul{
				Out: l.out("out", tokens*rows*size, sumOf(in, wide)), X: l.values(tokens*in, 1), W: l.values(rows*in, 1),
				Tokens: tokens, Rows: rows, In: in, Wide: wide,
			}
			if bias {
				o.Bias = l.values(rows, 10)
			}
			l.must(run(q, o))
		})
	})
}

func TestGEMV(t *testing.T) {
	for tokens := 1; tokens <= kernels.MaxGEMV; tokens++ {
		testMatMul(t, (*kernels.Queue).GEMV, tokens, 11, 520, tokens%2 == 0, tokens%3 == 0)
	}
	testMatMul(t, (*kernels.Queue).GEMV, 1, 1, 8, true, false)
}

func TestGEMM(t *testing.T) {
	for _, c := range []struct {
		tokens, rows, in int
		bias, wide       bool
	}{
		{1, 1, 8, true, false},       // less than anything
		{128, 128, 32, false, false}, // one tile, one step
		{130, 264, 136, true, false}, // ragged on all sides
		{66, 129, 200, true, false},  // an odd number of rows
		{65, 131, 104, true, true},   // float32
		{64, 32, 64, false, false},   // one tile for few tokens, one step
		{63, 77, 520, true, false},   // ragged, and more steps than stages
		{9, 34, 88, true, true},      // float32
	} {
		testMatMul(t, (*kernels.Queue).GEMM, c.tokens, c.rows, c.in, c.bias, c.wide)
	}
}

// A token's product is the same bits alone and among many, whichever kernel computes it.
func TestGEMMDoesNotDependOnTheBatch(t *testing.T) {
	const many, few, rows, in = 70, 5, 33, 200
	l := &lab{device: newHostDevice(t, 3), Rand: rand.New(rand.NewPCG(1, 2))}
	q := l.queue()
	o := kernels.MatMul{X: l.values(many*in, 1), W: l.values(rows*in, 1), Rows: rows, In: in, Wide: true}
	for _, o.Tokens = range []int{many, few} {
		o.Out = l.out("out", 4*o.Tokens*rows, tolerance{})
		l.must(q.GEMM(o))
	}
	if got, want := l.outputs[1].memory, l.outputs[0].memory[:4*few*rows]; !bytes.Equal(got, want) {
		t.Error("the first tokens have other products than among many")
	}
}
