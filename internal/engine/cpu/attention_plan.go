package cpu

import "sync/atomic"

// attnItem is what one item of the phase of attention computes: a run of segments
// of one KV head of a tile.
type attnItem struct {
	tile, head int
	from, to   int // segments
	split      int // index of the split that it is a part of, or -1
}

// attnSplit is a KV head of a tile whose segments several items compute. Each leaves
// its parts in memory, and the one that ends last merges all, from the first
// segment to the last: who that is changes nothing in the result.
type attnSplit struct {
	items     int
	left      atomic.Int32 // items that have not ended
	from, to  int          // segments
	rows, dim int          // of the part of each segment
	sums      int          // where the parts begin in the memory of the plan
	softmax   int
}

// attnPlan says which items the attention of the layers with one window has.
type attnPlan struct {
	window  int
	items   []attnItem
	splits  []*attnSplit // those in use
	spare   []*attnSplit
	sums    []float32
	softmax []softmax
}

const (
	// itemsPerCore is how many items of equal work there should be for each core.
	itemsPerCore = 4
	// splitFloats bounds the memory of all splits of a plan, 16 MiB: enough for
	// four queries of eight heads each of 128 dimensions at 250,000 positions.
	splitFloats = 4 << 20
)

// planAttention prepares the items of the layer at hand and returns their number.
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

// layAttention cuts the attention of all tiles into items. Most are one KV head of
// one tile. Where these are so few, or one is so long, that cores would wait for
// others, they are cut between segments.
func (s *step) layAttention() {
	a, p, heads := &s.attn, &s.b.pass.plan, s.b.weights.config.KVHeads
	p.reset(a.window)
	segments := func(t tile) (from, to int) {
		return a.oldest(t.start) / segment, (t.start+t.count-1)/segment + 1
	}
	work := 0
	for _, t := range s.b.pass.tiles {
		from, to := segments(t)
		work += (to - from) * t.count
	}
	// The longest come first: the last tiles of a prompt see the most.
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

// reset starts a plan, and keeps its memory.
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

// growTwice is grow for what grows by little, many times.
func growTwice[T any](s []T, n int) []T {
	if len(s) >= n {
		return s
	}
	return make([]T, max(n, 2*len(s)))
}

// part is where an item leaves what it has of a segment: the memory of its split, or
// else own.
func (p *attnPlan) part(item attnItem, segment int, own partial) partial {
	if item.split < 0 {
		return own
	}
	s := p.splits[item.split]
	n := (segment - s.from) * s.rows
	return partial{sums: p.sums[s.sums+n*s.dim:][:s.rows*s.dim], softmax: p.softmax[s.softmax+n:][:s.rows]}
}

// finish ends an item and reports whether the result can be stored: that of an item
// that is no part of a split, and that of a split whose other items have ended, when
// merge has taken in the parts of all segments.
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
