package main

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is dynctl when RUN_DYNCTL_MAIN is set.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_DYNCTL_MAIN") != "" {
		os.Args[0] = "dynctl"
		main()
	}
	os.Exit(m.Run())
}

// onTerminal runs dynctl on a pseudo-terminal and returns all that it wrote there,
// and how long it ran.
func onTerminal(t *testing.T, args ...string) (string, time.Duration) {
	t.Helper()
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	defer far.Close()
	fd := int(far.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = []string{"RUN_DYNCTL_MAIN=1", "TERM=xterm-256color", "HOME=" + t.TempDir()}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Nobody answers what it might ask.
	if err := cmd.Wait(); err != nil {
		t.Errorf("dynctl %s: %v", strings.Join(args, " "), err)
	}
	took := time.Since(begin)
	tty.Close()
	out, _ := io.ReadAll(far) // ends with an error, as nobody holds the other end
	return string(out), took
}

// Bubble Tea asks the terminal for its colors when it is initialized; commands
// that draw no dashboard must not.
func TestCommandsAskTheTerminalNothing(t *testing.T) {
	out, took := onTerminal(t, "version", "--color", "never")
	if strings.Contains(out, "\x1b") || !strings.HasPrefix(out, "VERSION") {
		t.Errorf("dynctl version wrote %q", out)
	}
	if took > 4*time.Second {
		t.Errorf("dynctl version waited %s", took)
	}
	// TERM is as it was: colors are on.
	if out, _ := onTerminal(t, "version"); !strings.Contains(out, "\x1b[1m") {
		t.Errorf("no colors on a terminal: %q", out)
	}
}
