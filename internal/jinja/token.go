package jinja

import "strings"

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokData
	tokBlockBegin
	tokBlockEnd
	tokVarBegin
	tokVarEnd
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
)

// token is one lexical unit; val holds the text of names, operators and data and
// the unescaped content of strings, num the value of numbers.
type token struct {
	kind tokenKind
	val  string
	num  Value
	line int
}

func (t token) isOp(op string) bool     { return t.kind == tokOp && t.val == op }
func (t token) isName(name string) bool { return t.kind == tokName && t.val == name }

// describe words a token for error messages.
func (t token) describe() string {
	switch t.kind {
	case tokName, tokOp:
		return t.val
	case tokEOF:
		return "end of template"
	case tokData:
		return "template data / text"
	case tokBlockBegin:
		return "begin of statement block"
	case tokBlockEnd:
		return "end of statement block"
	case tokVarBegin:
		return "begin of print statement"
	case tokVarEnd:
		return "end of print statement"
	case tokString:
		return "string"
	case tokInt:
		return "integer"
	default:
		return "float"
	}
}

// isSpace is str.isspace of one character; unlike unicode.IsSpace it holds for
// the four ASCII separators.
func isSpace(r rune) bool {
	switch {
	case r < 0x80:
		return r == ' ' || r >= '\t' && r <= '\r' || r >= 0x1c && r <= 0x1f
	case r == 0x85, r == 0xa0, r == 0x1680, r == 0x2028, r == 0x2029, r == 0x202f, r == 0x205f, r == 0x3000:
		return true
	}
	return r >= 0x2000 && r <= 0x200a
}

func trimRightSpace(s string) string { return strings.TrimRightFunc(s, isSpace) }

// spaceLen is the length in bytes of the white space that s starts with.
func spaceLen(s string) int { return len(s) - len(strings.TrimLeftFunc(s, isSpace)) }
