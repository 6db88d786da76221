package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/config"
)

// report prints an error to standard error: what failed and why, facts, and what to
// do next. cmd is the command that failed.
func (f *factory) report(cmd *cobra.Command, err error) {
	var quiet silent
	if errors.As(err, &quiet) {
		return
	}
	var (
		b        strings.Builder
		usage    *usageError
		fail     *failure
		stop     *interrupted
		problems config.Problems
	)
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	tries := func(list []string) {
		for i, t := range list {
			word := "try:"
			if i > 0 {
				word = " or:"
			}
			line("  %s %s", word, t)
		}
	}
	switch {
	case errors.As(err, &stop):
		line("dynctl: %s", term.Clean(stop.Error()))
		tries(stop.tries)
	case errors.As(err, &usage):
		line("dynctl: %s", term.Clean(usage.text))
		line("  usage: %s", usageLine(cmd))
		tries(append(usage.tries, cmd.CommandPath()+" --help"))
	case errors.As(err, &fail):
		text := fail.Error()
		var ps config.Problems
		if errors.As(fail.err, &ps) {
			text = fail.action
		}
		line("dynctl: %s", term.Clean(text))
		for _, p := range ps {
			line("  %s", term.Clean(p.Error()))
		}
		for _, fact := range fail.facts {
			line("  %s", strings.TrimRight(fact, " \n"))
		}
		tries(fail.tries)
	case errors.As(err, &problems):
		line("dynctl: wrong configuration")
		for _, p := range problems {
			line("  %s", term.Clean(p.Error()))
		}
		tries([]string{"dynctl help config"})
	default:
		line("dynctl: %s", term.Clean(err.Error()))
	}
	if f.verbose {
		for _, e := range chain(err) {
			line("  because: %T: %s", e, term.Clean(e.Error()))
		}
	}
	_, _ = f.env.Streams.Err.Write([]byte(b.String())) // nobody is left to tell
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
		case *failure, *interrupted: // their text is on the first line
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

// usageLine is the form of a command: dynctl drain <worker>... [flags].
func usageLine(cmd *cobra.Command) string {
	line := cmd.CommandPath()
	if _, form, ok := strings.Cut(cmd.Use, " "); ok {
		line += " " + form
	}
	if cmd.HasAvailableSubCommands() && cmd.Runnable() && !cmd.HasParent() {
		return line
	}
	return line + " [flags]"
}
