package tokenizer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

const (
	maxRegexDepth  = 100    // nested groups and classes
	maxRegexRepeat = 100000 // Oniguruma's own limit for {n,m}
)

// translateRegex rewrites a pattern from Oniguruma's Ruby dialect to the .NET
// dialect of regexp2, for use with its Multiline option. What differs: nested
// and intersected classes, POSIX brackets, \w, \h and a few other escapes,
// possessive quantifiers, {,n}, the meaning of (?m), and case folding (which is
// spelled out, since the engines fold differently). Constructs that have no
// counterpart are refused.
func translateRegex(pattern string) (string, error) {
	t := &regexTranslator{src: []rune(pattern)}
	out, err := t.alternatives(0)
	if err != nil {
		return "", fmt.Errorf("at character %d: %w", t.pos, err)
	}
	if t.pos < len(t.src) {
		return "", fmt.Errorf("at character %d: unmatched )", t.pos)
	}
	return out, nil
}

type regexTranslator struct {
	src  []rune
	pos  int
	fold bool // inside (?i
}

var errRegexEnd = errors.New("unexpected end")

// peek returns the rune at an offset from the position, or -1 past the end.
func (t *regexTranslator) peek(offset int) rune {
	if i := t.pos + offset; i < len(t.src) {
		return t.src[i]
	}
	return -1
}

// alternatives translates up to the closing parenthesis or the end.
func (t *regexTranslator) alternatives(depth int) (string, error) {
	if depth > maxRegexDepth {
		return "", fmt.Errorf("nested deeper than %d", maxRegexDepth)
	}
	defer func(fold bool) { t.fold = fold }(t.fold)
	var out strings.Builder
	start := true
	for t.pos < len(t.src) && t.peek(0) != ')' {
		if t.peek(0) == '|' {
			t.pos++
			out.WriteByte('|')
			start = false
			continue
		}
		atom, err := t.atom(depth, start)
		if err != nil {
			return "", err
		}
		start = start && atom == ""
		if atom, err = t.quantified(atom); err != nil {
			return "", err
		}
		out.WriteString(atom)
	}
	return out.String(), nil
}

// quantified appends the quantifiers that follow an atom.
func (t *regexTranslator) quantified(atom string) (string, error) {
	for repeated := false; ; repeated = true {
		quantifier, exact, err := t.quantifier()
		if err != nil || quantifier == "" {
			return atom, err
		}
		if atom == "" {
			return "", errors.New("nothing to repeat")
		}
		if repeated {
			atom = "(?:" + atom + ")"
		}
		interval := quantifier[0] == '{'
		switch next := t.peek(0); {
		case next == '?' && !exact: // after {n} it is a quantifier of its own
			t.pos++
			atom += quantifier + "?"
		case next == '+' && !interval: // after {n,m} likewise
			t.pos++
			atom = "(?>" + atom + quantifier + ")"
		default:
			atom += quantifier
		}
	}
}

// quantifier reads one of * + ? {n} {n,} {,m} {n,m}, without suffix; exact
// marks {n}.
func (t *regexTranslator) quantifier() (q string, exact bool, err error) {
	switch r := t.peek(0); r {
	case '*', '+', '?':
		t.pos++
		return string(r), false, nil
	case '{':
	default:
		return "", false, nil
	}
	i := 1
	number := func() string {
		start := i
		for r := t.peek(i); r >= '0' && r <= '9'; r = t.peek(i) {
			i++
		}
		return string(t.src[t.pos+start : t.pos+i])
	}
	low, high, comma := number(), "", false
	if t.peek(i) == ',' {
		comma = true
		i++
		high = number()
	}
	if t.peek(i) != '}' || low == "" && high == "" {
		return "", false, nil // an ordinary brace
	}
	t.pos += i + 1
	for _, n := range []string{low, high} {
		if v, err := strconv.Atoi(n); n != "" && (err != nil || v > maxRegexRepeat) {
			return "", false, fmt.Errorf("repeat count %s, limit %d", n, maxRegexRepeat)
		}
	}
	if low == "" {
		low = "0"
	}
	if !comma {
		return "{" + low + "}", true, nil
	}
	return "{" + low + "," + high + "}", false, nil
}

// atom translates one item; groupStart says nothing precedes it in its group.
func (t *regexTranslator) atom(depth int, groupStart bool) (string, error) {
	r := t.peek(0)
	switch r {
	case '(':
		return t.group(depth, groupStart)
	case '[':
		t.pos++
		set, err := t.charSet(depth + 1)
		if err != nil {
			return "", err
		}
		return set.atom(), nil
	case '\\':
		return t.escape()
	case '.', '^', '$':
		t.pos++
		return string(r), nil
	case '*', '+', '?':
		return "", errors.New("nothing to repeat")
	}
	t.pos++
	return literalAtom(r, t.fold), nil
}

// group translates a parenthesis and what it encloses.
func (t *regexTranslator) group(depth int, groupStart bool) (string, error) {
	t.pos++ // (
	open := "("
	fold := t.fold
	if t.peek(0) == '?' {
		t.pos++
		switch r := t.peek(0); {
		case r == '#':
			for t.pos < len(t.src) && t.peek(0) != ')' {
				t.pos++
			}
			if t.pos == len(t.src) {
				return "", errRegexEnd
			}
			t.pos++
			return "", nil
		case r == ':' || r == '=' || r == '!' || r == '>':
			t.pos++
			open = "(?" + string(r)
		case r == '<' && (t.peek(1) == '=' || t.peek(1) == '!'):
			open = "(?<" + string(t.peek(1))
			t.pos += 2
		case r == '<':
			name, err := t.delimited('>')
			if err != nil {
				return "", err
			}
			open = "(?<" + name + ">"
		default:
			flags, scoped, err := t.flags()
			if err != nil {
				return "", err
			}
			if !scoped {
				// Oniguruma takes the rest of the group, alternatives included,
				// as the scope; only at the start do the engines agree on that.
				if !groupStart {
					return "", errors.New("option in the middle of a group")
				}
				return flags, nil
			}
			open = strings.TrimSuffix(flags, ")")
			if open == "" {
				open = "(?:"
			} else {
				open += ":"
			}
		}
	}
	body, err := t.alternatives(depth + 1)
	if err != nil {
		return "", err
	}
	t.fold = fold
	if t.peek(0) != ')' {
		return "", errRegexEnd
	}
	t.pos++
	return open + body + ")", nil
}

// flags reads option letters up to : or ). It applies i itself and returns the
// others in the target dialect, as "(?s)" or "".
func (t *regexTranslator) flags() (out string, scoped bool, err error) {
	on := true
	for ; ; t.pos++ {
		switch r := t.peek(0); r {
		case 'i':
			t.fold = on
		case 'm':
			out = "(?s)"
			if !on {
				out = "(?-s)"
			}
		case '-':
			on = false
		case ':', ')':
			t.pos++
			return out, r == ':', nil
		default:
			return "", false, fmt.Errorf("group (?%c is not supported", r)
		}
	}
}

// delimited reads <name> with the position on the opening character.
func (t *regexTranslator) delimited(closing rune) (string, error) {
	start := t.pos + 1
	for i := start; i < len(t.src); i++ {
		r := t.src[i]
		if r == closing && i > start {
			t.pos = i + 1
			return string(t.src[start:i]), nil
		}
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return "", fmt.Errorf("bad name character %q", r)
		}
	}
	return "", errRegexEnd
}
