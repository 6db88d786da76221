package process

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// watching reads the number of a process group, and waits for the end of its input. Then it
// kills the group, and on Linux all processes that carry a mark. Signals for everybody in this
// process's group, or control group, are not for it.
const watching = `trap '' HUP INT QUIT TERM
read -r group
while read -r _; do :; done
[ -z "$group" ] || kill -s KILL -- "-$group" 2> /dev/null
for each in 1 2 3; do
	for environ in $(grep -alsF -- "$1" /proc/[0-9]*/environ 2> /dev/null); do
		pid=${environ#/proc/}
		kill -s KILL "${pid%/environ}" 2> /dev/null
	done
done`

// watcher is a shell that outlives this process if it is killed.
type watcher struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func watch(mark string) (*watcher, error) {
	w := &watcher{cmd: exec.Command("/bin/sh", "-c", watching, "sh", mark)}
	w.cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a watcher: %w", err)
	}
	return w, nil
}

// leader names the group to kill.
func (w *watcher) leader(pid int) {
	_, _ = fmt.Fprintln(w.in, pid) // without it there is the mark
}

// end ends a watcher that has nothing to do any more. It must not see the end of its input.
func (w *watcher) end() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
	_ = w.in.Close()
}

// killMarked kills the processes that carry a mark, and reports whether there are any. Only
// Linux tells the environment of others. One that overwrites its own is still in its group.
func killMarked(mark string) (found bool) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is right
	for _, path := range environs {
		raw, err := os.ReadFile(path)
		if err != nil || !strings.Contains("\x00"+string(raw), "\x00"+mark+"\x00") {
			continue // it has ended, or is another user's
		}
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		if err == nil && pid != os.Getpid() {
			found = true
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return found
}
