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

// Animated reports whether progress may redraw lines on standard error: screen
// readers, logs of build servers and dumb terminals want plain lines.
func (s Streams) Animated(env Env) bool {
	return s.ErrTTY && env.Get("CI") == "" && env.Get("ACCESSIBLE") == "" && env.Get("TERM") != "dumb"
}
