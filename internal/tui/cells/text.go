// Package cells measures and cuts text by the cells it takes on a terminal, and
// prints figures in few of them.
//
// All of it is pure. Text comes from the cluster: what a terminal could take for a
// command is replaced before it is measured.
package cells

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Next splits the first visible character off s. Text comes from the
// cluster, so that anything a terminal could take for a command is replaced here,
// before it is measured: white space by a space, other controls by "?".
// Characters without width are left out (width 0, empty cluster).
func Next(s string) (cluster string, width int, rest string) {
	if b := s[0]; b >= 0x20 && b < 0x7f && (len(s) == 1 || s[1] < utf8.RuneSelf) {
		return s[:1], 1, s[1:]
	}
	r, n := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && n <= 1:
		return "?", 1, s[n:]
	case unicode.IsControl(r):
		if unicode.IsSpace(r) {
			return " ", 1, s[n:]
		}
		return "?", 1, s[n:]
	}
	cluster, width = ansi.FirstGraphemeCluster(s, ansi.GraphemeWidth)
	if cluster == "" {
		return "?", 1, s[n:]
	}
	rest = s[len(cluster):]
	if width <= 0 || !utf8.ValidString(cluster) {
		return "", 0, rest
	}
	return cluster, width, rest
}

// Width is the number of cells s takes.
func Width(s string) int {
	n := 0
	for s != "" {
		_, w, rest := Next(s)
		n += w
		s = rest
	}
	return n
}

// Clip cuts s on the right so that it fits width cells, with tail as the mark.
func Clip(s string, width int, tail string) string {
	if width <= 0 {
		return ""
	}
	if Width(s) <= width {
		return s
	}
	if len(tail) > 0 && Width(tail) >= width {
		tail = ""
	}
	return head(s, width-Width(tail)) + tail
}

// ClipMiddle cuts ids in the middle, where they differ least.
func ClipMiddle(s string, width int, tail string) string {
	full, mark := Width(s), Width(tail)
	if full <= width {
		return s
	}
	if width < mark+2 {
		return Clip(s, width, tail)
	}
	right := (width - mark) / 2
	left := width - mark - right
	rest := s
	for skip := full - right; skip > 0 && rest != ""; {
		_, w, r := Next(rest)
		skip -= w
		rest = r
	}
	return head(s, left) + tail + rest
}

// head returns the leading characters of s that fit width cells.
func head(s string, width int) string {
	var b strings.Builder
	for s != "" {
		c, w, rest := Next(s)
		if w > width {
			break
		}
		width -= w
		b.WriteString(c)
		s = rest
	}
	return b.String()
}

// Clean returns s as it is shown: controls replaced, invisible characters left out.
func Clean(s string) string { return head(s, Width(s)) }

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

// Fold breaks text at spaces into lines of at most width cells; longer words are
// cut into pieces.
func Fold(text string, width int) []string {
	if width < 2 { // a wide character needs two cells
		return nil
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(Clean(text)) {
		word = Clean(word) // a mark may have lost the space it stood on
		for Width(word) > width {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			part := head(word, width)
			if part == "" || !strings.HasPrefix(word, part) {
				break
			}
			lines = append(lines, part)
			word = word[len(part):]
		}
		switch {
		case line == "":
			line = word
		case Width(line)+1+Width(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// DropLast removes the last visible character.
func DropLast(s string) string {
	n := 0
	for rest := s; rest != ""; {
		_, _, next := Next(rest)
		n, rest = len(rest)-len(next), next
	}
	return s[:len(s)-n]
}

// DropWord removes the last word, and the spaces after it.
func DropWord(s string) string {
	s = strings.TrimRight(s, " ")
	return s[:strings.LastIndex(s, " ")+1]
}
