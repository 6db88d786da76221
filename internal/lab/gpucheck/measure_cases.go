package gpucheck

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/kvlayout"
)

func measureCases() (all []Case) {
	add := func(name string, prepare func(j *job) work) {
		all = append(all, Case{Name: name, run: func(ctx context.Context, r *rig) (finding, error) { return r.job(ctx, prepare) }})
	}
	for _, s := range shapes {
		for i, p := range s.products() {
			for _, tokens := range p.tokenCounts() {
				if tokens <= kernels.MaxGEMV {
					add(fmt.Sprintf("gemv/%s/%s/tokens=%d", s.name, p.name, tokens), func(j *job) work { return j.product(s, i, tokens, j.q.GEMV) })
				}
				add(gemmName(s, p, tokens), func(j *job) work { return j.product(s, i, tokens, j.q.GEMM) })
				if tokens > 64 && !p.wide { // where compute capability 9.0 has kernels of its own
					add("portable-"+gemmName(s, p, tokens), func(j *job) work { return j.product(s, i, tokens, j.q.Tune(kernels.Tuning{Portable: true}).GEMM) })
				}
				add(cublasName(gemmName(s, p, tokens)), func(j *job) work { return j.product(s, i, tokens, j.cublasLtGEMM) })
			}
		}
		for _, context := range contexts {
			for _, n := range batches {
				add(decodeName(s, context, n), func(j *job) work { return j.decode(s, context, n) })
			}
		}
		for _, n := range prompts {
			add(prefillName(s, n), func(j *job) work { return j.prefill(s, n) })
		}
		for _, rows := range rowCounts {
			of := fmt.Sprintf("/%s/rows=%d", s.name, rows)
			add("norm"+of, func(j *job) work { return j.norm(s, rows) })
			add("rope"+of, func(j *job) work { return j.rope(s, rows) })
			add("glu"+of, func(j *job) work { return j.glu(s, rows) })
			add("embed"+of, func(j *job) work { return j.embed(s, rows) })
			add("ranks"+of, func(j *job) work { return j.ranks(s, rows) })
		}
		for _, n := range prompts {
			add(fmt.Sprintf("gated/%s/tokens=%d", s.name, n), func(j *job) work { return j.gated(s, n) })
		}
	}
	for _, t := range eightBits {
		for i, p := range shapes[0].products() {
			for _, tokens := range fewTokenCounts {
				of := fmt.Sprintf("-%s/%s/%s/tokens=%d", t.name, shapes[0].name, p.name, tokens)
				if tokens <= kernels.MaxGEMV {
					add("gemv"+of, func(j *job) work { return j.typed(shapes[0], i, tokens, t.kind, j.q.GEMV) })
				} else if !p.wide || tokens <= maxLogitTokens {
					add("gemm"+of, func(j *job) work { return j.typed(shapes[0], i, tokens, t.kind, j.q.GEMM) })
				}
			}
		}
	}
	for _, tokens := range fewTokenCounts {
		of := fmt.Sprintf("/%s/tokens=%d", expertShape.name, tokens)
		add("route"+of, func(j *job) work { return j.route(tokens) })
		add("experts"+of, func(j *job) work { return j.experts(tokens) })
	}
	for _, n := range sampledBatches {
		add(fmt.Sprintf("sample/greedy/rows=%d", n), func(j *job) work { return j.sample(shapes[0], n, kernels.Sampling{Repetition: 1}) })
		add(fmt.Sprintf("sample/top-k-p/rows=%d", n), func(j *job) work {
			return j.sample(shapes[0], n, kernels.Sampling{Temperature: 1, TopK: 50, TopP: 0.95, Repetition: 1})
		})
	}
	add("copy/blocks=32", func(j *job) work { return j.copies(32, 8<<20) })
	return all
}

func (j *job) product(s shape, i, tokens int, run func(o kernels.MatMul) error) work {
	return j.typed(s, i, tokens, kernels.BF16, run)
}

// gated is the product with gates and what they gate, and what comes of both.
func (j *job) gated(s shape, tokens int) work {
	s, tokens = j.model(s), j.n(tokens)
	o := kernels.GatedMatMul{
		MatMul: kernels.MatMul{Out: j.out(4 * tokens * s.inner), X: j.in(2 * tokens * s.hidden), Tokens: tokens, Rows: 2 * s.inner, In: s.hidden},
		Gated:  j.out(2 * tokens * s.inner),
	}
	matrix := 4 * s.inner * s.hidden
	_ = j.address(j.matrix(matrix, 0)) // there is room
	return work{
		op: func(i int) (err error) {
			o := o
			if o.W, err = j.matrix(matrix, i); err != nil {
				return err
			}
			return j.q.GatedGEMM(o)
		},
		bytes:      float64(matrix) + float64(2*tokens*(s.hidden+s.inner)),
		operations: 4 * float64(tokens) * float64(s.inner) * float64(s.hidden),
	}
}

// typed is a product with weights of a type. Their scales are those of the first matrix.
func (j *job) typed(s shape, i, tokens int, t kernels.WeightType, run func(o kernels.MatMul) error) work {
	p := j.model(s).products()[i]
	tokens = j.n(tokens)
	size := 2
	if p.wide {
		size = 4
	}
	o := kernels.MatMul{Out: j.out(tokens * p.rows * size), X: j.in(2 * tokens * p.in), Tokens: tokens, Rows: p.rows, In: p.in, Wide: p.wide, Type: t}
	weights, scales := t.Bytes(p.rows, p.in)
	matrix := int(weights+255) &^ 255
	_ = j.address(j.matrix(matrix, 0)) // there is room
	if scales > 0 {
		o.Scales = j.address(j.matrix(int(scales), 0))
	}
	return work{
		op: func(i int) (err error) {
			o := o
			if o.W, err = j.matrix(matrix, i); err != nil {
				return err
			}
			return run(o)
		},
		bytes:      float64(weights+scales) + float64(2*tokens*p.in+size*tokens*p.rows),
		operations: 2 * float64(tokens) * float64(p.rows) * float64(p.in),
	}
}

// cache makes tables over all KV memory, in blocks of several layers in random order, for
// sequences of the same length. There are as many layers as fit, so that iterations find
// other memory.
func (j *job) cache(s shape, sequences, length int) (kernels.Attend, int) {
	perSequence := (length + kvBlock - 1) / kvBlock
	shape := kvlayout.Shape{Layers: 1, KVHeads: s.kvHeads, HeadDim: s.headDim, BlockSize: kvBlock, DType: "bf16"}
	layer := shape.BlockBytes() * int64(sequences*perSequence)
	pool := j.address(j.random.weights(layer, 0))
	if j.err != nil {
		return kernels.Attend{}, 1
	}
	shape.Layers = int(min(int64(s.layers), j.random.room()/layer))
	tables := make([]int32, sequences*perSequence)
	for i, block := range rand.New(rand.NewPCG(3, 4)).Perm(len(tables)) {
		tables[i] = int32(block)
	}
	lengths := make([]int32, sequences)
	for i := range lengths {
		lengths[i] = int32(length)
	}
	return kernels.Attend{
		KV: kernels.KV{Pool: pool, Shape: shape}, Tables: j.ints(tables), Lengths: j.ints(lengths),
		Sequences: sequences, TableBlocks: perSequence, QueryHeads: s.heads, Scale: float32(1 / math.Sqrt(float64(s.headDim))),
	}, shape.Layers
}

func (j *job) decode(s shape, length, sequences int) work {
	s, sequences = j.model(s), j.n(sequences)
	if j.spec.Small {
		length = length/64 + 3
	}
	a, layers := j.cache(s, sequences, length)
	row := 2 * s.heads * s.headDim
	a.Out, a.Q = j.out(sequences*row), j.in(sequences*row)
	o := kernels.DecodeAttention{Attend: a, MaxLength: length}
	if n := o.PartialBytes(); n > 0 && j.err == nil {
		o.Partial = j.out(n)
	}
	return work{
		op: func(i int) error {
			o := o
			o.KV.Layer = i % layers
			return j.q.DecodeAttention(o)
		},
		bytes:      float64(sequences) * (float64(length)*float64(2*2*s.kvHeads*s.headDim) + float64(2*row)),
		operations: 4 * float64(sequences) * float64(length) * float64(s.heads*s.headDim),
	}
}

func (j *job) prefill(s shape, tokens int) work {
	s = j.model(s)
	if j.spec.Small {
		tokens = tokens/256 + 3
	}
	a, layers := j.cache(s, 1, tokens)
	row := 2 * s.heads * s.headDim
	a.Out, a.Q = j.out(tokens*row), j.in(tokens*row)
	o := kernels.PrefillAttention{Attend: a, Starts: j.ints([]int32{0, int32(tokens)}), MaxTokens: tokens}
	return work{
		op: func(i int) error {
			o := o
			o.KV.Layer = i % layers
			return j.q.PrefillAttention(o)
		},
		bytes:      float64(tokens) * float64(2*2*s.kvHeads*s.headDim+2*row),
		operations: 4 * float64(tokens) * float64(tokens+1) / 2 * float64(s.heads*s.headDim), // a token sees itself and those before
	}
}

func (j *job) norm(s shape, rows int) work {
	s, rows = j.model(s), j.n(rows)
	n := 2 * rows * s.hidden
	o := kernels.Norm{Out: j.out(n), X: j.in(n), Residual: j.out(n), Weight: j.address(j.matrix(2*s.hidden, 0)), Rows: rows, Hidden: s.hidden, Eps: 1e-6}
	return work{op: func(int) error { return j.q.RMSNorm(o) }, bytes: float64(4 * n)}
}

// ranks adds up the parts of two ranks on one device.
func (j *job) ranks(s shape, rows int) work {
	s, rows = j.model(s), j.n(rows)
	n := rows * s.hidden
	o := kernels.SumRanks{Sums: []uint64{j.out(2 * n)}, Parts: []uint64{j.in(4 * n), j.out(4 * n)}, Count: n}
	return work{op: func(int) error { return j.q.SumRanks(o) }, bytes: float64(10 * n)}
}

func (j *job) glu(s shape, rows int) work {
	s, rows = j.model(s), j.n(rows)
	n := 2 * rows * s.inner
	o := kernels.GLU{Out: j.out(n), In: j.in(2 * n), Tokens: rows, Inner: s.inner, Act: kernels.SiLU}
	return work{op: func(int) error { return j.q.GLU(o) }, bytes: float64(3 * n)}
}

func (j *job) embed(s shape, rows int) work {
	s, rows = j.model(s), j.n(rows)
	ids := make([]int32, rows)
	for i := range ids {
		ids[i] = int32(i * 7919 % s.vocab)
	}
	n := 2 * rows * s.hidden
	o := kernels.Embed{Out: j.out(n), Table: j.address(j.matrix(2*s.vocab*s.hidden, 0)), IDs: j.ints(ids), Tokens: rows, Hidden: s.hidden, Rows: s.vocab, Scale: 1}
	return work{op: func(int) error { return j.q.Embed(o) }, bytes: float64(2 * n)}
}

func (j *job) rope(s shape, rows int) work {
	s, rows = j.model(s), j.n(rows)
	shape := kvlayout.Shape{Layers: 1, KVHeads: s.kvHeads, HeadDim: s.headDim, BlockSize: kvBlock, DType: "bf16"}
	blocks := (rows + kvBlock - 1) / kvBlock
	positions, slots := make([]int32, rows), make([]int32, rows)
	for i := range rows {
		positions[i], slots[i] = int32(i), int32(i)
	}
	var cos, sin []byte
	for i := range rows * s.headDim / 2 {
		cos = binary.LittleEndian.AppendUint32(cos, math.Float32bits(float32(math.Cos(float64(i)))))
		sin = binary.LittleEndian.AppendUint32(sin, math.Float32bits(float32(math.Sin(float64(i)))))
	}
	queries, all := rows*s.heads*s.headDim, rows*(s.heads+2*s.kvHeads)*s.headDim
	o := kernels.RopeAppend{
		Q: j.out(2 * queries), QKV: j.in(2 * all), KV: kernels.KV{Pool: j.out(blocks * int(shape.BlockBytes())), Shape: shape},
		Cosines: j.sent(cos), Sines: j.sent(sin), Positions: j.ints(positions), Slots: j.ints(slots),
		Tokens: rows, QueryHeads: s.heads, Rotary: s.headDim, Eps: 1e-6,
	}
	if s.norm {
		o.QWeight = j.address(j.matrix(2*s.headDim, 0))
		o.KWeight = o.QWeight
	}
	return work{op: func(int) error { return j.q.RopeAppend(o) }, bytes: float64(2 * 2 * all)}
}

func (j *job) sample(s shape, rows int, p kernels.Sampling) work {
	s, rows = j.model(s), j.n(rows)
	var params []byte
	for i := range rows {
		p.Seed = uint64(i)
		params = p.Append(params)
	}
	o := kernels.Sample{
		Out: j.out(4 * rows), Logits: j.in(4 * rows * s.vocab), Params: j.sent(params), Rows: rows, Vocab: s.vocab, Limit: s.vocab,
	}
	return work{op: func(int) error { return j.q.Sample(o) }, bytes: float64(4 * rows * s.vocab)}
}

// copies moves KV blocks from random places to others.
func (j *job) copies(pieces, bytes int) work {
	if j.spec.Small {
		bytes = 4096
	}
	offsets := func(seed uint64) []byte {
		var b []byte
		for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(pieces) {
			b = binary.LittleEndian.AppendUint64(b, uint64(i*bytes))
		}
		return b
	}
	o := kernels.Copy{
		To: j.out(pieces * bytes), From: j.address(j.matrix(pieces*bytes, 0)), ToOffsets: j.sent(offsets(1)), FromOffsets: j.sent(offsets(2)), Pieces: pieces, Bytes: bytes,
	}
	return work{op: func(int) error { return j.q.Copy(o) }, bytes: 2 * float64(pieces*bytes)}
}
