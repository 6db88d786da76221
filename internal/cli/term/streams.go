package term

import (
	"io"
	"os"

	xterm "github.com/charmbracelet/x/term"
)

// Streams are the three streams of a command and what is known of them.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// InTTY, OutTTY and ErrTTY say which of them are terminals.
	InTTY, OutTTY, ErrTTY bool
	// ASCII is set where the signs of commands are drawn with ASCII characters.
	ASCII bool
	// data is standard output without replaced signs; nil means Out.
	data io.Writer
	// Measure returns the size of the terminal in cells; nil or zeros mean unknown.
	Measure func() (width, height int)
}

// System returns the streams of the process.
func System() Streams {
	s := Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InTTY: xterm.IsTerminal(os.Stdin.Fd()), OutTTY: xterm.IsTerminal(os.Stdout.Fd()), ErrTTY: xterm.IsTerminal(os.Stderr.Fd()),
	}
	s.Measure = func() (int, int) {
		for _, f := range []*os.File{os.Stdout, os.Stderr} {
			if w, h, err := xterm.GetSize(f.Fd()); err == nil {
				return w, h
			}
		}
		return 0, 0
	}
	return s
}

// Localized returns s as the user's locale needs it: without UTF-8, the signs that
// commands draw are replaced on the way. This is the one place that decides so.
func (s Streams) Localized(env Env) Streams {
	if s.ASCII || !ASCII(env) {
		return s
	}
	s.ASCII, s.data = true, s.Out
	s.Out, s.Err = &asciiWriter{w: s.Out}, &asciiWriter{w: s.Err}
	return s
}

// Data is standard output for what must arrive byte by byte: documents for programs, logs,
// answers of models, and the screen of a dashboard, which chooses its signs itself.
func (s Streams) Data() io.Writer {
	if s.data != nil {
		return s.data
	}
	return s.Out
}

// What a terminal that does not tell its size is taken for.
const (
	defaultWidth  = 80
	defaultHeight = 24
)

// Size returns the size of the terminal in cells, 80x24 when it is not known.
func (s Streams) Size() (width, height int) {
	if s.Measure != nil {
		width, height = s.Measure()
	}
	if width <= 0 {
		width = defaultWidth
	}
	if height <= 0 {
		height = defaultHeight
	}
	return width, height
}

// Env looks up variables in a list of NAME=value; the last one counts.
type Env []string

// Get returns the value of a variable, or "".
func (e Env) Get(name string) string {
	for i := len(e) - 1; i >= 0; i-- {
		if kv := e[i]; len(kv) > len(name) && kv[len(name)] == '=' && kv[:len(name)] == name {
			return kv[len(name)+1:]
		}
	}
	return ""
}

// Interactive reports whether a user can answer a question.
func (s Streams) Interactive(env Env) bool {
	return s.InTTY && s.OutTTY && env.Get("CI") == ""
}

// dumb reports whether the terminal moves no cursor, or does not say what it is.
func dumb(env Env) bool { t := env.Get("TERM"); return t == "" || t == "dumb" }

// Redraws reports whether text on standard output can be written over.
func (s Streams) Redraws(env Env) bool { return s.OutTTY && !dumb(env) }

// Screen reports whether a dashboard can be drawn, and gets keys.
func (s Streams) Screen(env Env) bool { return s.InTTY && s.Redraws(env) }

// Animated reports whether progress may redraw lines on standard error: screen
// readers, logs of build servers and dumb terminals want plain lines.
func (s Streams) Animated(env Env) bool {
	return s.ErrTTY && env.Get("CI") == "" && env.Get("ACCESSIBLE") == "" && !dumb(env)
}
