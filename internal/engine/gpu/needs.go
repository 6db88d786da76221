package gpu

import (
	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// needs is the size of a rank's memory beside weights and KV blocks.
type needs struct {
	work                          []buffer
	inbox                         []int64 // bytes by rank
	logits, chosen, inputs, ropes int64   // bytes
	draws                         int64   // bytes
	gather                        int64   // bytes of the offsets for each rank's logits
}

func (n *needs) workspace() (bytes int64) {
	for _, w := range n.work {
		bytes += device.Aligned(w.bytes)
	}
	for _, i := range n.inbox {
		bytes += device.Aligned(i)
	}
	return bytes
}

// exchanged returns the size of the device memory that the host reads or writes.
func (n *needs) exchanged() int64 {
	return device.Aligned(n.logits) + device.Aligned(n.chosen) + device.Aligned(n.inputs) + device.Aligned(n.draws)
}

// io returns that size plus the size of tables that are written once.
func (n *needs) io() int64 {
	return n.exchanged() + n.ropes + 2*int64(len(n.inbox))*device.Aligned(n.gather)
}

// buffer is a part of the workspace.
type buffer struct {
	address *uint64
	bytes   int64
}

// needs computes the memory that a rank needs for the largest pass.
func (r *rank) needs() needs {
	c, o, m := r.weights.config, r.options, &r.memory
	tokens, seqs := int64(o.MaxTokens), int64(o.MaxSeqs)
	tables := seqs * int64(blocksOf(o.MaxContext, o.BlockSize))
	split := kernels.DecodeAttention{
		Attend: kernels.Attend{KV: kernels.KV{Shape: r.shape}, Sequences: int(seqs), QueryHeads: r.weights.heads}, MaxLength: o.MaxContext,
	}
	hidden, head := int64(c.Hidden)*2, int64(c.HeadDim)*2
	heads, kvHeads := int64(r.weights.heads), int64(r.weights.kvHeads)
	pairs := tokens * int64(c.MoE.Active) // of tokens and their experts
	inner := int64(r.weights.widest())
	var plan int64
	if c.MoE.Experts > 0 {
		e := kernels.Experts{Tokens: o.MaxTokens, Count: c.MoE.Experts, Active: c.MoE.Active}
		plan = int64(e.PlanBytes())
	}
	n := needs{inputs: inputBytes(tokens, seqs, tables), ropes: r.ropeBytes(), work: []buffer{
		{&m.sum, tokens * hidden}, {&m.x, tokens * hidden}, {&m.normed, tokens * hidden},
		{&m.qkv, tokens * head * (heads + 2*kvHeads)}, {&m.q, tokens * head * heads}, {&m.attended, tokens * head * heads},
		{&m.gateUp, tokens * inner * 4}, {&m.inner, tokens * inner * 2},
		{&m.given, pairs * hidden}, {&m.scores, tokens * int64(c.MoE.Experts) * 4},
		{&m.chosen, pairs * 4}, {&m.shares, pairs * 4}, {&m.plan, plan},
		{&m.lastSum, seqs * hidden}, {&m.lastX, seqs * hidden}, {&m.last, seqs * hidden},
		{&m.partial, int64(split.PartialBytes())},
	}}
	if r.first() {
		r.draws = newDraws(o.MaxSeqs, c.Vocab, r.info.TokenLimit)
		n.logits, n.chosen, n.draws = seqs*int64(c.Vocab)*4, seqs*4, r.draws.bytes()
	}
	if len(r.ranks) == 1 {
		return n
	}
	for i := range m.parts {
		n.work = append(n.work, buffer{&m.parts[i], tokens * hidden * 2})
	}
	n.work = append(n.work, buffer{&m.head, seqs * int64(r.weights.vocab.n) * 4})
	n.inbox = make([]int64, len(r.ranks))
	if r.first() {
		n.gather = seqs * 8
	}
	for i, o := range r.ranks {
		if r.device.reach || o == r {
			continue
		}
		n.inbox[i] = tokens * hidden * 2
		if r.first() {
			n.inbox[i] = max(n.inbox[i], seqs*int64(o.weights.vocab.n)*4)
		}
	}
	return n
}

// widest returns the largest number of columns of an MLP's activations, or of all experts
// of a token.
func (s *shard) widest() (n int) {
	for i := range s.layers {
		inner := s.layers[i].inner
		if s.config.Sparse(i) {
			inner *= s.config.MoE.Active
		}
		n = max(n, inner)
	}
	return n
}
