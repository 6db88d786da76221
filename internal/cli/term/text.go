package term

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Clean makes text from the cluster safe for a terminal and for a single line:
// line breaks and tabs, with the space around them, become one space; other control
// characters and bytes that are no text become "?".
func Clean(s string) string {
	s = strings.TrimSpace(s)
	if !strings.ContainsFunc(s, unsafe) {
		return s
	}
	var b strings.Builder
	for _, line := range strings.FieldsFunc(s, func(r rune) bool { return r != ' ' && unicode.IsSpace(r) }) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		for _, r := range line {
			if unsafe(r) {
				r = '?'
			}
			b.WriteRune(r)
		}
	}
	return b.String()
}

// unsafe reports characters that a terminal does not print as they are. A byte that
// is no text decodes as RuneError.
func unsafe(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) || r != ' ' && unicode.IsSpace(r) || unicode.Is(unicode.Bidi_Control, r)
}

// Width is the number of cells that s takes; escape sequences take none.
func Width(s string) int { return ansi.StringWidth(s) }

// Clip cuts s on the right so that it fits width cells, with "…" as the mark.
func Clip(s string, width int) string {
	if width <= 0 {
		return ""
	}
	return ansi.Truncate(s, width, "…")
}

// PadRight fills s with spaces up to width cells.
func PadRight(s string, width int) string {
	if n := width - Width(s); n > 0 {
		return s + strings.Repeat(" ", n)
	}
	return s
}

// PadLeft fills s with spaces on the left up to width cells.
func PadLeft(s string, width int) string {
	if n := width - Width(s); n > 0 {
		return strings.Repeat(" ", n) + s
	}
	return s
}

// Printable keeps control characters from reaching a terminal; tabs stay.
func Printable(line string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0) {
			return '?'
		}
		return r
	}, line)
}
