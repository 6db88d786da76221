package dynlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/cli/session"
)

// Program is the name of the laboratory's executable.
const Program = "dynlab"

// grace is how long dynlab has to end once it was told to.
const grace = 10 * time.Second

// Find returns the path of dynlab; action begins the message where there is none.
func Find(s *session.Session, action string) (string, error) {
	path, err := launch.Find(Program, s.Env.Executable, s.Env.Variables().Get("PATH"))
	if err != nil {
		return "", &exit.Failure{
			Action: action, Err: err, Facts: []string{"dynlab simulates; dynctl and dynlab are one release: keep them in one directory"},
			Tries: []string{"make build   in a checkout of dynctl: it makes bin/dynlab beside bin/dynctl"},
		}
	}
	return path, nil
}

// Run runs a command of dynlab in the directory of the session and returns when it has ended. What it writes goes to out
// and to standard error. When ctx ends, dynlab gets the signal that ended it, and is killed if it goes on. The error has
// dynlab's exit code, which means what dynctl's means; dynlab has told the reason.
func Run(ctx context.Context, s *session.Session, action string, out io.Writer, args ...string) error {
	path, err := Find(s, action)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = s.Env.Environ, s.Env.Dir, out, s.Out.Streams.Err, grace
	cmd.Cancel = func() error {
		if errors.Is(context.Cause(ctx), session.ErrTerminated) {
			return cmd.Process.Signal(syscall.SIGTERM)
		}
		return cmd.Process.Signal(syscall.SIGINT)
	}
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &exit.Stopped{Err: context.Cause(ctx)}
	case errors.As(err, &ended) && ended.Exited():
		return exit.Silent{Code: ended.ExitCode()}
	}
	return &exit.Failure{Action: action, Err: fmt.Errorf("%s: %w", path, err)}
}
