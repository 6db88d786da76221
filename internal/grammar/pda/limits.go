package pda

import (
	"errors"
	"fmt"
)

// ErrTooLarge is returned when a grammar needs more states, edges or rules than
// Limits allow.
var ErrTooLarge = errors.New("grammar is too large")

// ErrImpossible is returned when no text matches a grammar, be it that its rules
// never end or that the vocabulary cannot spell any of their texts.
var ErrImpossible = errors.New("no text can match")

// Limits bound what Compile may spend on one grammar.
type Limits struct {
	Rules  int // rules that the root reaches, helpers included
	States int // states before determinization, and after it
	Edges  int // byte edges before determinization
	Table  int // entries of the transition table: states times byte classes
	Work   int // steps of determinization; beyond them rules stay nondeterministic
}

// DefaultLimits keep a compilation well under a second and an automaton under
// about 20 MiB.
func DefaultLimits() Limits {
	return Limits{Rules: 20_000, States: 200_000, Edges: 1_000_000, Table: 4_000_000, Work: 8_000_000}
}

func tooLarge(what string, limit int) error {
	return fmt.Errorf("%w: more than %d %s; make it simpler or its counts smaller", ErrTooLarge, limit, what)
}
