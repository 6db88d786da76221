package gpu

import (
	"math"
	"unsafe"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/model"
)

// activations are the addresses of what a pass computes, bf16 unless said.
type activations struct {
	sum      uint64 // [token][hidden]: the residual
	x        uint64 // [token][hidden]: what joins it
	normed   uint64 // [token][hidden]
	qkv      uint64 // [token][heads + 2 KV heads][head dim]
	q        uint64 // [token][heads][head dim]
	attended uint64 // [token][heads][head dim]
	gateUp   uint64 // [token][2 × FFN], or of each expert that a token has
	inner    uint64 // [token][FFN], the same
	given    uint64 // [token][active][hidden]: what its experts give
	// Of layers with experts.
	scores, chosen, shares, plan uint64 // float32 [token][experts], kernels.Experts
	// Rows that logits are wanted of.
	lastSum, lastX, last uint64 // [row][hidden]
	partial              uint64 // of split attention
}

// inputs is what a pass reads of the host: pinned memory that is copied to the device in
// one piece. The tables come last, and only as much of them is copied as there is.
type inputs struct {
	host   []byte
	device device.Region

	params                  field[byte]  // [row]: kernels.Sampling
	rows                    field[int64] // [row]: where the last tokens lie, in bytes
	packed                  field[int64] // [row]: where they are put
	ids, positions, slots   field[int32] // [token]
	lengths, starts, tables field[int32] // [sequence], [sequence + 1], [sequence][blocks]
}

// field is an array in the inputs, on the host and on the device.
type field[T byte | int32 | int64] struct {
	host    []T
	address uint64
}

// outputs is what a pass answers.
type outputs struct {
	logits, tokens device.Region // float32 [row][vocabulary], int32 [row]
	// Both on the host, pinned: as values and as memory.
	host     []float32
	chosen   []int32
	mem, ids []byte
}

// ropeTable has the cosines and sines of all positions, float32 [position][rotary / 2].
type ropeTable struct{ cos, sin uint64 }

const (
	globalRope = iota
	localRope
	numRopes
)

// allocate takes memory for everything but KV blocks.
func (b *Backend) allocate() error {
	c, o := b.weights.config, b.options
	tokens, seqs := int64(o.MaxTokens), int64(o.MaxSeqs)
	tableBlocks := int64(blocksOf(o.MaxContext, o.BlockSize))
	split := kernels.DecodeAttention{
		Attend: kernels.Attend{KV: kernels.KV{Shape: b.info.KV}, Sequences: int(seqs), QueryHeads: c.Heads}, MaxLength: o.MaxContext,
	}
	hidden, heads := int64(c.Hidden)*2, int64(c.HeadDim)*2
	pairs := tokens * int64(c.MoE.Active) // of tokens with experts
	inner := max(int64(c.FFN), int64(c.MoE.Active*c.MoE.FFN))
	var plan int64
	if c.MoE.Experts > 0 {
		e := kernels.Experts{Tokens: o.MaxTokens, Count: c.MoE.Experts, Active: c.MoE.Active}
		plan = int64(e.PlanBytes())
	}
	work := []struct {
		address *uint64
		bytes   int64
	}{
		{&b.memory.sum, tokens * hidden}, {&b.memory.x, tokens * hidden}, {&b.memory.normed, tokens * hidden},
		{&b.memory.qkv, tokens * heads * int64(c.Heads+2*c.KVHeads)},
		{&b.memory.q, tokens * heads * int64(c.Heads)}, {&b.memory.attended, tokens * heads * int64(c.Heads)},
		{&b.memory.gateUp, tokens * inner * 4}, {&b.memory.inner, tokens * inner * 2},
		{&b.memory.given, pairs * hidden}, {&b.memory.scores, tokens * int64(c.MoE.Experts) * 4},
		{&b.memory.chosen, pairs * 4}, {&b.memory.shares, pairs * 4}, {&b.memory.plan, plan},
		{&b.memory.lastSum, seqs * hidden}, {&b.memory.lastX, seqs * hidden}, {&b.memory.last, seqs * hidden},
		{&b.memory.partial, int64(split.PartialBytes())},
	}
	var workspace int64
	for _, w := range work {
		workspace += device.Aligned(w.bytes)
	}
	logits, chosen := seqs*int64(c.Vocab)*4, seqs*4
	inputs := inputBytes(tokens, seqs, seqs*tableBlocks)
	ropes := b.ropeBytes()
	b.device.planning.Lock()
	defer b.device.planning.Unlock()
	_, err := b.device.fit(device.Plan{
		Workspace: workspace, IO: device.Aligned(logits) + device.Aligned(chosen) + device.Aligned(inputs) + ropes, BlockBytes: b.info.KV.BlockBytes(), MinBlocks: int(tableBlocks),
	})
	if err != nil {
		return err
	}
	arena, err := b.scope.Arena(device.Workspace, workspace)
	if err != nil {
		return err
	}
	for _, w := range work {
		if w.bytes == 0 {
			continue
		}
		r, err := arena.Take(w.bytes)
		if err != nil {
			return err
		}
		*w.address = r.Address
	}
	io, err := b.allocateIO(logits, chosen, inputs, ropes)
	if err != nil {
		return err
	}
	b.in.cut(tokens, seqs, seqs*tableBlocks)
	return b.allocateRopes(io)
}

// allocateIO takes the memory that the host and the device exchange, and that of ropes.
func (b *Backend) allocateIO(logits, chosen, inputs, ropes int64) (*device.Arena, error) {
	shared := device.Aligned(logits) + device.Aligned(chosen) + device.Aligned(inputs)
	io, err := b.scope.Arena(device.IO, shared+ropes)
	if err != nil {
		return nil, err
	}
	pinned, err := b.scope.Pinned(device.IO, shared)
	if err != nil {
		return nil, err
	}
	if b.out.logits, err = io.Take(logits); err != nil {
		return nil, err
	}
	if b.out.tokens, err = io.Take(chosen); err != nil {
		return nil, err
	}
	if b.in.device, err = io.Take(inputs); err != nil {
		return nil, err
	}
	if b.out.mem, err = pinned.Take(logits); err != nil {
		return nil, err
	}
	if b.out.ids, err = pinned.Take(chosen); err != nil {
		return nil, err
	}
	b.out.host, b.out.chosen = values[float32](b.out.mem), values[int32](b.out.ids)
	b.in.host, err = pinned.Take(inputs)
	return io, err
}

// inputBytes is the size of inputs.
func inputBytes(tokens, seqs, tables int64) int64 {
	return kernels.SamplingBytes*seqs + 8*2*seqs + 4*(3*tokens+2*seqs+1+tables)
}

// cut gives every field its part of the memory.
func (in *inputs) cut(tokens, seqs, tables int64) {
	at := int64(0)
	in.params, at = cut[byte](in, at, kernels.SamplingBytes*seqs)
	in.rows, at = cut[int64](in, at, seqs)
	in.packed, at = cut[int64](in, at, seqs)
	in.ids, at = cut[int32](in, at, tokens)
	in.positions, at = cut[int32](in, at, tokens)
	in.slots, at = cut[int32](in, at, tokens)
	in.lengths, at = cut[int32](in, at, seqs)
	in.starts, at = cut[int32](in, at, seqs+1)
	in.tables, _ = cut[int32](in, at, tables)
}

// cut is the field of n values that begins at an offset, and where it ends.
func cut[T byte | int32 | int64](in *inputs, at, n int64) (field[T], int64) {
	var zero T
	end := at + n*int64(unsafe.Sizeof(zero))
	return field[T]{values[T](in.host[at:end:end]), in.device.Address + uint64(at)}, end
}

// values views memory that is aligned to them.
func values[T any](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// rope is the rotation of layers of a kind; none where no layer has it.
func (b *Backend) rope(kind int) *model.RoPE {
	if kind == localRope {
		return b.weights.config.LocalRoPE
	}
	return &b.weights.config.RoPE
}

func (b *Backend) ropeBytes() (n int64) {
	for kind := range numRopes {
		if b.rope(kind) != nil {
			n += 2 * device.Aligned(int64(b.options.MaxContext)*int64(b.weights.config.Rotary()/2)*4)
		}
	}
	return n
}

// allocateRopes computes the tables. Angles are those of the CPU engine.
func (b *Backend) allocateRopes(io *device.Arena) error {
	half := b.weights.config.Rotary() / 2
	if half == 0 {
		return nil
	}
	size := int64(b.options.MaxContext) * int64(half) * 4
	for kind := range numRopes {
		r := b.rope(kind)
		if r == nil {
			continue
		}
		cos, err := io.Take(size)
		if err != nil {
			return err
		}
		sin, err := io.Take(size)
		if err != nil {
			return err
		}
		b.ropes[kind] = ropeTable{cos.Address, sin.Address}
		freq := r.InvFreq(b.weights.config.Rotary(), b.options.MaxContext)
		if err := b.uploadRopes(cos, sin, freq, r.Attention); err != nil {
			return err
		}
	}
	return nil
}

// uploadRopes fills both tables, through the memory that logits will come to.
func (b *Backend) uploadRopes(cos, sin device.Region, freq []float32, factor float64) error {
	const row = 4
	chunk := len(b.out.host) / 2 / len(freq) // positions
	for from := 0; from < b.options.MaxContext; from += chunk {
		n := min(chunk, b.options.MaxContext-from)
		c, s := b.out.host[:n*len(freq)], b.out.host[n*len(freq):][:n*len(freq)]
		for p := range n {
			for i, f := range freq {
				sine, cosine := math.Sincos(float64(float32(from+p) * f))
				c[p*len(freq)+i], s[p*len(freq)+i] = float32(cosine*factor), float32(sine*factor)
			}
		}
		at, bytes := int64(from*len(freq)*row), int64(n*len(freq)*row)
		l := &b.normal
		for _, put := range []func() error{
			func() error { return l.stream.Upload(cos.Slice(at, bytes), b.out.mem[:bytes]) },
			func() error { return l.stream.Upload(sin.Slice(at, bytes), b.out.mem[bytes:2*bytes]) },
			func() error { return l.stream.Record(l.end) },
			func() error { return b.wait(l) },
		} {
			if err := put(); err != nil {
				return err
			}
		}
	}
	return nil
}
