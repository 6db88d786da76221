package session

import (
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/dynctl/dynctl/internal/cli/term"
)

// Env is the environment of a command line: streams, variables, directory and clock.
type Env struct {
	Streams term.Streams
	Environ []string // NAME=value
	// Dir is the directory that relative paths start from.
	Dir string
	// Root is the directory below which the system keeps its files, for tests; empty means /.
	Root string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Executable returns the path of dynctl itself, beside which dynamod is looked
	// for; nil means os.Executable.
	Executable func() (string, error)
	// Interrupts delivers ctrl-c to commands that go on after it; nil means that the
	// process's own signals are asked for.
	Interrupts <-chan os.Signal
}

// System returns the environment of the running process.
func System() Env {
	dir, err := os.Getwd()
	if err != nil {
		dir = "." // whatever needs it will say what is wrong
	}
	return Env{Streams: term.System(), Environ: os.Environ(), Dir: dir}
}

// Complete is e with its defaults.
func (e Env) Complete() Env {
	if e.Now == nil {
		e.Now = time.Now
	}
	if e.Executable == nil {
		e.Executable = os.Executable
	}
	e.Streams = e.Streams.Localized(e.Variables())
	return e
}

// Variables are the variables of the environment.
func (e Env) Variables() term.Env { return term.Env(e.Environ) }

// Path makes a path of the command line absolute.
func (e Env) Path(p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(e.Dir, p)
}

// Signals delivers every further ctrl-c until stop is called.
func (e Env) Signals() (c <-chan os.Signal, stop func()) {
	if e.Interrupts != nil {
		return e.Interrupts, func() {}
	}
	own := make(chan os.Signal, 1)
	signal.Notify(own, os.Interrupt)
	return own, func() { signal.Stop(own) }
}
