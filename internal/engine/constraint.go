package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrNothingAllowed is returned when a request's constraint, allowed ids and bad words
// contradict each other, so that no token is left to draw.
var ErrNothingAllowed = errors.New("no token satisfies the request's restrictions")

// ErrConstraintCost is returned when evaluating the constraint of a request further would
// exceed the cost limit of a sequence. Mask and Accept return it, wrapped.
var ErrConstraintCost = errors.New("the requested output form takes too much work to enforce")

// Constraint restricts the output of one sequence, for example to a grammar. The engine
// never calls it from two goroutines at once.
type Constraint interface {
	// Mask sets bit t%64 of dst[t/64] for every token t that may come next,
	// end-of-sequence tokens among them. dst is zero when it is called and has as
	// many words as the tokenizer's ids need; bits beyond them mean nothing. An error
	// ends the sequence.
	Mask(dst []uint64) error
	// Accept advances by the token that was drawn, which may be an end-of-sequence token.
	// An error ends the sequence.
	Accept(token uint32) error
	// Done reports that the output is complete. The sequence then ends, unless Mask
	// still allows a token that does not end it.
	Done() bool
}

// replay advances a constraint by the tokens that earlier attempts generated.
func replay(c Constraint, output []uint32) error {
	for i, t := range output {
		if err := c.Accept(t); err != nil {
			return fmt.Errorf("%w: token %d of earlier output, %d, is outside of the constraint: %w", ErrBadRequest, i, t, err)
		}
	}
	return nil
}

// aheadMask is a mask computed while the backend computes the logits that it applies to.
type aheadMask struct {
	done bool
	mask []uint64
	err  error
}

// maskAhead computes, in parallel to the step, the masks of the batch's sequences that
// draw a token after it. A mask that is not cached can take as long as the step. Wait on
// e.masks before reading them.
func (e *Engine) maskAhead() {
	for i, s := range e.parts {
		b := &e.batch[i]
		if s.gen == nil || s.gen.constraint == nil || b.Logits == nil && b.Choice == nil || b.Start+len(b.Tokens) != len(s.tokens) {
			continue // also at positions of a prompt that is scored, and at drafts
		}
		limit := min(e.info.TokenLimit, e.info.VocabSize)
		e.masks.Go(func() {
			mask, err := s.gen.allowedNext(limit)
			s.gen.ahead = aheadMask{true, mask, err}
		})
	}
}

// constrain masks the logits that the constraint forbids.
func (g *generation) constrain(logits []float32) error {
	a := g.ahead
	g.ahead = aheadMask{}
	if !a.done {
		a.mask, a.err = g.allowedNext(len(logits))
	}
	mask, err := a.mask, a.err
	if err == nil && !maskLogits(logits, mask) {
		err = ErrBadLogits
	}
	return err
}

// allowedNext returns the constraint's mask for ids below limit.
func (g *generation) allowedNext(limit int) ([]uint64, error) {
	if n := (limit + 63) / 64; len(g.mask) != n {
		g.mask = make([]uint64, n)
	}
	clear(g.mask)
	if err := g.constraint.Mask(g.mask); err != nil {
		return nil, fmt.Errorf("constraint: %w", err)
	}
	if tail := limit % 64; tail > 0 {
		g.mask[len(g.mask)-1] &= 1<<tail - 1
	}
	return g.mask, nil
}

// accept advances the constraint by the token that was drawn. complete reports that the
// sequence can only end now.
func (g *generation) accept(token uint32, limit int) (complete bool, err error) {
	if err := g.constraint.Accept(token); err != nil {
		return false, fmt.Errorf("constraint: %w", err)
	}
	return g.complete(limit)
}

// complete reports whether the constraint is satisfied and allows no token that
// continues.
func (g *generation) complete(limit int) (bool, error) {
	if !g.constraint.Done() {
		return false, nil
	}
	mask, err := g.allowedNext(limit)
	if err != nil {
		return false, err
	}
	for _, ids := range [...][]uint32{g.stop.StopTokenIDs, g.stop.StopTokenIDsVisible} {
		for _, id := range ids {
			if int(id) < limit {
				mask[id/64] &^= 1 << (id % 64)
			}
		}
	}
	return !slices.ContainsFunc(mask, func(w uint64) bool { return w != 0 }), nil
}

// maskLogits makes all logits whose bit is not set impossible. ok is false when it
// overwrites a NaN or positive infinity, which no later check could see.
func maskLogits(logits []float32, mask []uint64) (ok bool) {
	ok = true
	for w, word := range mask {
		if word == math.MaxUint64 {
			continue
		}
		part := logits[w*64 : min(w*64+64, len(logits))]
		for i, l := range part {
			if word>>i&1 == 0 {
				if l != l || l > math.MaxFloat32 {
					ok = false
				}
				part[i] = negInf
			}
		}
	}
	return ok
}

// bitset returns a mask of n ids in which those of the list are set.
func bitset(ids []uint32, n int) []uint64 {
	mask := make([]uint64, (n+63)/64)
	for _, id := range ids {
		if int(id) < n {
			mask[id/64] |= 1 << (id % 64)
		}
	}
	return mask
}
