package engine

import (
	"math"

	"github.com/dynctl/dynctl/internal/protocol"
)

// history holds the distinct tokens of a sequence and how often each occurs in the
// output. It grows with the sequence. A fresh history catches up by itself after a
// migration or a preemption.
type history struct {
	at     map[uint32]int32 // place of a token in the lists below
	tokens []uint32
	counts []int32 // times in the output; 0 for tokens of the prompt alone
	seen   int     // leading tokens of the sequence that are taken in
}

// extend adds the tokens that came since the last call. The first ones, those of the
// prompt, matter only to the repetition penalty.
func (h *history) extend(tokens []uint32, prompt int, withPrompt bool) {
	if h.at == nil {
		h.at = make(map[uint32]int32)
		if !withPrompt {
			h.seen = prompt
		}
	}
	for ; h.seen < len(tokens); h.seen++ {
		t := tokens[h.seen]
		i, known := h.at[t]
		if !known {
			i = int32(len(h.tokens))
			h.at[t] = i
			h.tokens, h.counts = append(h.tokens, t), append(h.counts, 0)
		}
		if h.seen >= prompt {
			h.counts[i]++
		}
	}
}

// penalize applies the penalties: first repetition, then frequency, then presence.
func (h *history) penalize(logits []float32, o *protocol.SamplingOptions) {
	repetition := float64(o.RepetitionPenalty)
	if repetition <= 0 {
		repetition = 1
	}
	frequency, presence := float64(o.FrequencyPenalty), float64(o.PresencePenalty)
	for i, t := range h.tokens {
		if int(t) >= len(logits) || logits[t] == negInf {
			continue
		}
		l := float64(logits[t])
		if l > 0 {
			l /= repetition
		} else {
			l *= repetition
		}
		if n := h.counts[i]; n > 0 {
			l -= frequency*float64(n) + presence
		}
		// A tiny repetition penalty must not push finite logits to infinity.
		logits[t] = float32(max(min(l, math.MaxFloat32), -math.MaxFloat32))
	}
}

// penalizes reports whether the options ask for any penalty.
func penalizes(o *protocol.SamplingOptions) bool {
	return repeats(o) || o.FrequencyPenalty != 0 || o.PresencePenalty != 0
}

// repeats reports whether the options ask for a repetition penalty.
func repeats(o *protocol.SamplingOptions) bool {
	return o.RepetitionPenalty > 0 && o.RepetitionPenalty != 1
}
