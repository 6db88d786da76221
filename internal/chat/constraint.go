package chat

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/grammar"
	"github.com/dynctl/dynctl/internal/protocol"
)

func (p *Processor) newGrammars() (*grammar.Compiler, error) {
	return grammar.NewCompiler(grammar.FromTokenizer(p.tok, p.tok.VocabSize(), p.eos), grammar.Options{})
}

func (p *Processor) compile(ctx context.Context, g protocol.Guided) (*grammar.Grammar, error) {
	c, err := p.grammars()
	if err != nil {
		return nil, fmt.Errorf("prepare constraints: %w", err)
	}
	return c.Compile(ctx, grammar.Spec{Kind: grammar.Kind(g.Kind), Text: g.Text, Choices: g.Choices, Lax: g.Lax, Compact: g.Compact})
}

// CheckGuided returns an error if g cannot constrain an output. The error says what is
// wrong with a schema, an expression or a grammar, and where.
func (p *Processor) CheckGuided(ctx context.Context, g protocol.Guided) error {
	_, err := p.compile(ctx, g)
	return err
}

// prepareFor bounds how long a constraint may compute masks ahead. A grammar that is used
// again has its masks already.
const prepareFor = 200 * time.Millisecond

// Constraint keeps one output within a grammar. It is not safe for concurrent use.
type Constraint struct {
	m     *grammar.Matcher
	after []uint32 // one of these tokens must come before the grammar begins
	eos   []uint32
	words []uint64 // scratch for a mask if the caller's has another length
}

// NewConstraint starts an output. It fails as CheckGuided does, and when ctx ends.
func (p *Processor) NewConstraint(ctx context.Context, g protocol.Guided) (*Constraint, error) {
	compiled, err := p.compile(ctx, g)
	if err != nil {
		return nil, err
	}
	ahead, cancel := context.WithTimeout(ctx, prepareFor)
	defer cancel()
	_ = compiled.Prepare(ahead) // masks that it does not reach are computed later
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return &Constraint{m: compiled.NewMatcher(), after: g.After, eos: p.eos, words: make([]uint64, compiled.MaskLen())}, nil
}

// Mask sets the bits of the tokens that may come next. During reasoning these are all
// tokens except those that end the text; afterwards they are those that fit the grammar.
func (c *Constraint) Mask(dst []uint64) error {
	if len(c.after) > 0 {
		for i := range dst {
			dst[i] = ^uint64(0)
		}
		for _, id := range c.eos {
			if w := int(id / 64); w < len(dst) && !slices.Contains(c.after, id) {
				dst[w] &^= 1 << (id % 64)
			}
		}
		return nil
	}
	if len(dst) == len(c.words) {
		return c.m.Mask(dst)
	}
	// The model has fewer or more rows than the tokenizer has ids.
	if err := c.m.Mask(c.words); err != nil {
		return err
	}
	clear(dst[copy(dst, c.words):])
	return nil
}

// Accept advances the constraint by the token that was drawn.
func (c *Constraint) Accept(token uint32) error {
	if len(c.after) > 0 {
		if slices.Contains(c.after, token) {
			c.after = nil
		}
		return nil
	}
	return c.m.Accept(token)
}

// Done reports that only an end token can follow.
func (c *Constraint) Done() bool { return len(c.after) == 0 && c.m.Done() }
