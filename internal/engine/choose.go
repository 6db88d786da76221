package engine

import "github.com/dynctl/dynctl/internal/protocol"

// Choice asks a [Chooser] for a token in place of logits.
type Choice struct {
	// Sampling is what the request asks for, of which a Chooser reads the draw only:
	// temperature, top-k, top-p, min-p and seed.
	Sampling *protocol.SamplingOptions
	// Position is that of the token in the output.
	Position int
	// Token is the answer, below BackendInfo.TokenLimit; Broken says that there is none,
	// because the logits hold no finite maximum.
	Token  uint32
	Broken bool
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

// choice asks the backend for the next token of a sequence, if it is one that needs
// nothing but a draw; else it returns nil. What a request asks for decides alone, so that
// all draws of an answer are made in the same place, but for those before its minimum
// length.
func (e *Engine) choice(s *sequence) *Choice {
	g := s.gen
	g.chosen = false
	if e.chooser == nil || e.cfg.Speculative.Enabled() || g.constraint != nil || g.adjusts || g.logprobs != nil || g.scores != nil ||
		g.stop.MaxTokens == 0 || s.output() < g.stop.MinTokens || !e.chooser.Chooses(&g.sampling) {
		return nil
	}
	g.choice = Choice{Sampling: &g.sampling, Position: len(s.tokens) - s.prompt}
	g.chosen = true
	return &g.choice
}

// take is the token that the backend has chosen.
func (g *generation) take() (uint32, error) {
	g.chosen = false
	if g.choice.Broken {
		return 0, ErrBadLogits
	}
	return g.choice.Token, nil
}
