package dynamo

import (
	"context"

	"github.com/dynctl/dynctl/internal/tokenizer"
)

// Prompt is what an engine continues.
type Prompt struct {
	ID     string
	Tokens []uint32 // never empty
	// Generated counts how many of the last Tokens were generated before, by a program that
	// could not finish. The engine goes on after them.
	Generated   int
	MaxTokens   int     // of the answer; at least 1
	Temperature float32 // 0 is greedy
	TopP        float32 // 0 or 1: off
	TopK        int     // 0 or less: off
	Seed        uint64

	tok *tokenizer.Tokenizer
}

// Text returns the prompt as text, with its special tokens.
func (p *Prompt) Text() string { return p.tok.Decode(p.Tokens, false) }

// Encode returns the tokens of a text.
func (p *Prompt) Encode(text string) []uint32 { return p.tok.Encode(text, false) }

// Engine continues a prompt. It calls emit for the tokens of the answer, in order and as few
// or many at a time as it has them, and returns nil at the end. Emit fails when no more
// tokens are wanted: the answer has its length or a token that ends it, or the client left.
// The engine returns that error then. Several calls run at the same time.
type Engine func(ctx context.Context, p *Prompt, emit func(tokens ...uint32) error) error
