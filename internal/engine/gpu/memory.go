package gpu

import (
	"context"
	"errors"
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
	gateUp   uint64 // [token][2 × columns of the MLP], or of each expert that a token has
	inner    uint64 // [token][columns of the MLP], the same
	given    uint64 // [token][active][hidden]: what its experts give
	// Of groups: what the rank adds to x after attention and after the MLP, and its logits.
	parts [numSums]uint64 // float32 [token][hidden]
	head  uint64          // float32 [row][share of the vocabulary]
	// Of groups that do not reach each other's memory: copies of the others' parts, or logits.
	inbox []device.Region // by rank
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

	rows                    field[int64] // [row]: where the last tokens lie, in bytes
	packed                  field[int64] // [row]: where they are put
	ids, positions, slots   field[int32] // [token]
	lengths, starts, tables field[int32] // [sequence], [sequence + 1], [sequence][blocks]
}

// field is an array in the inputs, on the host and on the device.
type field[T int32 | int64] struct {
	host    []T
	address uint64
}

// outputs is what a pass answers, on the first rank.
type outputs struct {
	to, from       []uint64      // int64 [row], by rank: where the rows of its logits are put, and where they lie, in bytes
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

// needs is the memory of a rank beside weights and KV blocks.
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

// exchanged is the memory of the device that the host reads or writes.
func (n *needs) exchanged() int64 {
	return device.Aligned(n.logits) + device.Aligned(n.chosen) + device.Aligned(n.inputs) + device.Aligned(n.draws)
}

// io is that, and what is written once.
func (n *needs) io() int64 {
	return n.exchanged() + n.ropes + 2*int64(len(n.inbox))*device.Aligned(n.gather)
}

// buffer is a part of the workspace.
type buffer struct {
	address *uint64
	bytes   int64
}

// needs says what a rank must have for the largest pass.
func (r *rank) needs() needs {
	c, o, m := r.weights.config, r.options, &r.memory
	tokens, seqs := int64(o.MaxTokens), int64(o.MaxSeqs)
	tables := seqs * int64(blocksOf(o.MaxContext, o.BlockSize))
	split := kernels.DecodeAttention{
		Attend: kernels.Attend{KV: kernels.KV{Shape: r.shape}, Sequences: int(seqs), QueryHeads: r.weights.heads}, MaxLength: o.MaxContext,
	}
	hidden, head := int64(c.Hidden)*2, int64(c.HeadDim)*2
	heads, kvHeads := int64(r.weights.heads), int64(r.weights.kvHeads)
	pairs := tokens * int64(c.MoE.Active) // of tokens with experts
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

// widest is how many columns the activations of MLPs have at most, or of all experts of a
// token.
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

// allocate takes memory for everything but KV blocks, of all ranks.
func (b *Backend) allocate() error {
	all := make([]needs, len(b.ranks))
	for i, r := range b.ranks {
		all[i] = r.needs()
	}
	context := blocksOf(b.options.MaxContext, b.options.BlockSize)
	b.device.planning.Lock()
	defer b.device.planning.Unlock()
	_, err := b.device.fit(func(rank int) device.Plan {
		return device.Plan{Workspace: all[rank].workspace(), IO: all[rank].io(), BlockBytes: b.ranks[rank].shape.BlockBytes(), MinBlocks: context}
	})
	if err != nil {
		return err
	}
	for i, r := range b.ranks {
		if err := r.allocate(&all[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *rank) allocate(n *needs) error {
	arena, err := r.scope.Arena(device.Workspace, n.workspace())
	if err != nil {
		return err
	}
	take := func(bytes int64) (region device.Region) {
		if bytes > 0 && err == nil {
			region, err = arena.Take(bytes)
		}
		return region
	}
	for _, w := range n.work {
		*w.address = take(w.bytes).Address
	}
	for _, bytes := range n.inbox {
		r.memory.inbox = append(r.memory.inbox, take(bytes))
	}
	if err != nil {
		return err
	}
	io, err := r.allocateIO(n)
	if err != nil {
		return err
	}
	tokens, seqs := int64(r.options.MaxTokens), int64(r.options.MaxSeqs)
	r.in.cut(tokens, seqs, seqs*int64(blocksOf(r.options.MaxContext, r.options.BlockSize)))
	if err := r.allocateRopes(io); err != nil {
		return err
	}
	return r.allocateGather(io, n)
}

// allocateIO takes the memory that the host and the device exchange, and that of tables. The
// memory of the host is that of the first rank: all read the same inputs.
func (r *rank) allocateIO(n *needs) (*device.Arena, error) {
	io, err := r.scope.Arena(device.IO, n.io())
	if err != nil {
		return nil, err
	}
	if !r.first() {
		r.in.host = r.ranks[0].in.host
		r.in.device, err = io.Take(n.inputs)
		return io, err
	}
	pinned, err := r.scope.Pinned(device.IO, n.exchanged())
	if err != nil {
		return nil, err
	}
	if r.out.logits, err = io.Take(n.logits); err != nil {
		return nil, err
	}
	if r.out.tokens, err = io.Take(n.chosen); err != nil {
		return nil, err
	}
	if r.in.device, err = io.Take(n.inputs); err != nil {
		return nil, err
	}
	if r.out.mem, err = pinned.Take(n.logits); err != nil {
		return nil, err
	}
	if r.out.ids, err = pinned.Take(n.chosen); err != nil {
		return nil, err
	}
	if r.draws.device, err = io.Take(n.draws); err != nil {
		return nil, err
	}
	if r.draws.host, err = pinned.Take(n.draws); err != nil {
		return nil, err
	}
	r.out.host, r.out.chosen = values[float32](r.out.mem), values[int32](r.out.ids)
	r.in.host, err = pinned.Take(n.inputs)
	return io, err
}

// allocateGather writes down where the rows of each rank's logits go.
func (r *rank) allocateGather(io *device.Arena, n *needs) error {
	if n.gather == 0 {
		return nil
	}
	offsets := values[int64](r.out.mem[:n.gather])
	for _, o := range r.ranks {
		for i, width := range [2]int{r.weights.config.Vocab, o.weights.vocab.n} {
			region, err := io.Take(n.gather)
			if err != nil {
				return err
			}
			for row := range offsets {
				offsets[row] = int64(row) * int64(width) * 4
			}
			if err := r.put(region, r.out.mem[:n.gather]); err != nil {
				return err
			}
			if i == 0 {
				r.out.to = append(r.out.to, region.Address)
			} else {
				r.out.from = append(r.out.from, region.Address)
			}
		}
	}
	return nil
}

// put copies pinned memory to the device, and waits until that has ended.
func (r *rank) put(to device.Region, from []byte) error {
	l := &r.lanes[normal]
	if err := errors.Join(l.stream.Upload(to, from), l.stream.Record(l.end)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), hang, errHang)
	defer cancel()
	return l.end.Wait(ctx)
}

// inputBytes is the size of inputs.
func inputBytes(tokens, seqs, tables int64) int64 {
	return 8*2*seqs + 4*(3*tokens+2*seqs+1+tables)
}

// cut gives every field its part of the memory.
func (in *inputs) cut(tokens, seqs, tables int64) {
	at := int64(0)
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
func cut[T int32 | int64](in *inputs, at, n int64) (field[T], int64) {
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

func (r *rank) ropeBytes() (n int64) {
	for kind := range numRopes {
		if r.rope(kind) != nil {
			n += 2 * device.Aligned(int64(r.options.MaxContext)*int64(r.weights.config.Rotary()/2)*4)
		}
	}
	return n
}

// allocateRopes computes the tables. Angles are those of the CPU engine.
func (r *rank) allocateRopes(io *device.Arena) error {
	half := r.weights.config.Rotary() / 2
	if half == 0 {
		return nil
	}
	size := int64(r.options.MaxContext) * int64(half) * 4
	for kind := range numRopes {
		rope := r.rope(kind)
		if rope == nil {
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
		r.ropes[kind] = ropeTable{cos.Address, sin.Address}
		freq := rope.InvFreq(r.weights.config.Rotary(), r.options.MaxContext)
		if err := r.uploadRopes(cos, sin, freq, rope.Attention); err != nil {
			return err
		}
	}
	return nil
}

// uploadRopes fills both tables, through the memory that logits will come to.
func (r *rank) uploadRopes(cos, sin device.Region, freq []float32, factor float64) error {
	const row = 4
	stage := &r.ranks[0].out
	chunk := len(stage.host) / 2 / len(freq) // positions
	for from := 0; from < r.options.MaxContext; from += chunk {
		n := min(chunk, r.options.MaxContext-from)
		c, s := stage.host[:n*len(freq)], stage.host[n*len(freq):][:n*len(freq)]
		for p := range n {
			for i, f := range freq {
				sine, cosine := math.Sincos(float64(float32(from+p) * f))
				c[p*len(freq)+i], s[p*len(freq)+i] = float32(cosine*factor), float32(sine*factor)
			}
		}
		at, bytes := int64(from*len(freq)*row), int64(n*len(freq)*row)
		if err := r.put(cos.Slice(at, bytes), stage.mem[:bytes]); err != nil {
			return err
		}
		if err := r.put(sin.Slice(at, bytes), stage.mem[bytes:2*bytes]); err != nil {
			return err
		}
	}
	return nil
}
