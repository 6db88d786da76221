package kernels

// Activation is the function of a gate.
type Activation int32

// Activations, as kernels number them.
const (
	SiLU Activation = iota
	GELUTanh
)

// GLU is a gated activation: act(gate) * up.
type GLU struct {
	Out    uint64 // bf16 [Tokens][Inner]
	In     uint64 // bf16 [Tokens][2 * Inner]: gate, then up
	Tokens int
	Inner  int // a multiple of 8
	Act    Activation
}

const gluThreads = 256

// GLU joins gate and up.
func (q *Queue) GLU(o GLU) error {
	s := shape{op: "gated activation"}
	s.count("tokens", o.Tokens)
	s.size("inner", o.Inner, 8)
	s.aligned(o.Out, o.In)
	s.require(o.Act == SiLU || o.Act == GELUTanh, "no activation %d", o.Act)
	if s.err != nil {
		return s.err
	}
	row := func(base uint64, token, width int) uint64 { return base + uint64(token)*uint64(width)*2 }
	for from := 0; from < o.Tokens; from += maxGridY {
		q.args().Pointer(row(o.Out, from, o.Inner)).Pointer(row(o.In, from, 2*o.Inner)).Int32(int32(o.Inner)).Int32(int32(o.Act))
		if err := q.run("glu", blocks(o.Inner/8, gluThreads), min(o.Tokens-from, maxGridY), 1, gluThreads, 0); err != nil {
			return err
		}
	}
	return nil
}
