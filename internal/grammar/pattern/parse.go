package pattern

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// Error is returned when a regular expression is malformed or uses what is not
// supported.
type Error struct {
	Offset int // in bytes
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("regular expression, offset %d: %s", e.Offset, e.Reason)
}

// Pattern is a parsed regular expression.
type Pattern struct {
	re *syntax.Regexp
	// source is the text as parsed and offsets where its bytes stood in the text as
	// given, nil if they are the same.
	source  string
	offsets []int
}

// Parse reads a regular expression. The error is an *Error.
func Parse(text string) (*Pattern, error) {
	p := &Pattern{}
	p.source, p.offsets = translate(text)
	re, err := syntax.Parse(p.source, syntax.Perl)
	var syn *syntax.Error
	switch {
	case errors.As(err, &syn):
		return nil, p.fail(syn.Expr, explain(syn))
	case err != nil:
		return nil, &Error{0, err.Error()}
	}
	p.re = re
	return p, nil
}

// Match reports whether the pattern matches somewhere in a text.
func (p *Pattern) Match(text string) bool {
	re, err := regexp.Compile(p.source)
	return err == nil && re.MatchString(text)
}

// fail makes an error about a part of the source.
func (p *Pattern) fail(part, reason string) *Error {
	at := max(strings.Index(p.source, part), 0)
	if p.offsets != nil && at < len(p.offsets) {
		at = p.offsets[at]
	}
	return &Error{at, reason}
}

func explain(err *syntax.Error) string {
	switch e := err.Expr; {
	case strings.HasPrefix(e, "(?=") || strings.HasPrefix(e, "(?!"):
		return "lookahead is not supported"
	case strings.HasPrefix(e, "(?<=") || strings.HasPrefix(e, "(?<!"):
		return "lookbehind is not supported"
	case err.Code == syntax.ErrInvalidEscape && len(e) == 2 && '1' <= e[1] && e[1] <= '9':
		return "back references are not supported"
	case err.Code == syntax.ErrInvalidRepeatSize:
		return fmt.Sprintf("repetition %s: counts and their nested products end at 1000", e)
	}
	return strings.TrimPrefix(err.Error(), "error parsing regexp: ")
}

// translate rewrites \uXXXX, which JSON schemas use, as \x{XXXX}.
func translate(text string) (out string, offsets []int) {
	if !strings.Contains(text, `\u`) {
		return text, nil
	}
	var b strings.Builder
	put := func(s string, at int) {
		for range len(s) {
			offsets = append(offsets, at)
		}
		b.WriteString(s)
	}
	for i := 0; i < len(text); {
		if r, n := unicodeEscape(text[i:]); n > 0 {
			put(fmt.Sprintf(`\x{%x}`, r), i)
			i += n
			continue
		}
		n := 1
		if text[i] == '\\' && i+1 < len(text) {
			n = 2
		}
		for j := i; j < i+n; j++ {
			put(text[j:j+1], j)
		}
		i += n
	}
	return b.String(), append(offsets, len(text))
}

// unicodeEscape reads \uXXXX, or two that are a surrogate pair.
func unicodeEscape(s string) (r rune, n int) {
	unit := func(s string) (rune, bool) {
		if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
			return 0, false
		}
		v, err := strconv.ParseUint(s[2:6], 16, 16)
		return rune(v), err == nil
	}
	hi, ok := unit(s)
	if !ok {
		return 0, 0
	}
	if lo, ok := unit(s[6:]); ok && utf16.IsSurrogate(hi) {
		if r := utf16.DecodeRune(hi, lo); r != '\uFFFD' {
			return r, 12
		}
	}
	return hi, 6
}

// Compile returns rules for a text that the whole expression matches. The error is
// an *Error.
func Compile(text string) (*pda.Rules, pda.RuleID, error) {
	p, err := Parse(text)
	if err != nil {
		return nil, 0, err
	}
	e, err := p.Whole(plain)
	if err != nil {
		return nil, 0, err
	}
	rules := &pda.Rules{}
	return rules, rules.Add(e), nil
}

func plain(set []pda.Range) pda.Expr { return pda.Set(set...) }
