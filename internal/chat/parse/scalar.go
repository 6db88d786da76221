package parse

import (
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"
)

// text reads a byte of a string.
func (v *value) text(dst []byte, b byte) ([]byte, verdict) {
	switch {
	case b == v.quote:
		dst = append(dst, '"')
		if v.state == inKey {
			v.state = atColon
			return dst, more
		}
		return v.ended(dst)
	case b == '\\':
		v.word = append(v.word[:0], byte(v.state)) // to come back to
		v.state = inEscape
		return dst, more
	}
	return quoted(dst, b), more
}

// quoted appends a byte of a text as it is written in a JSON string.
func quoted(dst []byte, b byte) []byte {
	const hex = "0123456789abcdef"
	switch {
	case b == '"' || b == '\\':
		return append(dst, '\\', b)
	case b == '\n':
		return append(dst, '\\', 'n')
	case b == '\r':
		return append(dst, '\\', 'r')
	case b == '\t':
		return append(dst, '\\', 't')
	case b < ' ':
		return append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
	}
	return append(dst, b)
}

// escape reads the byte after a backslash.
func (v *value) escape(dst []byte, b byte) ([]byte, verdict) {
	back := valueState(v.word[0])
	v.state = back
	switch b {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return append(dst, '\\', b), more
	case '\'':
		return append(dst, b), more
	case 'u':
		v.want, v.state = 4, inDigits
		return dst, more
	}
	if v.python {
		switch b {
		case 'x':
			v.want, v.state = 2, inDigits
			return dst, more
		case 'U':
			v.want, v.state = 8, inDigits
			return dst, more
		case 'a':
			return quoted(dst, 7), more
		case 'v':
			return quoted(dst, 11), more
		case '0':
			return quoted(dst, 0), more
		case '\n':
			return dst, more
		}
	}
	return quoted(append(dst, '\\', '\\'), b), more
}

// digit reads a hexadecimal digit of an escape.
func (v *value) digit(dst []byte, b byte) ([]byte, verdict) {
	if !(b >= '0' && b <= '9' || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F') {
		return dst, bad
	}
	if v.word = append(v.word, b); len(v.word) <= v.want {
		return dst, more
	}
	digits := string(v.word[1:])
	v.state = valueState(v.word[0])
	if v.want == 4 { // halves of a pair can only be written as they came
		return append(append(dst, '\\', 'u'), digits...), more
	}
	n, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || n > utf8.MaxRune {
		return dst, bad
	}
	if n < utf8.RuneSelf {
		return quoted(dst, byte(n)), more
	}
	return utf8.AppendRune(dst, rune(n)), more
}

// wordEnd writes a number or literal.
func (v *value) wordEnd(dst []byte) ([]byte, bool) {
	if v.state == inNumber {
		return v.number(dst)
	}
	switch word := string(v.word); word {
	case "true", "false", "null":
		return append(dst, word...), true
	case "True":
		return append(dst, "true"...), v.python
	case "False":
		return append(dst, "false"...), v.python
	case "None":
		return append(dst, "null"...), v.python
	}
	return dst, false
}

func (v *value) number(dst []byte) ([]byte, bool) {
	if json.Valid(v.word) {
		return append(dst, v.word...), true
	}
	if !v.python {
		return dst, false
	}
	word := string(v.word)
	if n, err := strconv.ParseInt(word, 10, 64); err == nil { // +5
		return strconv.AppendInt(dst, n, 10), true
	}
	f, err := strconv.ParseFloat(word, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return dst, false
	}
	out, err := json.Marshal(f)
	return append(dst, out...), err == nil
}
