package cpu

import (
	"math"
	"unsafe"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
)

// run computes one view. Rows go through the layers in parts of at most e.most, but
// for queries, keys and values, which all rows need before any attends.
func (e *Encoder) run() error {
	e.lay()
	n := len(e.slots)
	e.reserve(n)
	if err := e.parts(n, e.embed); err != nil {
		return err
	}
	for i := range e.tower.layers {
		e.layer = &e.tower.layers[i]
		if err := e.parts(n, e.keys); err != nil {
			return err
		}
		if err := e.parts(n, e.attend); err != nil {
			return err
		}
	}
	if e.tower.PostNorm {
		e.from, e.to = 0, n
		if err := e.do(&e.tasks.postNorm, e.perRow()); err != nil {
			return err
		}
	}
	return e.parts(len(e.rows), e.project)
}

// parts computes rows in parts of about the same size.
func (e *Encoder) parts(n int, compute func() error) error {
	count := (n + e.most - 1) / e.most
	size := ((n+count-1)/count + tokensPerItem - 1) / tokensPerItem * tokensPerItem
	for e.from = 0; e.from < n; e.from = e.to {
		e.to = min(e.from+size, n)
		if err := compute(); err != nil {
			return err
		}
	}
	return nil
}

func (e *Encoder) reserve(n int) {
	t := e.tower
	most := min((n+tokensPerItem-1)/tokensPerItem*tokensPerItem, e.most)
	e.x = reserveRows(e.x, n, t.Hidden, n)
	e.q = reserveRows(e.q, n, t.Hidden, n)
	if t.Grid {
		e.cos, e.sin = reserveRows(e.cos, n, 2*len(t.freqs), n), reserveRows(e.sin, n, 2*len(t.freqs), n)
	}
	if t.Gated {
		e.gate = reserveRows(e.gate, most, t.FFN, e.most)
	}
	for _, rows := range []*[][]float32{&e.k, &e.v, &e.proj} {
		*rows = reserveRows(*rows, most, t.Hidden, e.most)
	}
	var f form
	for i := range t.layers {
		l := &t.layers[i]
		f |= l.attnForm | l.upForm | l.outForm | l.downForm
	}
	in := t.project.in.form()
	e.pixels.reserve(most, t.patch.cols, e.most, t.patch.form())
	e.norm.reserve(most, t.Hidden, e.most, f)
	e.attended.reserve(most, t.Hidden, e.most, f)
	e.up.reserve(most, t.FFN, e.most, f)
	e.source.reserve(min(len(e.rows), e.most), t.projected(), e.most, in)
	if t.project.out.rows > 0 {
		e.inner.reserve(min(len(e.rows), e.most), t.project.in.rows, e.most, t.project.out.form())
	}
	e.reserveCache(n)
}

// alignedBytes returns zeros that start at a multiple of 64.
func alignedBytes(n int) []byte {
	data := make([]byte, n+63)
	off := -int(uintptr(unsafe.Pointer(&data[0]))) & 63
	return data[off : off+n : off+n]
}

// perRow returns the items of tasks that work row by row.
func (e *Encoder) perRow() int { return (e.to - e.from + tokensPerItem - 1) / tokensPerItem }

// itemRows returns the rows of an item, counted from the first of the part.
func (e *Encoder) itemRows(item int) (from, to int) {
	return item * tokensPerItem, min((item+1)*tokensPerItem, e.to-e.from)
}

// plan lays out the products of one task and returns the number of items.
func (e *Encoder) plan(products ...*matrix) int {
	items := 0
	for i, m := range products {
		e.grids[i] = m.grid(e.to-e.from, e.device.cores)
		items += e.grids[i].items()
	}
	return items
}

// prepare makes the forms that readers need of rows that several items wrote together.
func (e *Encoder) prepare(a *activations, f form) error {
	a.form = f
	if f == 0 {
		return nil
	}
	e.preparing = a
	return e.do(&e.tasks.prepare, e.perRow())
}

func (e *Encoder) prepareItem(l *lane, item int) {
	from, to := e.itemRows(item)
	e.preparing.prepare(e.device.level, from, to)
}

// embed makes the rows of the first layer.
func (e *Encoder) embed() error {
	k := &e.tasks
	e.pixels.form = e.tower.patch.form()
	if err := e.do(&k.cut, e.perRow()); err != nil {
		return err
	}
	if err := e.do(&k.patch, e.plan(&e.tower.patch)); err != nil {
		return err
	}
	if e.tower.Grid {
		return e.do(&k.turn, e.perRow())
	}
	return e.do(&k.place, e.perRow())
}

// cutItem brings the pixels of patches side by side.
func (e *Encoder) cutItem(l *lane, item int) {
	size, side, w, h := e.tower.PatchSize, e.view.W/e.tower.PatchSize, e.view.W, e.view.H
	from, to := e.itemRows(item)
	for r := from; r < to; r++ {
		out := e.pixels.rows[r]
		if e.tower.Grid {
			copy(out, e.patch(e.from+r))
			continue
		}
		patch := e.from + r - e.tower.first()
		if patch < 0 {
			continue // the class token has none
		}
		corner := patch/side*size*w + patch%side*size
		for channel := range 3 {
			for y := range size {
				at := channel*w*h + corner + y*w
				copy(out[(channel*size+y)*size:], e.view.Pixels[at:at+size])
			}
		}
	}
	e.pixels.prepare(e.device.level, from, to)
}

func (e *Encoder) patchItem(l *lane, item int) {
	r0, r1, t0, t1 := e.grids[0].cell(item)
	e.tower.patch.apply(l, r0, r1, e.pixels.span(t0, t1), e.x[e.from+t0:e.from+t1])
}

// placeItem adds positions.
func (e *Encoder) placeItem(l *lane, item int) {
	t := e.tower
	l.reserveRows(t.Hidden)
	from, to := e.itemRows(item)
	for r := e.from + from; r < e.from+to; r++ {
		x, place := e.x[r], r
		if r < t.first() {
			copy(x, t.class)
		} else {
			place = t.first() + int(e.places[r-t.first()])
		}
		add(x, t.position.widen(l.rows[0], place))
		if t.PreNorm {
			t.preNorm.apply(e.device.level, x, x, t.NormEps)
		}
	}
}

// keys computes queries, keys and values.
func (e *Encoder) keys() error {
	l, k := e.layer, &e.tasks
	e.norm.form = l.attnForm
	if err := e.do(&k.norm, e.perRow()); err != nil {
		return err
	}
	if err := e.do(&k.qkv, e.plan(&l.q, &l.k, &l.v)); err != nil {
		return err
	}
	return e.do(&k.store, e.perRow())
}

func (e *Encoder) normItem(l *lane, item int) { e.normalize(item, &e.layer.attnNorm) }

func (e *Encoder) normalize(item int, norm *layerNorm) {
	from, to := e.itemRows(item)
	for r := from; r < to; r++ {
		norm.apply(e.device.level, e.norm.rows[r], e.x[e.from+r], e.tower.NormEps)
	}
	e.norm.prepare(e.device.level, from, to)
}

func (e *Encoder) qkvItem(l *lane, item int) {
	for i, m := range [3]*matrix{&e.layer.q, &e.layer.k, &e.layer.v} {
		if g := e.grids[i]; item < g.items() {
			dst := [3][][]float32{e.q[e.from:], e.k, e.v}[i]
			r0, r1, t0, t1 := g.cell(item)
			m.apply(l, r0, r1, e.norm.span(t0, t1), dst[t0:t1])
			return
		}
		item -= e.grids[i].items()
	}
}

// storeItem turns queries and keys, scales queries, and stores the keys and values of rows that are seen.
func (e *Encoder) storeItem(l *lane, item int) {
	level := e.device.level
	scale := float32(1 / math.Sqrt(float64(e.cache.shape.HeadDim)))
	from, to := e.itemRows(item)
	for r := from; r < to; r++ {
		q := e.q[e.from+r]
		if e.tower.Grid {
			e.rotateRow(q, e.from+r, scale)
			e.rotateRow(e.k[r], e.from+r, 1)
		} else if level == kernel.Portable {
			for i := range q {
				q[i] *= scale
			}
		} else {
			level.Scale(q, q, scale)
		}
		if slot := int(e.slots[e.from+r]); slot >= 0 {
			e.cache.write(level, &l.write, 0, 0, 0, slot, e.k[r])
			e.cache.write(level, &l.write, 0, 0, 1, slot, e.v[r])
		}
	}
}

// attend computes attention and the MLP.
func (e *Encoder) attend() error {
	l, k := e.layer, &e.tasks
	if err := e.do(&k.attn, e.planAttention()); err != nil {
		return err
	}
	if err := e.prepare(&e.attended, l.outForm); err != nil {
		return err
	}
	if err := e.do(&k.out, e.plan(&l.o)); err != nil {
		return err
	}
	e.norm.form = l.upForm
	if err := e.do(&k.mlpNorm, e.perRow()); err != nil {
		return err
	}
	if err := e.do(&k.up, e.plan(&l.up)); err != nil { // a gate has the same shape
		return err
	}
	if err := e.prepare(&e.up, l.downForm); err != nil {
		return err
	}
	return e.do(&k.down, e.plan(&l.down))
}

// planAttention cuts the rows of the part into tiles, and returns the number of items:
// one for each head of each tile.
func (e *Encoder) planAttention() int {
	pairs := e.cache.kind == kernel.KVBF16
	e.attn = attention{
		level: e.device.level, pairs: pairs, ranks: append(e.attn.ranks[:0], e.cache), group: 1, headDim: e.cache.shape.HeadDim,
		blockSize: e.cache.shape.BlockSize, query: e.q[e.from:e.to], out: e.attended.rows,
	}
	e.tiles = e.tiles[:0]
	if !e.layer.windowed {
		e.addTiles(engine.Span{End: len(e.slots)}, engine.Span{End: e.seen})
		return len(e.tiles) * e.tower.Heads
	}
	e.attn.window = 1 // a row sees its window, and nothing before it
	for _, window := range e.grid.windows {
		e.addTiles(window, window)
	}
	return len(e.tiles) * e.tower.Heads
}

// oneBlock is the block table of a view.
var oneBlock = []int32{0}

func (e *Encoder) attnItem(l *lane, item int) {
	n := len(e.tiles) // neighbors share their keys
	t := e.tiles[item%n]
	e.attn.run(l, t, attnItem{tile: item % n, head: item / n, from: e.attn.oldest(t, t.start) / segment, to: (t.mutual.End + segment - 1) / segment, split: -1})
}

func (e *Encoder) outItem(l *lane, item int) { e.join(l, item, &e.layer.o, &e.attended) }

func (e *Encoder) mlpNormItem(l *lane, item int) { e.normalize(item, &e.layer.mlpNorm) }

func (e *Encoder) upItem(l *lane, item int) {
	r0, r1, t0, t1 := e.grids[0].cell(item)
	if e.tower.Gated {
		e.gatedItem(l, r0, r1, t0, t1)
		return
	}
	e.layer.up.apply(l, r0, r1, e.norm.span(t0, t1), e.up.rows[t0:t1])
	for t := t0; t < t1; t++ {
		gelu(e.device.level, e.tower.Act, e.up.rows[t][r0:r1])
	}
}

// gatedItem computes the same rows of gate and up and joins them.
func (e *Encoder) gatedItem(l *lane, r0, r1, t0, t1 int) {
	e.layer.gate.apply(l, r0, r1, e.norm.span(t0, t1), e.up.rows[t0:t1])
	e.layer.up.apply(l, r0, r1, e.norm.span(t0, t1), e.gate[t0:t1])
	for t := t0; t < t1; t++ {
		swiglu(e.device.level, e.up.rows[t][r0:r1], e.gate[t][r0:r1])
	}
}

func (e *Encoder) downItem(l *lane, item int) { e.join(l, item, &e.layer.down, &e.up) }

// join adds a product to the residual.
func (e *Encoder) join(l *lane, item int, m *matrix, src *activations) {
	r0, r1, t0, t1 := e.grids[0].cell(item)
	m.apply(l, r0, r1, src.span(t0, t1), e.proj[t0:t1])
	for t := t0; t < t1; t++ {
		add(e.x[e.from+t][r0:r1], e.proj[t][r0:r1])
	}
}

func (e *Encoder) postNormItem(l *lane, item int) {
	from, to := e.itemRows(item)
	for r := from; r < to; r++ {
		e.tower.postNorm.apply(e.device.level, e.x[r], e.x[r], e.tower.NormEps)
	}
}
