package grammar

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/grammar/gbnf"
	"github.com/dynctl/dynctl/internal/grammar/pattern"
	"github.com/dynctl/dynctl/internal/grammar/pda"
	"github.com/dynctl/dynctl/internal/grammar/schema"
)

// Kind is a way to constrain output.
type Kind string

// Kinds, with the fields of Spec that each uses.
const (
	KindJSONObject Kind = "json_object" // any JSON object; Compact
	KindJSONSchema Kind = "json_schema" // Text, Lax, Compact
	KindRegex      Kind = "regex"       // Text
	KindChoice     Kind = "choice"      // Choices
	KindEBNF       Kind = "ebnf"        // Text
)

// Spec is a constraint in the form that a request carries.
type Spec struct {
	Kind Kind `json:"kind"`
	// Text is the JSON schema, the regular expression or the grammar.
	Text    string   `json:"text,omitempty"`
	Choices []string `json:"choices,omitempty"`
	// Lax ignores what a schema asks beyond what can be enforced, instead of refusing it:
	// unknown keywords and formats are ignored, and oneOf becomes anyOf.
	Lax bool `json:"lax,omitempty"`
	// Compact forbids white space between the symbols of JSON.
	Compact bool `json:"compact,omitempty"`
}

// SchemaOptions are the fields of a Spec for reading a JSON schema.
type SchemaOptions struct{ Lax, Compact bool }

// maxText bounds the text of a spec and all its choices together, in bytes.
const maxText = 256 << 10

// Check reports whether the constraint can be compiled, leaving the vocabulary aside. It
// costs as much as compiling.
func (s Spec) Check() error {
	_, err := s.automaton(nil)
	return err
}

// automaton compiles the spec for a vocabulary that can spell the given code points; nil
// means all.
func (s Spec) automaton(spellable []pda.Range) (*pda.Automaton, error) {
	rules, root, err := s.rules()
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", s.Kind, err)
	}
	a, err := pda.Compile(rules, root, spellable, pda.DefaultLimits())
	if s.Kind == KindJSONSchema && errors.Is(err, ErrImpossible) {
		err = &SchemaError{Path: "#", Reason: "no value of finite length matches that the vocabulary can spell"}
	}
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", s.Kind, err)
	}
	return a, nil
}

func (s Spec) rules() (*pda.Rules, pda.RuleID, error) {
	size, valid := len(s.Text), utf8.ValidString(s.Text)
	for _, c := range s.Choices {
		size += len(c) + 1
		valid = valid && utf8.ValidString(c)
	}
	if !valid {
		return nil, 0, fmt.Errorf("%w: the text is not UTF-8", ErrSpec)
	}
	if size > maxText {
		return nil, 0, fmt.Errorf("%w: %d bytes; at most %d are allowed", ErrTooLarge, size, maxText)
	}
	options := schema.Options{Lax: s.Lax, Compact: s.Compact}
	switch s.Kind {
	case KindJSONObject:
		return schema.Object(options)
	case KindJSONSchema:
		return schema.Compile([]byte(s.Text), options)
	case KindRegex:
		return pattern.Compile(s.Text)
	case KindEBNF:
		return gbnf.Compile(s.Text)
	case KindChoice:
		if len(s.Choices) == 0 {
			return nil, 0, fmt.Errorf("%w: the list of choices is empty", ErrSpec)
		}
		rules := &pda.Rules{}
		texts := make([]pda.Expr, len(s.Choices))
		for i, c := range s.Choices {
			texts[i] = pda.Text(c)
		}
		return rules, rules.Add(pda.Alt(texts...)), nil
	}
	return nil, 0, fmt.Errorf("%w: unknown kind %q", ErrSpec, s.Kind)
}

// key returns a hash that identifies the constraint.
func (s Spec) key() ([sha256.Size]byte, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	return sha256.Sum256(b), nil
}
