package engine

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// drawing is a sequence that a test draws from.
func drawing(logits []float32, r Request) *sequence {
	q := &sequence{tokens: r.Tokens, prompt: len(r.Tokens) - r.Generated, gen: newGeneration(&r, len(logits))}
	q.given = q.prompt
	q.gen.logits = logits
	return q
}

func TestHistoryCatchesUp(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, withPrompt := range []bool{false, true} {
		tokens := make([]uint32, 40)
		for i := range tokens {
			tokens[i] = uint32(r.IntN(12))
		}
		const prompt = 15
		var grown history
		for n := prompt; n <= len(tokens); n++ {
			grown.extend(tokens[:n], prompt, withPrompt)
			var fresh history
			fresh.extend(tokens[:n], prompt, withPrompt)
			if !slices.Equal(grown.tokens, fresh.tokens) || !slices.Equal(grown.counts, fresh.counts) {
				t.Fatalf("after %d tokens: %+v, built at once %+v", n, grown, fresh)
			}
			for i, id := range grown.tokens {
				want := 0
				for _, o := range tokens[prompt:n] {
					if o == id {
						want++
					}
				}
				if int(grown.counts[i]) != want {
					t.Fatalf("token %d counted %d times, want %d", id, grown.counts[i], want)
				}
			}
			if withPrompt != slices.ContainsFunc(tokens[:prompt], func(id uint32) bool {
				return slices.Contains(grown.tokens, id) && grown.counts[slices.Index(grown.tokens, id)] == 0
			}) && n == prompt {
				t.Errorf("prompt tokens known: %v, want %v", !withPrompt, withPrompt)
			}
		}
	}
}

// only is a constraint that always allows the same tokens.
type only struct {
	ids  []uint32
	done bool
}

func (o *only) Mask(dst []uint64) error {
	for _, id := range o.ids {
		dst[id/64] |= 1 << (id % 64)
	}
	return nil
}
func (o *only) Accept(uint32) error { return nil }
func (o *only) Done() bool          { return o.done }

func TestDrawRestricted(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	base := []float32{1, 5, 2, 4}
	const eos = 1
	for _, tc := range []struct {
		name   string
		logits []float32
		r      Request
		want   uint32
		err    error
	}{
		{"allowed ids", base, Request{Sampling: protocol.SamplingOptions{AllowedTokenIDs: []uint32{0, 2}}}, 2, nil},
		{"bias", base, Request{Sampling: protocol.SamplingOptions{LogitBias: []protocol.TokenBias{{Token: 2, Bias: 100}}}}, 2, nil},
		{"ban by bias", base, Request{Sampling: protocol.SamplingOptions{LogitBias: []protocol.TokenBias{{Token: 1, Bias: -100}}}}, 3, nil},
		{"minimum", base, Request{Stop: protocol.StopConditions{MinTokens: 1, StopTokenIDs: []uint32{eos}}}, 3, nil},
		{"minimum of visible ids", base, Request{Stop: protocol.StopConditions{MinTokens: 1, StopTokenIDsVisible: []uint32{eos}}}, 3, nil},
		{"minimum and ids beyond the model", base, Request{Stop: protocol.StopConditions{MinTokens: 1, StopTokenIDs: []uint32{99}}}, 1, nil},
		{"constraint", base, Request{Constraint: &only{ids: []uint32{0, 2}}}, 2, nil},
		{"constraint and minimum", base, Request{Constraint: &only{ids: []uint32{0, eos}}, Stop: protocol.StopConditions{MinTokens: 1, StopTokenIDs: []uint32{eos}}}, 0, nil},
		{"constraint allows the end alone, in spite of the minimum", base, Request{Constraint: &only{ids: []uint32{eos}}, Stop: protocol.StopConditions{MinTokens: 1, StopTokenIDs: []uint32{eos}}}, eos, nil},
		{"constraint wins over a bias", base, Request{Constraint: &only{ids: []uint32{0}}, Sampling: protocol.SamplingOptions{LogitBias: []protocol.TokenBias{{Token: 3, Bias: 100}}}}, 0, nil},
		{"allowed ids hold the end alone", base, Request{Stop: protocol.StopConditions{MinTokens: 1, StopTokenIDs: []uint32{eos}}, Sampling: protocol.SamplingOptions{AllowedTokenIDs: []uint32{eos}}}, eos, nil},
		{"bad word", base, Request{Sampling: protocol.SamplingOptions{BadWords: [][]uint32{{1}}}}, 3, nil},
		{"bad word after its beginning", base, Request{Tokens: []uint32{0, 2, 3}, Generated: 2, Sampling: protocol.SamplingOptions{BadWords: [][]uint32{{2, 3, 1}}}}, 3, nil},
		{"bad word whose beginning is in the prompt", base, Request{Tokens: []uint32{2, 3}, Generated: 1, Sampling: protocol.SamplingOptions{BadWords: [][]uint32{{2, 3, 1}}}}, 1, nil},
		{"bad word beyond the model", base, Request{Sampling: protocol.SamplingOptions{BadWords: [][]uint32{{99}}}}, 1, nil},

		{"tiny repetition penalty", base, Request{Tokens: []uint32{2}, Sampling: protocol.SamplingOptions{RepetitionPenalty: 1e-38}}, 2, nil},
		{"penalty of what is forbidden", base, Request{Tokens: []uint32{1, 3}, Constraint: &only{ids: []uint32{0, 2}}, Sampling: protocol.SamplingOptions{RepetitionPenalty: 1e-38}}, 2, nil},

		{"nothing allowed", base, Request{Constraint: &only{}}, 0, ErrNothingAllowed},
		{"contradiction", base, Request{Constraint: &only{ids: []uint32{0}}, Sampling: protocol.SamplingOptions{BadWords: [][]uint32{{0}}}}, 0, ErrNothingAllowed},
		{"NaN", []float32{1, nan, 2, 3}, Request{Constraint: &only{ids: []uint32{0}}}, 0, ErrBadLogits},
		{"infinite", []float32{1, inf, 2, 3}, Request{Sampling: protocol.SamplingOptions{AllowedTokenIDs: []uint32{0}}}, 0, ErrBadLogits},
		{"NaN among the allowed", []float32{nan, 1, 2, 3}, Request{Constraint: &only{ids: []uint32{0, 1}}}, 0, ErrBadLogits},
		{"all masked by the model", []float32{negInf, negInf, negInf, negInf}, Request{}, 0, ErrBadLogits},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, temperature := range []float32{0, 1e-3} {
				r := tc.r
				r.Sampling.Temperature = temperature
				if r.Tokens == nil {
					r.Tokens = []uint32{0}
				}
				var s sampler
				got, lp, err := s.draw(drawing(slices.Clone(tc.logits), r), len(tc.logits))
				if got != tc.want || !errors.Is(err, tc.err) || lp != nil {
					t.Errorf("temperature %v: got %d, %v, %v; want %d, %v", temperature, got, lp, err, tc.want, tc.err)
				}
			}
		})
	}
}

// Rows past the tokenizer's ids are never told, whatever a constraint says.
func TestConstraintBeyondLimit(t *testing.T) {
	logits := make([]float32, 200)
	logits[120] = 9
	none := 2
	q := drawing(logits, Request{Tokens: []uint32{0}, Constraint: &only{ids: []uint32{7, 120}}, Output: protocol.OutputOptions{Logprobs: &none}})
	var s sampler
	if got, lp, err := s.draw(q, 100); got != 7 || err != nil || lp.TopIDs[0] != 7 || lp.Tokens[0] != 0 || lp.TopValues[1] != leastLogprob {
		t.Errorf("got %d, %+v, %v; want 7, certainly", got, lp, err)
	}
}

// Without options a draw costs no memory.
func TestDrawAllocatesNothing(t *testing.T) {
	logits := make([]float32, 2000)
	for i := range logits {
		logits[i] = float32(i % 97)
	}
	for name, o := range map[string]protocol.SamplingOptions{
		"greedy": {}, "top-k": {Temperature: 1, TopK: 20}, "top-p and min-p": {Temperature: 1, TopP: 0.9, MinP: 0.01},
		"penalties": {Temperature: 1, RepetitionPenalty: 1.1, PresencePenalty: 0.5, FrequencyPenalty: 0.5},
	} {
		q := drawing(logits, Request{Tokens: []uint32{1, 2, 3}, Generated: 1, Sampling: o, Stop: protocol.StopConditions{MinTokens: 3, StopTokenIDs: []uint32{5}}})
		var s sampler
		if n := patience.Allocs(100, func() {
			if _, _, err := s.draw(q, len(logits)); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
