package process

import (
	"bytes"
	"log/slog"
	"strings"
)

// Bounds of what is kept of a server's output.
const (
	maxLine  = 4 << 10 // bytes; the rest of a line is left out
	lastLogs = 20      // lines for the error
)

// lines logs what a server prints, line by line, and keeps the last lines. Progress bars end
// theirs by a carriage return.
type lines struct {
	log  *slog.Logger
	mask *strings.Replacer
	part []byte // of a line without an end
	long bool   // it is longer than that
	last []string
}

func newLines(log *slog.Logger, secrets []string) *lines {
	var pairs []string
	for _, s := range secrets {
		pairs = append(pairs, s, "***")
	}
	return &lines{log: log, mask: strings.NewReplacer(pairs...)}
}

// Write implements [io.Writer]. It never fails.
func (l *lines) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		at := bytes.IndexAny(b, "\r\n")
		piece := b
		if at >= 0 {
			piece = b[:at]
		}
		room := maxLine - len(l.part)
		l.long = l.long || len(piece) > room
		l.part = append(l.part, piece[:min(len(piece), room)]...)
		if at < 0 {
			break
		}
		l.line()
		b = b[at+1:]
	}
	return n, nil
}

func (l *lines) line() {
	text := strings.ToValidUTF8(strings.TrimRight(l.mask.Replace(string(l.part)), " \t"), "?")
	if l.long {
		text += " ..."
	}
	l.part, l.long = l.part[:0], false
	if text == "" {
		return
	}
	if len(l.last) == lastLogs {
		l.last = append(l.last[:0], l.last[1:]...)
	}
	l.last = append(l.last, text)
	l.log.Info("the server prints", "line", text)
}

// end returns the last lines. Nothing is written any more.
func (l *lines) end() []string {
	l.line()
	return l.last
}

// secrets returns the values of variables whose names say that they are secret.
func secrets(env []string) (values []string) {
	for _, line := range env {
		name, value, _ := strings.Cut(line, "=")
		for _, word := range []string{"KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"} {
			if strings.Contains(strings.ToUpper(name), word) && len(value) >= 6 {
				values = append(values, value)
				break
			}
		}
	}
	return values
}
