package orphan

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts cmd such that the process is killed when this one ends, also while it is
// stopped. Waiting for it stays the caller's.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error, 1)
	go func() {
		// The kernel sends the signal when the thread ends that has started the process: it
		// is kept until that has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err != nil {
			started <- err
			return
		}
		pid := cmd.Process.Pid
		started <- nil
		for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		}
	}()
	return <-started
}

// sweep waits for the end of its standard input and kills what runs a program of the
// directory.
const sweep = `cat > /dev/null
for pid in $(ls -l /proc/[0-9]*/exe 2> /dev/null | sed -n "s|.* /proc/\([0-9]*\)/exe -> $1/.*|\1|p"); do
	kill -KILL "$pid"
done`

// held are the ends of pipes that tell a sweep that this process is there; what nobody
// refers to is closed by the garbage collector.
var held sync.Map

// Sweep has all processes killed that run a program of a directory, whoever has started
// them, when this process ends or the returned function is called. That one waits for it.
func Sweep(dir string) (now func(), err error) {
	cmd := exec.Command("/bin/sh", "-c", sweep, "sh", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal is not for it
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	held.Store(cmd, stdin)
	return func() {
		_ = stdin.Close()
		_ = cmd.Wait()
		held.Delete(cmd)
	}, nil
}
