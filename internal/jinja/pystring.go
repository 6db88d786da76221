package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func runeCount(s string) int { return utf8.RuneCountInString(s) }

// runeOffset is the byte offset of character i, len(s) if there is none.
func runeOffset(s string, i int) int {
	if isASCII(s) {
		return min(i, len(s))
	}
	for off := range s {
		if i == 0 {
			return off
		}
		i--
	}
	return len(s)
}

// runeAt returns character i, which exists.
func runeAt(s string, i int) string {
	off := runeOffset(s, i)
	_, size := utf8.DecodeRuneInString(s[off:])
	return s[off : off+size]
}

// substring returns characters lo to hi of a string.
func substring(s string, lo, hi int) string {
	if hi <= lo {
		return ""
	}
	off := runeOffset(s, lo)
	return s[off : off+runeOffset(s[off:], hi-lo)]
}

// Case mappings are the full ones: ß becomes SS.

func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

// titleRune is the title case of one character.
func titleRune(c rune) string {
	if c < utf8.RuneSelf {
		return string(unicode.ToUpper(c))
	}
	return cases.Title(language.Und, cases.NoLower).String(string(c))
}

func capitalize(s string) string {
	c, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return ""
	}
	return titleRune(c) + lowerRest(s, size)
}

// lowerRest lowers s from byte n on, in the context of what is before it: a
// final sigma depends on that.
func lowerRest(s string, n int) string {
	if isASCII(s) {
		return strings.ToLower(s[n:])
	}
	head := lower(s[:n])
	return strings.TrimPrefix(lower(s), head)
}

// pyTitle is str.title: every run of cased characters is capitalized.
func pyTitle(s string) string {
	var b strings.Builder
	start := -1
	flush := func(end int) {
		if start >= 0 {
			b.WriteString(capitalize(s[start:end]))
		}
		start = -1
	}
	for i, c := range s {
		if isCased(c) {
			if start < 0 {
				start = i
			}
			continue
		}
		flush(i)
		b.WriteRune(c)
	}
	flush(len(s))
	return b.String()
}

func isUpperRune(c rune) bool { return unicode.In(c, unicode.Lu, unicode.Other_Uppercase) }
func isLowerRune(c rune) bool { return unicode.In(c, unicode.Ll, unicode.Other_Lowercase) }
func isCased(c rune) bool     { return isUpperRune(c) || isLowerRune(c) || unicode.Is(unicode.Lt, c) }

// allRunes is the rule of isdigit and its kin: some characters, and all of the
// kind.
func allRunes(s string, ok func(rune) bool) bool {
	for _, c := range s {
		if !ok(c) {
			return false
		}
	}
	return s != ""
}

// caseIs is the rule of isupper and islower: something cased, and nothing of the
// other case.
func caseIs(s string, want func(rune) bool) bool {
	found := false
	for _, c := range s {
		if isCased(c) {
			if !want(c) {
				return false
			}
			found = true
		}
	}
	return found
}

func isDecimalRune(c rune) bool { return unicode.Is(unicode.Nd, c) }

// isDigitRune holds for decimal digits and for digits with a special form, such
// as superscripts.
func isDigitRune(c rune) bool {
	if isDecimalRune(c) {
		return true
	}
	for i := 0; i < len(specialDigits); i += 2 {
		if c >= specialDigits[i] && c <= specialDigits[i+1] {
			return true
		}
	}
	return false
}

// specialDigits are the first and last characters of the ranges whose
// Numeric_Type is Digit.
var specialDigits = []rune{
	0xb2, 0xb3, 0xb9, 0xb9, 0x1369, 0x1371, 0x19da, 0x19da, 0x2070, 0x2070, 0x2074, 0x2079, 0x2080, 0x2089,
	0x2460, 0x2468, 0x2474, 0x247c, 0x2488, 0x2490, 0x24ea, 0x24ea, 0x24f5, 0x24fd, 0x24ff, 0x24ff,
	0x2776, 0x277e, 0x2780, 0x2788, 0x278a, 0x2792, 0x10a40, 0x10a43, 0x10e60, 0x10e68, 0x11052, 0x1105a,
	0x1f100, 0x1f10a,
}

// isNumericRune is str.isnumeric of one character; of the ideographs that mean
// numbers it knows the basic ones.
func isNumericRune(c rune) bool {
	return unicode.Is(unicode.N, c) || strings.ContainsRune("一二三四五六七八九十百千万億兆〇零", c)
}

func isAlnumRune(c rune) bool { return unicode.IsLetter(c) || isDigitRune(c) || isNumericRune(c) }

// splitLines is str.splitlines.
func splitLines(s string, keep bool) []string {
	var out []string
	start := 0
	for i, c := range s {
		switch c {
		case '\n', '\v', '\f', '\r', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		default:
			continue
		}
		if i < start { // the second half of \r\n
			continue
		}
		end := i + utf8.RuneLen(c)
		if c == '\r' && strings.HasPrefix(s[end:], "\n") {
			end++
		}
		if keep {
			out = append(out, s[start:end])
		} else {
			out = append(out, s[start:i])
		}
		start = end
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}

// splitSpace is split without a separator: runs of white space separate, the
// rest after limit splits keeps its spaces.
func splitSpace(s string, limit int) []string {
	var out []string
	s = strings.TrimLeftFunc(s, isSpace)
	for s != "" {
		end := strings.IndexFunc(s, isSpace)
		if limit >= 0 && len(out) == limit {
			return append(out, s)
		}
		if end < 0 {
			return append(out, s)
		}
		out = append(out, s[:end])
		s = strings.TrimLeftFunc(s[end:], isSpace)
	}
	return out
}

func rsplitSpace(s string, limit int) []string {
	var out []string
	s = trimRightSpace(s)
	for s != "" {
		at := strings.LastIndexFunc(s, isSpace)
		if limit >= 0 && len(out) == limit {
			at = -1
		}
		if at < 0 {
			out = append(out, s)
			break
		}
		_, size := utf8.DecodeRuneInString(s[at:])
		out = append(out, s[at+size:])
		s = trimRightSpace(s[:at])
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

func rsplit(s, sep string, limit int) []string {
	if limit < 0 {
		return strings.Split(s, sep)
	}
	var out []string
	for range limit {
		at := strings.LastIndex(s, sep)
		if at < 0 {
			break
		}
		out = append(out, s[at+len(sep):])
		s = s[:at]
	}
	out = append(out, s)
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}
