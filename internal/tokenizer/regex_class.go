package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"
)

// Bodies of the classes that Oniguruma defines over Unicode.
const (
	alphaBody = `\p{L}\p{Nl}\p{Other_Alphabetic}`
	wordBody  = alphaBody + `\p{M}\p{Nd}\p{Pc}`
	hexBody   = `0-9A-Fa-f`
	// bareWord is the meaning of \w and \b outside brackets, where Oniguruma's table for
	// Latin-1 includes superscripts and fractions.
	bareWord = wordBody + `²³¹¼-¾`
)

// charSet is a parsed bracket class: the intersection of its operands,
// possibly negated. Each operand is a union.
type charSet struct {
	negated  bool
	operands []setUnion
}

type setUnion struct {
	items  string // valid inside brackets of the target dialect
	nested []charSet
}

func plainSet(items string, negated bool) charSet {
	return charSet{negated: negated, operands: []setUnion{{items: items}}}
}

// plain returns the bracket items of a set that needs nothing else.
func (s charSet) plain() (items string, ok bool) {
	if len(s.operands) != 1 || len(s.operands[0].nested) > 0 {
		return "", false
	}
	return s.operands[0].items, true
}

// atom spells the set as a pattern for one character.
func (s charSet) atom() string {
	if items, ok := s.plain(); ok {
		if s.negated {
			return "[^" + items + "]"
		}
		return "[" + items + "]"
	}
	var body string
	if a, b, ok := s.difference(); ok {
		body = "[" + a + "-[" + b + "]]"
	} else {
		var out strings.Builder
		for i, u := range s.operands {
			if i < len(s.operands)-1 {
				out.WriteString("(?=" + u.atom() + ")")
			} else {
				out.WriteString(u.atom())
			}
		}
		body = "(?:" + out.String() + ")"
	}
	if s.negated {
		return `(?:(?!` + body + `)[\s\S])`
	}
	return body
}

// difference recognizes A&&[^B], for which the target dialect has a fast form.
func (s charSet) difference() (a, b string, ok bool) {
	if len(s.operands) != 2 || len(s.operands[0].nested) > 0 {
		return "", "", false
	}
	if r := s.operands[1]; r.items == "" && len(r.nested) == 1 && r.nested[0].negated {
		b, ok = r.nested[0].plain()
	}
	return s.operands[0].items, b, ok
}

func (u setUnion) atom() string {
	var parts []string
	if u.items != "" {
		parts = append(parts, "["+u.items+"]")
	}
	for _, n := range u.nested {
		parts = append(parts, n.atom())
	}
	return "(?:" + strings.Join(parts, "|") + ")"
}

// add puts another set into the union, flattened where possible.
func (u *setUnion) add(s charSet) {
	if items, ok := s.plain(); ok && !s.negated {
		u.items += items
		return
	}
	u.nested = append(u.nested, s)
}

// charSet translates a bracket class, the position being after its bracket.
func (t *regexTranslator) charSet(depth int) (charSet, error) {
	var set charSet
	if depth > maxRegexDepth {
		return set, fmt.Errorf("nested deeper than %d", maxRegexDepth)
	}
	if t.peek(0) == '^' {
		set.negated = true
		t.pos++
	}
	var union setUnion
	finish := func() error {
		if union.items == "" && union.nested == nil {
			return errors.New("empty character class")
		}
		set.operands = append(set.operands, union)
		union = setUnion{}
		return nil
	}
	for first := true; ; first = false {
		switch r := t.peek(0); {
		case r == -1:
			return set, errRegexEnd
		case r == ']' && !first:
			t.pos++
			return set, finish()
		case r == '&' && t.peek(1) == '&':
			t.pos += 2
			if err := finish(); err != nil {
				return set, err
			}
		case r == '[' && t.peek(1) == ':':
			s, err := t.posixBracket()
			if err != nil {
				return set, err
			}
			union.add(s)
		case r == '[':
			t.pos++
			s, err := t.charSet(depth + 1)
			if err != nil {
				return set, err
			}
			union.add(s)
		default:
			if err := t.setItem(&union); err != nil {
				return set, err
			}
		}
	}
}

// setItem reads one character, range or class escape of a bracket class.
func (t *regexTranslator) setItem(u *setUnion) error {
	lo, s, err := t.setChar()
	if err != nil {
		return err
	}
	if s != nil {
		u.add(*s)
		return nil
	}
	hi := lo
	if t.peek(0) == '-' && t.peek(1) != ']' && t.peek(1) != '[' && t.peek(1) != -1 && (t.peek(1) != '&' || t.peek(2) != '&') {
		back := t.pos
		t.pos++
		if hi, s, err = t.setChar(); err != nil {
			return err
		}
		if s != nil { // the dash stands for itself
			t.pos, hi = back, lo
		}
	}
	switch {
	case hi < lo:
		return fmt.Errorf("range %q-%q runs backwards", lo, hi)
	case hi == lo:
		u.items += quoteRune(lo)
	default:
		u.items += quoteRune(lo) + "-" + quoteRune(hi)
	}
	if t.fold {
		u.items += foldRange(lo, hi)
	}
	return nil
}

// setChar reads one character of a bracket class, or a set that an escape
// stands for.
func (t *regexTranslator) setChar() (rune, *charSet, error) {
	r := t.peek(0)
	if r != '\\' {
		t.pos++
		return r, nil, nil
	}
	if t.peek(1) == 'b' { // backspace, only here
		t.pos += 2
		return '\b', nil, nil
	}
	if s, ok, err := t.setEscape(); ok || err != nil {
		return 0, &s, err
	}
	r, err := t.charEscape()
	return r, nil, err
}

// setEscape reads an escape that stands for a set of characters; ok is false,
// and the position unchanged, for any other.
func (t *regexTranslator) setEscape() (s charSet, ok bool, err error) {
	switch r := t.peek(1); r {
	case 'd', 's', 'D', 'S':
		s = plainSet(`\`+string(r), false)
	case 'w', 'W':
		s = plainSet(wordBody, r == 'W')
	case 'h', 'H':
		s = plainSet(hexBody, r == 'H')
	case 'p', 'P':
		s, err = t.property(r == 'P')
		return s, true, err
	default:
		return s, false, nil
	}
	t.pos += 2
	return s, true, nil
}

// posixBracket reads [:name:] or [:^name:].
func (t *regexTranslator) posixBracket() (charSet, error) {
	rest := string(t.src[t.pos+2:])
	end := strings.Index(rest, ":]")
	if end < 0 || end > 20 {
		return charSet{}, errors.New("unterminated POSIX bracket")
	}
	name, negated := strings.CutPrefix(rest[:end], "^")
	body, ok := posixBodies[name]
	if !ok {
		return charSet{}, fmt.Errorf("unknown POSIX bracket [:%s:]", name)
	}
	t.pos += 2 + len([]rune(rest[:end])) + 2
	return plainSet(body, negated), nil
}

var posixBodies = map[string]string{
	"alnum": alphaBody + `\p{Nd}`, "alpha": alphaBody, "any": `\s\S`, "ascii": "\x00-\x7F",
	"blank": `\t\p{Zs}`, "cntrl": `\p{Cc}`, "digit": `\p{Nd}`,
	"lower": `\p{Ll}\p{Other_Lowercase}`, "upper": `\p{Lu}\p{Other_Uppercase}`, "punct": `\p{P}\p{S}`,
	"space": `\s`, "word": wordBody, "xdigit": hexBody,
}

// property reads \p{Name}, \p{^Name} or \P{Name}.
func (t *regexTranslator) property(negated bool) (charSet, error) {
	rest := string(t.src[t.pos+2:])
	end := strings.IndexByte(rest, '}')
	if !strings.HasPrefix(rest, "{") || end < 0 {
		return charSet{}, errors.New(`\p without {name}`)
	}
	name, caret := strings.CutPrefix(rest[1:end], "^")
	body, ok := propertyBody(name)
	if !ok {
		return charSet{}, fmt.Errorf(`unknown property \p{%s}`, name)
	}
	t.pos += 2 + len([]rune(rest[:end+1]))
	return plainSet(body, negated != caret), nil
}

// propertyBody resolves a property name as Oniguruma does: case, spaces,
// dashes and underscores do not matter.
func propertyBody(name string) (string, bool) {
	name = foldPropertyName(name)
	if body, ok := posixBodies[name]; ok && name != "punct" {
		return body, true
	}
	if key, ok := propertyNames()[name]; ok {
		return `\p{` + key + `}`, true
	}
	return "", false
}

func foldPropertyName(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", " ", "", "-", "").Replace(name))
}

var propertyNames = sync.OnceValue(func() map[string]string {
	names := make(map[string]string)
	for key := range unicode.Properties {
		names[foldPropertyName(key)] = key
	}
	for key := range unicode.Scripts {
		names[foldPropertyName(key)] = key
	}
	for alias, key := range unicode.CategoryAliases {
		names[foldPropertyName(alias)] = key
	}
	for key := range unicode.Categories {
		names[foldPropertyName(key)] = key
	}
	return names
})
