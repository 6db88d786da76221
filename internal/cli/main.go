package cli

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/term"
)

// Env is what a process gives to a command line.
type Env struct {
	Streams term.Streams
	Environ []string // NAME=value
	// Dir is where relative paths start.
	Dir string
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

// Main runs one command line and returns its exit code. When ctx ends, commands
// stop watching, say so and return.
func Main(ctx context.Context, args []string, env Env) int {
	f := newFactory(env)
	root := f.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return exitOK
	}
	var said *interrupted
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) && !errors.As(err, &said) {
		err = &interrupted{err: err}
	}
	f.report(cmd, err)
	return codeOf(err)
}
