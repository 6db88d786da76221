package kernels

// Embed is the lookup of tokens in an embedding table.
type Embed struct {
	Out    uint64 // bf16 [Tokens][Hidden]
	Table  uint64 // bf16 [Rows][Hidden]
	IDs    uint64 // int32 [Tokens]; those that the table does not have give zeros
	Tokens int
	Hidden int // a multiple of 8
	Rows   int
	Scale  float32 // of all values; 1 for most models
}

// Embed looks tokens up.
func (q *Queue) Embed(o Embed) error {
	s := shape{op: "embed"}
	s.count("tokens", o.Tokens)
	s.size("hidden", o.Hidden, 8)
	s.size("rows", o.Rows, 1)
	s.aligned(o.Out, o.Table)
	s.present(o.IDs)
	if s.err != nil || o.Tokens == 0 {
		return s.err
	}
	q.args().Pointer(o.Out).Pointer(o.Table).Pointer(o.IDs).Int32(int32(o.Hidden)).Int32(int32(o.Rows)).Float32(o.Scale)
	return q.run("embed", o.Tokens, 1, 1, 128, 0)
}
