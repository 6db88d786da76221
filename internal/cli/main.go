package cli

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/stdout"
)

// Env is the environment of a command line: streams, variables, directory and clock.
type Env = session.Env

// System returns the environment of the running process.
func System() Env { return session.System() }

// Signals returns a context that ends with the first ctrl-c or SIGTERM; a second ctrl-c ends
// the program at once.
func Signals() context.Context { return session.Signals() }

// Main runs one command line and returns its exit code. When ctx ends, commands
// stop watching, say so and return.
func Main(ctx context.Context, args []string, env Env) int {
	return run(ctx, args, env, nil)
}

// run is Main; do carries out the command, see [command.App.Do].
func run(ctx context.Context, args []string, env Env, do func(context.Context, command.Runner) error) int {
	var out *stdout.Output
	env.Streams.Out, out = stdout.Watch(env.Streams.Out)
	a := command.New(env)
	a.Do = do
	root := root(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if errors.Is(err, pflag.ErrHelp) {
		err = nil
	}
	if err == nil {
		err = out.Err()
	}
	switch {
	case err == nil:
		return exit.OK
	case stdout.Unread(err):
		return exit.Failed
	}
	var said *exit.Stopped
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) && !errors.As(err, &said) {
		err = &exit.Stopped{Err: err}
	}
	exit.Write(a.Env.Streams.Err, err, exit.Command{Path: cmd.CommandPath(), Usage: command.UsageLine(cmd)}, a.Verbose)
	return exit.CodeOf(err)
}
