package grammar

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// Grammar is a constraint compiled for one vocabulary. It is safe for concurrent use.
type Grammar struct {
	c       *Compiler
	a       *pda.Automaton
	masks   masks
	items   []pda.Item // at the start
	empty   bool       // the empty text is complete
	opening func() opening
}

// opening is a mask before the first token, without the end-of-sequence ids.
type opening struct {
	mask []uint64
	all  bool // all of the tokens were found
}

func newGrammar(c *Compiler, a *pda.Automaton, grown func(int64)) *Grammar {
	g := &Grammar{c: c, a: a}
	g.masks.init(c, a, grown)
	var s pda.Scratch
	g.items, g.empty = a.Start(&s)
	g.opening = sync.OnceValue(g.firstMask)
	return g
}

// NewMatcher starts a sequence.
func (g *Grammar) NewMatcher() *Matcher {
	return &Matcher{g: g, items: g.items, canEnd: g.empty, fresh: true, credit: creditStart}
}

// Prepare computes the parts of masks that depend on one state alone, until all are
// cached, the cache is full, or ctx is done. It is optional: without it, the first masks
// take some milliseconds each with a large vocabulary.
func (g *Grammar) Prepare(ctx context.Context) error {
	for s := range int32(g.a.States()) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("prepare masks: %w", context.Cause(ctx))
		}
		if !g.a.Reads(s) {
			continue
		}
		g.masks.state(s, new(int))
		if g.masks.full() {
			return nil
		}
	}
	return nil
}

// probeTokens is the length of the text with which a grammar is tested.
const probeTokens = 40

// probe computes the masks of a text that follows the grammar, within the bounds of a
// sequence. It returns ErrAmbiguous for a grammar whose texts would fail with it sooner
// or later, so that the error comes before the first text.
func (g *Grammar) probe() error {
	r := rand.New(rand.NewPCG(1, 1))
	m := g.NewMatcher()
	mask := make([]uint64, g.c.words)
	for range probeTokens {
		if err := m.Mask(mask); err != nil {
			if errors.Is(err, ErrAmbiguous) {
				return err
			}
			return nil
		}
		for _, id := range g.c.vocab.EOS {
			mask[id/64] &^= 1 << (id % 64)
		}
		token, ok := anyOf(mask, r.IntN(64*len(mask)))
		if !ok {
			return nil // the text is complete
		}
		if err := m.Accept(token); err != nil {
			return err
		}
	}
	return nil
}

// anyOf returns a token of a mask: the first one from an index on, wrapping around.
func anyOf(mask []uint64, from int) (token uint32, ok bool) {
	first := mask[from/64] >> (from % 64) << (from % 64)
	for i := range len(mask) + 1 {
		at := (from/64 + i) % len(mask)
		word := mask[at]
		if i == 0 {
			word = first
		}
		if word != 0 {
			return uint32(at*64 + bits.TrailingZeros64(word)), true
		}
	}
	return 0, false
}

// Bytes returns about how much memory the grammar takes, including cached masks.
func (g *Grammar) Bytes() int64 { return int64(g.a.Bytes()) + g.masks.size() }

// firstMask computes the mask before the first token, where tokens can have other bytes
// than later.
func (g *Grammar) firstMask() opening {
	o := opening{mask: make([]uint64, g.c.words)}
	m := &Matcher{g: g, items: g.items, credit: creditStart}
	o.all = m.fill(o.mask)
	for id, b := range g.c.vocab.First {
		o.mask[id/64] &^= 1 << (id % 64)
		if g.c.usable(id) && m.reads(b) {
			o.mask[id/64] |= 1 << (id % 64)
		}
	}
	return o
}
