package engine

import (
	"fmt"
	"iter"
	"slices"

	"github.com/dynctl/dynctl/internal/protocol"
)

// draw returns the next token of a sequence, and its log probability if asked for. It
// draws from the sequence's logits unless the backend has chosen the token.
func (e *Engine) draw(s *sequence) (uint32, *protocol.Logprobs, error) {
	if s.gen.chosen {
		token, err := s.gen.take()
		return token, nil, err
	}
	return e.sampler.draw(s, e.info.TokenLimit)
}

// draw returns the next token of a sequence whose logits are computed, and its log
// probability if asked for. limit is as for sample.
//
// Order of operations: constraint; raw log probabilities; allowed ids, bad words, minimum
// length, logit bias, penalties; then the steps of sample. It is vLLM's order
// (vllm/v1/sample/sampler.py): there, too, grammars mask the logits before the sampler
// sees them, and log probabilities are "raw" by default.
func (s *sampler) draw(q *sequence, limit int) (uint32, *protocol.Logprobs, error) {
	g := q.gen
	logits := g.logits[:min(limit, len(g.logits))]
	if g.constraint != nil {
		if err := g.constrain(logits); err != nil {
			return 0, nil, err
		}
	}
	raw := logits
	early := q.output() < g.stop.MinTokens
	if g.adjusts || early {
		if g.logprobs != nil {
			s.raw = append(s.raw[:0], logits...)
			raw = s.raw
		}
		if err := g.adjust(logits, q, early); err != nil {
			return 0, nil, err
		}
	}
	token, err := s.sample(logits, limit, g.sampling, len(q.tokens)-q.prompt)
	if err != nil {
		if g.restricted() && nothingLeft(logits) {
			err = ErrNothingAllowed
		}
		return 0, nil, err
	}
	if g.logprobs == nil {
		return token, nil, nil
	}
	lp := &protocol.Logprobs{}
	if err := s.score(lp, raw, token, *g.logprobs); err != nil {
		return 0, nil, err
	}
	return token, lp, nil
}

// adjust applies the options of a request that change logits before the draw. early
// reports that the output is shorter than the request's minimum.
func (g *generation) adjust(logits []float32, q *sequence, early bool) error {
	o := &g.sampling
	if g.allowed != nil && !maskLogits(logits, g.allowed) {
		return ErrBadLogits
	}
	for _, word := range o.BadWords {
		if len(word) == 1 && int(word[0]) < len(logits) {
			logits[word[0]] = negInf
		}
	}
	for token := range g.badNext(q) {
		if int(token) < len(logits) {
			logits[token] = negInf
		}
	}
	if early {
		g.postpone(logits)
	}
	for _, b := range o.LogitBias {
		if int(b.Token) < len(logits) {
			logits[b.Token] += b.Bias
		}
	}
	if penalizes(o) {
		g.history.extend(q.tokens, q.prompt, repeats(o))
		g.history.penalize(logits, o)
	}
	return nil
}

// badNext yields the tokens that would complete a bad word of several tokens.
func (g *generation) badNext(q *sequence) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		output := q.tokens[q.prompt:]
		for _, word := range g.sampling.BadWords {
			before, last := word[:len(word)-1], word[len(word)-1]
			if len(before) > 0 && len(output) >= len(before) && slices.Equal(output[len(output)-len(before):], before) && !yield(last) {
				return
			}
		}
	}
}

// restricted reports whether the request forbids tokens.
func (g *generation) restricted() bool {
	return g.constraint != nil || g.allowed != nil || len(g.sampling.BadWords) > 0
}

// postpone forbids the tokens that end the sequence, unless the request forbids all
// others.
func (g *generation) postpone(logits []float32) {
	if g.restricted() {
		ends := func(id uint32) bool {
			return slices.Contains(g.stop.StopTokenIDs, id) || slices.Contains(g.stop.StopTokenIDsVisible, id)
		}
		i := 0
		for i < len(logits) && (logits[i] == negInf || ends(uint32(i))) {
			i++
		}
		if i == len(logits) {
			return
		}
	}
	for _, ids := range [...][]uint32{g.stop.StopTokenIDs, g.stop.StopTokenIDsVisible} {
		for _, id := range ids {
			if int(id) < len(logits) {
				logits[id] = negInf
			}
		}
	}
}

func nothingLeft(logits []float32) bool {
	return !slices.ContainsFunc(logits, func(l float32) bool { return l != negInf })
}

// checkSampling returns an error for options that name tokens outside the vocabulary.
func checkSampling(o *protocol.SamplingOptions, vocab int) error {
	unknown := func(what string, id uint32) error {
		return fmt.Errorf("%w: %s: token %d is outside the vocabulary of %d", ErrBadRequest, what, id, vocab)
	}
	for _, b := range o.LogitBias {
		if int(b.Token) >= vocab {
			return unknown("logit_bias", b.Token)
		}
	}
	for _, id := range o.AllowedTokenIDs {
		if int(id) >= vocab {
			return unknown("allowed_token_ids", id)
		}
	}
	for _, word := range o.BadWords {
		if len(word) == 0 {
			return fmt.Errorf("%w: bad_words: an empty sequence", ErrBadRequest)
		}
	}
	return nil
}
