package kernels

// Norm is a root mean square norm of rows.
type Norm struct {
	Out    uint64 // bf16 [Rows][Hidden]; may be X
	X      uint64 // bf16 [Rows][Hidden]
	Weight uint64 // bf16 [Hidden]
	// Residual, when not 0, is bf16 [Rows][Hidden]: X is added to it, and the rounded sum
	// is what is normalized.
	Residual uint64
	Rows     int
	Hidden   int // a multiple of 8
	Eps      float32
	Offset   float32 // added to weights: 1 for Gemma, else 0
}

// RMSNorm normalizes rows.
func (q *Queue) RMSNorm(o Norm) error {
	s := shape{op: "norm"}
	s.count("rows", o.Rows)
	s.size("hidden", o.Hidden, 8)
	s.aligned(o.Out, o.X, o.Weight)
	s.require(o.Residual%16 == 0, "the residual is at %#x, not a multiple of 16 bytes", o.Residual)
	s.require(o.Residual == 0 || o.Residual != o.Out && o.Residual != o.X, "the residual is another operand, too")
	if s.err != nil || o.Rows == 0 {
		return s.err
	}
	q.args().Pointer(o.Out).Pointer(o.Residual).Pointer(o.X).Pointer(o.Weight).Int32(int32(o.Hidden)).Float32(o.Eps).Float32(o.Offset)
	return q.run("rms_norm", o.Rows, 1, 1, 256, 0)
}
