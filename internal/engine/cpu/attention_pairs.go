package cpu

import (
	"unsafe"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
)

// A device with activations in bf16 computes attention over KV of bf16 in pairs: it also
// rounds queries and weights to bf16, and multiplies pairs of values.

// attentionPairs reports whether the device computes attention over a type of KV in
// pairs.
func (d *Device) attentionPairs(kv kernel.KVType) bool {
	return d.bf16 && kv == kernel.KVBF16 && d.level.AttentionPairs()
}

// pairRoom is the working memory for attention in pairs.
type pairRoom struct {
	queries []uint32 // queries of one call after the other, [dim / 2][query]
	row     []uint16 // one query
	weights []uint16 // [query][position]
	values  []byte   // two tokens that lie in different blocks
}

func (p *pairRoom) reserve(headDim, row int) {
	p.queries = grow(p.queries, panelQueries*pairsOf(headDim))
	p.row = grow(p.row, kernel.StrideBF16(headDim)/2)
	p.weights = grow(p.weights, panelQueries*segment)
	p.values = grow(p.values, 2*row)
}

// pairsOf returns how many pairs the dimensions make; the last pair may contain a zero.
func pairsOf(dims int) int { return (dims + 1) / 2 }

// packPairs does what pack does, for kernels of pairs.
func (q *queries) packPairs() {
	p, n := &q.lane.panel.pairs, pairsOf(q.headDim)
	row := p.row[:kernel.StrideBF16(q.headDim)/2]
	for i := 0; i < q.count; {
		m, _ := q.level.ScoreShape(q.count - i)
		out := p.queries[i*n:][:m*n]
		for j := range m {
			q.level.PrepareBF16(row, q.row(q.query, q.tile, q.kvHead, q.from+i+j)[:q.headDim])
			for d, at := 0, j; at < len(out); d, at = d+2, at+m {
				out[at] = uint32(row[d]) | uint32(row[d+1])<<16
			}
		}
		i += m
	}
}

// pairRun returns a run of two tokens that lie in different blocks, as a copy.
func (q *queries) pairRun(p int) valueRun {
	size, values := q.cache.row, q.lane.panel.pairs.values
	for i := range 2 {
		at := q.valuesAt(p + i)
		copy(values[i*size:(i+1)*size], q.cache.data[at:])
	}
	return valueRun{values: unsafe.Pointer(&values[0]), count: 2}
}

// weightsAt returns the address of a row's weights for positions of the segment from at
// on.
func (q *queries) weightsAt(row, at int) unsafe.Pointer {
	if q.pairs {
		return unsafe.Pointer(&q.lane.panel.pairs.weights[row*segment+at])
	}
	return unsafe.Pointer(&q.weights(row)[at])
}

// mixWidth returns how many of n dimensions the next product of the given rows takes.
func (q *queries) mixWidth(rows, n int) int {
	if q.pairs {
		return q.level.MixPairsWidth(rows, n)
	}
	return q.level.MixWidth(rows, n)
}

func (q *queries) mix(rows, width int, m *kernel.Mix) {
	if q.pairs {
		q.level.MixPairs(rows, width, m)
	} else {
		q.level.Mix(q.cache.kind, rows, width, m)
	}
}
