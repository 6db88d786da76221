package exit

import (
	"context"
	"errors"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/store"
)

// Exit codes; "dynctl help exit-codes" prints them.
const (
	OK          = 0
	Failed      = 1
	Usage       = 2
	Unreachable = 3
	Deadline    = 4
	Partly      = 5
	Accepted    = 8
	Interrupted = 130
)

// Meanings explains the codes, in order.
func Meanings() []struct {
	Code    int
	Meaning string
} {
	return []struct {
		Code    int
		Meaning string
	}{
		{OK, "done; also when a list is empty, and when dynctl down finds nothing to stop"},
		{Failed, "the operation failed; for dynctl diff: something differs, and failures have other codes"},
		{Usage, "wrong flags, arguments or configuration"},
		{Unreachable, "no cluster runs here, or it is not reachable: its store, NATS or an agent"},
		{Deadline, "the deadline passed, the work goes on"},
		{Partly, "partly done: some of several names failed"},
		{Accepted, "accepted and not waited for (--no-wait)"},
		{Interrupted, "interrupted"},
	}
}

// Failure is an error as people read it: "dynctl: action: cause", then facts, then
// commands to run next.
type Failure struct {
	Action string // cannot drain worker-9
	Err    error
	Facts  []string
	Tries  []string
	Code   int // 0: by the error
}

func (f *Failure) Error() string {
	switch {
	case f.Action == "":
		return f.Err.Error()
	case f.Err == nil:
		return f.Action
	}
	return f.Action + ": " + f.Err.Error()
}

func (f *Failure) Unwrap() error { return f.Err }

// UsageError is a mistake in the command line.
type UsageError struct {
	Text  string
	Tries []string
}

func (u *UsageError) Error() string { return u.Text }

// Silent ends a command with a code after everything was said.
type Silent struct{ Code int }

func (Silent) Error() string { return "the command ended with a message of its own" }

// Stopped is the end of a command by ctrl-c; text says what goes on without it.
type Stopped struct {
	Text  string
	Tries []string
	Err   error
}

func (i *Stopped) Error() string {
	if i.Text == "" {
		return "interrupted"
	}
	return i.Text
}

func (i *Stopped) Unwrap() error { return i.Err }

// CodeOf maps an error to an exit code.
func CodeOf(err error) int {
	var (
		f        *Failure
		quiet    Silent
		usage    *UsageError
		stop     *Stopped
		problems config.Problems
	)
	switch {
	case err == nil:
		return OK
	case errors.As(err, &quiet):
		return quiet.Code
	case errors.As(err, &stop):
		return Interrupted
	case errors.As(err, &f) && f.Code != 0:
		return f.Code
	case errors.As(err, &usage), errors.As(err, &problems), errors.Is(err, config.ErrNoFile):
		return Usage
	case errors.Is(err, client.ErrUnreachable), errors.Is(err, store.ErrUnavailable):
		return Unreachable
	case errors.Is(err, context.Canceled):
		return Interrupted
	}
	return Failed
}

// Several sums up the errors of a command with several names, which were reported
// one by one.
func Several(errs []error) error {
	failed, code := 0, OK
	for _, err := range errs {
		if err == nil {
			continue
		}
		failed++
		if c := CodeOf(err); code == OK {
			code = c
		} else if c != code {
			code = Failed
		}
	}
	switch {
	case failed == 0:
		return nil
	case len(errs) == 1:
		return errs[0]
	case failed < len(errs):
		return Silent{Code: Partly}
	}
	return Silent{Code: code}
}
