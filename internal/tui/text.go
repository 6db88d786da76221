package tui

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// nextCluster splits the first visible character off s. Text comes from the
// cluster, so that anything a terminal could take for a command is replaced here,
// before it is measured: white space by a space, other controls by "?".
// Characters without width are left out (width 0, empty cluster).
func nextCluster(s string) (cluster string, width int, rest string) {
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

// textWidth is the number of cells s takes.
func textWidth(s string) int {
	n := 0
	for s != "" {
		_, w, rest := nextCluster(s)
		n += w
		s = rest
	}
	return n
}

// clip cuts s on the right so that it fits width cells, with tail as the mark.
func clip(s string, width int, tail string) string {
	if width <= 0 {
		return ""
	}
	if textWidth(s) <= width {
		return s
	}
	if len(tail) > 0 && textWidth(tail) >= width {
		tail = ""
	}
	return head(s, width-textWidth(tail)) + tail
}

// clipMiddle cuts ids in the middle, where they differ least.
func clipMiddle(s string, width int, tail string) string {
	full, mark := textWidth(s), textWidth(tail)
	if full <= width {
		return s
	}
	if width < mark+2 {
		return clip(s, width, tail)
	}
	right := (width - mark) / 2
	left := width - mark - right
	rest := s
	for skip := full - right; skip > 0 && rest != ""; {
		_, w, r := nextCluster(rest)
		skip -= w
		rest = r
	}
	return head(s, left) + tail + rest
}

// head returns the leading characters of s that fit width cells.
func head(s string, width int) string {
	var b strings.Builder
	for s != "" {
		c, w, rest := nextCluster(s)
		if w > width {
			break
		}
		width -= w
		b.WriteString(c)
		s = rest
	}
	return b.String()
}

// clean returns s as it is shown: controls replaced, invisible characters left out.
func clean(s string) string { return head(s, textWidth(s)) }

// padRight fills s with spaces up to width cells.
func padRight(s string, width int) string {
	if n := width - textWidth(s); n > 0 {
		return s + strings.Repeat(" ", n)
	}
	return s
}

// padLeft fills s with spaces on the left up to width cells.
func padLeft(s string, width int) string {
	if n := width - textWidth(s); n > 0 {
		return strings.Repeat(" ", n) + s
	}
	return s
}

// fold breaks text at spaces into lines of at most width cells; longer words are
// cut into pieces.
func fold(text string, width int) []string {
	if width < 2 { // a wide character needs two cells
		return nil
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(clean(text)) {
		word = clean(word) // a mark may have lost the space it stood on
		for textWidth(word) > width {
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
		case textWidth(line)+1+textWidth(word) <= width:
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

// dropLast removes the last visible character.
func dropLast(s string) string {
	n := 0
	for rest := s; rest != ""; {
		_, _, next := nextCluster(rest)
		n, rest = len(rest)-len(next), next
	}
	return s[:len(s)-n]
}

// dropWord removes the last word, and the spaces after it.
func dropWord(s string) string {
	s = strings.TrimRight(s, " ")
	return s[:strings.LastIndex(s, " ")+1]
}
