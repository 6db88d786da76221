package kernels_test

import (
	"bytes"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/cuda/kernels/kerneltest"
)

// A token's product is the same bits alone and among many, whichever kernel computes it.
func TestGEMMDoesNotDependOnTheBatch(t *testing.T) {
	const many, few, rows, in = 70, 5, 33, 200
	l := newLab(newHostDevice(t, 3), t.Name())
	q := l.device.queue()
	o := kernels.MatMul{X: l.Values(many*in, 1), W: l.Values(rows*in, 1), Rows: rows, In: in, Wide: true}
	for _, o.Tokens = range []int{many, few} {
		o.Out = l.Out("out", 4*o.Tokens*rows, kerneltest.Tolerance{})
		l.must(q.GEMM(o))
	}
	if got, want := l.Outputs[1].Memory, l.Outputs[0].Memory[:4*few*rows]; !bytes.Equal(got, want) {
		t.Error("the first tokens have other products than among many")
	}
}
