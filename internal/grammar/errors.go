package grammar

import (
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/grammar/gbnf"
	"github.com/dynctl/dynctl/internal/grammar/pattern"
	"github.com/dynctl/dynctl/internal/grammar/pda"
	"github.com/dynctl/dynctl/internal/grammar/schema"
)

// SchemaError is returned when a JSON schema is malformed, uses unsupported features, or
// cannot be satisfied.
type SchemaError = schema.Error

// RegexError is returned when a regular expression is malformed or uses unsupported
// features.
type RegexError = pattern.Error

// EBNFError is returned when a grammar text is malformed.
type EBNFError = gbnf.Error

// ErrTooLarge is returned when a constraint needs more states or rules than the limits
// allow.
var ErrTooLarge = pda.ErrTooLarge

// ErrImpossible is returned when no text matches a constraint, possibly because the
// vocabulary lacks the tokens to spell one.
var ErrImpossible = pda.ErrImpossible

// ErrSpec is returned when a Spec has no or an unknown kind, or lacks a field that its
// kind needs.
var ErrSpec = errors.New("malformed output constraint")

// ErrRejected is returned when a token does not fit at its place. The matcher's state is
// unchanged.
var ErrRejected = errors.New("token does not fit the grammar")

// ErrAmbiguous is returned when a grammar can be read in too many ways at once, or its
// rules call too many others. The matcher's state is unchanged, but the sequence cannot
// continue.
var ErrAmbiguous = errors.New("grammar is too ambiguous: rewrite it so that fewer rules match the same text")

// ErrBusy is returned when too many constraints wait to be compiled.
var ErrBusy = errors.New("too many output constraints are being compiled")

// ErrNoToken is returned when no token of the vocabulary can follow. It should not happen:
// a grammar that is too ambiguous gives ErrAmbiguous.
var ErrNoToken = errors.New("no token can follow")

// ErrMaskSize is returned when a mask does not have the length that the vocabulary needs.
var ErrMaskSize = errors.New("mask has the wrong length")

func rejected(token uint32) error { return fmt.Errorf("token %d: %w", token, ErrRejected) }
