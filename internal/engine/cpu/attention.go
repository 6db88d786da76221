package cpu

import (
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
)

// segment is the number of positions that attention computes together. Each segment has
// its own maximum, weights and weighted sum, and segments are merged from first to last.
// They start at multiples of this number, whatever the block size and the chunk, so a
// query's arithmetic depends on its position alone. Segments may be computed concurrently
// and then merged, with the same bits.
const segment = 256

// tile is a run of new tokens of one sequence whose queries are computed together.
type tile struct {
	blocks []int32
	first  int // index of the first token in the pass
	count  int
	start  int // position of the first token
	// mutual is the run of positions that all tokens of the tile are in and that attend to
	// each other both ways; empty if each sees earlier ones only.
	mutual engine.Span
}

// tileRows is the intended number of queries of a tile, counted over the query heads that
// share a KV head. tileWork bounds queries × positions, so that an item of a long context
// stays short.
const (
	tileRows = 32
	tileWork = 8 << 10
	// panelWork replaces tileWork when kernels compute; pairs double it. A tile then has
	// at least fewQueries.
	panelWork  = 64 << 10
	fewQueries = 12
)

// tileTokens returns the number of tokens of a tile whose last position is about pos.
func tileTokens(level kernel.Level, pairs bool, group, pos int) int {
	rows, work := min(tileRows, max(2*group, tileWork/(pos+1))), panelWork
	if pairs {
		work *= 2
	}
	if level != kernel.Portable {
		rows = min(panelQueries, max(fewQueries, work/(pos+1)))
	}
	return max(1, rows/group)
}

// attention computes one KV head of one tile.
type attention struct {
	level     kernel.Level
	pairs     bool // products of pairs of bf16, see attention_pairs.go
	ranks     ranks
	plan      *attnPlan
	layer     int
	group     int // query heads per KV head
	query     [][]float32
	out       [][]float32
	headDim   int
	blockSize int
	window    int     // positions that a query sees, its own included; 0: all
	limit     float32 // of scores, see bend; 0 for none
}

// partial holds the intermediate results of some rows of queries for some segments.
type partial struct {
	sums    []float32 // [row][padded head dim], weighted values
	softmax []softmax // [row]
}

// softmax is the maximum of a row of scores and the sum of its weights relative
// to it.
type softmax struct{ top, norm float32 }

func (p *partial) reserve(rows, dim int) {
	p.sums = grow(p.sums, rows*dim)
	p.softmax = grow(p.softmax, rows)
}

// padded returns the room for a head's dimensions in sums.
func padded(dim int) int { return (dim + 15) &^ 15 }

func (a *attention) run(l *lane, t tile, item attnItem) {
	if a.level != kernel.Portable {
		a.runKernels(l, t, item)
		return
	}
	rows := t.count * a.group
	l.reserveQueries(rows, a.headDim)
	for s := item.from; s < item.to; s++ {
		from, to := s*segment, min((s+1)*segment, t.end(t.last()))
		part := a.plan.part(item, s, l.part)
		a.score(l, t, item.head, from, to)
		for r := range rows {
			a.weigh(l, t, r, from, part)
		}
		a.gather(l, t, item.head, from, to, part)
		if item.split < 0 {
			a.merge(t, 0, rows, s, part, l.total)
		}
	}
	if a.plan.finish(item, func(s int, part partial) { a.merge(t, 0, rows, s, part, l.total) }) {
		a.store(l, t, item.head, 0, rows)
	}
}

// position returns the position of the query of row r. Rows are ordered by token, then by
// head.
func (a *attention) position(t tile, r int) int { return t.start + r/a.group }

// row returns the query vector of row r.
func (a *attention) row(vectors [][]float32, t tile, kvHead, r int) []float32 {
	head := kvHead*a.group + r%a.group
	return vectors[t.first+r/a.group][head*a.headDim : (head+1)*a.headDim]
}

// score fills in the products of all queries with the keys of positions [from, to). Where
// it is simpler, it also computes products with positions after the query's own; these
// are not read.
func (a *attention) score(l *lane, t tile, kvHead, from, to int) {
	rows := t.count * a.group
	cache, head := a.ranks.of(kvHead)
	for p := max(from, a.oldest(t, t.start)); p < to; {
		token := p % a.blockSize
		side := token % kernel.KVGroup
		n := min(kernel.KVGroup-side, a.blockSize-token, to-p)
		keys := cache.keys(l.keys, t.blocks[p/a.blockSize], a.layer, head, token/kernel.KVGroup)[side:]
		r := a.firstRow(t, p)
		for ; r+2 <= rows; r += 2 {
			scorePair(keys, a.row(a.query, t, kvHead, r), a.row(a.query, t, kvHead, r+1),
				l.scores[r*segment+p-from:][:n], l.scores[(r+1)*segment+p-from:][:n])
		}
		if r < rows {
			scoreOne(keys, a.row(a.query, t, kvHead, r), l.scores[r*segment+p-from:][:n])
		}
		p += n
	}
}

// scorePair multiplies two queries with keys that are contiguous.
func scorePair(keys, x, y, sx, sy []float32) {
	y, sy = y[:len(x)], sy[:len(sx)]
	i := 0
	for ; i+2 <= len(sx); i += 2 {
		var x0, x1, y0, y1 float32
		k := keys[i:]
		for d, v := range x {
			w, k0, k1 := y[d], k[d*kernel.KVGroup], k[d*kernel.KVGroup+1]
			x0 += float32(k0 * v)
			x1 += float32(k1 * v)
			y0 += float32(k0 * w)
			y1 += float32(k1 * w)
		}
		sx[i], sx[i+1], sy[i], sy[i+1] = x0, x1, y0, y1
	}
	if i < len(sx) {
		scoreOne(keys[i:], x, sx[i:])
		scoreOne(keys[i:], y, sy[i:])
	}
}

// scoreOne multiplies one query with keys that are contiguous.
func scoreOne(keys, x, sx []float32) {
	i := 0
	for ; i+4 <= len(sx); i += 4 {
		var s0, s1, s2, s3 float32
		for d, v := range x {
			k := keys[d*kernel.KVGroup+i:][:4]
			s0 += float32(k[0] * v)
			s1 += float32(k[1] * v)
			s2 += float32(k[2] * v)
			s3 += float32(k[3] * v)
		}
		sx[i], sx[i+1], sx[i+2], sx[i+3] = s0, s1, s2, s3
	}
	for ; i < len(sx); i++ {
		var s float32
		for d, v := range x {
			s += float32(keys[d*kernel.KVGroup+i] * v)
		}
		sx[i] = s
	}
}

// oldest returns the first position that a query at pos of the tile attends to. A window
// hides nothing of a mutual run.
func (a *attention) oldest(t tile, pos int) int {
	switch first := pos + 1 - a.window; {
	case a.window == 0 || first < 0:
		return 0
	case t.mutual.End > 0:
		return min(first, t.mutual.Start)
	default:
		return first
	}
}

// end returns the position behind the last one that a query at pos of the tile attends to.
func (t tile) end(pos int) int {
	if t.mutual.End > 0 {
		return t.mutual.End
	}
	return pos + 1
}

// last returns the position of the last token.
func (t tile) last() int { return t.start + t.count - 1 }

// firstRow returns the first row of a tile that attends to position p.
func (a *attention) firstRow(t tile, p int) int {
	if p < t.mutual.End {
		return 0
	}
	return max(0, p-t.start) * a.group
}

// seen returns the positions, relative to the segment at from, that the query of row r
// attends to. If there are none, to is not above first.
func (a *attention) seen(t tile, r, from int) (first, to int) {
	pos := a.position(t, r)
	return max(0, a.oldest(t, pos)-from), min(segment, t.end(pos)-from)
}

// weigh turns the scores of row r into weights relative to the segment's maximum,
// and clears the row's sum for this segment.
func (a *attention) weigh(l *lane, t tile, r, from int, part partial) {
	first, n := a.seen(t, r, from)
	if n <= first {
		return
	}
	scores := l.scores[r*segment:][first:n]
	if a.limit > 0 {
		bend(scores, a.limit)
	}
	top := scores[0]
	for _, s := range scores[1:] {
		top = max(top, s)
	}
	var norm float32
	for i, s := range scores {
		w := expf(s - top)
		scores[i] = w
		norm += w
	}
	d := padded(a.headDim)
	part.softmax[r] = softmax{top, norm}
	clear(part.sums[r*d:][:d])
}

// gather adds up the weighted values of the segment for all rows.
func (a *attention) gather(l *lane, t tile, kvHead, from, to int, part partial) {
	d := padded(a.headDim)
	var w [4]float32
	cache, head := a.ranks.of(kvHead)
	for p := max(from, a.oldest(t, t.start)); p < to; {
		n := min(a.blockSize-p%a.blockSize, to-p)
		values := cache.values(l.keys, t.blocks[p/a.blockSize], a.layer, head, p%a.blockSize, n)
		for r := a.firstRow(t, p); r < t.count*a.group; r++ {
			sum := part.sums[r*d:][:a.headDim]
			i, to := a.seen(t, r, p)
			weights := l.scores[r*segment+p-from:][:min(n, to)]
			for ; i+4 <= len(weights); i += 4 {
				v := values[i*d : (i+4)*d]
				w = [4]float32(weights[i:])
				axpy4(sum, v, v[d:], v[2*d:], v[3*d:], &w)
			}
			for ; i < len(weights); i++ {
				axpy(sum, values[i*d:(i+1)*d], weights[i])
			}
		}
		p += n
	}
}

// merge adds the partial result of segment s of rows [first, first+rows) to the result of
// the earlier segments. Both begin with row first.
func (a *attention) merge(t tile, first, rows, s int, part, total partial) {
	d, from := padded(a.headDim), s*segment
	for i := range rows {
		begin, n := a.seen(t, first+i, from)
		if n <= begin {
			continue
		}
		sums, add := total.sums[i*d:(i+1)*d], part.sums[i*d:(i+1)*d]
		if from <= a.oldest(t, a.position(t, first+i)) { // the row's first segment
			copy(sums, add)
			total.softmax[i] = part.softmax[i]
			continue
		}
		old, more := total.softmax[i], part.softmax[i]
		top := max(old.top, more.top)
		keep, take := weightOf(old.top, top), weightOf(more.top, top)
		if a.level == kernel.Portable {
			for d := range sums {
				sums[d] = float32(sums[d]*keep) + float32(add[d]*take)
			}
		} else {
			a.level.Blend(sums, add, keep, take)
		}
		total.softmax[i] = softmax{top, float32(old.norm*keep) + float32(more.norm*take)}
	}
}

// weightOf returns expf(v - top), which is 1 for one of the two sides of each merge.
func weightOf(v, top float32) float32 {
	if v == top {
		return 1
	}
	return expf(v - top)
}

// store writes finished rows. The lane's first row is row first.
func (a *attention) store(l *lane, t tile, kvHead, first, rows int) {
	d := padded(a.headDim)
	for i := range rows {
		out, sums := a.row(a.out, t, kvHead, first+i), l.total.sums[i*d:][:a.headDim]
		inv := 1 / l.total.softmax[i].norm
		if a.pairs {
			kernel.OrderPairs(out, l.total.sums[i*d:(i+1)*d])
			sums = out
		}
		if a.level != kernel.Portable {
			a.level.Scale(out, sums, inv)
			continue
		}
		for d := range out {
			out[d] = sums[d] * inv
		}
	}
}
