package engine

import (
	"math"
	"slices"

	"github.com/dynctl/dynctl/internal/protocol"
)

// Choice asks a [Chooser] for a token in place of logits.
type Choice struct {
	// Sampling holds the options of the request. A Chooser uses the draw (temperature,
	// top-k, top-p, min-p and seed) and the penalties.
	Sampling *protocol.SamplingOptions
	// Position is the token's index in the output.
	Position int
	// Changes are applied to the logits before the draw. Each token has at most one.
	Changes []Change
	// Allowed returns the set of tokens that may be drawn, in the form of
	// [Constraint.Mask]. If Allowed is nil, all may be. It waits for a mask that is
	// computed in parallel to the step, so a Chooser calls it only after its device has
	// begun to compute the logits.
	Allowed func() []uint64
	// Token is the answer, below BackendInfo.TokenLimit. Broken reports that there is
	// none: the logits have no finite maximum, or no token is allowed.
	Token  uint32
	Broken bool
}

// Change adjusts the logit of one token. A Chooser adds the bias first, then applies the
// penalties of the request, repetition first.
type Change struct {
	Token  uint32
	Count  int32   // times in the output, for the frequency and presence penalties
	Listed bool    // the repetition penalty applies to it
	Bias   float32 // negative infinity forbids it
}

// Chooser is implemented by backends that can draw next tokens on their device, so that
// logits need not be copied from it. The token is what sampler.sample would choose: the
// most likely one, or a draw that depends only on its seed and position. A Chooser may
// visit the candidates of a draw in another order than the sampler. Its draw may then
// differ, but comes from the same distribution.
type Chooser interface {
	// Chooses reports whether entries of a batch with such options may have a Choice.
	Chooses(o *protocol.SamplingOptions) bool
}

// choice returns the Choice that asks the backend for the next token of a sequence, or
// nil if the sampler must draw it. Only the request's options and its minimum length
// decide, so once the minimum length is reached, all draws of an answer are made in the
// same place.
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

// appendChanges appends the changes that a request makes to logits: penalties, biases and
// bad words. It leaves out tokens at or above limit, and each token comes once.
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

// biases returns the changes that do not depend on the output: logit biases, and bad
// words of one token, which are forbidden. They may be many, so the caller computes them
// once.
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

// allowedAhead returns the mask of a constrained sequence once it has been computed in
// parallel to the step. An error of the mask is reported when the token is taken.
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

// take returns the token that the backend chose.
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

// nothingAllowed reports whether the request left no token to choose. mask is the
// constraint's, or nil without a constraint.
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
