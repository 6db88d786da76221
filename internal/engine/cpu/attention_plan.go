package cpu

import "sync/atomic"

// attnItem is the work of one item in the attention phase: a run of segments of one KV
// head of a tile.
type attnItem struct {
	tile, head int
	from, to   int // segments
	split      int // index of the split that it is a part of, or -1
}

// attnSplit is a KV head of a tile whose segments several items compute. Each item leaves
// its partial results in memory. The item that ends last merges all, from the first
// segment to the last, so the order of ending does not affect the result.
type attnSplit struct {
	items     int
	left      atomic.Int32 // items that have not ended
	from, to  int          // segments
	rows, dim int          // of the part of each segment
	sums      int          // where the partial results begin in the memory of the plan
	softmax   int
}

// attnPlan lists the items of attention for the layers with one window.
type attnPlan struct {
	window  int
	items   []attnItem
	splits  []*attnSplit // splits in use
	spare   []*attnSplit
	sums    []float32
	softmax []softmax
}

const (
	// itemsPerCore is the intended number of items of equal work for each core.
	itemsPerCore = 4
	// splitFloats bounds the memory of all splits of a plan to 16 MiB: enough for four
	// queries of eight heads each of 128 dimensions at 250,000 positions.
	splitFloats = 4 << 20
)

// planAttention prepares the items of the current layer and returns their number.
func (s *step) planAttention() int {
	p := &s.b.pass.plan
	if len(p.items) == 0 || p.window != s.attn.window {
		s.layAttention()
	}
	for _, split := range p.splits {
		split.left.Store(int32(split.items))
	}
	return len(p.items)
}

// layAttention cuts the attention of all tiles into items. Most items are one KV head of
// one tile. If there are so few items, or one is so long, that cores would wait for
// others, they are cut between segments.
func (s *step) layAttention() {
	a, p, heads := &s.attn, &s.b.pass.plan, s.b.weights.config.KVHeads
	p.reset(a.window)
	segments := func(t tile) (from, to int) {
		return a.oldest(t, t.start) / segment, (t.end(t.last())-1)/segment + 1
	}
	work := 0
	for _, t := range s.b.pass.tiles {
		from, to := segments(t)
		work += (to - from) * t.count
	}
	// The longest come first: the last tiles of a prompt attend to the most positions.
	room := splitFloats
	for i := len(s.b.pass.tiles) - 1; i >= 0; i-- {
		t := s.b.pass.tiles[i]
		from, to := segments(t)
		n := to - from
		parts := min(n, (n*t.count*itemsPerCore*s.b.device.cores+work*heads-1)/(work*heads))
		floats := n * t.count * a.group * (padded(a.headDim) + 2)
		if parts < 2 || s.b.device.cores == 1 || t.count*a.group > panelQueries || floats*heads > room {
			for h := range heads {
				p.items = append(p.items, attnItem{tile: i, head: h, from: from, to: to, split: -1})
			}
			continue
		}
		room -= floats * heads
		for h := range heads {
			p.split(attnItem{tile: i, head: h, from: from, to: to}, parts, t.count*a.group, padded(a.headDim))
		}
	}
}

// reset starts a plan and keeps the memory of the last one.
func (p *attnPlan) reset(window int) {
	p.window, p.items = window, p.items[:0]
	p.spare, p.splits = append(p.spare, p.splits...), p.splits[:0]
}

// split cuts an item into parts of about the same length.
func (p *attnPlan) split(whole attnItem, parts, rows, dim int) {
	var s *attnSplit
	if n := len(p.spare); n > 0 {
		s, p.spare = p.spare[n-1], p.spare[:n-1]
	} else {
		s = new(attnSplit)
	}
	n := whole.to - whole.from
	s.items, s.from, s.to, s.rows, s.dim, s.sums, s.softmax = parts, whole.from, whole.to, rows, dim, 0, 0
	if last := len(p.splits) - 1; last >= 0 {
		l := p.splits[last]
		s.sums, s.softmax = l.sums+(l.to-l.from)*l.rows*l.dim, l.softmax+(l.to-l.from)*l.rows
	}
	p.sums = growTwice(p.sums, s.sums+n*rows*dim)
	p.softmax = growTwice(p.softmax, s.softmax+n*rows)
	for i := range parts {
		p.items = append(p.items, attnItem{
			tile: whole.tile, head: whole.head, split: len(p.splits),
			from: whole.from + i*n/parts, to: whole.from + (i+1)*n/parts,
		})
	}
	p.splits = append(p.splits, s)
}

// growTwice does what grow does, for slices that grow often and by little.
func growTwice[T any](s []T, n int) []T {
	if len(s) >= n {
		return s
	}
	return make([]T, max(n, 2*len(s)))
}

// part returns where an item stores its result for a segment: in the memory of its split,
// or in own without a split.
func (p *attnPlan) part(item attnItem, segment int, own partial) partial {
	if item.split < 0 {
		return own
	}
	s := p.splits[item.split]
	n := (segment - s.from) * s.rows
	return partial{sums: p.sums[s.sums+n*s.dim:][:s.rows*s.dim], softmax: p.softmax[s.softmax+n:][:s.rows]}
}

// finish ends an item and reports whether its result is complete and must be stored. An
// item without a split is always complete. Of a split, the last item to end is complete,
// after merge has added the partial results of all segments.
func (p *attnPlan) finish(item attnItem, merge func(segment int, part partial)) bool {
	if item.split < 0 {
		return true
	}
	s := p.splits[item.split]
	if s.left.Add(-1) > 0 {
		return false
	}
	for i := s.from; i < s.to; i++ {
		merge(i, p.part(item, i, partial{}))
	}
	return true
}
