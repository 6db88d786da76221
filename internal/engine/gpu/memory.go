package gpu

import (
	"context"
	"errors"
	"unsafe"

	"github.com/dynctl/dynctl/internal/cuda/device"
)

// activations holds the addresses of a pass's results, bf16 unless noted.
type activations struct {
	sum      uint64 // [token][hidden]: the residual
	x        uint64 // [token][hidden]: added to the residual next
	normed   uint64 // [token][hidden]
	qkv      uint64 // [token][heads + 2 KV heads][head dim]
	q        uint64 // [token][heads][head dim]
	attended uint64 // [token][heads][head dim]
	gateUp   uint64 // [token][2 × columns of the MLP], or of each expert of a token
	inner    uint64 // [token][columns of the MLP], the same
	given    uint64 // [token][active][hidden]: results of its experts
	// For groups: the rank's contributions to x after attention and after the MLP, and
	// its logits.
	parts [numSums]uint64 // float32 [token][hidden]
	head  uint64          // float32 [row][share of the vocabulary]
	// For groups that cannot reach each other's memory: copies of the others' parts, or
	// logits.
	inbox []device.Region // by rank
	// For layers with experts.
	scores, chosen, shares, plan uint64 // float32 [token][experts], kernels.Experts
	// For rows whose logits are requested.
	lastSum, lastX, last uint64 // [row][hidden]
	partial              uint64 // for split attention
}

// inputs holds the host's inputs to a pass: pinned memory that is copied to the device in
// one piece. The tables come last, and only their used part is copied.
type inputs struct {
	host   []byte
	device device.Region

	rows                    field[int64] // [row]: offsets of the last tokens, in bytes
	packed                  field[int64] // [row]: offsets of their destinations
	ids, positions, slots   field[int32] // [token]
	lengths, starts, tables field[int32] // [sequence], [sequence + 1], [sequence][blocks]
}

// field is an array in the inputs, on the host and on the device.
type field[T int32 | int64] struct {
	host    []T
	address uint64
}

// outputs holds a pass's results, on the first rank.
type outputs struct {
	to, from       []uint64      // int64 [row], by rank: offsets of the logits' destinations and sources, in bytes
	logits, tokens device.Region // float32 [row][vocabulary], int32 [row]
	// Both on the host, pinned: as values and as memory.
	host     []float32
	chosen   []int32
	mem, ids []byte
}

// allocate allocates everything but KV blocks, on all ranks.
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

// allocateIO allocates the memory that host and device exchange, and that of tables. The
// host's part belongs to the first rank, because all ranks read the same inputs.
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

// allocateGather records where the rows of each rank's logits go.
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

// put copies pinned memory to the device and waits for the copy.
func (r *rank) put(to device.Region, from []byte) error {
	l := &r.lanes[normal]
	if err := errors.Join(l.stream.Upload(to, from), l.stream.Record(l.end)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), hang, errHang)
	defer cancel()
	return l.end.Wait(ctx)
}

// inputBytes returns the size of inputs.
func inputBytes(tokens, seqs, tables int64) int64 {
	return 8*2*seqs + 4*(3*tokens+2*seqs+1+tables)
}

// cut assigns every field its part of the memory.
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

// cut returns the field of n values at an offset, and the offset of its end.
func cut[T int32 | int64](in *inputs, at, n int64) (field[T], int64) {
	var zero T
	end := at + n*int64(unsafe.Sizeof(zero))
	return field[T]{values[T](in.host[at:end:end]), in.device.Address + uint64(at)}, end
}

// values views memory as values; it must be aligned for them.
func values[T any](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}
