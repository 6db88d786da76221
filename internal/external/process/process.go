package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Config says what to run.
type Config struct {
	Words []string // the program and its arguments
	// Env has lines of the form NAME=value, beside this process's environment. They are
	// logged nowhere; what the server prints of those that look like secrets is masked.
	Env []string
	// Log gets the lines that the server prints.
	Log *slog.Logger
}

// Process is a server that was started.
type Process struct {
	log     *slog.Logger
	cmd     *exec.Cmd
	mark    string
	watcher *watcher
	out     *os.File
	lines   *lines
	done    chan struct{} // closed by run when nothing of the server is left
	err     error         // why it ended; written before done is closed
}

// markName is the variable that marks the processes of a server.
const markName = "DYNAMOD_SERVER_MARK"

// grace is how long the rest of a server may take to end after it was killed.
const grace = 5 * time.Second

// ExitError says how a server ended by itself.
type ExitError struct {
	Program string
	Status  string   // exit status 1, signal: killed
	Lines   []string // the last that it printed
}

// An error shows so many of the last lines, and so many bytes of each: it is shown in one line of a
// table. The worker's log has all.
const (
	shownLines = 3
	shownLine  = 300
)

// Error implements [error].
func (e *ExitError) Error() string {
	text := fmt.Sprintf("%s ended: %s", e.Program, e.Status)
	if len(e.Lines) > 0 {
		last := slices.Clone(e.Lines[max(len(e.Lines)-shownLines, 0):])
		for i, line := range last {
			if len(line) > shownLine {
				last[i] = strings.ToValidUTF8(line[:shownLine], "") + " ..."
			}
		}
		text += "; its last lines: " + strings.Join(last, " | ")
	}
	return text
}

// ErrRemains is returned by [Process.Stop] if processes of the server cannot be killed.
var ErrRemains = errors.New("processes of the server remain after they were killed")

// Start starts a server. It fails if the program cannot be started.
func Start(cfg Config) (*Process, error) {
	p := &Process{log: cfg.Log, mark: markName + "=" + rand.Text(), done: make(chan struct{})}
	p.cmd = exec.Command(cfg.Words[0], cfg.Words[1:]...) //nolint:gosec // the command of the topology
	p.cmd.Env = append(append(os.Environ(), cfg.Env...), p.mark)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(p.cmd.SysProcAttr)
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.out, p.lines = out, newLines(cfg.Log, secrets(cfg.Env))
	p.cmd.Stdout, p.cmd.Stderr = in, in
	p.watcher, err = watch(p.mark)
	if err == nil {
		started := make(chan error, 1)
		go p.run(started)
		err = <-started
	}
	_ = in.Close() // the server has it
	if err != nil {
		_ = out.Close()
		if p.watcher != nil {
			p.watcher.end()
		}
		return nil, fmt.Errorf("start %s: %w", cfg.Words[0], err)
	}
	return p, nil
}

// run starts the server and stays until all of it has ended. The kernel ties the server's
// life to the thread that starts it.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	p.watcher.leader(p.cmd.Process.Pid)
	started <- nil
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(p.lines, p.out) // ends when nobody can write any more
	}()
	awaitExit(p.cmd.Process.Pid)
	// What is left of a server without its first process serves nobody.
	p.signal(syscall.SIGKILL)
	_ = p.cmd.Wait() // ProcessState says how it ended
	remains := p.sweep()
	select {
	case <-read:
	case <-time.After(time.Second): // another program has its output
		_ = p.out.SetReadDeadline(time.Now())
		<-read
	}
	_ = p.out.Close()
	p.watcher.end()
	p.err = &ExitError{Program: p.cmd.Args[0], Status: p.cmd.ProcessState.String(), Lines: p.lines.end()} // <nil> if unknown
	if remains {
		p.err = errors.Join(ErrRemains, p.err)
	}
	close(p.done)
}

// signal sends a signal to all of the server's group. Its first process has not been waited
// for, so the number is that of no other group.
func (p *Process) signal(sig syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, sig) // it may have ended
}

// sweep kills what is left of the server until nothing is, or its time is over. A process that
// is about to run another program has no environment for a moment, so it looks again.
func (p *Process) sweep() (remains bool) {
	group := p.cmd.Process.Pid
	clean := 0
	for end := time.Now().Add(grace); ; time.Sleep(10 * time.Millisecond) {
		marked := killMarked(p.mark)
		// Where this is process 1, its orphans are ours to wait for.
		_, _ = syscall.Wait4(-group, nil, syscall.WNOHANG, nil)
		clean++
		if marked || groupLives(group) {
			clean = 0
		}
		if clean == 3 {
			return false
		}
		if time.Now().After(end) {
			return true
		}
	}
}

// PID is the number of the server's first process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the server has ended, and all that it had started.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the server ended, an [*ExitError]; nil while it runs.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Stop asks the server to end, kills it when ctx ends, and returns when nothing of it is left.
func (p *Process) Stop(ctx context.Context) error {
	select {
	case <-p.done:
		return remaining(p.err)
	default:
	}
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return remaining(p.err)
	case <-ctx.Done():
	}
	p.signal(syscall.SIGKILL)
	// A process within a call of a driver does not end.
	select {
	case <-p.done:
		return remaining(p.err)
	case <-time.After(2 * grace):
		return fmt.Errorf("%w: %s, process %s", ErrRemains, p.cmd.Args[0], strconv.Itoa(p.PID()))
	}
}

// remaining is the part of an error that matters where the end was wanted.
func remaining(err error) error {
	if errors.Is(err, ErrRemains) {
		return err
	}
	return nil
}
