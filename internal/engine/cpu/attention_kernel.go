package cpu

import (
	"unsafe"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
)

const (
	// panelQueries is the number of queries that kernels compute together. Three calls
	// for scores and six for weighted sums then read the same keys and values.
	panelQueries = 36
	// scoreStride is the room for the scores of one query and segment. Groups of keys may
	// begin before the segment or end after it.
	scoreStride = segment + 2*kernel.KVGroup
	// groupsTogether is the number of groups of keys that are multiplied with all queries
	// before the next groups: a multiple of the groups that one call takes.
	groupsTogether = 4
)

// panel is the working memory of the queries that are computed together.
type panel struct {
	queries []float32 // those of one call after the other, [dim][query]
	scores  []float32 // [query][position], then weights
	pairs   pairRoom
	groups  []keyGroup
	scales  [scoreStride]float32 // of V, [position]
	first   [panelQueries]int    // the range that each query attends to
	to      [panelQueries]int
	score   kernel.Score
	mix     kernel.Mix
}

// keyGroup is a group of keys of a segment.
type keyGroup struct {
	keys, scales int // offsets in the memory of the cache
	at           int // of its scores in a row
}

// runKernels does what run does, with kernels. Sums over dimensions and over positions
// have the order of run, and norms that of [kernel.Level.Softmax]. Kernels use fused
// multiply-adds.
func (a *attention) runKernels(l *lane, t tile, item attnItem) {
	rows, d := t.count*a.group, padded(a.headDim)
	l.part.reserve(min(rows, panelQueries), d)
	l.total.reserve(min(rows, panelQueries), d)
	if a.pairs {
		l.panel.pairs.reserve(a.headDim, a.ranks[0].row)
	} else {
		l.panel.queries = grow(l.panel.queries, panelQueries*a.headDim)
	}
	l.panel.scores = grow(l.panel.scores, panelQueries*scoreStride)
	cache, head := a.ranks.of(item.head)
	for r := 0; r < rows; r += panelQueries {
		q := queries{attention: a, lane: l, tile: t, kvHead: item.head, cache: cache, head: head, from: r, count: min(panelQueries, rows-r)}
		q.run(item)
	}
}

// queries are some rows of a tile, which form one panel.
type queries struct {
	*attention
	lane   *lane
	tile   tile
	kvHead int
	cache  *cache // of the rank that holds the head
	head   int    // in the cache
	from   int    // row of the tile
	count  int
}

func (q *queries) run(item attnItem) {
	q.pack()
	end := q.tile.end(q.position(q.tile, q.from+q.count-1))
	for s := item.from; s < item.to; s++ {
		// The first query attends to the oldest position.
		from, to := s*segment, min((s+1)*segment, end)
		begin := max(from, q.oldest(q.tile, q.position(q.tile, q.from)))
		if begin >= to {
			continue
		}
		part := q.plan.part(item, s, q.lane.part)
		q.score(from, begin, to)
		q.weigh(from, part)
		q.gather(from, begin, to, s+1 < item.to, part)
		if item.split < 0 {
			q.merge(q.tile, q.from, q.count, s, part, q.lane.total)
		}
	}
	if q.plan.finish(item, func(s int, part partial) { q.merge(q.tile, q.from, q.count, s, part, q.lane.total) }) {
		q.store(q.lane, q.tile, q.kvHead, q.from, q.count)
	}
}

// pack arranges the queries for the kernel, with those of each call side by side.
func (q *queries) pack() {
	if q.pairs {
		q.packPairs()
		return
	}
	packed := q.lane.panel.queries
	for i := 0; i < q.count; {
		m, _ := q.level.ScoreShape(q.count - i)
		out, j := packed[i*q.headDim:][:m*q.headDim], 0
		for ; j+4 <= m; j += 4 {
			x0, x1, x2, x3 := q.query4(i + j)
			for d, v := range x0 {
				four := out[d*m+j:][:4]
				four[0], four[1], four[2], four[3] = v, x1[d], x2[d], x3[d]
			}
		}
		for ; j < m; j++ {
			for d, v := range q.row(q.query, q.tile, q.kvHead, q.from+i+j) {
				out[d*m+j] = v
			}
		}
		i += m
	}
}

// query4 returns four queries, from the i-th on.
func (q *queries) query4(i int) (x0, x1, x2, x3 []float32) {
	row := func(i int) []float32 { return q.row(q.query, q.tile, q.kvHead, q.from+i)[:q.headDim] }
	x0 = row(i)
	return x0, row(i + 1)[:len(x0)], row(i + 2)[:len(x0)], row(i + 3)[:len(x0)]
}

// address returns the address of a byte of the cache.
func (q *queries) address(at int) unsafe.Pointer { return unsafe.Pointer(&q.cache.data[at]) }

// place returns where a position is stored: the offset of its region and the token in it.
func (q *queries) place(p, kv int) (region, token int) {
	return q.cache.at(q.tile.blocks[p/q.blockSize], q.layer, kv, q.head), p % q.blockSize
}

// valuesAt returns the offset of the values of a position.
func (q *queries) valuesAt(p int) int {
	region, token := q.place(p, 1)
	return region + token*q.cache.row
}

// findGroups returns the groups of keys that hold positions [begin, to).
func (q *queries) findGroups(from, begin, to int) []keyGroup {
	groups := q.lane.panel.groups[:0]
	for p := begin; p < to; {
		region, token := q.place(p, 0)
		side := token % kernel.KVGroup
		groups = append(groups, keyGroup{
			keys:   region + (token-side)*q.cache.row,
			scales: region + q.cache.scales + (token-side)*4,
			at:     kernel.KVGroup + p - side - from,
		})
		p += min(kernel.KVGroup-side, q.blockSize-token)
	}
	q.lane.panel.groups = groups
	return groups
}

// score fills in the products of all queries with the keys of positions [begin, to) of
// the segment at from, including positions out of a query's range. The scores of a group
// that is not full extend into those of the next group, which overwrite them later.
func (q *queries) score(from, begin, to int) {
	groups := q.findGroups(from, begin, to)
	q.lane.panel.score = kernel.Score{Dims: q.headDim, Stride: 4 * scoreStride}
	values := q.valuesAt(begin)
	for g := 0; g < len(groups); g += groupsTogether {
		for i := 0; i < q.count; {
			m, n := q.level.ScoreShape(q.count - i)
			for j := 0; j < groupsTogether && g+j < len(groups); j += n {
				q.scoreGroups(groups, g+j, values, i, m, n)
			}
			i += m
		}
	}
}

// scoreGroups makes one call for m queries from the i-th on and n groups from the g-th
// on. values is the offset of the values, which are read after the keys.
func (q *queries) scoreGroups(groups []keyGroup, g, values, i, m, n int) {
	p, c, size := &q.lane.panel, &q.lane.panel.score, kernel.KVGroup*q.cache.row
	for j := range n {
		k := groups[min(g+j, len(groups)-1)]
		c.Keys[j], c.Scores[j] = q.address(k.keys), &p.scores[i*scoreStride+k.at]
		if q.cache.kind == kernel.KVI8 {
			c.Scales[j] = (*float32)(q.address(k.scales))
		}
		next := values + j*size
		if g+groupsTogether+j < len(groups) {
			next = groups[g+groupsTogether+j].keys
		}
		c.Next[j] = q.address(min(next, len(q.cache.data)-size))
	}
	if q.pairs {
		c.Queries = unsafe.Pointer(&p.pairs.queries[i*pairsOf(q.headDim)])
		q.level.ScorePairs(m, c)
		return
	}
	c.Queries = unsafe.Pointer(&p.queries[i*q.headDim])
	q.level.Score(q.cache.kind, m, c)
}

// weights returns the row of scores of query i, beginning with the segment's first
// position.
func (q *queries) weights(i int) []float32 {
	return q.lane.panel.scores[i*scoreStride+kernel.KVGroup:][:segment]
}

// weigh turns scores into weights and clears the sums of the segment. With values of
// int8, it multiplies the weights by their scales.
func (q *queries) weigh(from int, part partial) {
	p := &q.lane.panel
	for i := range q.count {
		first, to := q.seen(q.tile, q.from+i, from)
		p.first[i], p.to[i] = first, to
		if to <= first {
			p.first[i], p.to[i] = 0, 0
			continue
		}
		scores := q.weights(i)
		if q.limit > 0 {
			bend(scores[first:to], q.limit)
		}
		begin := first / kernel.KVGroup * kernel.KVGroup
		scores = scores[begin : (to+kernel.KVGroup-1)/kernel.KVGroup*kernel.KVGroup]
		if q.pairs {
			part.softmax[i].top, part.softmax[i].norm = q.level.SoftmaxPairs(p.pairs.weights[i*segment+begin:], scores, first-begin, to-begin)
		} else {
			part.softmax[i].top, part.softmax[i].norm = q.level.Softmax(scores, first-begin, to-begin)
		}
	}
	clear(part.sums[:q.count*padded(q.headDim)])
}
