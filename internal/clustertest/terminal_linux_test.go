package clustertest_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/orphan"
)

// runOnTerminal runs a command in a session of its own, on a terminal for standard input
// and output and a second one for standard error, both of the given size. Keys are typed
// one after the other, each when the output so far shows its screen.
func runOnTerminal(cmd *exec.Cmd, size string, keys []keystroke) (stdout, stderr string, err error) {
	width, height, err := terminalSize(size)
	if err != nil {
		return "", "", err
	}
	main, err := openTerminal(width, height)
	if err != nil {
		return "", "", err
	}
	defer main.close()
	errs, err := openTerminal(width, height)
	if err != nil {
		return "", "", err
	}
	defer errs.close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = main.tty, main.tty, errs.tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // of file 0: ctrl-c reaches the command
	if err := orphan.Start(cmd); err != nil {
		return "", "", err
	}
	ended := make(chan struct{})
	typing := make(chan error, 1)
	go func() { typing <- typeKeys(main, errs, keys, ended) }()
	err = cmd.Wait()
	close(ended)
	if missed := <-typing; missed != nil && err == nil {
		err = missed
	}
	main.close()
	errs.close()
	return main.text(), errs.text(), err
}

// typeKeys plays the person at the keyboard, until the command has ended.
func typeKeys(main, errs *terminal, keys []keystroke, ended <-chan struct{}) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for _, k := range keys {
		for !strings.Contains(main.text(), k.screen) && !strings.Contains(errs.text(), k.screen) {
			select {
			case <-tick.C:
			case <-ended:
				return fmt.Errorf("the command ended before it showed %q", k.screen)
			}
		}
		if _, err := main.far.WriteString(k.text); err != nil {
			return fmt.Errorf("type %q: %w", k.text, err)
		}
	}
	return nil
}

// terminal is a pseudo-terminal; what is printed there is kept.
type terminal struct {
	far, tty *os.File
	done     chan struct{} // closed when reading ended
	once     sync.Once

	mu  sync.Mutex
	out bytes.Buffer
}

func openTerminal(width, height uint16) (*terminal, error) {
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	fd := int(far.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, fmt.Errorf("unlock the terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, fmt.Errorf("name the terminal: %w", err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width}); err != nil {
		return nil, fmt.Errorf("size the terminal: %w", err)
	}
	x := &terminal{far: far, tty: tty, done: make(chan struct{})}
	go func() {
		defer close(x.done)
		_, _ = io.Copy(x, far) // ends with an error when nobody has the terminal any more
	}()
	return x, nil
}

// Write keeps what was printed.
func (x *terminal) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.out.Write(p)
}

// text is what was printed so far, with plain line ends.
func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.ReplaceAll(x.out.String(), "\r\n", "\n")
}

func (x *terminal) close() {
	x.once.Do(func() {
		x.tty.Close() // the far end then reads an error
		<-x.done
		x.far.Close()
	})
}
