package kernels

// GatedMatMul is a product with gates and what they gate, and the [GLU] of its results.
type GatedMatMul struct {
	// MatMul has the rows of gates and then those of what they gate. Out is memory for their
	// results, which may be left as it is; Wide is false.
	MatMul
	Gated uint64 // bf16 [Tokens][Rows / 2]
	Act   Activation
}

// gatedKernel computes both at once, by tiles of gatedTile.
const gatedKernel = "gated_sm90a_128x256"

var gatedTile = &Tiles[0]

// GatedGEMM computes the product as [Queue.GEMM] does, and gates it: on compute capability
// 9.0 at once, with the same roundings.
func (q *Queue) GatedGEMM(o GatedMatMul) error {
	s := o.shape("gated GEMM")
	s.size("rows", o.Rows, 16)
	s.require(!o.Wide, "results are bf16")
	s.require(o.Act == SiLU || o.Act == GELUTanh, "no activation %d", o.Act)
	s.aligned(o.Gated)
	if s.err != nil || o.Tokens == 0 {
		return s.err
	}
	inner := o.Rows / 2
	if q.functions[gatedKernel] == 0 || q.tile(&o.MatMul) == nil || q.tuning.Tile != "" && q.tuning.Tile != gatedKernel {
		if err := q.GEMM(o.MatMul); err != nil {
			return err
		}
		return q.GLU(GLU{Out: o.Gated, In: o.Out, Tokens: o.Tokens, Inner: inner, Act: o.Act})
	}
	x, w, err := q.operands(&o.MatMul)
	if err != nil {
		return err
	}
	n := q.tuning.Multiprocessors
	q.args().TensorMap(x).TensorMap(w).Pointer(o.Gated).Pointer(o.Bias).Int32(int32(o.Tokens)).Int32(int32(inner)).Int32(int32(o.In)).Int32(int32(o.Act)).Int32(int32(gatedTile.group(n)))
	return q.run(gatedKernel, min(gatedTile.count(o.Tokens, o.Rows), n), 1, 1, tileThreads, DynamicShared(gatedKernel))
}
