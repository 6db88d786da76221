package cpu

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/model"
)

// Encoder turns views of images into rows of text embeddings. Its calls must not overlap.
type Encoder struct {
	runner
	tower *tower
	most  int       // rows of a part, a multiple of tokensPerItem
	since time.Time // when the device was last taken

	view   *engine.View
	places []int32 // position of each patch, or of each row of the tower in a grid
	slots  []int32 // place of each row among those that are seen; -1 for padding
	seen   int
	grid   patchGrid
	layer  *towerLayer
	from   int // first row of the part that is computed
	to     int

	cache cache
	attn  attention
	tiles []tile
	grids [3]grid

	x          [][]float32 // [row][hidden], the residual: the class token and the patches
	cos, sin   [][]float32 // [row][half a head], of a grid
	q          [][]float32 // [row][hidden]
	pixels     activations // [row of the part][channel × row × column of a patch]
	norm       activations // [row of the part][hidden]
	k, v, proj [][]float32
	gate       [][]float32 // [row of the part][ffn]
	attended   activations
	up         activations // [row of the part][ffn]
	source     activations // [row of the part][inputs of the projector]
	inner      activations // [row of the part][hidden of the text]
	rows       [][]float32 // results

	preparing *activations
	tasks     encoderTasks
}

type encoderTasks struct {
	cut, patch, place, turn, norm, qkv, store, attn, prepare, out, mlpNorm, up, down, postNorm, source, in, project task
}

// NewEncoder makes an encoder. The first one of a model reads the vision part of the
// weights and, with kernels, packs them, which takes [Device.EncoderBytes] until
// [Weights.Close]. It returns [ErrNoVision] for a model that reads text only.
func (w *Weights) NewEncoder() (*Encoder, error) {
	t, err := w.loadTower()
	if err != nil {
		return nil, fmt.Errorf("new encoder: %w", err)
	}
	e := &Encoder{tower: t, most: passTokens}
	turn := newTurn()
	turn.prefill = true
	e.runner.bind(w.device, turn)
	k := &e.tasks
	for _, b := range []struct {
		t   *task
		run func(l *lane, item int)
		op  operator
	}{
		{&k.cut, e.cutItem, opEmbed}, {&k.patch, e.patchItem, opEmbed}, {&k.place, e.placeItem, opEmbed},
		{&k.turn, e.turnItem, opEmbed},
		{&k.norm, e.normItem, opNorm}, {&k.qkv, e.qkvItem, opQKV}, {&k.store, e.storeItem, opRotate},
		{&k.attn, e.attnItem, opAttention}, {&k.prepare, e.prepareItem, opPrepare}, {&k.out, e.outItem, opAttnOut},
		{&k.mlpNorm, e.mlpNormItem, opNorm}, {&k.up, e.upItem, opGateUp}, {&k.down, e.downItem, opDown},
		{&k.postNorm, e.postNormItem, opNorm}, {&k.source, e.sourceItem, opProject},
		{&k.in, e.inItem, opProject}, {&k.project, e.projectItem, opProject},
	} {
		b.t.run, b.t.op = b.run, b.op
	}
	return e, nil
}

// Close drops the working memory.
func (e *Encoder) Close() error {
	*e = Encoder{}
	return nil
}

// Newline returns the row that ends each line of the tiles of an image; nil for a family
// without, and after Close.
func (e *Encoder) Newline() []float32 {
	if e.tower == nil {
		return nil
	}
	return e.tower.newline
}

// Encode computes the rows of all views, those of a view after those of the one before,
// each as wide as the text model's embeddings. A view makes [model.Vision.Rows]
// rows, and an image in a grid one for each of its squares. They
// stand in place of embeddings as the text model reads them: what it multiplies embeddings
// with does not count for them.
//
// Decode steps of the device go first, and steps with prefill chunks take turns with it.
// The rows of a view have the same bits whatever else is encoded, and however many cores
// compute. It returns the context's cause, [engine.ErrView] before anything is computed,
// [ErrMemory] or [ErrClosed].
func (e *Encoder) Encode(ctx context.Context, views []engine.View) ([][]float32, error) {
	rows, err := e.encode(ctx, views)
	if err != nil {
		return nil, fmt.Errorf("encode images: %w", err)
	}
	return rows, nil
}

func (e *Encoder) encode(ctx context.Context, views []engine.View) (out [][]float32, err error) {
	if e.tower == nil {
		return nil, ErrClosed
	}
	total := 0
	for i := range views {
		if err := e.check(&views[i]); err != nil {
			return nil, fmt.Errorf("view %d: %w", i, err)
		}
		total += e.tower.resultRows(&views[i])
	}
	out = reserveRows(out, total, e.tower.out, total)
	e.ctx, e.waited = ctx, 0
	defer func() { e.ctx, e.view, e.rows = nil, nil, nil }()
	defer e.device.pool.observer.unlabel(ctx)
	turns := &e.device.turns
	if err := turns.acquire(ctx, e.turn, false); err != nil {
		return nil, err
	}
	e.since = time.Now()
	defer turns.release(e.turn)
	e.device.pool.enter()
	defer e.device.pool.leave()
	// The calling goroutine reads mapped weights, too; see pool.exec.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	rest := out
	for i := range views {
		n := e.tower.resultRows(&views[i])
		e.view, e.rows, rest = &views[i], rest[:n], rest[n:]
		if err := e.run(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// shareAfter is the time that an encoder uses the device before it lets prefill steps
// that wait have a turn. Each of them may have sequences that decode.
const shareAfter = 20 * time.Millisecond

// do runs a task, and shares the device.
func (e *Encoder) do(t *task, n int) error {
	if e.device.turns.prefillWaits.Load() && time.Since(e.since) > shareAfter {
		if err := e.yield(false); err != nil {
			return err
		}
		e.since = time.Now()
	}
	return e.runner.do(t, n)
}

// check refuses views that the tower cannot read.
func (e *Encoder) check(v *engine.View) error {
	t := e.tower
	if t.Grid {
		return t.checkGrid(v)
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{engine.ErrView}, args...)...)
	}
	whole := t.ImageSize
	switch {
	case !t.Bucketed && (v.W != whole || v.H != whole):
		return refuse("%d × %d pixels, want %d × %d", v.W, v.H, whole, whole)
	case t.Bucketed && (v.W != v.H || v.W < t.PatchSize || v.W > whole || v.W/t.PatchSize%t.Projector.Factor != 0):
		return refuse("%d × %d pixels, want a square of at most %d with a multiple of %d patches of %d along a side", v.W, v.H, whole, t.Projector.Factor, t.PatchSize)
	case v.Patches != nil:
		return refuse("patches, but this tower takes pixels")
	case len(v.Pixels) != 3*v.W*v.H:
		return refuse("%d values of pixels, want 3 × %d × %d", len(v.Pixels), v.W, v.H)
	case v.Mask == nil:
		return nil
	}
	side := v.W / t.PatchSize
	if !t.Bucketed {
		return refuse("a mask, but all patches of this tower count")
	}
	if len(v.Mask) != side*side {
		return refuse("a mask of %d patches, want %d", len(v.Mask), side*side)
	}
	rows, columns := shown(v.Mask, side)
	for i, ok := range v.Mask {
		if ok != (i/side < rows && i%side < columns) || !v.Mask[0] {
			return refuse("the mask has to show a rectangle at the top left")
		}
	}
	return nil
}

// shown returns the rows and columns of patches that are not padding.
func shown(mask []bool, side int) (rows, columns int) {
	for i := range side {
		if mask[i*side] {
			rows++
		}
		if mask[i] {
			columns++
		}
	}
	return rows, columns
}

// lay decides which patches are seen, and gives each its position.
func (e *Encoder) lay() {
	if e.tower.Grid {
		e.layGrid()
		return
	}
	t, side := e.tower, e.view.W/e.tower.PatchSize
	rows, columns := side, side
	if e.view.Mask != nil {
		rows, columns = shown(e.view.Mask, side)
	}
	first := t.first()
	e.places = slices.Grow(e.places[:0], side*side)[:side*side]
	e.slots = slices.Grow(e.slots[:0], first+side*side)[:first+side*side]
	e.seen = 0
	for i := range first {
		e.slots[i] = int32(i)
		e.seen++
	}
	for y := range side {
		for x := range side {
			i := y*side + x
			e.places[i], e.slots[first+i] = 0, -1
			if y < rows && x < columns {
				e.places[i] = int32(t.place(y, rows)*t.Side() + t.place(x, columns))
				e.slots[first+i] = int32(e.seen)
				e.seen++
			}
		}
	}
}

// first returns the row of the first patch.
func (t *tower) first() int {
	if t.ClassToken {
		return 1
	}
	return 0
}

// place returns the row or column of a whole view whose position the i-th of n patches
// takes: the number of multiples of 1/side that its share of the side has reached. As in
// transformers both are float32. For the 26, 27 and 32 patches of published towers no
// rounding matters; for some other sides it does, and there transformers' own results
// depend on the vectors of the machine.
func (t *tower) place(i, n int) int {
	if !t.Bucketed {
		return i
	}
	share := float32(i) * (1 / float32(n))
	place := 0
	for place+1 < t.Side() && float32(float64(place+1)/float64(t.Side())) <= share {
		place++
	}
	return place
}

// reserveCache makes memory for keys and values of one layer.
func (e *Encoder) reserveCache(rows int) {
	t := e.tower
	shape := kvlayout.Shape{Layers: 1, KVHeads: t.Heads, HeadDim: t.Hidden / t.Heads, BlockSize: (rows + kernel.KVGroup - 1) &^ (kernel.KVGroup - 1), DType: KVF32}
	if len(t.layers) > 0 && t.layers[0].q.packed.rounded && e.device.attentionPairs(kernel.KVBF16) {
		shape.DType = KVBF16
	}
	if e.cache.shape == shape {
		return
	}
	data := e.cache.data
	if n := int(shape.BlockBytes()); cap(data) < n {
		data = alignedBytes(n)
	} else {
		data = data[:n]
	}
	e.cache = newCache(shape, 1, data)
}

// projected returns the width of the projector's inputs.
func (t *tower) projected() int {
	if t.Projector.Kind == model.ProjectShuffle || t.Projector.Kind == model.ProjectMerge {
		return t.Hidden * t.Projector.Factor * t.Projector.Factor
	}
	return t.Hidden
}
