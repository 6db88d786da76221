package cpu

import "github.com/dynctl/dynctl/internal/engine/cpu/kernel"

// segment is how many positions attention takes together. Each segment has its
// own maximum, weights and weighted sum, and segments are merged from the first
// to the last. They start at multiples of this number, whatever the block size
// and the chunk, so a query's arithmetic depends on its position alone. Segments
// could also be computed side by side and then merged, with the same bits.
const segment = 256

// tile is a run of new tokens of one sequence whose queries are computed together.
type tile struct {
	blocks []int32
	first  int // index of the first token in the pass
	count  int
	start  int // position of the first token
}

// tileRows is how many queries a tile should have, counted over the query heads
// that share a KV head, and tileWork bounds queries × positions, so that an item
// of a long context stays short.
const (
	tileRows = 32
	tileWork = 8 << 10
	// panelWork is tileWork with kernels, which compute sixteen queries or
	// thirty-two.
	panelWork = 64 << 10
)

// tileTokens is the number of tokens for a tile whose last position is about pos.
func tileTokens(level kernel.Level, group, pos int) int {
	rows := min(tileRows, max(2*group, tileWork/(pos+1)))
	if level != kernel.Portable {
		rows = min(panelQueries, max(kernel.ColumnLanes, panelWork/(pos+1)))
	}
	return max(1, rows/group)
}

// attention computes one KV head of one tile.
type attention struct {
	level     kernel.Level
	cache     *cache
	layer     int
	group     int // query heads per KV head
	query     [][]float32
	out       [][]float32
	headDim   int
	blockSize int
	window    int     // positions that a query sees, its own included; 0: all
	limit     float32 // of scores, see bend; 0: none
}

func (a *attention) run(l *lane, t tile, kvHead int) {
	if a.level != kernel.Portable {
		a.runKernels(l, t, kvHead)
		return
	}
	rows := t.count * a.group
	l.reserveQueries(rows, a.headDim)
	end := t.start + t.count
	for from := a.oldest(t.start) / segment * segment; from < end; from += segment {
		to := min(from+segment, end)
		a.score(l, t, kvHead, from, to)
		for r := range rows {
			a.weigh(l, t, r, from)
		}
		a.gather(l, t, kvHead, from, to)
		for r := range rows {
			a.merge(l, t, r, from)
		}
	}
	a.store(l, t, kvHead)
}

// position is where the query of row r stands; rows are ordered by token, then by
// head.
func (a *attention) position(t tile, r int) int { return t.start + r/a.group }

// row is the query of row r.
func (a *attention) row(vectors [][]float32, t tile, kvHead, r int) []float32 {
	head := kvHead*a.group + r%a.group
	return vectors[t.first+r/a.group][head*a.headDim : (head+1)*a.headDim]
}

// score fills the products of all queries with the keys of positions [from, to).
// Products with later positions than the query's own are made too where that is
// simpler; nobody reads them.
func (a *attention) score(l *lane, t tile, kvHead, from, to int) {
	rows := t.count * a.group
	for p := from; p < to; {
		n := min(a.blockSize-p%a.blockSize, to-p)
		keys := a.cache.read(a.level, l.keys, t.blocks[p/a.blockSize], a.layer, 0, kvHead, p%a.blockSize, n)
		// The first query that sees this piece.
		r := max(0, p-t.start) * a.group
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

// scorePair multiplies two queries with all keys.
func scorePair(keys, x, y, sx, sy []float32) {
	d, i := len(x), 0
	for ; i+2 <= len(sx); i += 2 {
		k := keys[i*d : (i+2)*d]
		sx[i], sx[i+1], sy[i], sy[i+1] = dot2x2(k, k[d:], x, y)
	}
	if i < len(sx) {
		k := keys[i*d : (i+1)*d]
		sx[i], sy[i] = dot(k, x), dot(k, y)
	}
}

// scoreOne multiplies one query with all keys.
func scoreOne(keys, x, sx []float32) {
	d, i := len(x), 0
	for ; i+4 <= len(sx); i += 4 {
		k := keys[i*d : (i+4)*d]
		sx[i], sx[i+1], sx[i+2], sx[i+3] = dot4(k, k[d:], k[2*d:], k[3*d:], x)
	}
	for ; i < len(sx); i++ {
		sx[i] = dot(keys[i*d:(i+1)*d], x)
	}
}

// oldest is the first position that a query at pos sees.
func (a *attention) oldest(pos int) int {
	if a.window == 0 {
		return 0
	}
	return max(0, pos+1-a.window)
}

// seen is the range of positions that the query of row r sees, of the segment at
// from and relative to it; to is not above first when there are none.
func (a *attention) seen(t tile, r, from int) (first, to int) {
	pos := a.position(t, r)
	return max(0, a.oldest(pos)-from), min(segment, pos+1-from)
}

// weigh turns the scores of row r into weights relative to the segment's maximum,
// and clears the row's sum for this segment.
func (a *attention) weigh(l *lane, t tile, r, from int) {
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
	l.part[r] = softmax{top, norm}
	clear(l.partSums[r*a.headDim:][:a.headDim])
}

// gather adds up the weighted values of the segment for all rows.
func (a *attention) gather(l *lane, t tile, kvHead, from, to int) {
	d := a.headDim
	var w [4]float32
	for p := from; p < to; {
		n := min(a.blockSize-p%a.blockSize, to-p)
		values := a.cache.read(a.level, l.keys, t.blocks[p/a.blockSize], a.layer, 1, kvHead, p%a.blockSize, n)
		for r := max(0, p-t.start) * a.group; r < t.count*a.group; r++ {
			sum := l.partSums[r*d:][:d]
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

// merge adds the segment's part of row r to what the earlier segments gave.
func (a *attention) merge(l *lane, t tile, r, from int) {
	first, n := a.seen(t, r, from)
	if n <= first {
		return
	}
	sums, part := l.sums[r*a.headDim:][:a.headDim], l.partSums[r*a.headDim:][:a.headDim]
	if from <= a.oldest(a.position(t, r)) { // the row's first segment
		copy(sums, part)
		l.total[r] = l.part[r]
		return
	}
	old, add := l.total[r], l.part[r]
	top := max(old.top, add.top)
	keep, take := expf(old.top-top), expf(add.top-top)
	for d := range sums {
		sums[d] = float32(sums[d]*keep) + float32(part[d]*take)
	}
	l.total[r] = softmax{top, float32(old.norm*keep) + float32(add.norm*take)}
}

// store writes the finished rows.
func (a *attention) store(l *lane, t tile, kvHead int) {
	for r := range t.count * a.group {
		out, sums := a.row(a.out, t, kvHead, r), l.sums[r*a.headDim:]
		inv := 1 / l.total[r].norm
		for d := range out {
			out[d] = sums[d] * inv
		}
	}
}
