package gpucheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// silence is the time for which a process may write nothing, beside its patience with the device: the
// driver makes a context and compiles kernels, and functions in Go take seconds.
const silence = 45 * time.Second

// reaping is the time that a killed process may take to end. One whose kernel hangs
// in the driver may never end; it is left behind.
const reaping = 10 * time.Second

var (
	errSilent    = errors.New("it wrote nothing")
	errLeft      = errors.New("it was killed but has not exited")
	errMalformed = errors.New("its output cannot be parsed")
)

// process runs a process for some cases and passes on what it says.
func process(ctx context.Context, command, environment []string, s spec, quiet time.Duration, stderr io.Writer, hear func(message) error) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	said := &lines{out: make(chan []byte), quit: ctx.Done()}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = bytes.NewReader(text), said, stderr, environment
	cmd.WaitDelay = time.Second // for what it has started itself
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a process: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the process, which is killed below
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	var failed error // of what it said
	for killed := (<-chan struct{})(ctx.Done()); ; {
		select {
		case line := <-said.out:
			timer.Reset(quiet)
			if failed != nil {
				continue
			}
			var m message
			if err := json.Unmarshal(line, &m); err != nil {
				failed = fmt.Errorf("%w: %.200q", errMalformed, line)
			} else {
				failed = hear(m)
			}
			if failed != nil {
				kill(failed)
			}
		case <-timer.C:
			if killed == nil {
				return errLeft
			}
			kill(fmt.Errorf("%w for %s", errSilent, seconds(quiet)))
		case <-killed:
			killed = nil
			timer.Reset(reaping)
		case err := <-ended:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
	}
}

// lines passes on written lines, one by one, until the reader quits.
type lines struct {
	rest []byte
	out  chan []byte
	quit <-chan struct{}
}

// maxLine bounds a line: results are far smaller.
const maxLine = 4 << 20

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte{'\n'})
		if !found {
			if len(l.rest) > maxLine {
				return 0, errMalformed
			}
			return len(p), nil
		}
		select {
		case l.out <- bytes.Clone(line):
		case <-l.quit:
			return len(p), nil
		}
		l.rest = rest
	}
}
