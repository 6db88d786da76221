package term

import (
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// ASCII reports whether the user's locale has no UTF-8: LC_ALL, LC_CTYPE or LANG, the
// first that is set, names another encoding, or none as C does. Where no variable is set,
// as in most containers, terminals understand UTF-8 nevertheless.
func ASCII(env Env) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(env.Get(name)); v != "" {
			return !strings.Contains(v, "utf-8") && !strings.Contains(v, "utf8")
		}
	}
	return false
}

// signs are the characters that commands draw beyond ASCII, and what stands for them. Those
// in columns take one cell.
var signs = map[rune]string{
	'●': "*", '○': "o", '◐': "~", '◇': "=", '▲': "!", '✕': "x", '✓': "+", '✗': "x",
	'·': "-", '…': "~", '█': "#", '░': ".", '→': "->", '±': "+/-", '×': "x", '°': "deg ", 'µ': "u",
	'⠋': "|", '⠙': "/", '⠹': "-", '⠸': "\\", '⠼': "|", '⠴': "/", '⠦': "-", '⠧': "\\", '⠇': "|", '⠏': "/",
}

// asciiWriter replaces the signs of commands; names and texts of others stay as they are.
type asciiWriter struct {
	mu   sync.Mutex
	w    io.Writer
	rest []byte // the beginning of a character, of which the end has not come
}

func (a *asciiWriter) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := append(a.rest, p...)
	var out strings.Builder
	for len(text) > 0 && utf8.FullRune(text) {
		r, size := utf8.DecodeRune(text)
		if s, ok := signs[r]; ok {
			out.WriteString(s)
		} else {
			out.Write(text[:size])
		}
		text = text[size:]
	}
	a.rest = append([]byte(nil), text...)
	if _, err := io.WriteString(a.w, out.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}
