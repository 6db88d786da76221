package gpucheck

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// shape is a model as far as kernels see it.
type shape struct {
	name                    string
	layers, hidden, inner   int
	heads, kvHeads, headDim int
	norm                    bool // of heads
	tied                    bool // the head is the embedding
	vocab                   int
}

// shapes are models whose sizes are measured.
var shapes = []shape{
	{name: "llama-3.1-8b", layers: 32, hidden: 4096, inner: 14336, heads: 32, kvHeads: 8, headDim: 128, vocab: 128256},
	{name: "qwen3-8b", layers: 36, hidden: 4096, inner: 12288, heads: 32, kvHeads: 8, headDim: 128, norm: true, vocab: 151936},
	{name: "qwen3-0.6b", layers: 28, hidden: 1024, inner: 3072, heads: 16, kvHeads: 8, headDim: 128, norm: true, tied: true, vocab: 151936},
}

// small is a model that stands for one, so that every case runs in a moment.
func (s shape) small() shape {
	return shape{name: s.name, layers: 2, hidden: 64, inner: 96, heads: 4, kvHeads: 2, headDim: 64, norm: s.norm, tied: s.tied, vocab: 640}
}

// kvBlock is the number of tokens in a KV block.
const kvBlock = 64

// product is a matrix of a layer.
type product struct {
	name     string
	rows, in int
	wide     bool // its results are logits
}

func (s shape) products() []product {
	return []product{
		{"qkv", (s.heads + 2*s.kvHeads) * s.headDim, s.hidden, false},
		{"o", s.hidden, s.heads * s.headDim, false},
		{"gate-up", 2 * s.inner, s.hidden, false},
		{"down", s.hidden, s.inner, false},
		{"lm-head", s.vocab, s.hidden, true},
	}
}

// What cases are about.
var (
	tokenCounts    = []int{1, 8, 64, 256, 2048, 8192}
	rowCounts      = []int{1, 64, 2048}
	contexts       = []int{1024, 4096}
	batches        = []int{1, 8, 32, 64, 128, 256}
	prompts        = []int{2048, 8192}
	sampledBatches = []int{1, 64, 256}
)

// fewTokenCounts are for what is not measured at all of them.
var fewTokenCounts = []int{1, 8, 64, 2048}

// eightBits are types of weights other than bf16.
var eightBits = []struct {
	name string
	kind kernels.WeightType
}{{"q8_0", kernels.Q8_0}, {"e4m3", kernels.E4M3}}

// mixture is a layer with experts.
type mixture struct {
	name                         string
	count, active, hidden, inner int
}

// expertShape is a layer whose experts are measured, and smallExperts what stands for it.
var (
	expertShape  = mixture{"qwen3-30b-a3b", 128, 8, 2048, 768}
	smallExperts = mixture{"qwen3-30b-a3b", 6, 2, 64, 24}
)

// maxLogitTokens limits the tokens of a step that need logits: those that are sampled.
const maxLogitTokens = 256

// shrunk is a number of things in small shapes.
func shrunk(n int, small bool) int {
	if !small {
		return n
	}
	return min(n, 3+n%5)
}

// Shape is a case of the phase measure in numbers, for whoever measures the same with other
// means.
type Shape struct {
	Case string `json:"case"`
	Op   string `json:"op"` // matmul, decode-attention, prefill-attention
	// Of a product.
	Tokens int `json:"tokens,omitempty"`
	Rows   int `json:"rows,omitempty"`
	In     int `json:"in,omitempty"`
	// Of attention.
	Sequences int `json:"sequences,omitempty"`
	Context   int `json:"context,omitempty"`
	Heads     int `json:"heads,omitempty"`
	KVHeads   int `json:"kv_heads,omitempty"`
	HeadDim   int `json:"head_dim,omitempty"`
}

// Shapes are the products and attentions of the phase measure.
func Shapes() (all []Shape) {
	for _, s := range shapes {
		for _, p := range s.products() {
			for _, tokens := range p.tokenCounts() {
				all = append(all, Shape{Case: gemmName(s, p, tokens), Op: "matmul", Tokens: tokens, Rows: p.rows, In: p.in})
			}
		}
		attention := Shape{Heads: s.heads, KVHeads: s.kvHeads, HeadDim: s.headDim}
		for _, context := range contexts {
			for _, n := range batches {
				a := attention
				a.Case, a.Op, a.Sequences, a.Context = decodeName(s, context, n), "decode-attention", n, context
				all = append(all, a)
			}
		}
		for _, n := range prompts {
			a := attention
			a.Case, a.Op, a.Sequences, a.Context = prefillName(s, n), "prefill-attention", 1, n
			all = append(all, a)
		}
	}
	for i := range all {
		all[i].Case = "measure/" + all[i].Case
	}
	return all
}

// tokenCounts returns the numbers of tokens that a product is measured with.
func (p product) tokenCounts() (out []int) {
	for _, n := range tokenCounts {
		if !p.wide || n <= maxLogitTokens {
			out = append(out, n)
		}
	}
	return out
}

func gemmName(s shape, p product, tokens int) string {
	return fmt.Sprintf("gemm/%s/%s/tokens=%d", s.name, p.name, tokens)
}

func decodeName(s shape, context, sequences int) string {
	return fmt.Sprintf("decode-attention/%s/context=%d/batch=%d", s.name, context, sequences)
}

func prefillName(s shape, tokens int) string {
	return fmt.Sprintf("prefill-attention/%s/tokens=%d", s.name, tokens)
}
