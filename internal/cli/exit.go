package cli

import (
	"context"
	"errors"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/store"
)

// Exit codes; "dynctl help exit-codes" prints them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitDeadline    = 4
	exitPartly      = 5
	exitAccepted    = 8
	exitInterrupted = 130
)

// exitMeanings explains the codes, in order.
func exitMeanings() []struct {
	Code    int
	Meaning string
} {
	return []struct {
		Code    int
		Meaning string
	}{
		{exitOK, "done; also when a list is empty or nothing runs"},
		{exitFailed, "the operation failed; of dynctl diff: something differs, and what fails has other codes"},
		{exitUsage, "wrong flags, arguments or configuration"},
		{exitUnreachable, "the cluster is not reachable: etcd, NATS or an agent"},
		{exitDeadline, "the deadline passed, the work goes on"},
		{exitPartly, "partly done: some of several names failed"},
		{exitAccepted, "accepted and not waited for (--no-wait)"},
		{exitInterrupted, "interrupted"},
	}
}

// failure is an error as people read it: "dynctl: action: cause", then facts, then
// commands to run next.
type failure struct {
	action string // cannot drain worker-9
	err    error
	facts  []string
	tries  []string
	code   int // 0: by the error
}

func (f *failure) Error() string {
	switch {
	case f.action == "":
		return f.err.Error()
	case f.err == nil:
		return f.action
	}
	return f.action + ": " + f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// usageError is a mistake in the command line.
type usageError struct {
	text  string
	tries []string
}

func (u *usageError) Error() string { return u.text }

// silent ends a command with a code after everything was said.
type silent struct{ code int }

func (silent) Error() string { return "the command ended with a message of its own" }

// interrupted is the end of a command by ctrl-c; text says what goes on without it.
type interrupted struct {
	text  string
	tries []string
	err   error
}

func (i *interrupted) Error() string {
	if i.text == "" {
		return "interrupted"
	}
	return i.text
}

func (i *interrupted) Unwrap() error { return i.err }

// codeOf maps an error to an exit code.
func codeOf(err error) int {
	var (
		f        *failure
		quiet    silent
		usage    *usageError
		stop     *interrupted
		problems config.Problems
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &quiet):
		return quiet.code
	case errors.As(err, &stop):
		return exitInterrupted
	case errors.As(err, &f) && f.code != 0:
		return f.code
	case errors.As(err, &usage), errors.As(err, &problems), errors.Is(err, config.ErrNoFile):
		return exitUsage
	case errors.Is(err, client.ErrUnreachable), errors.Is(err, store.ErrUnavailable):
		return exitUnreachable
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitFailed
}
