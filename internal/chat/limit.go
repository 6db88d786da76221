package chat

import (
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/jinja"
	"github.com/dynctl/dynctl/internal/tokenizer"
)

// TooLongError is returned for a text with more tokens than allowed. Counting stops
// early, so the exact number is unknown.
type TooLongError struct {
	AtLeast int // tokens
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("the text has at least %d tokens", e.AtLeast)
}

// ErrSplit is returned when the pattern by which a tokenizer splits a text exceeds its
// time limit.
var ErrSplit = errors.New("the tokenizer's split pattern takes too long on this text")

// renderLimits returns the limits of a template whose text may have the given number of
// tokens. They are zero if the tokenizer drops parts of texts, because any text may then
// be short enough.
func (p *Processor) renderLimits(tokens int) jinja.Limits {
	one := p.tok.LongestToken()
	if one == 0 || tokens > jinja.DefaultLimits().Output/one {
		return jinja.Limits{}
	}
	return jinja.Limits{Output: max(1, tokens*one)}
}

// EncodeChatWithin is EncodeChat with a limit of most tokens. It returns *TooLongError or
// ErrSplit.
func (p *Processor) EncodeChatWithin(prompt string, most int) ([]uint32, error) {
	return p.encodeWithin(nil, prompt, false, most)
}

// EncodePromptWithin is EncodePrompt with a limit of most tokens. It returns
// *TooLongError or ErrSplit.
func (p *Processor) EncodePromptWithin(text string, most int) ([]uint32, error) {
	if !p.ownSpecials {
		return p.encodeWithin(nil, text, true, most)
	}
	ids, err := p.encodeWithin(append([]uint32(nil), p.before...), text, false, most)
	return append(ids, p.after...), err
}

func (p *Processor) encodeWithin(dst []uint32, text string, special bool, most int) ([]uint32, error) {
	if n := p.tok.FewestTokens(len(text)); n > most {
		return nil, &TooLongError{AtLeast: n}
	}
	ids, err := p.tok.EncodeLimit(dst, text, special, most)
	switch {
	case errors.Is(err, tokenizer.ErrTooManyTokens):
		return nil, &TooLongError{AtLeast: most + 1}
	case errors.Is(err, tokenizer.ErrPatternTimeout):
		return nil, fmt.Errorf("%w: %w", ErrSplit, err)
	}
	return ids, nil // characters that the vocabulary lacks are dropped
}
