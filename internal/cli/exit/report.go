package exit

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/config"
)

// Command is the command that an error is about, for mistakes in the command line.
type Command struct {
	Path  string // dynctl drain
	Usage string // dynctl drain <worker>... [flags]
}

// Write tells an error to people: what failed and why, facts, and what to do next.
// Errors that were told already are left out. With causes, the errors inside follow one by one.
func Write(w io.Writer, err error, cmd Command, causes bool) {
	var quiet Silent
	if errors.As(err, &quiet) {
		return
	}
	var b message
	b.error(err, cmd)
	if causes {
		for _, e := range chain(err) {
			b.line("  because: %T: %s", e, term.Clean(e.Error()))
		}
	}
	_, _ = io.WriteString(w, b.String()) // nobody is left to tell
}

// message is the text about one error.
type message struct{ strings.Builder }

func (b *message) line(format string, args ...any) { _, _ = fmt.Fprintf(b, format+"\n", args...) }

func (b *message) tries(list []string) {
	word := "try:"
	for _, t := range list {
		b.line("  %s %s", word, t)
		word = " or:"
	}
}

func (b *message) problems(ps config.Problems) {
	for _, p := range ps {
		b.line("  %s", term.Clean(p.Error()))
	}
}

func (b *message) error(err error, cmd Command) {
	var (
		usage    *UsageError
		fail     *Failure
		stop     *Stopped
		problems config.Problems
	)
	switch {
	case errors.As(err, &stop):
		b.line("dynctl: %s", term.Clean(stop.Error()))
		b.tries(stop.Tries)
	case errors.As(err, &usage):
		b.line("dynctl: %s", term.Clean(usage.Text))
		b.line("  usage: %s", cmd.Usage)
		b.tries(append(usage.Tries, cmd.Path+" --help"))
	case errors.As(err, &fail):
		text := fail.Error()
		var ps config.Problems
		if errors.As(fail.Err, &ps) {
			text = fail.Action
		}
		b.line("dynctl: %s", term.Clean(text))
		b.problems(ps)
		for _, fact := range fail.Facts {
			b.line("  %s", strings.TrimRight(fact, " \n"))
		}
		b.tries(fail.Tries)
	case errors.As(err, &problems):
		b.line("dynctl: wrong configuration")
		b.problems(problems)
		b.tries([]string{"dynctl help config"})
	default:
		b.line("dynctl: %s", term.Clean(err.Error()))
	}
}

// chain lists the errors inside err, outermost first.
func chain(err error) []error {
	var out []error
	var walk func(error)
	walk = func(e error) {
		if e == nil {
			return
		}
		switch e.(type) { //nolint:errorlint // the chain itself is of interest
		case *Failure, *Stopped: // their text is on the first line
		default:
			out = append(out, e)
		}
		switch u := e.(type) { //nolint:errorlint // the chain itself is of interest
		case interface{ Unwrap() error }:
			walk(u.Unwrap())
		case interface{ Unwrap() []error }:
			for _, c := range u.Unwrap() {
				walk(c)
			}
		}
	}
	walk(err)
	return out
}
