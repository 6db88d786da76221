package tokenizer

import (
	"strings"
	"unicode/utf8"
)

const replacement = "\uFFFD"

// firstPart measures the first character of b. For a well-formed one it returns
// its length and ok. Otherwise n is the length of the maximal ill-formed part
// (Unicode 3.9, table 3-7); more says that part is the beginning of a character
// which further bytes could complete.
func firstPart(b []byte) (n int, ok, more bool) {
	if len(b) == 0 {
		return 0, false, true
	}
	lead := b[0]
	if lead < utf8.RuneSelf {
		return 1, true, false
	}
	lo, hi, want := byte(0x80), byte(0xBF), 0
	switch {
	case lead >= 0xC2 && lead <= 0xDF:
		want = 2
	case lead >= 0xE0 && lead <= 0xEF:
		want = 3
		if lead == 0xE0 {
			lo = 0xA0
		} else if lead == 0xED {
			hi = 0x9F
		}
	case lead >= 0xF0 && lead <= 0xF4:
		want = 4
		if lead == 0xF0 {
			lo = 0x90
		} else if lead == 0xF4 {
			hi = 0x8F
		}
	default:
		return 1, false, false
	}
	for i := 1; i < want; i++ {
		if i == len(b) {
			return i, false, true
		}
		if b[i] < lo || b[i] > hi {
			return i, false, false
		}
		lo, hi = 0x80, 0xBF
	}
	return want, true, false
}

// appendLossy appends b to dst as UTF-8 with one U+FFFD for each maximal
// ill-formed part. Unless final is set it stops before an incomplete character
// at the end of b and returns it as rest.
func appendLossy(dst, b []byte, final bool) (out, rest []byte) {
	for len(b) > 0 {
		n := 0
		for n < len(b) {
			if b[n] < utf8.RuneSelf {
				n++
				continue
			}
			r, size := utf8.DecodeRune(b[n:])
			if r == utf8.RuneError && size <= 1 {
				break
			}
			n += size
		}
		dst = append(dst, b[:n]...)
		if b = b[n:]; len(b) == 0 {
			break
		}
		bad, _, more := firstPart(b)
		if more && !final {
			return dst, b
		}
		dst = append(dst, replacement...)
		b = b[bad:]
	}
	return dst, nil
}

// toValid returns s with each maximal ill-formed part replaced by U+FFFD.
func toValid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	out, _ := appendLossy(make([]byte, 0, len(s)+8), []byte(s), true)
	return string(out)
}

// runeCount returns the number of characters in s, but no more than limit.
func runeCount(s string, limit int) int {
	n := 0
	for range s {
		if n++; n >= limit {
			break
		}
	}
	return n
}

// hasSpacePrefix reports whether s begins with a plain space.
func hasSpacePrefix(s string) bool { return strings.HasPrefix(s, " ") }
