package kernels_test

import (
	"encoding/binary"
	"math"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/model"
)

// modelRun is a model of the Llama family with norms of heads on a device.
type modelRun struct {
	*lab
	q                                 *kernels.Queue
	c                                 model.Config
	embed, head                       modelMatrix
	layers                            []modelLayer
	finalNorm, cos, sin, pool, tables uint64
	shape                             kvlayout.Shape
	blocks                            []byte // of the pool
}

// modelLayer has matrices of all experts in gateUp and down where it has a router.
type modelLayer struct {
	attnNorm, qNorm, kNorm, mlpNorm uint64
	qkv, o, router, gateUp, down    modelMatrix
}

// modelMatrix is weights on the device.
type modelMatrix struct {
	at, scales uint64
	kind       kernels.WeightType
}

// matrix copies tensors to the device, one below the other.
func (l *lab) matrix(tensors ...model.Tensor) (m modelMatrix) {
	l.Helper()
	var weights, scales []byte
	for _, t := range tensors {
		switch t.DType {
		case "BF16":
			weights = append(weights, t.Data...)
		case "Q8_0":
			m.kind = kernels.Q8_0
			in := t.Shape[1]
			size, scaleSize := m.kind.Bytes(t.Shape[0], in)
			w, s := make([]byte, size), make([]byte, scaleSize)
			l.must(kernels.SplitQ8_0(w, s, t.Data, in))
			weights, scales = append(weights, w...), append(scales, s...)
		}
		if t.DType != tensors[0].DType || len(weights) == 0 {
			l.Fatalf("tensor %s is %s", t.Name, t.DType)
		}
	}
	m.at = l.Bytes(weights)
	if len(scales) > 0 {
		m.scales = l.Bytes(scales)
	}
	return m
}

func newModelRun(l *lab, m *model.Model) *modelRun {
	l.Helper()
	c := m.Config()
	// Weights of several roles are one matrix, one below the other, and so are those of experts.
	weights := func(layer, experts int, roles ...model.Role) modelMatrix {
		var all []model.Tensor
		for e := range experts {
			for _, role := range roles {
				w, ok := m.Expert(role, layer, e)
				if !ok {
					l.Fatalf("no weights %d of expert %d of layer %d", role, e, layer)
				}
				all = append(all, w)
			}
		}
		return l.matrix(all...)
	}
	vector := func(layer int, role model.Role) uint64 { return weights(layer, 1, role).at }
	r := &modelRun{lab: l, q: l.device.queue(), c: c, embed: weights(0, 1, model.RoleEmbed), finalNorm: vector(0, model.RoleFinalNorm)}
	r.head = r.embed
	if !c.TiedHead {
		r.head = weights(0, 1, model.RoleHead)
	}
	for i := range c.Layers {
		layer := modelLayer{
			attnNorm: vector(i, model.RoleAttnNorm), qkv: weights(i, 1, model.RoleQ, model.RoleK, model.RoleV),
			qNorm: vector(i, model.RoleQNorm), kNorm: vector(i, model.RoleKNorm), o: weights(i, 1, model.RoleO),
			mlpNorm: vector(i, model.RoleMLPNorm),
		}
		if c.Sparse(i) {
			layer.router = weights(i, 1, model.RoleRouter)
			layer.gateUp = weights(i, c.MoE.Experts, model.RoleExpertGate, model.RoleExpertUp)
			layer.down = weights(i, c.MoE.Experts, model.RoleExpertDown)
		} else {
			layer.gateUp, layer.down = weights(i, 1, model.RoleGate, model.RoleUp), weights(i, 1, model.RoleDown)
		}
		r.layers = append(r.layers, layer)
	}
	var cos, sin []float32
	freq := c.RoPE.InvFreq(c.HeadDim, c.MaxContext)
	for p := range modelBlock * modelBlocks {
		for _, f := range freq {
			angle := float64(float32(p) * f)
			cos, sin = append(cos, float32(math.Cos(angle))), append(sin, float32(math.Sin(angle)))
		}
	}
	r.cos, r.sin = l.Float32s(cos...), l.Float32s(sin...)
	r.shape = kvlayout.Shape{Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim, BlockSize: modelBlock, DType: "bf16"}
	r.pool, r.blocks = l.Alloc(modelBlocks * int(r.shape.BlockBytes()))
	clear(r.blocks) // as the CPU engine's
	r.tables = l.Int32s(2, 0, 1)
	return r
}

// step computes tokens from position start on, and returns the logits after the last one
// with the token that the device chooses.
func (r *modelRun) step(tokens []uint32, start int) (logits []float32, token uint32) {
	r.Helper()
	c, n := r.c, len(tokens)
	var ids, positions, slots []int32
	for i, id := range tokens {
		p := start + i
		ids, positions = append(ids, int32(id)), append(positions, int32(p))
		slots = append(slots, []int32{2, 0, 1}[p/modelBlock]*modelBlock+int32(p%modelBlock))
	}
	room := func(values int) uint64 {
		address, _ := r.Alloc(2 * values)
		return address
	}
	multiply := func(o kernels.MatMul) {
		o.Tokens = n
		if n <= kernels.MaxGEMV {
			r.must(r.q.GEMV(o))
			return
		}
		r.must(r.q.GEMM(o))
	}
	product := func(out, x uint64, w modelMatrix, rows, in int) {
		multiply(kernels.MatMul{Out: out, X: x, W: w.at, Scales: w.scales, Type: w.kind, Rows: rows, In: in})
	}
	heads := c.Heads + 2*c.KVHeads
	x, normed := room(n*c.Hidden), room(n*c.Hidden)
	// The residual begins as zeros, to which the embedding is added.
	sum := r.Bytes(make([]byte, 2*n*c.Hidden))
	qkv, q, attended := room(n*heads*c.HeadDim), room(n*c.Heads*c.HeadDim), room(n*c.Heads*c.HeadDim)
	gateUp, inner := room(n*2*c.FFN), room(n*c.FFN)
	// Pairs of tokens and experts.
	pairs := n * c.MoE.Active
	e := kernels.Experts{Tokens: n, Count: c.MoE.Experts, Active: c.MoE.Active}
	var scores, expertGateUp, expertInner, given uint64
	if pairs > 0 {
		scores, expertGateUp, expertInner, given = room(2*n*e.Count), room(pairs*2*c.MoE.FFN), room(pairs*c.MoE.FFN), room(pairs*c.Hidden)
		e.Chosen, e.Shares, e.Plan = room(2*pairs), room(2*pairs), room(e.PlanBytes())
	}
	at, slot, lengths, starts := r.Int32s(positions...), r.Int32s(slots...), r.Int32s(int32(start+n)), r.Int32s(0, int32(n))
	norm := func(weight uint64) {
		r.must(r.q.RMSNorm(kernels.Norm{Out: normed, X: x, Weight: weight, Residual: sum, Rows: n, Hidden: c.Hidden, Eps: float32(c.NormEps)}))
	}
	r.must(r.q.Embed(kernels.Embed{Out: x, Table: r.embed.at, Scales: r.embed.scales, Type: r.embed.kind, IDs: r.Int32s(ids...), Tokens: n, Hidden: c.Hidden, Rows: c.Vocab, Scale: 1}))
	for i, l := range r.layers {
		kv := kernels.KV{Pool: r.pool, Shape: r.shape, Layer: i}
		norm(l.attnNorm)
		product(qkv, normed, l.qkv, heads*c.HeadDim, c.Hidden)
		r.must(r.q.RopeAppend(kernels.RopeAppend{
			Q: q, QKV: qkv, KV: kv, QWeight: l.qNorm, KWeight: l.kNorm, Cosines: r.cos, Sines: r.sin, Positions: at, Slots: slot,
			Tokens: n, QueryHeads: c.Heads, Rotary: c.Rotary(), Eps: float32(c.NormEps),
		}))
		attend := kernels.Attend{
			Out: attended, Q: q, KV: kv, Tables: r.tables, Lengths: lengths, Sequences: 1, TableBlocks: modelBlocks,
			QueryHeads: c.Heads, Scale: float32(c.ScoreScale()),
		}
		if n == 1 {
			r.must(r.q.DecodeAttention(kernels.DecodeAttention{Attend: attend, MaxLength: start + 1}))
		} else {
			r.must(r.q.PrefillAttention(kernels.PrefillAttention{Attend: attend, Starts: starts, MaxTokens: n}))
		}
		product(x, attended, l.o, c.Hidden, c.Heads*c.HeadDim)
		norm(l.mlpNorm)
		if l.router.at != 0 {
			multiply(kernels.MatMul{Out: scores, X: normed, W: l.router.at, Rows: e.Count, In: c.Hidden, Wide: true})
			r.must(r.q.Route(kernels.Route{Experts: e, Logits: scores, Normalize: c.MoE.Normalize}))
			r.must(r.q.ExpertMatMul(kernels.ExpertMatMul{Experts: e, Out: expertGateUp, X: normed, W: l.gateUp.at, Scales: l.gateUp.scales, Type: l.gateUp.kind, Rows: 2 * c.MoE.FFN, In: c.Hidden}))
			r.must(r.q.GLU(kernels.GLU{Out: expertInner, In: expertGateUp, Tokens: pairs, Inner: c.MoE.FFN, Act: kernels.SiLU}))
			r.must(r.q.ExpertMatMul(kernels.ExpertMatMul{Experts: e, Out: given, X: expertInner, W: l.down.at, Scales: l.down.scales, Type: l.down.kind, Rows: c.Hidden, In: c.MoE.FFN, Own: true}))
			r.must(r.q.Combine(kernels.Combine{Experts: e, Out: x, X: given, Hidden: c.Hidden}))
			continue
		}
		product(gateUp, normed, l.gateUp, 2*c.FFN, c.Hidden)
		r.must(r.q.GLU(kernels.GLU{Out: inner, In: gateUp, Tokens: n, Inner: c.FFN, Act: kernels.SiLU}))
		product(x, inner, l.down, c.Hidden, c.FFN)
	}
	norm(r.finalNorm)
	result, memory := r.Alloc(4 * c.Vocab)
	last := normed + uint64((n-1)*c.Hidden*2)
	r.must(r.q.GEMV(kernels.MatMul{Out: result, X: last, W: r.head.at, Scales: r.head.scales, Type: r.head.kind, Tokens: 1, Rows: c.Vocab, In: c.Hidden, Wide: true}))
	chosen, chosenMemory := r.Alloc(4)
	params := r.Bytes((&kernels.Sampling{Repetition: 1}).Append(nil))
	r.must(r.q.Sample(kernels.Sample{Out: chosen, Logits: result, Params: params, Rows: 1, Vocab: c.Vocab, Limit: c.Vocab}))
	r.device.finish()
	for i := range c.Vocab {
		logits = append(logits, math.Float32frombits(binary.LittleEndian.Uint32(memory[4*i:])))
	}
	return logits, binary.LittleEndian.Uint32(chosenMemory)
}
