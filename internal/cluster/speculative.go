package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// Speculative configures speculative decoding: the engine proposes several tokens and
// verifies them in one step. Field names are vLLM's. Zero fields of the method ngram have
// defaults.
type Speculative struct {
	// Method is ngram or off. Empty means the node's default, which is off unless set.
	Method string `json:"method,omitempty"`
	// Tokens is the maximum number of tokens to propose at a time.
	Tokens int `json:"num_speculative_tokens,omitempty"`
	// The last LookupMax tokens of a sequence are searched in its earlier tokens. Without
	// a match, the search uses fewer, down to LookupMin.
	LookupMax int `json:"prompt_lookup_max,omitempty"`
	LookupMin int `json:"prompt_lookup_min,omitempty"`
}

// Methods of [Speculative].
const (
	SpeculativeOff   = "off"
	SpeculativeNgram = "ngram"
)

// Defaults and bounds of the method ngram.
const (
	DefaultSpeculativeTokens = 5
	DefaultLookupMax         = 4
	DefaultLookupMin         = 2
	MaxSpeculativeTokens     = 32
	MaxLookup                = 16
)

// Enabled reports whether the engine proposes tokens.
func (s Speculative) Enabled() bool { return s.Method == SpeculativeNgram }

// WithDefaults fills in the unset fields of the method ngram. A LookupMax below the
// default LookupMin lowers LookupMin to it.
func (s Speculative) WithDefaults() Speculative {
	if !s.Enabled() {
		return s
	}
	if s.Tokens == 0 {
		s.Tokens = DefaultSpeculativeTokens
	}
	if s.LookupMax == 0 {
		s.LookupMax = max(DefaultLookupMax, s.LookupMin)
	}
	if s.LookupMin == 0 {
		s.LookupMin = min(DefaultLookupMin, s.LookupMax)
	}
	return s
}

// Validate returns an error that names the first wrong field.
func (s Speculative) Validate() error {
	switch s.Method {
	case "", SpeculativeOff:
		if s.Tokens != 0 || s.LookupMax != 0 || s.LookupMin != 0 {
			return fmt.Errorf("speculative: parameters without the method %s", SpeculativeNgram)
		}
		return nil
	case SpeculativeNgram:
	default:
		return fmt.Errorf("speculative: %q is not %s or %s", s.Method, SpeculativeOff, SpeculativeNgram)
	}
	for _, p := range s.parameters() {
		if *p.value < 0 || *p.value > p.most {
			return fmt.Errorf("speculative: %s: %d is not between 1 and %d", p.name, *p.value, p.most)
		}
	}
	if d := s.WithDefaults(); d.LookupMin > d.LookupMax {
		return fmt.Errorf("speculative: prompt_lookup_min: %d is more than prompt_lookup_max, %d", d.LookupMin, d.LookupMax)
	}
	return nil
}

type speculativeParameter struct {
	name  string
	value *int
	most  int
}

func (s *Speculative) parameters() []speculativeParameter {
	return []speculativeParameter{
		{"num_speculative_tokens", &s.Tokens, MaxSpeculativeTokens},
		{"prompt_lookup_max", &s.LookupMax, MaxLookup},
		{"prompt_lookup_min", &s.LookupMin, MaxLookup},
	}
}

// ParseSpeculative reads the text form of flags and files: off, ngram, ngram:5 for the
// number of tokens, or ngram: followed by names with values, as in
// ngram:num_speculative_tokens=5,prompt_lookup_max=4,prompt_lookup_min=2. Empty text
// gives the zero value.
func ParseSpeculative(text string) (Speculative, error) {
	method, rest, more := strings.Cut(text, ":")
	s := Speculative{Method: method}
	if more {
		if err := s.parse(rest); err != nil {
			return Speculative{}, err
		}
	}
	if err := s.Validate(); err != nil {
		return Speculative{}, err
	}
	return s, nil
}

func (s *Speculative) parse(text string) error {
	for i, part := range strings.Split(text, ",") {
		name, value, named := strings.Cut(part, "=")
		if !named && i == 0 {
			name, value = "num_speculative_tokens", part
		}
		if err := s.set(name, value); err != nil {
			return err
		}
	}
	return nil
}

func (s *Speculative) set(name, value string) error {
	for _, p := range s.parameters() {
		if p.name == name {
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > p.most {
				return fmt.Errorf("speculative: %s: %q is not a number from 1 to %d", name, value, p.most)
			}
			*p.value = n
			return nil
		}
	}
	return fmt.Errorf("speculative: %q is not num_speculative_tokens, prompt_lookup_max or prompt_lookup_min", name)
}

// String returns the shortest text that ParseSpeculative reads as s.
func (s Speculative) String() string {
	if s == (Speculative{Method: s.Method}) {
		return s.Method
	}
	if s == (Speculative{Method: s.Method, Tokens: s.Tokens}) {
		return s.Method + ":" + strconv.Itoa(s.Tokens)
	}
	var parts []string
	for _, p := range s.parameters() {
		if *p.value != 0 {
			parts = append(parts, p.name+"="+strconv.Itoa(*p.value))
		}
	}
	return s.Method + ":" + strings.Join(parts, ",")
}
