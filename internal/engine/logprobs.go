package engine

import (
	"math"
	"slices"

	"github.com/dynctl/dynctl/internal/protocol"
)

// score appends the log probability of a token under a softmax over the logits,
// and those of the n most likely tokens, to lp. All runs of one lp have the same n.
// Sums are in float64, values are rounded once.
//
// It returns ErrBadLogits as sample does.
func (s *sampler) score(lp *protocol.Logprobs, logits []float32, token uint32, n int) error {
	best, ok := argmax(logits)
	if !ok || int(token) >= len(logits) {
		return ErrBadLogits
	}
	norm := logSumExp(logits, float64(logits[best]))
	lp.Tokens = append(lp.Tokens, logprob(logits[token], norm))
	lp.Width = min(n, len(logits))
	if lp.Width == 0 {
		return nil
	}
	s.top = largest(s.top, logits, lp.Width)
	slices.SortFunc(s.top, func(a, b candidate) int {
		if a.more(b) {
			return -1
		}
		return 1
	})
	for _, c := range s.top {
		lp.TopIDs = append(lp.TopIDs, c.id)
		lp.TopValues = append(lp.TopValues, logprob(c.p, norm))
	}
	return nil
}

// logSumExp is the logarithm of the sum of exponentials, given the largest logit.
func logSumExp(logits []float32, best float64) float64 {
	var sum float64
	for _, l := range logits {
		if x := wide(l) - best; x > leastExp {
			sum += exp(min(x, 0)) // the best may be a zero that wide makes a little larger
		}
	}
	return best + math.Log(sum)
}

// leastLogprob stands for all smaller ones: JSON has no infinity.
const leastLogprob = -9999

func logprob(logit float32, norm float64) float32 {
	return float32(max(float64(logit)-norm, leastLogprob))
}
