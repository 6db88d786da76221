package route

import "time"

// Timing is the speed of one worker. A step takes the longer of reading the weights and
// multiplying by them, and on top attention, reading the KV caches of the sequences that
// decode, and a fixed cost.
type Timing struct {
	Fixed     float64 // seconds
	Weights   float64 // seconds to read the weights once
	Token     float64 // seconds of multiplying for each token
	Attention float64 // seconds for each prompt token and token of context before it
	Read      float64 // seconds for each token of context of a sequence that decodes
}

// H100 is an 8B model (Llama 3.1 8B, bf16) on one H100 SXM:
//
//   - multiplying takes 2 operations for each of 8.03e9 weights and token. Kernels reach
//     half of the 989 TFLOP/s that the data sheet gives: 32.5 us a token;
//   - attention takes 4 * 32 layers * 4096 operations for each token and token of context,
//     at the same speed: 1.06 ns;
//   - weights are 16.06 GB, and 80 % of 3.35 TB/s are reached: 6.0 ms;
//   - a token of context has 2 * 32 layers * 8 heads * 128 * 2 bytes = 128 KiB of KV:
//     0.049 us;
//   - launches and scheduling take 2 ms a step.
//
// A prompt of 8,000 tokens takes 0.30 s: 27,000 tokens/s.
var H100 = Timing{Fixed: 2e-3, Weights: 6.0e-3, Token: 32.5e-6, Attention: 1.06e-9, Read: 0.049e-6}

// Limits of a worker's steps, the defaults of vLLM on an H100.
const (
	maxBatchTokens = 8192
	maxSequences   = 256
)

// batch is what a step computes.
type batch struct {
	prompt, decode int // tokens
	pairs          float64
	context        int // of the sequences that decode
}

// step returns how long a step takes.
func (t Timing) step(b batch) time.Duration {
	s := t.Fixed + max(t.Weights, t.Token*float64(b.prompt+b.decode)) + t.Attention*b.pairs + t.Read*float64(b.context)
	return time.Duration(s * float64(time.Second))
}
