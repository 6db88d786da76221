package cpu

import (
	"unsafe"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
)

const (
	// runBytes of values are read at a time, and as many are prefetched. It doubles when
	// more than fewRows use the values, because each run costs loading and storing the
	// sums.
	runBytes = 16 << 10
	fewRows  = 6
)

// gather adds up the weighted values of positions [begin, to) of the segment at from for
// all queries. more reports that another segment follows.
func (q *queries) gather(from, begin, to int, more bool, part partial) {
	if q.cache.kind == kernel.KVI8 {
		q.scaleWeights(from, begin, to)
	}
	m := &q.lane.panel.mix
	d := padded(q.headDim)
	*m = kernel.Mix{WeightStride: 4 * scoreStride, ValueStride: q.cache.row, SumStride: 4 * d}
	most := max(kernel.KVGroup, runBytes/q.cache.row)
	if q.count > fewRows {
		most *= 2
	}
	share := q.level.MixShare
	if q.pairs {
		m.WeightStride, share, begin = 2*segment, q.level.MixPairsShare, begin&^1
	}
	for p := begin; p < to; {
		r := q.nextRun(p, to, most, more)
		r.at, r.sums = p-from, part.sums
		for i := 0; i < q.count; {
			rows := share(q.count - i)
			q.mixRows(&r, i, rows)
			i += rows
		}
		p += r.count
	}
}

// nextRun returns the run of at most most values that begins at p and ends before to.
// more is gather's.
func (q *queries) nextRun(p, to, most int, more bool) valueRun {
	n := min(q.blockSize-p%q.blockSize, to-p, most)
	if q.pairs && n%2 == 1 && p+n < to { // pairs stay together
		if n == 1 {
			return q.pairRun(p)
		}
		n--
	}
	values := q.valuesAt(p)
	next := values
	switch {
	case p+n < to:
		next = q.valuesAt(p + n)
	case more:
		region, token := q.place(to, 0)
		next = region + token/kernel.KVGroup*kernel.KVGroup*q.cache.row
	}
	return valueRun{values: q.address(values), ahead: min(next, len(q.cache.data)-n*q.cache.row) - values, count: n}
}

// scaleWeights multiplies weights by the scales of positions [begin, to).
func (q *queries) scaleWeights(from, begin, to int) {
	scales := q.lane.panel.scales[:]
	for p := begin; p < to; {
		region, token := q.place(p, 1)
		n := min(q.blockSize-token, to-p)
		copy(scales[p-from:], view[float32](q.cache, region+q.cache.scales+4*token, n))
		p += n
	}
	for i := range q.count {
		first, to := q.lane.panel.first[i], q.lane.panel.to[i]
		weights := q.weights(i)[first:to]
		q.level.ScaleBy(weights, weights, scales[first:to], 1)
	}
}

// valueRun is a run of positions of a segment whose values are contiguous.
type valueRun struct {
	values unsafe.Pointer
	ahead  int // bytes from there to the values read next
	at     int // position in the segment
	count  int
	sums   []float32
}

// mixRows adds a run to rows of sums. It adds positions that all rows attend to for all
// rows together, and those before and after for the rows of each token. A position
// outside of a row's range is left out, not weighed with zero, because its value may be a
// NaN or infinite.
func (q *queries) mixRows(r *valueRun, row, rows int) {
	p, end := &q.lane.panel, row+rows
	seen := func(i int) (int, int) { return max(0, p.first[i]-r.at), min(r.count, p.to[i]-r.at) }
	first, to := 0, r.count
	for i := row; i < end; i++ {
		f, t := seen(i)
		first, to = max(first, f), min(to, t)
	}
	if first == 0 && to == r.count {
		q.mixSpan(r, row, rows, 0, to)
		return
	}
	if q.pairs { // whole pairs that all rows attend to
		first += first % 2
		if to < r.count {
			to -= to % 2
		}
	}
	if first >= to { // nothing in common
		first, to = r.count, r.count
	}
	for i := row; i < end; {
		n := q.alike(i, end)
		f, t := seen(i)
		q.mixSpan(r, i, n, f, min(t, first))
		i += n
	}
	q.mixSpan(r, row, rows, first, to)
	for i := row; i < end; {
		n := q.alike(i, end)
		_, t := seen(i)
		q.mixSpan(r, i, n, to, t)
		i += n
	}
}

// alike returns how many rows from i on, below end, attend to the same positions.
func (q *queries) alike(i, end int) int {
	p, n := &q.lane.panel, 1
	for i+n < end && p.first[i+n] == p.first[i] && p.to[i+n] == p.to[i] {
		n++
	}
	return n
}

// mixSpan adds positions [from, to) of a run.
func (q *queries) mixSpan(r *valueRun, row, rows, from, to int) {
	if from >= to {
		return
	}
	if q.pairs && from%2 == 1 && to-from > 1 { // the second of a pair whose first is out of range
		q.mixSpan(r, row, rows, from, from+1)
		from++
	}
	m, d := &q.lane.panel.mix, padded(q.headDim)
	m.Weights, m.Count = q.weightsAt(row, r.at+from), to-from
	for at := 0; at < d; {
		width := q.mixWidth(rows, d-at)
		m.Values = unsafe.Add(r.values, from*q.cache.row+at*q.cache.kind.Size())
		m.Next = unsafe.Add(m.Values, r.ahead)
		m.Sums = &r.sums[row*d+at]
		q.mix(rows, width, m)
		at += width
	}
}
