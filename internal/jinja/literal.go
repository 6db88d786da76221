package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// literal lexes a number, a name or a string at the current position, and says
// whether there was one.
func (l *lexer) literal() (bool, error) {
	rest := l.src[l.pos:]
	c := rest[0]
	switch {
	case isDigit(c):
		return true, l.number(rest)
	case c == '\'' || c == '"':
		n := stringEnd(rest)
		if n < 0 {
			return false, nil
		}
		val, err := unescape(rest[1 : n-1])
		if err != nil {
			return false, l.fail("%v", err)
		}
		l.emit(token{kind: tokString, val: val})
		l.advance(n)
		return true, nil
	}
	n := 0
	for n < len(rest) {
		r, size := utf8.DecodeRuneInString(rest[n:])
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && r != 0xb7 {
			break
		}
		n += size
	}
	if n == 0 {
		return false, nil
	}
	if r, _ := utf8.DecodeRuneInString(rest); r != '_' && !unicode.IsLetter(r) {
		return false, l.fail("Invalid character in identifier")
	}
	l.emit(token{kind: tokName, val: rest[:n]})
	l.advance(n)
	return true, nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// digits returns the length of a run of digits, single underscores between them
// allowed.
func digits(s string) int {
	n := 0
	for n < len(s) {
		switch {
		case isDigit(s[n]):
			n++
		case s[n] == '_' && n > 0 && n+1 < len(s) && isDigit(s[n+1]):
			n += 2
		default:
			return n
		}
	}
	return n
}

func (l *lexer) number(s string) error {
	if l.pos == 0 || l.src[l.pos-1] != '.' {
		if n := floatLen(s); n > 0 {
			f, err := strconv.ParseFloat(strings.ReplaceAll(s[:n], "_", ""), 64)
			if err != nil && f == 0 {
				return l.fail("invalid number %s", s[:n])
			}
			l.emit(token{kind: tokFloat, num: f})
			l.advance(n)
			return nil
		}
	}
	n := digits(s)
	if s[0] == '0' {
		n = len(s) - len(strings.TrimLeft(s, "0")) // 01 is no number
	}
	i, err := strconv.ParseInt(strings.ReplaceAll(s[:n], "_", ""), 10, 64)
	if err != nil {
		return l.fail("invalid or too large number %.40s", s[:n])
	}
	l.emit(token{kind: tokInt, num: i})
	l.advance(n)
	return nil
}

func floatLen(s string) int {
	n := digits(s)
	frac := false
	if n+1 < len(s) && s[n] == '.' && isDigit(s[n+1]) {
		n += 1 + digits(s[n+1:])
		frac = true
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		m := n + 1
		if m < len(s) && (s[m] == '+' || s[m] == '-') {
			m++
		}
		if d := digits(s[m:]); d > 0 {
			return m + d
		}
	}
	if frac {
		return n
	}
	return 0
}

// stringEnd returns the length of the string literal that s starts with, quotes
// included, or -1 if it does not end.
func stringEnd(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		}
	}
	return -1
}

var simpleEscapes = map[byte]byte{
	'\\': '\\', '\'': '\'', '"': '"', 'a': 7, 'b': 8, 'f': 12, 'n': 10, 'r': 13, 't': 9, 'v': 11,
}

// unescape applies Python's string escapes; unknown ones keep their backslash.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			i++
			continue
		}
		c := s[i+1] // the lexer never ends a string after a lone backslash
		i += 2
		if e, ok := simpleEscapes[c]; ok {
			b.WriteByte(e)
			continue
		}
		switch {
		case c == '\n':
		case c >= '0' && c <= '7':
			v := rune(c - '0')
			for k := 0; k < 2 && i < len(s) && s[i] >= '0' && s[i] <= '7'; k++ {
				v = v*8 + rune(s[i]-'0')
				i++
			}
			b.WriteRune(v)
		case c == 'x' || c == 'u' || c == 'U':
			n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			if i+n > len(s) {
				return "", fmt.Errorf(`truncated \%c escape`, c)
			}
			v, err := strconv.ParseUint(s[i:i+n], 16, 32)
			if err != nil {
				return "", fmt.Errorf(`truncated \%c escape`, c)
			}
			if v > unicode.MaxRune {
				return "", fmt.Errorf("illegal Unicode character")
			}
			b.WriteRune(rune(v)) // a lone surrogate becomes U+FFFD
			i += n
		case c == 'N':
			return "", fmt.Errorf(`named character escapes are not supported`)
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}
