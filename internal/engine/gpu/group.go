package gpu

import (
	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// group is a pass on its way into the lanes of all ranks. The first error sticks.
//
// Ranks wait for each other by events between their streams, and never inside kernels. So
// nothing can wait for ever: not for a kernel that has no room on a GPU that another rank has,
// too, not for one behind another worker's, nor for memory that somebody allocates or frees
// meanwhile. Decode steps are one graph over all GPUs, in which the events are edges.
type group []*run

func (b *Backend) newGroup(lane int, s shape) group {
	g := make(group, len(b.ranks))
	for i, r := range b.ranks {
		l := &r.lanes[lane]
		g[i] = &run{rank: r, lane: l, q: l.queue, s: s}
	}
	return g
}

// prepare has the host ready for passes with prompts of any size, which are not recorded.
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

// The sums over ranks in a layer. Each has parts of its own: by the time that a rank writes
// the one sum's parts again, all ranks have read them, since they have waited for each other
// in between, at the other sum.
const (
	afterAttention = iota
	afterMLP
	numSums
)

// joining is where a rank's part of a sum goes, and whether that is float32: to x itself where
// there is one rank.
func (r *run) joining(sum int) (out uint64, wide bool) {
	if len(r.ranks) == 1 {
		return r.memory.x, false
	}
	return r.memory.parts[sum], true
}

// arrive has the stream of the first rank wait for what all ranks have got so far.
func (g group) arrive() {
	first := g.first()
	for _, r := range g[1:] {
		r.do(r.stream.Record(r.mark))
		r.do(first.stream.After(r.mark))
	}
}

// meet has the streams of all ranks wait for that: by way of the first one's, which takes
// fewer calls than if each waited for each. In a graph it is the same.
func (g group) meet() {
	g.arrive()
	first := g.first()
	first.do(first.stream.Record(first.mark))
	for _, r := range g[1:] {
		r.do(r.stream.After(first.mark))
	}
}

// Two-shot sums move less, and meet twice. They are worth it from so many bytes of x on: the
// sizes at which vLLM's all-reduce changes. With two ranks they are not.
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

// sum makes x of all ranks the sum of their parts. Parts are float32 and are added in the order
// of ranks by whoever adds them, and the sum is rounded once: x has the same bits everywhere.
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
	for i, r := range g { // every rank adds up its share for everybody
		own := shareOf(values, 8, i, len(g))
		r.do(r.q.SumRanks(kernels.SumRanks{Sums: all, Parts: g.parts(r, which, values), First: own.from, Count: own.n}))
	}
	g.meet()
}

// parts are the addresses of all parts for the kernels of a rank: where it does not reach the
// others' memory, of copies, which are put into its stream.
func (g group) parts(r *run, which, values int) (addresses []uint64) {
	for i, o := range g {
		addresses = append(addresses, r.fetch(i, device.Region{Address: o.memory.parts[which], Bytes: int64(4 * values)}))
	}
	return addresses
}

// fetch is the address of another rank's memory for the kernels of this one.
func (r *run) fetch(from int, memory device.Region) uint64 {
	o := r.ranks[from]
	if r.device.reach || o == r.rank {
		return memory.Address
	}
	to := r.memory.inbox[from].Slice(0, memory.Bytes)
	r.do(r.stream.CopyFrom(to, o.unit.dev, memory))
	return to.Address
}

// gather puts the logits of all ranks together on the first.
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
