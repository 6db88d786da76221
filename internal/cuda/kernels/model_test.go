package kernels_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/cuda/kernels/kerneltest"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

const (
	modelBlock  = 16 // tokens of a KV block
	modelBlocks = 3
	modelSteps  = 3 // tokens that are generated
)

// TestModel computes small models of the Qwen3 family with all kernels, by the functions in Go and on the
// shim, and compares logits and KV blocks with those of the CPU engine, which knows
// nothing of kernels: a prompt in two chunks, then tokens one by one.
func TestModel(t *testing.T) {
	spec := modeltest.Spec{
		Family: "qwen3", Layers: 3, Hidden: 128, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 200, Vocab: 520, DType: "bf16", Tied: true, Seed: 11,
	}
	t.Run("dense", func(t *testing.T) { testModel(t, spec) })
	// With this seed no two experts are nearly equal for any token: where they are, roundings
	// choose another one than the CPU engine.
	spec.Seed = 13
	spec.Family, spec.Extra = "qwen3_moe", map[string]any{
		"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 72, "norm_topk_prob": true, "mlp_only_layers": []int{1},
	}
	t.Run("experts", func(t *testing.T) { testModel(t, spec) })
}

func testModel(t *testing.T, spec modeltest.Spec) {
	t.Helper()
	m := modeltest.Open(t, spec)
	prompt := make([]uint32, 19)
	for i := range prompt {
		prompt[i] = uint32(3 + i*i*37%500)
	}
	tokens, logits, blocks := onCPU(t, m, prompt)
	compute := func(t *testing.T, d device) {
		t.Helper()
		r := newModelRun(newLab(d, t.Name()), m)
		r.step(prompt[:12], 0)
		next, at := prompt[12:], 12
		for i := range modelSteps {
			got, token := r.step(next, at)
			sameValues(t, "logits", got, logits[i], 0.05)
			if best := largest(got); token != best {
				t.Fatalf("token %d is %d, and %d has the largest logit", i, token, best)
			}
			at += len(next)
			next = tokens[i : i+1]
		}
		// Blocks hold the same in the same places: they can be exchanged.
		sameValues(t, "KV blocks", widened(r.blocks), widened(blocks), 0.015)
	}
	t.Run("functions in Go", func(t *testing.T) { compute(t, newTwin(t)) })
	t.Run("shim", func(t *testing.T) { compute(t, newHostDevice(t, 5)) })
}

// largest is the index of the largest value, the first of several.
func largest(v []float32) (best uint32) {
	for i, x := range v {
		if x > v[best] {
			best = uint32(i)
		}
	}
	return best
}

// onCPU returns the tokens that the CPU engine chooses after a prompt, the logits of each
// choice, and the KV blocks in the end.
func onCPU(t *testing.T, m *model.Model, prompt []uint32) (tokens []uint32, logits [][]float32, blocks []byte) {
	t.Helper()
	d, err := cpu.OpenDevice("cpu:0", cpu.DeviceOptions{Cores: 1, ISA: "portable", Activations: "f32"}) // the same on all machines
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	b, err := w.NewBackend(cpu.Options{BlockSize: modelBlock, KVDType: cpu.KVBF16})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := b.AllocKV(modelBlocks)
	if err != nil {
		t.Fatal(err)
	}
	next, at := prompt, 0
	for range modelSteps {
		row := make([]float32, b.Info().VocabSize)
		if err := b.Step(t.Context(), []engine.BatchSeq{{Tokens: next, Start: at, Blocks: []int32{2, 0, 1}, Logits: row}}); err != nil {
			t.Fatal(err)
		}
		tokens, logits = append(tokens, largest(row)), append(logits, row)
		at += len(next)
		next = tokens[len(tokens)-1:]
	}
	blocks = bytes.Clone(pool[0].Bytes())
	for _, err := range []error{b.Close(), pool.Close(), w.Close(), d.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
	return tokens, logits, blocks
}

// sameValues compares what was computed with bf16 activations with what the CPU engine has,
// which rounds in other places. With weights that are noise, and rows that are short, the
// roundings of three layers come to 1 % of KV and 3 % of logits.
func sameValues(t *testing.T, what string, got, want []float32, limit float64) {
	t.Helper()
	var off, size float64
	for i, w := range want {
		off += math.Pow(float64(got[i]-w), 2)
		size += float64(w) * float64(w)
	}
	if share := math.Sqrt(off / size); !(share < limit) {
		t.Errorf("%s are off by %.2g of their size, more than %g", what, share, limit)
	}
}

// widened are values of bf16.
func widened(b []byte) []float32 {
	values := make([]float32, len(b)/2)
	for i := range values {
		values[i] = float32(kerneltest.BF16(binary.LittleEndian.Uint16(b[2*i:])).Float())
	}
	return values
}

// modelRun is a model of the Llama family with norms of heads on a device.
type modelRun struct {
	*lab
	q                      *kernels.Queue
	c                      model.Config
	embed, head, finalNorm uint64
	layers                 []modelLayer
	cos, sin, pool, tables uint64
	shape                  engine.KVShape
	blocks                 []byte // of the pool
}

// modelLayer has matrices of all experts in gateUp and down where it has a router.
type modelLayer struct{ attnNorm, qkv, qNorm, kNorm, o, mlpNorm, router, gateUp, down uint64 }

func newModelRun(l *lab, m *model.Model) *modelRun {
	l.Helper()
	c := m.Config()
	// Weights of several roles are one matrix, one below the other.
	weights := func(layer int, roles ...model.Role) uint64 {
		var all []byte
		for _, role := range roles {
			w, ok := m.Weight(role, layer)
			if !ok || w.DType != "BF16" {
				l.Fatalf("weights %d of layer %d are %q", role, layer, w.DType)
			}
			all = append(all, w.Data...)
		}
		return l.Bytes(all)
	}
	experts := func(layer int, roles ...model.Role) uint64 {
		var all []byte
		for e := range c.MoE.Experts {
			for _, role := range roles {
				w, ok := m.Expert(role, layer, e)
				if !ok || w.DType != "BF16" {
					l.Fatalf("weights %d of expert %d of layer %d are %q", role, e, layer, w.DType)
				}
				all = append(all, w.Data...)
			}
		}
		return l.Bytes(all)
	}
	r := &modelRun{lab: l, q: l.device.queue(), c: c, embed: weights(0, model.RoleEmbed), finalNorm: weights(0, model.RoleFinalNorm)}
	r.head = r.embed
	if !c.TiedHead {
		r.head = weights(0, model.RoleHead)
	}
	for i := range c.Layers {
		layer := modelLayer{
			attnNorm: weights(i, model.RoleAttnNorm), qkv: weights(i, model.RoleQ, model.RoleK, model.RoleV),
			qNorm: weights(i, model.RoleQNorm), kNorm: weights(i, model.RoleKNorm), o: weights(i, model.RoleO),
			mlpNorm: weights(i, model.RoleMLPNorm),
		}
		if c.Sparse(i) {
			layer.router = weights(i, model.RoleRouter)
			layer.gateUp, layer.down = experts(i, model.RoleExpertGate, model.RoleExpertUp), experts(i, model.RoleExpertDown)
		} else {
			layer.gateUp, layer.down = weights(i, model.RoleGate, model.RoleUp), weights(i, model.RoleDown)
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
	r.shape = engine.KVShape{Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim, BlockSize: modelBlock, DType: "bf16"}
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
	product := func(out, x, w uint64, rows, in int) {
		multiply(kernels.MatMul{Out: out, X: x, W: w, Rows: rows, In: in})
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
	r.must(r.q.Embed(kernels.Embed{Out: x, Table: r.embed, IDs: r.Int32s(ids...), Tokens: n, Hidden: c.Hidden, Rows: c.Vocab, Scale: 1}))
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
		if l.router != 0 {
			multiply(kernels.MatMul{Out: scores, X: normed, W: l.router, Rows: e.Count, In: c.Hidden, Wide: true})
			r.must(r.q.Route(kernels.Route{Experts: e, Logits: scores, Normalize: c.MoE.Normalize}))
			r.must(r.q.ExpertMatMul(kernels.ExpertMatMul{Experts: e, Out: expertGateUp, X: normed, W: l.gateUp, Rows: 2 * c.MoE.FFN, In: c.Hidden}))
			r.must(r.q.GLU(kernels.GLU{Out: expertInner, In: expertGateUp, Tokens: pairs, Inner: c.MoE.FFN, Act: kernels.SiLU}))
			r.must(r.q.ExpertMatMul(kernels.ExpertMatMul{Experts: e, Out: given, X: expertInner, W: l.down, Rows: c.Hidden, In: c.MoE.FFN, Own: true}))
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
	r.must(r.q.GEMV(kernels.MatMul{Out: result, X: last, W: r.head, Tokens: 1, Rows: c.Vocab, In: c.Hidden, Wide: true}))
	chosen, chosenMemory := r.Alloc(4)
	params := r.Bytes((&kernels.Sampling{Repetition: 1}).Append(nil))
	r.must(r.q.Sample(kernels.Sample{Out: chosen, Logits: result, Params: params, Rows: 1, Vocab: c.Vocab, Limit: c.Vocab}))
	r.device.finish()
	for i := range c.Vocab {
		logits = append(logits, math.Float32frombits(binary.LittleEndian.Uint32(memory[4*i:])))
	}
	return logits, binary.LittleEndian.Uint32(chosenMemory)
}
