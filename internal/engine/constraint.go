package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrNothingAllowed is returned when what a request allows leaves no token to
// draw: its constraint, allowed ids and bad words contradict each other.
var ErrNothingAllowed = errors.New("the request's restrictions leave no token to draw")

// ErrConstraintCost is returned when the constraint of a request cannot go on because
// that would cost more than a sequence may. Its Mask and Accept return it, wrapped.
var ErrConstraintCost = errors.New("the form that is asked for costs too much to keep to")

// Constraint restricts the output of one sequence, to the sentences of a grammar
// say. The engine calls it from one goroutine at a time.
type Constraint interface {
	// Mask sets bit t%64 of dst[t/64] for every token t that may come next,
	// end-of-sequence tokens among them. dst is zero when it is called and has as
	// many words as the tokenizer's ids need; bits beyond them mean nothing. An error
	// ends the sequence.
	Mask(dst []uint64) error
	// Accept takes in the token that was drawn, an end-of-sequence token too. Its
	// error ends the sequence.
	Accept(token uint32) error
	// Done reports that the output is complete. The sequence then ends, unless Mask
	// still allows a token that does not end it.
	Done() bool
}

// replay makes a constraint take in what earlier attempts generated.
func replay(c Constraint, output []uint32) error {
	for i, t := range output {
		if err := c.Accept(t); err != nil {
			return fmt.Errorf("%w: token %d of earlier output, %d, is outside of the constraint: %w", ErrBadRequest, i, t, err)
		}
	}
	return nil
}

// aheadMask is a mask that was made while the backend computed the logits for it.
type aheadMask struct {
	done bool
	mask []uint64
	err  error
}

// maskAhead makes the masks of the sequences in the batch that draw a token after
// this step, beside the step: a mask that is not cached can take as long. They are
// there when e.masks says so.
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

// allowedNext asks the constraint what may come next, of so many ids.
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

// accept lets the constraint take in the token that was drawn, and reports whether
// that leaves nothing but to end.
func (g *generation) accept(token uint32, limit int) (complete bool, err error) {
	if err := g.constraint.Accept(token); err != nil {
		return false, fmt.Errorf("constraint: %w", err)
	}
	return g.complete(limit)
}

// complete reports whether the constraint is done and allows nothing that goes on.
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

// maskLogits makes all logits whose bit is not set impossible. ok is false when one
// of these is a NaN or infinite, which nobody would notice any more.
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
