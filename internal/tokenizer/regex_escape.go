package tokenizer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// escape translates an escape outside brackets.
func (t *regexTranslator) escape() (string, error) {
	r := t.peek(1)
	switch r {
	case 'w', 'W':
		t.pos += 2
		return plainSet(bareWord, r == 'W').atom(), nil
	case 'b', 'B': // the engine's own idea of a word is narrower
		t.pos += 2
		ahead := map[rune][2]string{'b': {"(?!", "(?="}, 'B': {"(?=", "(?!"}}[r]
		const w = "[" + bareWord + "])"
		return "(?:(?<=" + w + ahead[0] + w + "|(?<!" + w + ahead[1] + w + ")", nil
	}
	if s, ok, err := t.setEscape(); ok || err != nil {
		return s.atom(), err
	}
	switch {
	case r == -1:
		return "", errRegexEnd
	case strings.ContainsRune("AZzG", r):
		t.pos += 2
		return `\` + string(r), nil
	case r == 'R':
		t.pos += 2
		return `(?>\r\n|[\n-\r\u0085\u2028\u2029])`, nil
	case r == 'N':
		t.pos += 2
		return `[^\n]`, nil
	case r == 'O':
		t.pos += 2
		return `[\s\S]`, nil
	case r >= '1' && r <= '9', r == 'k':
		return t.backReference()
	}
	r, err := t.charEscape()
	if err != nil {
		return "", err
	}
	return literalAtom(r, t.fold), nil
}

func (t *regexTranslator) backReference() (string, error) {
	if t.fold {
		return "", errors.New("back reference without regard to case is not supported")
	}
	if t.peek(1) == 'k' {
		if t.peek(2) != '<' {
			return "", errors.New(`\k without <name>`)
		}
		t.pos += 2
		name, err := t.delimited('>')
		return `\k<` + name + `>`, err
	}
	start := t.pos + 1
	for t.pos = start; t.peek(0) >= '0' && t.peek(0) <= '9'; t.pos++ {
	}
	return `(?:\` + string(t.src[start:t.pos]) + `)`, nil
}

// charEscape reads an escape that stands for one character.
func (t *regexTranslator) charEscape() (rune, error) {
	r := t.peek(1)
	t.pos += 2
	if i := strings.IndexRune("tnrfvae", r); i >= 0 {
		return []rune("\t\n\r\f\v\a\x1b")[i], nil
	}
	switch {
	case r == -1:
		return 0, errRegexEnd
	case r == 'u':
		return t.number(4, 4, 16)
	case r == 'x' && t.peek(0) == '{':
		t.pos++
		v, err := t.number(1, 8, 16)
		if err == nil && t.peek(0) != '}' {
			err = errors.New(`\x{ without }`)
		}
		t.pos++
		return v, err
	case r == 'x':
		v, err := t.number(0, 2, 16)
		if err == nil && v >= 0x80 {
			err = errors.New(`\x beyond 7F means a byte, not a character`)
		}
		return v, err
	case r == '0':
		return t.number(0, 2, 8)
	case r >= '1' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
		return 0, fmt.Errorf(`escape \%c is not supported`, r)
	}
	return r, nil
}

// number reads between low and high digits as a code point.
func (t *regexTranslator) number(low, high, base int) (rune, error) {
	start := t.pos
	digits := "01234567"
	if base == 16 {
		digits = "0123456789abcdefABCDEF"
	}
	for t.pos-start < high && strings.ContainsRune(digits, t.peek(0)) {
		t.pos++
	}
	if t.pos-start < low {
		return 0, errors.New("too few digits")
	}
	if t.pos == start {
		return 0, nil
	}
	v, err := strconv.ParseUint(string(t.src[start:t.pos]), base, 32)
	if err != nil || v > unicode.MaxRune || v >= 0xD800 && v <= 0xDFFF {
		return 0, errors.New("not a character")
	}
	return rune(v), nil
}

// literalAtom is a pattern for exactly r, or for all its case variants.
func literalAtom(r rune, fold bool) string {
	if fold {
		if variants := foldRange(r, r); variants != "" {
			return "[" + quoteRune(r) + variants + "]"
		}
	}
	return quoteRune(r)
}

// quoteRune spells r so that it has no special meaning, in or out of a class.
func quoteRune(r rune) string {
	if strings.ContainsRune(`\*+?|{}[]()^$.#-&~ `, r) {
		return `\` + string(r)
	}
	return string(r)
}

// foldRange lists the case variants of lo…hi that lie outside it.
func foldRange(lo, hi rune) string {
	if hi-lo > 0x3000 {
		return "" // such ranges hold both cases of what they hold
	}
	var out strings.Builder
	seen := make(map[rune]bool)
	for r := lo; r <= hi; r++ {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			if (f < lo || f > hi) && !seen[f] {
				seen[f] = true
				out.WriteString(quoteRune(f))
			}
		}
	}
	return out.String()
}
