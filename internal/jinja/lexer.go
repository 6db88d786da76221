package jinja

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// lexer cuts a source into tokens: text outside of tags, and inside of them
// names, literals and operators. White space control happens here.
type lexer struct {
	name   string
	src    string
	pos    int
	line   int
	tokens []token
	// lineStart says that the match before the current text ended a line.
	lineStart bool
}

func lex(name, source string) ([]token, error) {
	src := strings.ToValidUTF8(source, "\uFFFD")
	src = normalizeNewlines(src)
	src = strings.TrimSuffix(src, "\n")
	l := &lexer{name: name, src: src, line: 1, lineStart: true}
	for l.pos < len(l.src) {
		if err := l.root(); err != nil {
			return nil, err
		}
	}
	l.emit(token{kind: tokEOF})
	return l.tokens, nil
}

func normalizeNewlines(s string) string {
	if !strings.Contains(s, "\r") {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

func (l *lexer) emit(t token) {
	t.line = l.line
	l.tokens = append(l.tokens, t)
}

func (l *lexer) fail(format string, args ...any) error {
	return &SyntaxError{Template: l.name, Line: l.line, Msg: fmt.Sprintf(format, args...)}
}

// advance moves past n bytes, counts their lines and remembers whether they
// ended one.
func (l *lexer) advance(n int) {
	passed := l.src[l.pos : l.pos+n]
	l.line += strings.Count(passed, "\n")
	if n > 0 {
		l.lineStart = passed[n-1] == '\n'
	}
	l.pos += n
}

// root lexes text up to the next tag, and that tag.
func (l *lexer) root() error {
	rest := l.src[l.pos:]
	at := tagStart(rest)
	if at < 0 {
		l.emit(token{kind: tokData, val: rest})
		l.advance(len(rest))
		return nil
	}
	kind := rest[at+1]
	sign := byte(0)
	if at+2 < len(rest) && (rest[at+2] == '-' || rest[at+2] == '+') {
		sign = rest[at+2]
	}
	l.text(rest[:at], sign, kind != '{')
	l.advance(at)
	if kind == '%' {
		if n := rawTag(l.src[l.pos:], "raw"); n > 0 {
			l.advance(n)
			return l.raw()
		}
	}
	n := 2
	if sign != 0 {
		n = 3
	}
	switch kind {
	case '#':
		l.advance(n)
		return l.comment()
	case '%':
		l.emit(token{kind: tokBlockBegin})
	default:
		l.emit(token{kind: tokVarBegin})
	}
	l.advance(n)
	return l.tag(kind == '%')
}

// tagStart finds the first of {{, {% and {#.
func tagStart(s string) int {
	for i := 0; ; {
		j := strings.IndexByte(s[i:], '{')
		if j < 0 || i+j+1 >= len(s) {
			return -1
		}
		i += j
		if c := s[i+1]; c == '%' || c == '{' || c == '#' {
			return i
		}
		i++
	}
}

// text emits the data before a tag. A minus sign strips all white space before
// the tag; otherwise the indentation of a statement or comment that starts its
// line is dropped, unless a plus sign keeps it.
func (l *lexer) text(s string, sign byte, lstrip bool) {
	switch {
	case sign == '-':
		s = trimRightSpace(s)
	case sign != '+' && lstrip:
		start := strings.LastIndexByte(s, '\n') + 1
		if (start > 0 || l.lineStart) && spaceLen(s[start:]) == len(s)-start {
			s = s[:start]
		}
	}
	if s != "" {
		l.emit(token{kind: tokData, val: s})
	}
}

// rawTag matches "{% word %}" with its signs at the start of s and returns its
// length, 0 if it is something else.
func rawTag(s, word string) int {
	n := 2
	if n < len(s) && (s[n] == '-' || s[n] == '+') {
		n++
	}
	n += spaceLen(s[n:])
	if !strings.HasPrefix(s[n:], word) {
		return 0
	}
	n += len(word)
	n += spaceLen(s[n:])
	switch {
	case strings.HasPrefix(s[n:], "-%}"):
		n += 3
		return n + spaceLen(s[n:])
	case strings.HasPrefix(s[n:], "%}"):
		n += 2
		if word == "endraw" && strings.HasPrefix(s[n:], "\n") {
			n++
		}
		return n
	case word == "endraw" && strings.HasPrefix(s[n:], "+%}"):
		return n + 3
	}
	return 0
}

func (l *lexer) raw() error {
	rest := l.src[l.pos:]
	for i := 0; ; i += 2 {
		j := strings.Index(rest[i:], "{%")
		if j < 0 {
			return l.fail("Missing end of raw directive")
		}
		i += j
		n := rawTag(rest[i:], "endraw")
		if n == 0 {
			continue
		}
		sign := rest[i+2]
		if sign != '-' && sign != '+' {
			sign = 0
		}
		l.text(rest[:i], sign, true)
		l.advance(i + n)
		return nil
	}
}

func (l *lexer) comment() error {
	rest := l.src[l.pos:]
	j := strings.Index(rest, "#}")
	if j < 0 {
		return l.fail("Missing end of comment tag")
	}
	n := j + 2
	switch {
	case j > 0 && rest[j-1] == '-':
		n += spaceLen(rest[n:])
	case j > 0 && rest[j-1] == '+':
	case strings.HasPrefix(rest[n:], "\n"):
		n++
	}
	l.advance(n)
	return nil
}

// tagEnd matches the end of a statement or of a print statement and returns its
// length with the white space it swallows.
func (l *lexer) tagEnd(block bool) int {
	rest := l.src[l.pos:]
	end := "}}"
	if block {
		end = "%}"
	}
	switch {
	case rest[0] == '-' && strings.HasPrefix(rest[1:], end):
		return 3 + spaceLen(rest[3:])
	case block && rest[0] == '+' && strings.HasPrefix(rest[1:], end):
		return 3
	case strings.HasPrefix(rest, end):
		if block && strings.HasPrefix(rest[2:], "\n") {
			return 3
		}
		return 2
	}
	return 0
}

// tag lexes the inside of a tag and its end. Inside of brackets the characters
// of an end mark are operators.
func (l *lexer) tag(block bool) error {
	var open []byte
	for l.pos < len(l.src) {
		if len(open) == 0 {
			if n := l.tagEnd(block); n > 0 {
				kind := tokVarEnd
				if block {
					kind = tokBlockEnd
				}
				l.emit(token{kind: kind})
				l.advance(n)
				return nil
			}
		}
		if n := spaceLen(l.src[l.pos:]); n > 0 {
			l.advance(n)
			continue
		}
		if ok, err := l.literal(); ok || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		op := operatorAt(l.src[l.pos:])
		if op == "" {
			r, _ := utf8.DecodeRuneInString(l.src[l.pos:])
			return l.fail("unexpected char %s at %d", quoteString(string(r)), l.pos)
		}
		switch c := op[0]; c {
		case '(', '[', '{':
			open = append(open, c)
		case ')', ']', '}':
			if len(open) == 0 {
				return l.fail("unexpected '%s'", op)
			}
			want := closing(open[len(open)-1])
			open = open[:len(open)-1]
			if c != want {
				return l.fail("unexpected '%s', expected '%c'", op, want)
			}
		}
		l.emit(token{kind: tokOp, val: op})
		l.advance(len(op))
	}
	return nil
}

func closing(c byte) byte {
	switch c {
	case '(':
		return ')'
	case '[':
		return ']'
	}
	return '}'
}

func operatorAt(s string) string {
	if len(s) >= 2 {
		switch s[:2] {
		case "//", "**", "==", "!=", ">=", "<=":
			return s[:2]
		}
	}
	if strings.IndexByte("+-/*%~[](){}><=.:|,;", s[0]) >= 0 {
		return s[:1]
	}
	return ""
}
