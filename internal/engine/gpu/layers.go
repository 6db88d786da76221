package gpu

import (
	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// run is a pass that is being launched in a lane of a rank. It keeps the first error.
type run struct {
	*rank
	*lane
	q   *kernels.Queue
	s   shape
	err error
}

// enqueue launches the kernels of a pass in a lane of all ranks. It uses only memory of
// the backend and the shape, so that it can be recorded.
func (b *Backend) enqueue(lane int, s shape) error {
	g := b.newGroup(lane, s)
	g.each((*run).embed)
	for i := range b.weights.config.Layers {
		g.each(func(r *run) { r.attend(&r.weights.layers[i], i) })
		g.sum(afterAttention)
		g.each(func(r *run) { r.feed(&r.weights.layers[i], i) })
		g.sum(afterMLP)
		g.each(func(r *run) { r.leave(&r.weights.layers[i]) })
	}
	if s.rows > 0 {
		g.each((*run).head)
		g.gather()
	}
	return g.err()
}

func (r *run) do(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *run) embed() {
	w := r.weights
	r.do(r.q.Embed(kernels.Embed{
		Out: r.memory.sum, Table: w.embed.at, Scales: w.embed.scales, Type: w.embed.kind, IDs: r.in.ids.address, Tokens: r.s.tokens, Hidden: w.config.Hidden, Rows: w.config.Vocab, Scale: w.embedScale,
	}))
}

// attend computes the attention of a layer, up to its sum over ranks.
func (r *run) attend(l *layer, i int) {
	c, m, w := r.weights.config, &r.memory, r.weights
	kv := kernels.KV{Pool: r.kv, Shape: r.shape, Layer: i}
	rope := r.ropes[l.rope]
	if i == 0 {
		r.norm(m.normed, m.sum, l.attnNorm, 0) // the embedding is the residual
	} else {
		r.norm(m.normed, m.x, l.attnNorm, m.sum)
	}
	r.product(l.qkv, kernels.MatMul{Out: m.qkv, X: m.normed, Bias: l.qkvBias, Rows: (w.heads + 2*w.kvHeads) * c.HeadDim, In: c.Hidden})
	r.do(r.q.RopeAppend(kernels.RopeAppend{
		Q: m.q, QKV: m.qkv, KV: kv, QWeight: l.qNorm, KWeight: l.kNorm, Cosines: rope.cos, Sines: rope.sin,
		Positions: r.in.positions.address, Slots: r.in.slots.address,
		Tokens: r.s.tokens, QueryHeads: w.heads, Rotary: c.Rotary(), Eps: float32(c.NormEps), Offset: w.normOffset(),
	}))
	r.attention(kernels.Attend{KV: kv, QueryHeads: w.heads, TableBlocks: r.s.tableBlocks, Window: l.window, Scale: float32(c.ScoreScale()), Limit: float32(c.ScoreCap)})
	out, wide := r.joining(afterAttention)
	r.product(l.o, kernels.MatMul{Out: out, Wide: wide, X: m.attended, Bias: l.oBias, Rows: c.Hidden, In: w.heads * c.HeadDim})
}

// feed computes the MLP of a layer, up to its sum over ranks.
func (r *run) feed(l *layer, i int) {
	c, m := r.weights.config, &r.memory
	if l.postAttnNorm != 0 {
		r.norm(m.x, m.x, l.postAttnNorm, 0)
	}
	r.norm(m.normed, m.x, l.mlpNorm, m.sum)
	out, wide := r.joining(afterMLP)
	if l.router.at != 0 {
		r.experts(l, out, wide)
		return
	}
	r.gated(l.gateUp, kernels.GatedMatMul{
		MatMul: kernels.MatMul{Out: m.gateUp, X: m.normed, Bias: l.gateUpBias, Rows: 2 * l.inner, In: c.Hidden}, Gated: m.inner, Act: r.weights.act,
	})
	r.product(l.down, kernels.MatMul{Out: out, Wide: wide, X: m.inner, Bias: l.downBias, Rows: c.Hidden, In: l.inner})
}

// leave applies the norm after the MLP, if the layer has one.
func (r *run) leave(l *layer) {
	if l.postMLPNorm != 0 {
		r.norm(r.memory.x, r.memory.x, l.postMLPNorm, 0)
	}
}

// norm normalizes x, after adding it to the residual if there is one.
func (r *run) norm(out, x, weight, residual uint64) {
	r.normRows(out, x, weight, residual, r.s.tokens)
}

func (r *run) normRows(out, x, weight, residual uint64, rows int) {
	c := r.weights.config
	r.do(r.q.RMSNorm(kernels.Norm{
		Out: out, X: x, Weight: weight, Residual: residual, Rows: rows, Hidden: c.Hidden, Eps: float32(c.NormEps), Offset: r.weights.normOffset(),
	}))
}

// experts computes the MLP of a layer with experts.
func (r *run) experts(l *layer, out uint64, wide bool) {
	c, m := r.weights.config, &r.memory
	e := kernels.Experts{Chosen: m.chosen, Shares: m.shares, Plan: m.plan, Tokens: r.s.tokens, Count: c.MoE.Experts, Active: c.MoE.Active}
	r.product(l.router, kernels.MatMul{Out: m.scores, X: m.normed, Rows: e.Count, In: c.Hidden, Wide: true})
	r.do(r.q.Route(kernels.Route{Experts: e, Logits: m.scores, Normalize: c.MoE.Normalize}))
	r.do(r.q.ExpertMatMul(kernels.ExpertMatMul{
		Experts: e, Out: m.gateUp, X: m.normed, W: l.gateUp.at, Scales: l.gateUp.scales, Type: l.gateUp.kind, Rows: 2 * l.inner, In: c.Hidden,
	}))
	r.do(r.q.GLU(kernels.GLU{Out: m.inner, In: m.gateUp, Tokens: e.Tokens * e.Active, Inner: l.inner, Act: r.weights.act}))
	r.do(r.q.ExpertMatMul(kernels.ExpertMatMul{
		Experts: e, Out: m.given, X: m.inner, W: l.down.at, Scales: l.down.scales, Type: l.down.kind, Rows: c.Hidden, In: l.inner, Own: true,
	}))
	r.do(r.q.Combine(kernels.Combine{Experts: e, Out: out, Wide: wide, X: m.given, Hidden: c.Hidden}))
}

// product multiplies all tokens with a matrix.
func (r *run) product(w matrix, o kernels.MatMul) {
	o.Tokens, o.Capacity = r.s.tokens, r.options.MaxTokens
	r.multiply(w, o)
}

// gated multiplies all tokens with gates and what they gate, and joins them.
func (r *run) gated(w matrix, o kernels.GatedMatMul) {
	o.Tokens, o.Capacity = r.s.tokens, r.options.MaxTokens
	o.W, o.Scales, o.Type = w.at, w.scales, w.kind
	if r.few(o.Tokens) {
		r.do(r.q.GEMV(o.MatMul))
		r.do(r.q.GLU(kernels.GLU{Out: o.Gated, In: o.Out, Tokens: o.Tokens, Inner: o.Rows / 2, Act: o.Act}))
		return
	}
	r.do(r.q.GatedGEMM(o))
}

// few reports whether products of the given number of tokens are bound by reading the
// weights.
func (r *run) few(tokens int) bool { return tokens <= kernels.MaxGEMV && !r.options.BatchInvariant }

func (r *run) multiply(w matrix, o kernels.MatMul) {
	o.W, o.Scales, o.Type = w.at, w.scales, w.kind
	if r.few(o.Tokens) {
		r.do(r.q.GEMV(o))
		return
	}
	r.do(r.q.GEMM(o))
}

// attention computes the pieces of one token, and then those of several.
func (r *run) attention(a kernels.Attend) {
	s, m := r.s, &r.memory
	a.Out, a.Q, a.Tables, a.Lengths, a.Sequences = m.attended, m.q, r.in.tables.address, r.in.lengths.address, s.single
	if s.single > 0 {
		r.do(r.q.DecodeAttention(kernels.DecodeAttention{Attend: a, MaxLength: s.longest, Partial: m.partial}))
	}
	if s.several > 0 {
		a.Tables += uint64(4 * s.single * s.tableBlocks)
		a.Lengths += uint64(4 * s.single)
		a.Sequences = s.several
		r.do(r.q.PrefillAttention(kernels.PrefillAttention{Attend: a, Starts: r.in.starts.address + uint64(4*s.single), MaxTokens: s.most}))
	}
}

// head computes the rank's logits of the requested rows.
func (r *run) head() {
	c, m, rows := r.weights.config, &r.memory, r.s.rows
	if r.weights.vocab.n == 0 {
		return
	}
	x, sum := m.x, m.sum
	if r.s.gather {
		for _, pair := range [2][2]uint64{{m.lastX, m.x}, {m.lastSum, m.sum}} {
			r.do(r.q.Copy(kernels.Copy{
				To: pair[0], From: pair[1], ToOffsets: r.in.packed.address, FromOffsets: r.in.rows.address, Pieces: rows, Bytes: 2 * c.Hidden,
			}))
		}
		x, sum = m.lastX, m.lastSum
	}
	r.normRows(m.last, x, r.weights.finalNorm, sum, rows)
	out := r.out.logits.Address
	if r.weights.vocab.n < c.Vocab {
		out = m.head
	}
	r.multiply(r.weights.head, kernels.MatMul{Out: out, X: m.last, Tokens: rows, Capacity: r.options.MaxSeqs, Rows: r.weights.vocab.n, In: c.Hidden, Wide: true})
}

// used returns the part of the inputs that a pass of a shape reads.
func (in *inputs) used(s shape) (device.Region, []byte) {
	n := int64(in.tables.address-in.device.Address) + int64(4*(s.single+s.several)*s.tableBlocks)
	return in.device.Slice(0, n), in.host[:n]
}
