package gpu

import (
	"errors"
	"slices"

	"github.com/dynctl/dynctl/internal/cuda/device"
)

// graphs holds the recorded decode steps: one for each number of sequences (a bucket) and
// each bound of their lengths, because the launches depend on both.
type graphs struct {
	buckets, lengths []int
	all              [][]*recorded // [bucket][length]
}

type recorded struct {
	graph *device.Graph
	shape shape
}

// find returns the smallest graph for a pass, or nil if there is none.
func (g *graphs) find(p *pass) *recorded {
	if len(p.several) > 0 || len(g.all) == 0 {
		return nil
	}
	for i := range p.single {
		if s := p.single[i].seq; s.Logits == nil && s.Choice == nil {
			return nil
		}
	}
	bucket, _ := slices.BinarySearch(g.buckets, len(p.single))
	length, _ := slices.BinarySearch(g.lengths, p.shape.longest)
	return g.all[bucket][length]
}

// bucketsUpTo returns numbers of sequences: powers of two up to 8, and then steps that
// waste at most an eighth, or 8 sequences.
func bucketsUpTo(n int) (buckets []int) {
	for b := 1; b < n; b += max(1, min(b, 8), b/8&^7) {
		buckets = append(buckets, b)
	}
	return append(buckets, n)
}

// firstLength is the bound of lengths up to which attention is not split. Each further
// bound is eight times as long.
const firstLength = 512

func lengthsUpTo(n int) (lengths []int) {
	for l := firstLength; l < n; l *= 8 {
		lengths = append(lengths, l)
	}
	return append(lengths, n)
}

// record records all graphs. There are none in a batch-invariant backend, whose steps all
// use the general kernels, and none if ranks exchange data through the host.
func (b *Backend) record() error {
	if b.options.BatchInvariant || !b.device.reach {
		return nil
	}
	g := graphs{buckets: bucketsUpTo(b.options.MaxSeqs), lengths: lengthsUpTo(b.options.MaxContext)}
	for _, n := range g.buckets {
		var row []*recorded
		for _, longest := range g.lengths {
			r := &recorded{shape: shape{tokens: n, single: n, rows: n, longest: longest, most: 1, tableBlocks: blocksOf(longest, b.info.KV.BlockSize)}}
			var err error
			if r.graph, err = b.ranks[0].scope.Capture(b.ranks[0].lanes[urgent].stream, func() error { return b.recordOne(r.shape) }); err != nil {
				return err
			}
			row = append(row, r)
		}
		g.all = append(g.all, row)
	}
	b.graphs = g
	return nil
}

// recordOne launches a pass in the streams of all ranks while the first rank's stream is
// captured. The other streams join the capture and are joined back.
func (b *Backend) recordOne(s shape) error {
	first := &b.ranks[0].lanes[urgent]
	if len(b.ranks) > 1 {
		if err := first.stream.Record(first.mark); err != nil {
			return err
		}
	}
	for _, r := range b.ranks[1:] {
		if err := r.lanes[urgent].stream.After(first.mark); err != nil {
			return err
		}
	}
	return errors.Join(b.enqueue(urgent, s), b.join(urgent))
}

// join makes the first rank wait for all others.
func (b *Backend) join(lane int) error {
	for _, r := range b.ranks[1:] {
		l := &r.lanes[lane]
		if err := errors.Join(l.stream.Record(l.mark), b.ranks[0].lanes[lane].stream.After(l.mark)); err != nil {
			return err
		}
	}
	return nil
}
