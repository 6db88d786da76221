package orphan_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/patience"
)

const role = "ORPHAN_TEST_ROLE"

// TestMain also is the test process that is killed, which has started others.
func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "tests":
		if err := children(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // held open by who has started this one
	time.Sleep(time.Hour)                // which has ended meanwhile
}

// children starts a process that runs, one that is stopped, and one by way of a shell that
// does not wait for it, as dynctl starts a dynamod.
func children() error {
	for _, stop := range []bool{false, true} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = []string{role + "=child"}
		if err := orphan.Start(cmd); err != nil {
			return err
		}
		if stop {
			if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				return err
			}
		}
		fmt.Println(cmd.Process.Pid)
	}
	dir, err := filepath.Abs(os.Getenv("ORPHAN_TEST_DIR"))
	if err != nil {
		return err
	}
	if _, err := orphan.Sweep(dir); err != nil {
		return err
	}
	shell := exec.Command("/bin/sh", "-c", role+`=child setsid "$0" < /dev/null > /dev/null 2>&1 & echo $!`, filepath.Join(dir, "program"))
	shell.Stdout = os.Stdout
	return shell.Run()
}

// What a test process has started ends with it when it is killed: no clean-up runs then.
func TestNothingOutlivesItsTests(t *testing.T) {
	dir := t.TempDir()
	program, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "program"), program, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	tests := exec.Command(os.Args[0])
	tests.Env = []string{role + "=tests", "ORPHAN_TEST_DIR=" + dir, "PATH=" + os.Getenv("PATH")}
	tests.Stderr = t.Output()
	out, err := tests.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := tests.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if err := tests.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for lines := bufio.NewScanner(out); len(pids) < 3 && lines.Scan(); {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	for _, pid := range pids {
		if over(t, pid) {
			t.Errorf("process %d has ended before its tests", pid)
		}
	}
	// Before it runs the program, the last one is still a shell, which no sweep looks for.
	patience.Until(t, "the last process runs the program", func() bool {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pids[len(pids)-1]))
		return err == nil && exe == filepath.Join(dir, "program")
	})
	if err := tests.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = tests.Wait()
	for i, pid := range pids {
		for end := time.Now().Add(8 * time.Second); !over(t, pid); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("process %d of %d is still there", i+1, len(pids))
				_ = syscall.Kill(pid, syscall.SIGKILL)
				break
			}
		}
	}
	if len(pids) != 3 {
		t.Errorf("%d processes were started, want 3", len(pids))
	}
}

// over reports whether a process has ended; nobody may be there to wait for it.
func over(t *testing.T, pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return true
	case err != nil:
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}
