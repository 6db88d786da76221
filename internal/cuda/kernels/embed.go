package kernels

// Embed is the lookup of tokens in an embedding table.
type Embed struct {
	Out    uint64     // bf16 [Tokens][Hidden]
	Table  uint64     // of Type, [Rows][Hidden]
	Scales uint64     // those of Type, or 0
	Type   WeightType // BF16 or Q8_0
	IDs    uint64     // int32 [Tokens]; those that the table does not have give zeros
	Tokens int
	Hidden int // a multiple of 8, or what Type asks for
	Rows   int
	Scale  float32 // of all values; 1 for most models
}

// Embed looks tokens up.
func (q *Queue) Embed(o Embed) error {
	s := shape{op: "embed"}
	s.count("tokens", o.Tokens)
	s.size("hidden", o.Hidden, 8)
	s.size("rows", o.Rows, 1)
	s.require(o.Type == BF16 || o.Type == Q8_0, "no table of weights of type %d", o.Type)
	s.weights(o.Type, o.Table, o.Scales, o.Hidden)
	s.aligned(o.Out)
	s.present(o.IDs)
	if s.err != nil || o.Tokens == 0 {
		return s.err
	}
	kernel, a := "embed", q.args().Pointer(o.Out).Pointer(o.Table)
	if o.Type == Q8_0 {
		kernel = "embed_q8"
		a.Pointer(o.Scales)
	}
	a.Pointer(o.IDs).Int32(int32(o.Hidden)).Int32(int32(o.Rows)).Float32(o.Scale)
	return q.run(kernel, o.Tokens, 1, 1, 128, 0)
}
