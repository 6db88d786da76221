package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/model/safetensors"
	"github.com/dynctl/dynctl/internal/patience"
)

// attentionCase is attention of some new tokens of one sequence, with everything
// around it.
type attentionCase struct {
	*attention
	tile tile
	head int
	// What the cache holds of the head, [position][dim].
	keys, values [][]float64
}

// held returns a row as stored in a type of KV.
func held(kv string, row []float32) []float64 {
	out := make([]float64, len(row))
	var top float64
	for i, v := range row {
		out[i] = float64(v)
		top = max(top, math.Abs(out[i]))
	}
	for i, v := range row {
		switch kv {
		case KVBF16:
			out[i] = float64(safetensors.FromBF16(safetensors.ToBF16(v)))
		case KVInt8:
			out[i] = math.RoundToEven(float64(v*float32(127/float32(top)))) * float64(float32(top)/127)
		}
	}
	return out
}

// attentionVariant is a kind of attention.
type attentionVariant struct {
	level kernel.Level
	kv    string
	pairs bool
}

func (v attentionVariant) String() string {
	if v.pairs {
		return fmt.Sprint(v.level, " ", v.kv, ", pairs")
	}
	return fmt.Sprint(v.level, " ", v.kv)
}

// attentionVariants returns all variants that this machine has.
func attentionVariants() (all []attentionVariant) {
	for _, level := range kernel.Levels() {
		for _, kv := range []string{KVF32, KVBF16, KVInt8} {
			all = append(all, attentionVariant{level, kv, false})
		}
		if level.AttentionPairs() {
			all = append(all, attentionVariant{level, KVBF16, true})
		}
	}
	return all
}

// newAttentionCase draws a shape and fills the memory: with what is no number where
// no token stands.
func newAttentionCase(rng *rand.Rand, v attentionVariant) attentionCase {
	pick := func(list ...int) int { return list[rng.IntN(len(list))] }
	shape := kvlayout.Shape{
		Layers: 2, KVHeads: 1 + rng.IntN(2), HeadDim: pick(1, 2, 7, 64, 80, 96, 128, 256), BlockSize: pick(1, 3, 16, 64, 300), DType: v.kv,
	}
	end := 1 + rng.IntN(pick(20, 300, 900))
	count := 1 + rng.IntN(min(end, pick(1, 4, 20)))
	a := attentionCase{
		attention: &attention{
			level: v.level, pairs: v.pairs, plan: new(attnPlan), layer: rng.IntN(2), group: pick(1, 2, 3, 4, 8), headDim: shape.HeadDim, blockSize: shape.BlockSize,
			window: pick(0, 0, 1+rng.IntN(end), 1+rng.IntN(300)), limit: float32(pick(0, 0, 2)),
		},
		head: rng.IntN(shape.KVHeads),
	}
	a.tile = tile{count: count, start: end - count}
	if rng.IntN(3) == 0 {
		a.tile.mutual = engine.Span{Start: rng.IntN(a.tile.start + 1), End: end + rng.IntN(pick(1, 5, 300))}
		end = a.tile.mutual.End
	}
	blocks := (end + shape.BlockSize - 1) / shape.BlockSize
	for n, rank := 1+rng.IntN(shape.KVHeads), 0; rank < n; rank++ { // of one or two heads
		part := shape.Rank(n)
		data := make([]byte, (blocks+2)*int(part.BlockBytes()))
		for i := range data {
			data[i] = 0xFF
		}
		a.ranks = append(a.ranks, newCache(part, blocks+2, data))
	}
	for _, b := range rng.Perm(blocks + 2)[:blocks] {
		a.tile.blocks = append(a.tile.blocks, int32(b))
	}
	w := new(writing)
	row := func(p, kv, heads int) []float32 {
		x := make([]float32, heads*shape.HeadDim)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	for p := range end {
		for side, list := range []*[][]float64{&a.keys, &a.values} {
			x := row(p, side, shape.KVHeads)
			a.ranks.write(v.level, w, a.tile.blocks[p/shape.BlockSize], a.layer, side, p%shape.BlockSize, x)
			*list = append(*list, held(v.kv, x[a.head*shape.HeadDim:][:shape.HeadDim]))
		}
	}
	for range count {
		a.query = append(a.query, row(0, 0, shape.KVHeads*a.group))
		a.out = append(a.out, make([]float32, shape.KVHeads*a.group*shape.HeadDim))
	}
	return a
}

// compute runs n tokens from the first-th on, in so many items.
func (a attentionCase) compute(rng *rand.Rand, first, n, items int) {
	t := tile{blocks: a.tile.blocks, first: first, count: n, start: a.tile.start + first, mutual: a.tile.mutual}
	whole := attnItem{head: a.head, from: a.oldest(t, t.start) / segment, to: (t.end(t.last())-1)/segment + 1, split: -1}
	a.plan.reset(0)
	a.plan.items = append(a.plan.items, whole)
	if items = min(items, whole.to-whole.from); items > 1 && n*a.group <= panelQueries {
		a.plan.items = a.plan.items[:0]
		a.plan.split(whole, items, n*a.group, padded(a.headDim))
		a.plan.splits[0].left.Store(int32(items))
	}
	for _, i := range rng.Perm(len(a.plan.items)) {
		a.run(new(lane), t, a.plan.items[i])
	}
}

// reference computes the result for one head of a token in float64, and how large the
// values are that it is a mean of. In pairs queries are rounded and, if asked for,
// weights as well, relative to the largest of their segment.
func (a attentionCase) reference(token, head int, roundWeights bool) (mean []float64, size float64) {
	pos := a.tile.start + token
	query := a.query[token][head*a.headDim:][:a.headDim]
	scores, tops := make([]float64, len(a.keys)), map[int]float64{}
	seen := func(p int) bool {
		run := a.tile.mutual
		return p <= pos && (a.window == 0 || pos-p < a.window) || run.Start <= p && p < run.End
	}
	for p := range scores {
		if !seen(p) {
			continue
		}
		for d, v := range query {
			x := float64(v)
			if a.pairs {
				x = toBF16Exactly(x)
			}
			scores[p] += x * a.keys[p][d]
		}
		if limit := float64(a.limit); limit > 0 {
			scores[p] = limit * math.Tanh(scores[p]/limit)
		}
		if top, ok := tops[p/segment]; !ok || scores[p] > top {
			tops[p/segment] = scores[p]
		}
	}
	top := math.Inf(-1)
	for _, v := range tops {
		top = max(top, v)
	}
	mean = make([]float64, a.headDim)
	norm := 0.0
	for p := range scores {
		if !seen(p) {
			continue
		}
		w := math.Exp(scores[p] - tops[p/segment])
		if roundWeights {
			w = toBF16Exactly(w)
		}
		w *= math.Exp(tops[p/segment] - top)
		norm += w
		for d, v := range a.values[p] {
			mean[d] += w * v
			size = max(size, math.Abs(v))
		}
	}
	for d := range mean {
		mean[d] /= norm
	}
	return mean, size
}

// TestAttention compares all kinds of attention with float64, over shapes, types,
// block sizes, windows and caps, and demands the same bits for tokens together and
// alone, in one item and in several.
func TestAttention(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("arithmetic of one goroutine; others split it: TestSplitAttention")
	}
	for _, v := range attentionVariants() {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(v.level), uint64(len(v.kv))))
			var d distance
			for range 90 {
				a := newAttentionCase(rng, v)
				what := fmt.Sprintf("%d ranks of %+v, group %d, window %d, limit %v, %d tokens at %d, mutual %v", len(a.ranks), a.ranks[0].shape, a.group, a.window, a.limit, a.tile.count, a.tile.start, a.tile.mutual)
				a.compute(rng, 0, a.tile.count, 1)
				var together [][]float32
				for token, out := range a.out {
					together = append(together, append([]float32(nil), out...))
					for i := range a.group {
						d.add(t, a, what, token, a.head*a.group+i)
					}
					clear(out)
				}
				for token := range a.out {
					a.compute(rng, token, 1, 1+rng.IntN(4))
					sameBits(t, what+", alone", a.out[token], together[token])
				}
			}
			d.check(t, v)
		})
	}
}

// Bounds for errors, as a share of the largest value. Scores of 256 normal dimensions are
// some 16 in size; their rounding errors of 1e-5 become such of the weights. In pairs each
// weight is off by 2^-8 of itself at most, and so their sum is.
const (
	attentionBound = 2e-5
	pairsBound     = 0x1p-7
)

// distance measures how far results are from references.
type distance struct {
	worst     float64
	near, far float64 // sums of squares: of a reference that rounds weights, of one that does not
}

func (d *distance) add(t *testing.T, a attentionCase, what string, token, head int) {
	bound := attentionBound
	if a.pairs {
		bound = pairsBound
	}
	want, size := a.reference(token, head, false)
	rounded := want
	if a.pairs {
		rounded, _ = a.reference(token, head, true)
	}
	for i, v := range want {
		got := float64(a.out[token][head*a.headDim+i])
		diff := math.Abs(got-v) / size
		d.worst = max(d.worst, diff)
		d.far += square(diff)
		d.near += square((got - rounded[i]) / size)
		if !(diff < bound) {
			t.Fatalf("%s: token %d, head %d, dimension %d is %v, want %v", what, token, head, i, got, v)
		}
	}
}

// check demands that roundings of weights explain nearly all of the distance in pairs: a
// weight near the middle of two bf16 may be rounded the other way.
func (d *distance) check(t *testing.T, v attentionVariant) {
	t.Logf("largest error %.2g of the largest value; root of squares %.2g, beside the same roundings %.2g", d.worst, math.Sqrt(d.far), math.Sqrt(d.near))
	if v.pairs && !(math.Sqrt(d.near) < math.Sqrt(d.far)/5) {
		t.Errorf("root of squares of errors: %v, beside a reference with the same roundings %v", math.Sqrt(d.far), math.Sqrt(d.near))
	}
}

// TestSplitAttention shows that a long context of few KV heads is shared by the
// cores, with the same bits and without allocations.
func TestSplitAttention(t *testing.T) {
	const context = 1400
	m := modeltest.Open(t, modeltest.Spec{Family: "qwen3", Hidden: 32, Heads: 4, KVHeads: 1, HeadDim: 16, FFN: 32, Vocab: 260, ContextLen: 4096})
	tokens := prompt(5, context+20, m.TokenLimit())
	for _, kv := range []string{KVF32, KVBF16, KVInt8} {
		opts := Options{BlockSize: 16, KVDType: kv}
		one := newRig(t, m, 1, 100, opts)
		one.step(t, engine.BatchSeq{Tokens: tokens[:context], Blocks: table(0, 100)})
		var want [][]float32
		for i := context; i < len(tokens); i++ {
			want = append(want, one.newLogits())
			one.step(t, engine.BatchSeq{Tokens: tokens[i : i+1], Start: i, Blocks: table(0, 100), Logits: want[i-context]})
		}
		if n := len(one.pass.plan.spare); n > 0 {
			t.Errorf("one core has split %d heads", n)
		}
		for _, cores := range []int{2, 5, 16} {
			r := newRig(t, m, cores, 100, opts)
			for i, m := range r.memory { // the same bits on any number of cores: TestBits
				copy(m.Bytes(), one.memory[i].Bytes())
			}
			got := r.newLogits()
			for i := context; i < len(tokens); i++ {
				r.step(t, engine.BatchSeq{Tokens: tokens[i : i+1], Start: i, Blocks: table(0, 100), Logits: got})
				sameBits(t, fmt.Sprintf("%s, %d cores, position %d", kv, cores, i), got, want[i-context])
			}
			if len(r.pass.plan.spare) == 0 {
				t.Errorf("%d cores have split nothing", cores)
			}
			last := engine.BatchSeq{Tokens: tokens[:1], Start: context, Blocks: table(0, 100), Logits: got}
			if n := patience.Allocs(10, func() { r.step(t, last) }); n > 0 {
				t.Errorf("%s, %d cores: %v allocations a step", kv, cores, n)
			}
		}
	}
}

// TestAttentionPlan checks that items cover every segment of every head once, and
// that splits are made only where they help.
func TestAttentionPlan(t *testing.T) {
	for _, tt := range []struct {
		name           string
		cores, kvHeads int
		starts         []int // of one token each
		window         int
		splits         int
	}{
		{"eight heads on two cores", 2, 8, []int{8000}, 0, 0},
		{"a batch on two cores", 2, 8, []int{8000, 7000, 100, 3}, 0, 0},
		{"one core", 1, 1, []int{8000}, 0, 0},
		{"one head on two cores", 2, 1, []int{8000}, 0, 1},
		{"one head, one segment", 2, 1, []int{255}, 0, 0},
		{"eight heads on sixteen cores", 16, 8, []int{4000}, 0, 8},
		{"a long one among many on two cores", 2, 2, []int{9, 9, 9, 9, 9000, 9, 9}, 0, 2},
		{"a long and short ones", 4, 2, []int{9, 9, 6000, 9}, 0, 2},
		{"a window", 4, 2, []int{6000}, 200, 2},
		{"more than the memory for parts", 64, 8, []int{1 << 20}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := modeltest.Open(t, modeltest.Spec{Hidden: 32, Heads: 2 * tt.kvHeads, KVHeads: tt.kvHeads, HeadDim: 64, FFN: 32, Vocab: 260})
			r := newRig(t, m, tt.cores, 1, Options{BlockSize: 16})
			s := &r.Backend.step
			s.attn = attention{window: tt.window, group: 2, headDim: 64}
			for _, start := range tt.starts {
				r.pass.tiles = append(r.pass.tiles, tile{count: 1, start: start})
			}
			n, p := s.planAttention(), &r.pass.plan
			if n != len(p.items) || len(p.splits) != tt.splits {
				t.Errorf("%d items, %d splits, want %d", n, len(p.splits), tt.splits)
			}
			type place struct{ tile, head, segment int }
			seen := map[place]int{}
			for _, item := range p.items {
				for i := item.from; i < item.to; i++ {
					seen[place{item.tile, item.head, i}]++
				}
			}
			for i, start := range tt.starts {
				for h := range tt.kvHeads {
					for at := s.attn.oldest(tile{}, start) / segment; at <= start/segment; at++ {
						if seen[place{i, h, at}] != 1 {
							t.Fatalf("segment %d of head %d of %d is computed %d times", at, h, start, seen[place{i, h, at}])
						}
						delete(seen, place{i, h, at})
					}
				}
			}
			if len(seen) > 0 {
				t.Errorf("others: %v", seen)
			}
		})
	}
}
