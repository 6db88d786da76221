package kerneltest

import (
	"cmp"
	"encoding/binary"
	"math"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/kvlayout"
)

type attentionCase struct {
	name                 string
	kv                   string // type of KV; "": bf16
	queries, heads, dim  int
	block, layers, layer int
	window               int
	limit                float32
	lengths, tokens      []int // of each sequence; tokens that are new
	scale                float64
	large                bool
}

// attend makes KV of the sequences in blocks in random order. What no query may see is NaN:
// blocks that no sequence has, tokens past the end of one, and those that all windows are past.
func (c *attentionCase) attend(l *Lab, total int) kernels.Attend {
	shape := kvlayout.Shape{Layers: c.layers, KVHeads: c.heads, HeadDim: c.dim, BlockSize: c.block, DType: cmp.Or(c.kv, "bf16")}
	longest, used := 1, 0
	for _, n := range c.lengths {
		blocks := (n + c.block - 1) / c.block
		longest, used = max(longest, blocks), used+blocks
	}
	pool, memory := l.Alloc((used + 1) * int(shape.BlockBytes()))
	for i := range memory {
		memory[i] = 0xff // NaN
	}
	order := l.Perm(used + 1)
	tables := make([]int32, len(c.lengths)*longest)
	for s, n := range c.lengths {
		seen := 0 // the first token that a new one sees
		if c.window > 0 {
			seen = n - c.window
			if c.tokens != nil {
				seen -= c.tokens[s] - 1
			}
		}
		for b := 0; b*c.block < n; b++ {
			block := order[0]
			order = order[1:]
			tables[s*longest+b] = int32(block)
			for head := range c.heads {
				for kv := range 2 {
					region := memory[block*int(shape.BlockBytes())+shape.Region(c.layer, kv, head):]
					for token := range min(c.block, n-b*c.block) {
						if b*c.block+token < seen {
							continue
						}
						if shape.DType == "int8" { // up to 2.5
							binary.LittleEndian.PutUint32(region[shape.ScaleOffset()+4*token:], math.Float32bits(l.Float32()/50))
						}
						for d := range c.dim {
							at := KVIndex(shape, kv, token, d)
							if shape.DType == "int8" {
								region[at] = byte(l.IntN(255) - 127)
								continue
							}
							v := math.Float32bits(float32(l.NormFloat64()))
							region[2*at], region[2*at+1] = byte(v>>16), byte(v>>24)
						}
					}
				}
			}
		}
	}
	lengths := make([]int32, len(c.lengths))
	for i, n := range c.lengths {
		lengths[i] = int32(n)
	}
	return kernels.Attend{
		Out: l.Out("out", 2*total*c.queries*c.dim, Attended), Q: l.Values(total*c.queries*c.dim, c.scale),
		KV:     kernels.KV{Pool: pool, Shape: shape, Layer: c.layer},
		Tables: l.Int32s(tables...), Lengths: l.Int32s(lengths...),
		Sequences: len(c.lengths), TableBlocks: longest, QueryHeads: c.queries,
		Window: c.window, Scale: float32(1 / math.Sqrt(float64(c.dim))), Limit: c.limit,
	}
}

func decodeCases() (all []Case) {
	for _, c := range []attentionCase{
		{name: "one-split", queries: 8, heads: 2, dim: 128, block: 16, layers: 2, layer: 1, scale: 2, lengths: []int{1, 33, 0, 127}},
		{name: "splits", queries: 4, heads: 1, dim: 64, block: 64, layers: 1, scale: 4, lengths: []int{1030, 512, 513, 0, 3}},
		{name: "window", queries: 2, heads: 2, dim: 64, block: 32, layers: 1, scale: 2, window: 100, lengths: []int{1100, 99, 570}},
		{name: "soft-cap", queries: 2, heads: 1, dim: 256, block: 16, layers: 1, scale: 30, limit: 5, lengths: []int{50}},
		{name: "many-queries-of-a-head", queries: 20, heads: 1, dim: 64, block: 16, layers: 1, scale: 2, lengths: []int{40}},
		{name: "16-dimensions", queries: 3, heads: 3, dim: 16, block: 16, layers: 2, layer: 1, scale: 2, lengths: []int{40, 1}},
		{name: "80-dimensions", queries: 4, heads: 2, dim: 80, block: 16, layers: 1, scale: 2, lengths: []int{530}},
		{name: "96-dimensions", queries: 6, heads: 2, dim: 96, block: 32, layers: 2, layer: 1, scale: 2, lengths: []int{33, 0, 127}},
		{name: "160-dimensions", queries: 34, heads: 2, dim: 160, block: 16, layers: 1, scale: 2, window: 20, lengths: []int{40, 514}},
		{name: "192-dimensions", queries: 2, heads: 1, dim: 192, block: 16, layers: 1, scale: 2, limit: 5, lengths: []int{50}},
		{name: "int8", kv: "int8", queries: 8, heads: 2, dim: 128, block: 16, layers: 2, layer: 1, scale: 2, lengths: []int{1, 33, 0, 127}},
		{name: "int8,splits", kv: "int8", queries: 20, heads: 1, dim: 64, block: 64, layers: 1, scale: 4, lengths: []int{1030, 512, 513, 0, 3}},
		{name: "int8,window", kv: "int8", queries: 6, heads: 2, dim: 80, block: 32, layers: 2, layer: 1, scale: 2, window: 100, lengths: []int{1100, 99, 570}},
		{name: "int8,16-dimensions,soft-cap", kv: "int8", queries: 3, heads: 3, dim: 16, block: 16, layers: 1, scale: 2, limit: 5, lengths: []int{40, 1}},
		{name: "llama-8b", queries: 32, heads: 8, dim: 128, block: 64, layers: 2, layer: 1, scale: 2, lengths: []int{4096, 1000, 2501}, large: true},
	} {
		all = append(all, Case{Name: "decode-attention/" + c.name, Large: c.large, Prepare: func(l *Lab) func(q *kernels.Queue) error {
			o := kernels.DecodeAttention{Attend: c.attend(l, len(c.lengths))}
			for _, n := range c.lengths {
				o.MaxLength = max(o.MaxLength, n)
			}
			o.Partial = l.Working(o.PartialBytes())
			return func(q *kernels.Queue) error { return q.DecodeAttention(o) }
		}})
	}
	return all
}

func prefillCases() (all []Case) {
	for _, c := range []attentionCase{
		{name: "whole-prompts", queries: 8, heads: 2, dim: 128, block: 16, layers: 2, layer: 1, scale: 2, lengths: []int{1, 37, 20}, tokens: []int{1, 37, 20}},
		{name: "chunks", queries: 3, heads: 1, dim: 64, block: 64, layers: 1, scale: 4, lengths: []int{150, 64, 90}, tokens: []int{50, 1, 0}},
		{name: "window", queries: 2, heads: 2, dim: 64, block: 32, layers: 1, scale: 2, window: 33, lengths: []int{140, 20}, tokens: []int{100, 20}},
		{name: "soft-cap", queries: 2, heads: 1, dim: 256, block: 16, layers: 1, scale: 30, limit: 5, lengths: []int{50}, tokens: []int{40}},
		{name: "16-dimensions", queries: 3, heads: 3, dim: 16, block: 16, layers: 2, layer: 1, scale: 2, lengths: []int{40, 1}, tokens: []int{33, 1}},
		{name: "80-dimensions", queries: 4, heads: 2, dim: 80, block: 64, layers: 1, scale: 2, window: 9, lengths: []int{70}, tokens: []int{40}},
		{name: "96-dimensions", queries: 6, heads: 2, dim: 96, block: 32, layers: 2, layer: 1, scale: 2, lengths: []int{33, 20}, tokens: []int{33, 7}},
		{name: "192-dimensions", queries: 2, heads: 1, dim: 192, block: 16, layers: 1, scale: 2, limit: 5, lengths: []int{50}, tokens: []int{40}},
		{name: "int8", kv: "int8", queries: 8, heads: 2, dim: 128, block: 16, layers: 2, layer: 1, scale: 2, lengths: []int{1, 37, 20}, tokens: []int{1, 37, 20}},
		{name: "int8,chunks", kv: "int8", queries: 3, heads: 1, dim: 64, block: 64, layers: 1, scale: 4, lengths: []int{150, 64, 90}, tokens: []int{50, 1, 0}},
		{name: "int8,window", kv: "int8", queries: 4, heads: 2, dim: 80, block: 32, layers: 2, layer: 1, scale: 2, window: 33, lengths: []int{140, 20}, tokens: []int{100, 20}},
		{name: "int8,16-dimensions,soft-cap", kv: "int8", queries: 3, heads: 3, dim: 16, block: 16, layers: 1, scale: 2, limit: 5, lengths: []int{40, 1}, tokens: []int{33, 1}},
		{name: "long", queries: 8, heads: 2, dim: 128, block: 64, layers: 1, scale: 2, lengths: []int{700, 150}, tokens: []int{130, 150}, large: true},
	} {
		all = append(all, Case{Name: "prefill-attention/" + c.name, Large: c.large, Prepare: func(l *Lab) func(q *kernels.Queue) error {
			starts, longest := []int32{0}, 0
			for _, n := range c.tokens {
				starts, longest = append(starts, starts[len(starts)-1]+int32(n)), max(longest, n)
			}
			o := kernels.PrefillAttention{Attend: c.attend(l, int(starts[len(starts)-1])), Starts: l.Int32s(starts...), MaxTokens: longest}
			return func(q *kernels.Queue) error { return q.PrefillAttention(o) }
		}})
	}
	return all
}
