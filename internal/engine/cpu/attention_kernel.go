package cpu

import (
	"unsafe"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
)

// panelQueries is how many queries the kernels compute together: queries are the
// outputs of a product whose activations are the keys, so that scores lie
// [position][query], and a softmax works on sixteen queries side by side.
const panelQueries = kernel.Width

// panel is the working memory for one panel of queries.
type panel struct {
	queries []float32 // packed, [dim][query]
	values  []float32 // V of one block, rows padded to sixteens
	scores  []float32 // [position in segment][query], then weights
	first   [panelQueries]float32
	to      [panelQueries]float32
	top     [panelQueries]float32
	norm    [panelQueries]float32
	column  kernel.Column
	mix     kernel.Mix
}

func (p *panel) reserve(dim int) {
	p.queries = grow(p.queries, (dim+1)*panelQueries)
	p.scores = grow(p.scores, segment*panelQueries)
}

// padded is a head's dimensions in sums.
func padded(dim int) int { return (dim + 15) &^ 15 }

// runKernels is run with kernels. Sums over dimensions and over positions have the
// order of run; they are made of fused multiply-adds.
func (a *attention) runKernels(l *lane, t tile, kvHead int) {
	rows := t.count * a.group
	l.reserveQueries(min(rows, panelQueries), padded(a.headDim))
	l.panel.reserve(a.headDim)
	for r := 0; r < rows; r += panelQueries {
		q := queries{attention: a, lane: l, tile: t, kvHead: kvHead, from: r, count: min(panelQueries, rows-r)}
		q.width = panelQueries
		if q.count <= kernel.ColumnLanes {
			q.width = kernel.ColumnLanes
		}
		q.run()
	}
}

// queries are some rows of a tile: one panel.
type queries struct {
	*attention
	lane   *lane
	tile   tile
	kvHead int
	from   int // row of the tile
	count  int
	width  int // of the panel, 16 or 32
}

// last is the position of the last query.
func (q *queries) last() int { return q.position(q.tile, q.from+q.count-1) }

func (q *queries) run() {
	q.pack()
	end := q.last() + 1
	for from := q.oldest(q.position(q.tile, q.from)) / segment * segment; from < end; from += segment {
		to := min(from+segment, end)
		q.score(from, to)
		q.weigh(from, to)
		q.gather(from, to)
		for i := range q.count {
			q.mergeRow(i, from)
		}
	}
	for i := range q.count {
		q.level.Scale(q.row(q.out, q.tile, q.kvHead, q.from+i), q.sums(q.lane.sums, i)[:q.headDim], 1/q.lane.total[i].norm)
	}
}

// sums is the row of query i.
func (q *queries) sums(rows []float32, i int) []float32 {
	d := padded(q.headDim)
	return rows[i*d : (i+1)*d]
}

// pack lays the queries out for the product.
func (q *queries) pack() {
	p := &q.lane.panel
	packed := p.queries[:q.headDim*q.width]
	if q.count < q.width {
		clear(packed)
	}
	i := 0
	for ; i+4 <= q.count; i += 4 {
		x0, x1 := q.row(q.query, q.tile, q.kvHead, q.from+i), q.row(q.query, q.tile, q.kvHead, q.from+i+1)
		x2, x3 := q.row(q.query, q.tile, q.kvHead, q.from+i+2), q.row(q.query, q.tile, q.kvHead, q.from+i+3)
		x1, x2, x3 = x1[:len(x0)], x2[:len(x0)], x3[:len(x0)]
		for d, v := range x0 {
			out := packed[d*q.width+i:][:4]
			out[0], out[1], out[2], out[3] = v, x1[d], x2[d], x3[d]
		}
	}
	for ; i < q.count; i++ {
		for d, v := range q.row(q.query, q.tile, q.kvHead, q.from+i) {
			packed[d*q.width+i] = v
		}
	}
}

// score fills the products of all queries with the keys of positions [from, to),
// also those that a query does not see.
func (q *queries) score(from, to int) {
	l, c := q.lane, &q.lane.call
	c.Panel, c.Cols = unsafe.Pointer(&l.panel.queries[0]), q.headDim
	for p := from; p < to; {
		n := min(q.blockSize-p%q.blockSize, to-p)
		keys := q.cache.read(q.level, l.keys, q.tile.blocks[p/q.blockSize], q.layer, 0, q.kvHead, p%q.blockSize, n)
		scores := l.panel.scores[(p-from)*q.width:][:n*q.width]
		share := q.level.Share(n, q.width)
		for at := 0; at < n; at += share {
			m := min(share, n-at)
			for i := range m {
				c.Src[i], c.Dst[i] = &keys[(at+i)*q.headDim], &scores[(at+i)*q.width]
			}
			q.level.Product(kernel.F32, q.width, m, c)
		}
		p += n
	}
}

// weigh turns scores into weights and clears the sums of the segment.
func (q *queries) weigh(from, to int) {
	l, p := q.lane, &q.lane.panel
	for i := range p.first {
		p.first[i], p.to[i] = 0, 0
	}
	for i := range q.count {
		first, to := q.seen(q.tile, q.from+i, from)
		p.first[i], p.to[i] = float32(first), float32(max(first, to))
	}
	if q.limit > 0 {
		bend(p.scores[:(to-from)*q.width], q.limit)
	}
	for i := 0; i < q.width; i += kernel.ColumnLanes {
		p.column = kernel.Column{
			Scores: &p.scores[i], Stride: 4 * q.width, Count: to - from,
			First: &p.first[i], To: &p.to[i], Top: &p.top[i], Norm: &p.norm[i],
		}
		q.level.Softmax(&p.column)
	}
	for i := range q.count {
		l.part[i] = softmax{p.top[i], p.norm[i]}
	}
	clear(l.partSums[:q.count*padded(q.headDim)])
}

// gather adds up the weighted values of the segment for all queries.
func (q *queries) gather(from, to int) {
	l := q.lane
	for p := from; p < to; {
		n := min(q.blockSize-p%q.blockSize, to-p)
		values := q.cache.read(q.level, l.keys, q.tile.blocks[p/q.blockSize], q.layer, 1, q.kvHead, p%q.blockSize, n)
		values = q.pad(values, n)
		weights := l.panel.scores[(p-from)*q.width:]
		for i := 0; i < q.count; i += q.level.MixRows() {
			q.mixRows(weights, values, i, min(q.level.MixRows(), q.count-i), p-from, n)
		}
		p += n
	}
}

// pad copies rows of values whose dimensions are no multiple of sixteen.
func (q *queries) pad(values []float32, n int) []float32 {
	d := padded(q.headDim)
	if d == q.headDim {
		return values
	}
	p := &q.lane.panel
	p.values = grow(p.values, segment*d)
	for i := range n {
		clear(p.values[i*d : (i+1)*d])
		copy(p.values[i*d:], values[i*q.headDim:(i+1)*q.headDim])
	}
	return p.values
}

// mixRows adds n positions, the first of which is at of the segment, to rows of
// sums. Positions that all rows see are added for all of them together; those before
// and after for each row that sees them. What a row does not see is left out and not
// just weighed with zero, because it may be no number.
func (q *queries) mixRows(weights, values []float32, row, rows, at, n int) {
	first, to := 0, n
	seen := func(i int) (int, int) {
		p := &q.lane.panel
		return max(0, int(p.first[i])-at), min(n, int(p.to[i])-at)
	}
	for i := row; i < row+rows; i++ {
		f, t := seen(i)
		first, to = max(first, f), min(to, t)
	}
	if first >= to { // nothing in common
		first, to = n, n
	}
	for i := row; i < row+rows; i++ {
		f, t := seen(i)
		q.mixSpan(weights, values, i, 1, f, min(t, first))
	}
	q.mixSpan(weights, values, row, rows, first, to)
	for i := row; i < row+rows; i++ {
		_, t := seen(i)
		q.mixSpan(weights, values, i, 1, to, t)
	}
}

// mixSpan adds positions [from, to) of values.
func (q *queries) mixSpan(weights, values []float32, row, rows, from, to int) {
	if from >= to {
		return
	}
	m, d := &q.lane.panel.mix, padded(q.headDim)
	*m = kernel.Mix{WeightStride: 4 * q.width, ValueStride: 4 * d, SumStride: 4 * d, Count: to - from}
	for at := 0; at < d; {
		width := q.level.MixWidth(d - at)
		m.Weights, m.Values, m.Sums = &weights[from*q.width+row], &values[from*d+at], &q.lane.partSums[row*d+at]
		q.level.Mix(rows, width, m)
		at += width
	}
}

// mergeRow adds the segment's part of query i to what the earlier segments gave.
func (q *queries) mergeRow(i, from int) {
	l, r := q.lane, q.from+i
	first, n := q.seen(q.tile, r, from)
	if n <= first {
		return
	}
	sums, part := q.sums(l.sums, i), q.sums(l.partSums, i)
	if from <= q.oldest(q.position(q.tile, r)) { // the row's first segment
		copy(sums, part)
		l.total[i] = l.part[i]
		return
	}
	old, add := l.total[i], l.part[i]
	top := max(old.top, add.top)
	keep, take := expf(old.top-top), expf(add.top-top)
	q.level.Blend(sums, part, keep, take)
	l.total[i] = softmax{top, float32(old.norm*keep) + float32(add.norm*take)}
}
