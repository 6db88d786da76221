package engine

import (
	"math"
	"slices"

	"github.com/dynctl/dynctl/internal/protocol"
)

// Choice asks a [Chooser] for a token in place of logits.
type Choice struct {
	// Sampling is what the request asks for, of which a Chooser reads the draw
	// (temperature, top-k, top-p, min-p and seed) and the penalties.
	Sampling *protocol.SamplingOptions
	// Position is that of the token in the output.
	Position int
	// Changes are made to logits before the draw, one for each token at most.
	Changes []Change
	// Allowed, if not nil, tells which tokens may be drawn, as [Constraint.Mask] does; nil
	// are all. It waits for masks that are made beside the step: a Chooser calls it when its
	// device computes the logits already.
	Allowed func() []uint64
	// Token is the answer, below BackendInfo.TokenLimit; Broken says that there is none,
	// because the logits hold no finite maximum, or nothing is allowed.
	Token  uint32
	Broken bool
}

// Change is what becomes of one token's logit: its bias is added, then come the penalties of
// the request, repetition first.
type Change struct {
	Token  uint32
	Count  int32   // times in the output, for the frequency and presence penalties
	Listed bool    // the repetition penalty is for it
	Bias   float32 // negative infinity forbids it
}

// Chooser is implemented by backends that choose next tokens where their logits are, as
// sampler.sample does, so that those need not leave the device: the most likely token, or a
// draw that depends on its seed and position only. It may go through the candidates of a
// draw in another order than the sampler, and so make another draw of the same
// distribution.
type Chooser interface {
	// Chooses reports whether entries of a batch may have a Choice with such options.
	Chooses(o *protocol.SamplingOptions) bool
}

// choice asks the backend for the next token of a sequence, if it is one that the backend
// can choose; else it returns nil. What a request asks for decides alone, so that
// all draws of an answer are made in the same place, but for those before its minimum
// length.
func (e *Engine) choice(s *sequence) *Choice {
	g := s.gen
	g.chosen = false
	if e.chooser == nil || e.cfg.Speculative.Enabled() || g.logprobs != nil || g.scores != nil ||
		g.stop.MaxTokens == 0 || s.output() < g.stop.MinTokens || !e.chooser.Chooses(&g.sampling) {
		return nil
	}
	g.choice = Choice{Sampling: &g.sampling, Position: len(s.tokens) - s.prompt}
	if g.adjusts {
		g.changes = g.appendChanges(g.changes[:0], s, e.info.TokenLimit)
		g.choice.Changes = g.changes
	}
	switch {
	case g.constraint != nil:
		g.choice.Allowed = func() []uint64 { return e.allowedAhead(g) }
	case g.allowed != nil:
		g.choice.Allowed = func() []uint64 { return g.allowed }
	}
	g.chosen = true
	return &g.choice
}

// appendChanges appends what a request changes of logits, beside what it allows: for limit
// tokens, of which each comes once.
func (g *generation) appendChanges(to []Change, q *sequence, limit int) []Change {
	o := &g.sampling
	if penalizes(o) {
		g.history.extend(q.tokens, q.prompt, repeats(o))
		for i, t := range g.history.tokens {
			to = append(to, Change{Token: t, Count: g.history.counts[i], Listed: repeats(o)})
		}
	}
	if !g.hasBiases {
		g.biases, g.hasBiases = biases(o, limit), true
	}
	for _, b := range g.biases {
		if i, known := g.history.at[b.Token]; known {
			to[i].Bias = b.Bias
		} else {
			to = append(to, b)
		}
	}
	for token := range g.badNext(q) {
		if int(token) >= limit {
			continue
		}
		if i := slices.IndexFunc(to, func(c Change) bool { return c.Token == token }); i >= 0 {
			to[i].Bias = negInf
		} else {
			to = append(to, Change{Token: token, Bias: negInf})
		}
	}
	return to
}

// biases are what a request adds to logits whatever the output is: also to forbid tokens that
// are bad words by themselves. They may be many, and are put together once.
func biases(o *protocol.SamplingOptions, limit int) (all []Change) {
	at := make(map[uint32]int)
	add := func(token uint32, bias float32) {
		if int(token) >= limit {
			return
		}
		i, known := at[token]
		if !known {
			i = len(all)
			at[token], all = i, append(all, Change{Token: token})
		}
		all[i].Bias += bias
	}
	for _, b := range o.LogitBias {
		add(b.Token, b.Bias)
	}
	for _, word := range o.BadWords {
		if len(word) == 1 {
			add(word[0], negInf)
		}
	}
	return all
}

// allowedAhead is what a constrained sequence may draw, once the mask that is made beside
// the step is there. An error shows when the token is taken.
func (e *Engine) allowedAhead(g *generation) []uint64 {
	e.masks.Wait()
	mask := g.ahead.mask
	for i, word := range g.allowed {
		if i < len(mask) {
			mask[i] &= word
		}
	}
	return mask
}

// take is the token that the backend has chosen.
func (g *generation) take() (uint32, error) {
	a := g.ahead
	g.chosen, g.ahead = false, aheadMask{}
	switch {
	case a.err != nil:
		return 0, a.err
	case !g.choice.Broken:
		return g.choice.Token, nil
	case g.restricted() && g.nothingAllowed(a.mask):
		return 0, ErrNothingAllowed
	}
	return 0, ErrBadLogits
}

// nothingAllowed reports whether a choice had nothing to choose from; mask is that of the
// constraint, if there is one.
func (g *generation) nothingAllowed(mask []uint64) bool {
	if mask == nil {
		mask = g.allowed
	}
	if mask == nil {
		return false // bad words alone leave something
	}
	left := slices.Clone(mask)
	for _, c := range g.choice.Changes {
		if math.IsInf(float64(c.Bias), -1) && int(c.Token/64) < len(left) {
			left[c.Token/64] &^= 1 << (c.Token % 64)
		}
	}
	return !slices.ContainsFunc(left, func(w uint64) bool { return w != 0 })
}
