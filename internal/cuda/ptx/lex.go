package ptx

import (
	"fmt"
	"strconv"
	"strings"
)

// token is a word, a number, a text in quotes or one sign.
type token struct {
	kind byte // 'w', '0', '"', 'e' for the end, or the sign itself
	text string
	line int
}

func (t token) String() string {
	if t.kind == 'e' {
		return "the end of the file"
	}
	return fmt.Sprintf("%q", t.text)
}

func isLetter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$' || c == '%'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// lex cuts a text into tokens. Dots belong to the words that they begin or join, and so
// do double colons.
func lex(text string) ([]token, error) {
	var all []token
	line := 1
	for i := 0; i < len(text); {
		c := text[i]
		start := i
		switch {
		case c == '\n':
			line++
			i++
			continue
		case c == ' ' || c == '\t' || c == '\r':
			i++
			continue
		case strings.HasPrefix(text[i:], "//"):
			for i < len(text) && text[i] != '\n' {
				i++
			}
			continue
		case strings.HasPrefix(text[i:], "/*"):
			end := strings.Index(text[i+2:], "*/")
			if end < 0 {
				return nil, fmt.Errorf("%d: a comment does not end", line)
			}
			line += strings.Count(text[i:i+2+end], "\n")
			i += end + 4
			continue
		case isLetter(c) || c == '.':
			for i++; i < len(text); {
				if isLetter(text[i]) || isDigit(text[i]) || text[i] == '.' {
					i++
				} else if strings.HasPrefix(text[i:], "::") {
					i += 2
				} else {
					break
				}
			}
			all = append(all, token{'w', text[start:i], line})
			continue
		case isDigit(c):
			for i < len(text) && (isLetter(text[i]) || isDigit(text[i])) {
				i++
			}
			if i < len(text) && text[i] == '.' { // .version 7.8
				for i++; i < len(text) && isDigit(text[i]); i++ {
				}
			}
			all = append(all, token{'0', text[start:i], line})
			continue
		case c == '"':
			end := strings.IndexAny(text[i+1:], "\"\n")
			if end < 0 || text[i+1+end] != '"' {
				return nil, fmt.Errorf("%d: a text in quotes does not end", line)
			}
			i += end + 2
			all = append(all, token{'"', text[start+1 : i-1], line})
			continue
		case strings.IndexByte("{}[]()<>,;:+-!@|=", c) >= 0:
			i++
			all = append(all, token{c, text[start:i], line})
			continue
		}
		return nil, fmt.Errorf("%d: the character %q is not understood", line, c)
	}
	return append(all, token{'e', "", line}), nil
}

// number is the value of a whole number.
func number(t token) (uint64, error) {
	if t.kind != '0' {
		return 0, fmt.Errorf("%s, where a number should be", t)
	}
	text := strings.TrimSuffix(t.text, "U")
	base := 10
	switch {
	case strings.HasPrefix(text, "0x") || strings.HasPrefix(text, "0X"):
		text, base = text[2:], 16
	case strings.HasPrefix(text, "0b") || strings.HasPrefix(text, "0B"):
		text, base = text[2:], 2
	case len(text) > 1 && text[0] == '0':
		text, base = text[1:], 8
	}
	v, err := strconv.ParseUint(text, base, 64)
	if err != nil {
		return 0, fmt.Errorf("the number %s is not understood", t)
	}
	return v, nil
}
