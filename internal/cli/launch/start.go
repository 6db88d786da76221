package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dynctl/dynctl/internal/statedir"
)

// Program is the name of the node agent's executable.
const Program = "dynamod"

// ErrNoProgram is returned when a program is neither beside dynctl nor in PATH.
var ErrNoProgram = errors.New("not found")

// Find returns the path of a program of this project, such as [Program]: the one beside the
// running program, which has the same version, else the first in path, a list like $PATH.
func Find(name string, self func() (string, error), path string) (string, error) {
	var beside string
	if exe, err := self(); err == nil {
		if target, err := filepath.EvalSymlinks(exe); err == nil {
			exe = target
		}
		beside = filepath.Dir(exe)
		if p := filepath.Join(beside, name); executable(p) {
			return p, nil
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if p := filepath.Join(dir, name); filepath.IsAbs(dir) && executable(p) {
			return p, nil
		}
	}
	if beside == "" {
		return "", fmt.Errorf("%s %w in PATH", name, ErrNoProgram)
	}
	return "", fmt.Errorf("%s %w: neither in %s nor in PATH", name, ErrNoProgram, beside)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// Options say what to start.
type Options struct {
	Program string
	Args    []string
	Environ []string
	// Node is the directory that the process will lock. Its output goes to a file
	// there, which begins anew.
	Node statedir.Node
}

// Process is a dynamod that was started here.
type Process struct {
	Node statedir.Node
	PID  int

	exited chan struct{} // closed when the process has ended
	err    error         // why; set before exited is closed
}

// Start starts a dynamod in the background, in a session of its own: it does not
// end with the terminal or with the caller.
func Start(o Options) (*Process, error) {
	if err := o.Node.Create(); err != nil {
		return nil, err
	}
	out, err := os.OpenFile(o.Node.Output(), os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open output of %s: %w", o.Node.Name, err)
	}
	defer out.Close()
	cmd := exec.Command(o.Program, o.Args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = o.Environ, out, out // without Stdin it reads the null device
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Node.Name, err)
	}
	p := &Process{Node: o.Node, PID: cmd.Process.Pid, exited: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// End asks the process to end, kills it after the grace, and returns when it has ended.
func (p *Process) End(grace time.Duration) error {
	if err := send(p.PID, syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(grace):
	}
	if err := send(p.PID, syscall.SIGKILL); err != nil {
		return err
	}
	<-p.exited
	return nil
}

// Err says how a process that has ended did so; nil before that, and when it ended
// without an error.
func (p *Process) Err() error {
	select {
	case <-p.exited:
		return p.err
	default:
		return nil
	}
}

// Complaint returns the last error that the process printed, one line each, or
// nothing.
func (p *Process) Complaint() []string {
	text, err := tail(p.Node.Output(), 64<<10)
	if err != nil {
		return nil
	}
	return complaint(text)
}

// tail returns at most the last n bytes of a file.
func tail(path string, n int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	buf := make([]byte, min(info.Size(), n))
	read, err := f.ReadAt(buf, info.Size()-int64(len(buf)))
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return string(buf[:read]), nil
}
