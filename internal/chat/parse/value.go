package parse

// value reads one JSON value, or one Python literal, byte by byte and writes it as
// JSON. It forgives what models get wrong without doubt about the meaning: line
// breaks in strings, needless escapes, commas before a closing bracket.
type value struct {
	python bool

	state valueState
	stack []byte // open brackets
	gap   []byte // a comma and the white space after it, written when something follows
	quote byte   // that ends the string
	word  []byte // a number, a literal or the digits of an escape
	want  int    // digits of the escape
}

type valueState uint8

const (
	atValue valueState = iota
	atKey
	atColon
	atNext // after a value in a list or object
	inString
	inKey // a string before a colon
	inEscape
	inDigits
	inWord
	inNumber
)

const (
	maxDepth = 200     // of brackets
	maxWord  = 4 << 10 // digits of a number
)

func (v *value) reset() {
	*v = value{python: v.python, stack: v.stack[:0], word: v.word[:0], gap: v.gap[:0]}
}

// put reads a byte and appends to dst what it means. The verdict before is for
// numbers and words, which end where something else begins; dst is complete then,
// and the byte is not part of the value.
func (v *value) put(dst []byte, b byte) ([]byte, verdict) {
	switch v.state {
	case inString, inKey:
		return v.text(dst, b)
	case inEscape:
		return v.escape(dst, b)
	case inDigits:
		return v.digit(dst, b)
	case inWord, inNumber:
		if wordByte(b) || v.state == inNumber && (b == '+' || b == '-' || b == '.') {
			v.word = append(v.word, b)
			if len(v.word) > maxWord {
				return dst, bad
			}
			return dst, more
		}
		var ok bool
		if dst, ok = v.wordEnd(dst); !ok {
			return dst, bad
		}
		if len(v.stack) == 0 {
			return dst, before
		}
		v.state = atNext
	}
	if space(b) {
		switch {
		case len(v.gap) > 0:
			v.gap = append(v.gap, b)
		case len(v.stack) > 0:
			dst = append(dst, b)
		}
		return dst, more
	}
	switch v.state {
	case atKey:
		if b == '}' {
			return v.pop(dst, b)
		}
		if !v.opens(b) {
			return dst, bad
		}
		v.quote, v.state = b, inKey
		return append(v.separate(dst), '"'), more
	case atColon:
		if b != ':' {
			return dst, bad
		}
		v.state = atValue
		return append(dst, ':'), more
	case atNext:
		if len(v.stack) == 0 {
			return dst, before
		}
		if b != ',' {
			return v.pop(dst, b)
		}
		v.gap = append(v.gap, b)
		v.state = atValue
		if v.stack[len(v.stack)-1] == '{' {
			v.state = atKey
		}
		return dst, more
	}
	return v.begin(dst, b)
}

// begin reads the first byte of a value.
func (v *value) begin(dst []byte, b byte) ([]byte, verdict) {
	closes := b == ']' || b == ')'
	if closes && len(v.stack) > 0 && v.stack[len(v.stack)-1] != '{' {
		return v.pop(dst, b)
	}
	dst = v.separate(dst)
	switch {
	case b == '{' || b == '[' || b == '(' && v.python:
		if len(v.stack) >= maxDepth {
			return dst, bad
		}
		v.stack = append(v.stack, b)
		if b == '{' {
			v.state = atKey
			return append(dst, '{'), more
		}
		return append(dst, '['), more
	case v.opens(b):
		v.quote, v.state = b, inString
		return append(dst, '"'), more
	case b == '-' || b >= '0' && b <= '9' || v.python && (b == '+' || b == '.'):
		v.word, v.state = append(v.word[:0], b), inNumber
		return dst, more
	case wordByte(b):
		v.word, v.state = append(v.word[:0], b), inWord
		return dst, more
	}
	return dst, bad
}

// separate writes the comma that was read before a value or key.
func (v *value) separate(dst []byte) []byte {
	dst = append(dst, v.gap...)
	v.gap = v.gap[:0]
	return dst
}

func (v *value) opens(b byte) bool { return b == '"' || b == '\'' && v.python }

func wordByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_'
}

// pop closes a bracket. A comma before it is forgotten.
func (v *value) pop(dst []byte, b byte) ([]byte, verdict) {
	switch top := v.stack[len(v.stack)-1]; {
	case top == '{' && b == '}', top == '[' && b == ']', top == '(' && b == ')':
	default:
		return dst, bad
	}
	v.gap = v.gap[:0]
	v.stack = v.stack[:len(v.stack)-1]
	if b == ')' {
		b = ']'
	}
	return v.ended(append(dst, b))
}

// ended goes on after a value.
func (v *value) ended(dst []byte) ([]byte, verdict) {
	v.state = atNext
	if len(v.stack) == 0 {
		return dst, done
	}
	return dst, more
}

// cut returns the beginning of a number or literal that the end of the text cut off. Other
// values were written as they came, but for a piece of an escape or a comma.
func (v *value) cut() []byte {
	if v.state == inWord || v.state == inNumber {
		return v.word
	}
	return nil
}

// convert reads a text that holds one value and nothing else.
func convert(text string, python bool) (json []byte, ok bool) {
	v := value{python: python}
	var out []byte
	ended := false
	for i := range len(text) {
		if ended {
			if !space(text[i]) {
				return nil, false
			}
			continue
		}
		var verdict verdict
		switch out, verdict = v.put(out, text[i]); verdict {
		case bad:
			return nil, false
		case before:
			if !space(text[i]) {
				return nil, false
			}
			ended = true
		case done:
			ended = true
		}
	}
	if !ended && len(v.stack) == 0 && (v.state == inWord || v.state == inNumber) {
		out, ended = v.wordEnd(out)
	}
	return out, ended
}
