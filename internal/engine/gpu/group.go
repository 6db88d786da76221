package gpu

import (
	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// group is a pass that is being launched in the lanes of all ranks. It keeps the first
// error.
//
// Ranks wait for each other by events between their streams, and never inside kernels. So
// no wait can be endless: neither for a kernel without room on a GPU that another rank
// uses, nor for one behind another worker's, nor for memory that is being allocated or
// freed. Decode steps are one graph over all GPUs, in which the events are edges.
type group []*run

func (b *Backend) newGroup(lane int, s shape) group {
	g := make(group, len(b.ranks))
	for i, r := range b.ranks {
		l := &r.lanes[lane]
		g[i] = &run{rank: r, lane: l, q: l.queue, s: s}
	}
	return g
}

// prepare readies the host for passes with prompts of any size, which are not recorded.
func (b *Backend) prepare() error {
	g := b.newGroup(normal, shape{
		tokens: b.options.MaxTokens, several: 1, rows: b.options.MaxSeqs, longest: b.options.MaxContext, most: b.options.MaxTokens,
		tableBlocks: blocksOf(b.options.MaxContext, b.info.KV.BlockSize),
	})
	for _, r := range g {
		r.do(r.q.Prepare(func() error {
			for i := range b.weights.config.Layers {
				r.attend(&r.weights.layers[i], i)
				r.feed(&r.weights.layers[i], i)
			}
			r.head()
			return r.err
		}))
	}
	return g.err()
}

func (g group) first() *run { return g[0] }

func (g group) each(do func(r *run)) {
	for _, r := range g {
		do(r)
	}
}

func (g group) err() error {
	for _, r := range g {
		if r.err != nil {
			return r.err
		}
	}
	return nil
}

// The sums over ranks in a layer. Each sum has its own buffers for the ranks' parts.
// Before a rank overwrites a sum's parts, all ranks have read them, because they have met
// at the other sum in between.
const (
	afterAttention = iota
	afterMLP
	numSums
)

// joining returns where a rank's part of a sum is written, and whether as float32. With
// one rank that is x itself, in bf16.
func (r *run) joining(sum int) (out uint64, wide bool) {
	if len(r.ranks) == 1 {
		return r.memory.x, false
	}
	return r.memory.parts[sum], true
}

// arrive makes the first rank's stream wait for all work launched so far on all ranks.
func (g group) arrive() {
	first := g.first()
	for _, r := range g[1:] {
		r.do(r.stream.Record(r.mark))
		r.do(first.stream.After(r.mark))
	}
}

// meet makes the streams of all ranks wait for that work. It goes through the first
// rank's stream, which takes fewer calls than waiting pairwise. In a graph both are the
// same.
func (g group) meet() {
	g.arrive()
	first := g.first()
	first.do(first.stream.Record(first.mark))
	for _, r := range g[1:] {
		r.do(r.stream.After(first.mark))
	}
}

// Two-shot sums move less data but meet twice. They pay off from these sizes of x on, at
// which vLLM's all-reduce switches, too. With two ranks they never do.
const (
	twoShotBytes     = 512 << 10
	twoShotBytesMany = 256 << 10 // with more than four ranks
)

func (g group) twoShot() bool {
	r := g.first()
	bytes := 2 * r.s.tokens * r.weights.config.Hidden
	switch limit := r.options.twoShotBytes; {
	case len(g) == 2 || !r.device.reach:
		return false
	case limit > 0:
		return bytes >= limit
	case len(g) > 4:
		return bytes >= twoShotBytesMany
	}
	return bytes >= twoShotBytes
}

// sum sets x of all ranks to the sum of their parts. Parts are float32, are added in the
// order of ranks, and the sum is rounded once. So x has the same bits on all ranks.
func (g group) sum(which int) {
	if len(g) == 1 {
		return
	}
	values := g.first().s.tokens * g.first().weights.config.Hidden
	g.meet()
	if !g.twoShot() { // every rank adds up everything for itself
		for _, r := range g {
			r.do(r.q.SumRanks(kernels.SumRanks{Sums: []uint64{r.memory.x}, Parts: g.parts(r, which, values), Count: values}))
		}
		return
	}
	var all []uint64
	for _, r := range g {
		all = append(all, r.memory.x)
	}
	for i, r := range g { // every rank adds up its share for all
		own := shareOf(values, 8, i, len(g))
		r.do(r.q.SumRanks(kernels.SumRanks{Sums: all, Parts: g.parts(r, which, values), First: own.from, Count: own.n}))
	}
	g.meet()
}

// parts returns the addresses of all parts for the kernels of a rank. If the rank cannot
// reach the others' memory, they are addresses of copies, which it launches in the rank's
// stream.
func (g group) parts(r *run, which, values int) (addresses []uint64) {
	for i, o := range g {
		addresses = append(addresses, r.fetch(i, device.Region{Address: o.memory.parts[which], Bytes: int64(4 * values)}))
	}
	return addresses
}

// fetch returns the address of another rank's memory, or of a copy, for this rank's
// kernels.
func (r *run) fetch(from int, memory device.Region) uint64 {
	o := r.ranks[from]
	if r.device.reach || o == r.rank {
		return memory.Address
	}
	to := r.memory.inbox[from].Slice(0, memory.Bytes)
	r.do(r.stream.CopyFrom(to, o.unit.dev, memory))
	return to.Address
}

// gather collects the logits of all ranks on the first.
func (g group) gather() {
	first := g.first()
	if first.weights.vocab.n == first.weights.config.Vocab {
		return
	}
	g.arrive()
	for i, o := range g {
		vocab := o.weights.vocab
		if vocab.n == 0 {
			continue
		}
		row := 4 * vocab.n
		first.do(first.q.Copy(kernels.Copy{
			To: first.out.logits.Address + uint64(4*vocab.from), From: first.fetch(i, device.Region{Address: o.memory.head, Bytes: int64(row * first.s.rows)}),
			ToOffsets: first.out.to[i], FromOffsets: first.out.from[i], Pieces: first.s.rows, Bytes: row,
		}))
	}
}
