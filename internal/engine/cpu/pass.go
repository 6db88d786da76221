package cpu

import (
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
)

// passTokens bounds the tokens that go through the layers together. Larger batches take
// several passes. Each pass reads the weights once more, but the working memory stays
// small. Results do not change.
const passTokens = 512

// token is one new token of a pass.
type token struct {
	id       uint32
	row      []float32 // its embedding; nil for that of id
	position int
	at       [3]int // by which it rotates
	block    int32  // block that receives its K and V
	slot     int    // token in the block
}

// pass is the working memory of a backend: the tokens that go through the layers together
// and their activations, one row for each token.
type pass struct {
	level  kernel.Level
	pairs  bool
	tokens []token
	tiles  []tile
	// lastOf and logits pair a token of the pass with the buffer for the logits that
	// follow it.
	lastOf []int
	logits [][]float32

	x    [][]float32 // [token][hidden], the residual
	norm activations // [token][hidden]
	q    [][]float32 // [token][heads × head dim]
	k, v [][]float32 // [token][kv heads × head dim]
	attn activations // [token][heads × head dim]
	proj [][]float32 // [token][hidden]
	gate activations // [token][ffn]
	up   [][]float32 // [token][ffn]
	last activations // [sequence with logits][hidden]
	// cos and sin belong to the rotations that the model uses.
	cos, sin [numRopes][][]float32 // [token][rotated values / 2]

	moe  moe
	plan attnPlan
}

// cursor is a position in a batch, between passes.
type cursor struct {
	seq, offset int
}

// fill takes tokens from the batch until the pass is full and reports whether there are
// any.
func (p *pass) fill(c *cursor, batch []engine.BatchSeq, blockSize, group int) bool {
	p.tokens, p.tiles = p.tokens[:0], p.tiles[:0]
	p.lastOf, p.logits = p.lastOf[:0], p.logits[:0]
	p.plan.reset(0)
	for c.seq < len(batch) && len(p.tokens) < passTokens {
		s := &batch[c.seq]
		n := p.room(s, c.offset)
		if n == 0 {
			break
		}
		p.addTiles(s, c.offset, n, group)
		for _, id := range s.Tokens[c.offset : c.offset+n] {
			position := s.Start + c.offset
			var row []float32
			if s.Rows != nil {
				row = s.Rows[c.offset]
			}
			p.tokens = append(p.tokens, token{id, row, position, s.Positions.At(position), s.Blocks[position/blockSize], position % blockSize})
			c.offset++
		}
		if c.offset == len(s.Tokens) {
			if s.Logits != nil {
				p.lastOf = append(p.lastOf, len(p.tokens)-1)
				p.logits = append(p.logits, s.Logits)
			}
			c.seq, c.offset = c.seq+1, 0
		}
	}
	return len(p.tokens) > 0
}

// room returns how many of the tokens from offset on the pass takes. It does not cut a
// mutual run, whose rows need each other's KV in every layer: that comes in the next pass,
// or as a longer pass of its own.
func (p *pass) room(s *engine.BatchSeq, offset int) int {
	n := min(len(s.Tokens)-offset, passTokens-len(p.tokens))
	at := s.Start + offset
	for _, m := range s.Mutual {
		switch {
		case m.Start >= at+n || at+n >= m.End:
		case m.Start > at || len(p.tokens) > 0:
			return max(m.Start-at, 0)
		default:
			return m.End - at
		}
	}
	return n
}

// addTiles cuts n tokens of a sequence into tiles for attention.
func (p *pass) addTiles(s *engine.BatchSeq, offset, n, group int) {
	runs := s.Mutual
	for done := 0; done < n; {
		start := s.Start + offset + done
		t := tile{blocks: s.Blocks, first: len(p.tokens) + done, count: n - done, start: start}
		for len(runs) > 0 && runs[0].End <= start {
			runs = runs[1:]
		}
		if len(runs) > 0 && runs[0].Start <= start {
			t.mutual, t.count = runs[0], min(t.count, runs[0].End-start)
		} else if len(runs) > 0 {
			t.count = min(t.count, runs[0].Start-start)
		}
		t.count = min(t.count, tileTokens(p.level, p.pairs, group, t.end(start)-1))
		p.tiles = append(p.tiles, t)
		done += t.count
	}
}

// reserve makes room for the activations of the pass's tokens.
func (p *pass) reserve(b *Backend) {
	c := b.weights.config
	n := len(p.tokens)
	for _, m := range []struct {
		rows *[][]float32
		n    int
		cols int
	}{
		{&p.x, n, c.Hidden}, {&p.proj, n, c.Hidden}, {&p.up, n, c.FFN},
		{&p.q, n, c.Heads * c.HeadDim}, {&p.k, n, c.KVHeads * c.HeadDim}, {&p.v, n, c.KVHeads * c.HeadDim},
	} {
		*m.rows = reserveRows(*m.rows, m.n, m.cols, passTokens)
	}
	f := b.weights.forms
	p.norm.reserve(n, c.Hidden, passTokens, f.attn|f.mlp)
	p.attn.reserve(n, c.Heads*c.HeadDim, passTokens, f.out)
	p.gate.reserve(n, c.FFN, passTokens, f.down)
	p.last.reserve(len(p.lastOf), c.Hidden, passTokens, b.weights.head.form())
	for i, r := range b.ropes {
		p.cos[i] = reserveRows(p.cos[i], n, len(r.invFreq), passTokens)
		p.sin[i] = reserveRows(p.sin[i], n, len(r.invFreq), passTokens)
	}
	if c.MoE.Experts > 0 {
		p.moe.reserve(n, c.Hidden, c.MoE, f)
	}
}

// reserveRows returns n rows of cols elements: the old ones if they suffice. Capacity
// doubles up to limit, the size of a full pass, so that slowly growing batches do not
// allocate each time.
func reserveRows[T any](rows [][]T, n, cols, limit int) [][]T {
	return reserveApart(rows, n, cols, cols, limit)
}

// reserveApart does what reserveRows does, for rows that start stride elements apart.
func reserveApart[T any](rows [][]T, n, cols, stride, limit int) [][]T {
	if n <= cap(rows) {
		return rows[:n]
	}
	size := min(max(n, 2*cap(rows)), max(n, limit))
	data := make([]T, size*stride)
	rows = make([][]T, size)
	for i := range rows {
		rows[i] = data[i*stride:][:cols:cols]
	}
	return rows[:n]
}
