package kernels_test

import (
	"bytes"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

var weightTypes = []kernels.WeightType{kernels.BF16, kernels.Q8_0, kernels.E4M3, kernels.E4M3Blocks}

// A token's product is the same bits alone and among many, whichever kernel computes it.
func TestGEMMDoesNotDependOnTheBatch(t *testing.T) {
	const many, few, rows, in = 70, 5, 33, 224
	for _, kind := range weightTypes {
		l := newLab(newHostDevice(t, 3), t.Name())
		q := l.device.queue().Tune(kernels.Tuning{Portable: true})
		o := kernels.MatMul{X: l.Values(many*in, 1), Rows: rows, In: in, Type: kind, Wide: true}
		o.W, o.Scales = l.Weights(kind, rows, in)
		for _, o.Tokens = range []int{many, few} {
			o.Out = l.Out("out", 4*o.Tokens*rows, kerneltest.Tolerance{})
			l.must(q.GEMM(o))
		}
		if got, want := l.Outputs[1].Memory, l.Outputs[0].Memory[:4*few*rows]; !bytes.Equal(got, want) {
			t.Errorf("type %d: the first tokens have other products than among many", kind)
		}
	}
}

// The same for tokens that wait for the weights only.
func TestGEMVDoesNotDependOnTheBatch(t *testing.T) {
	const many, rows, in = 7, 5, 544
	for _, kind := range weightTypes {
		l := newLab(newHostDevice(t, 3), t.Name())
		q := l.device.queue()
		o := kernels.MatMul{X: l.Values(many*in, 1), Rows: rows, In: in, Type: kind, Wide: true}
		o.W, o.Scales = l.Weights(kind, rows, in)
		for o.Tokens = many; o.Tokens > 0; o.Tokens-- {
			o.Out = l.Out("out", 4*o.Tokens*rows, kerneltest.Tolerance{})
			l.must(q.GEMV(o))
			if got := l.Outputs[len(l.Outputs)-1].Memory; !bytes.Equal(got, l.Outputs[0].Memory[:len(got)]) {
				t.Errorf("type %d: %d tokens have other products than among %d", kind, o.Tokens, many)
			}
		}
	}
}

// Nor does it depend on the tile that is chosen for so many.
func TestTilesComputeTheSame(t *testing.T) {
	const tokens, rows, in = 150, 72, 264
	l := newLab(newHostDevice(t, 3), t.Name())
	q := l.device.queue()
	o := kernels.MatMul{X: l.Values(tokens*in, 1), W: l.Values(rows*in, 1), Bias: l.Values(rows, 1), Tokens: tokens, Rows: rows, In: in}
	for _, tile := range kernels.Tiles {
		o.Out = l.Out(tile.Kernel, 2*tokens*rows, kerneltest.Tolerance{})
		l.must(q.Tune(kernels.Tuning{Tile: tile.Kernel}).GEMM(o))
		if !bytes.Equal(l.Outputs[len(l.Outputs)-1].Memory, l.Outputs[0].Memory) {
			t.Errorf("%s computes something else than %s", tile.Kernel, kernels.Tiles[0].Kernel)
		}
	}
}
