package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/patience"
)

const role = "PROCESS_TEST_ROLE"

// family is a server with a child, a grandchild, one without its environment, and one that has
// left its session. Each writes its number into the directory.
const family = `cd "$1"; echo $$ > first
sh -c 'echo $$ > child; sleep 1000 & echo $! > grandchild; wait' &
env -i PATH="$PATH" sh -c 'echo $$ > bare; exec sleep 1000' &
setsid sh -c 'echo $$ > stray; exec sleep 1000' < /dev/null > /dev/null 2>&1 &
echo ready
wait`

var relatives = []string{"first", "child", "grandchild", "bare", "stray"}

// TestMain also is a process with a server that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(role); dir != "" {
		if _, err := Start(Config{Words: []string{"sh", "-c", family, "sh", dir}, Log: slog.New(slog.DiscardHandler)}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// run starts a script as a server, which is gone when the test ends.
func run(t *testing.T, env []string, script string, args ...string) (*Process, *patience.Buffer) {
	t.Helper()
	var log patience.Buffer
	p, err := Start(Config{Words: append([]string{"sh", "-c", script, "sh"}, args...), Env: env, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		cancel()
		if err := p.Stop(now); err != nil {
			t.Error(err)
		}
	})
	return p, &log
}

func ended(t *testing.T, p *Process) error {
	t.Helper()
	select {
	case <-p.Done():
		return p.Err()
	case <-time.After(patience.Soon):
		t.Fatal("the server does not end")
		return nil
	}
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience.Soon)
	t.Cleanup(cancel)
	return ctx
}

// pids reads the numbers of all relatives.
func pids(t *testing.T, dir string) (found []int) {
	t.Helper()
	for _, name := range relatives {
		patience.Until(t, name+" runs", func() bool {
			raw, err := os.ReadFile(filepath.Join(dir, name))
			pid, perr := strconv.Atoi(strings.TrimSpace(string(raw)))
			if err != nil || perr != nil {
				return false
			}
			found = append(found, pid)
			return true
		})
	}
	return found
}

// over reports whether a process has ended, though nobody may have waited for it.
func over(pid int) bool {
	if runtime.GOOS != "linux" {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// needsMarks skips a test where strays are not found.
func needsMarks(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells the environment of processes")
	}
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip(err)
	}
}

// allOver waits for processes that were killed to end.
func allOver(t *testing.T, pids []int) {
	t.Helper()
	for i, pid := range pids {
		for end := time.Now().Add(patience.Soon); !over(pid); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("%s, process %d, is still there", relatives[i], pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
				break
			}
		}
	}
}

// Stop ends all that a server has started, and says nothing.
func TestStop(t *testing.T) {
	needsMarks(t)
	dir := t.TempDir()
	p, log := run(t, nil, family, dir)
	all := pids(t, dir)
	patience.Until(t, "its output is logged", func() bool { return strings.Contains(log.String(), "line=ready") })
	if p.PID() != all[0] || p.Err() != nil {
		t.Errorf("process %d of %v, %v", p.PID(), all, p.Err())
	}
	for range 2 {
		if err := p.Stop(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
	allOver(t, all)
	var exit *ExitError
	if err := p.Err(); !errors.As(err, &exit) || exit.Status != "signal: terminated" {
		t.Errorf("it ended by %v", err)
	}
}

// A server that does not want to end is killed when the time is over.
func TestStopKills(t *testing.T) {
	p, log := run(t, nil, `trap 'echo not yet' TERM; echo up; while :; do sleep 0.01; done`)
	patience.Until(t, "it is up", func() bool { return strings.Contains(log.String(), "up") })
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- p.Stop(ctx) }()
	patience.Until(t, "it is asked", func() bool { return strings.Contains(log.String(), "not yet") })
	select {
	case err := <-stopped:
		t.Fatalf("it is stopped before its time: %v", err)
	default:
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); !strings.Contains(err.Error(), "signal: killed") {
		t.Error(err)
	}
}

// What the first process leaves behind ends with it.
func TestNothingIsLeftBehind(t *testing.T) {
	needsMarks(t)
	dir := t.TempDir()
	p, _ := run(t, nil, family, dir)
	all := pids(t, dir)
	if err := syscall.Kill(all[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := ended(t, p); !strings.Contains(err.Error(), "sh ended: signal: killed") {
		t.Error(err)
	}
	allOver(t, all)
}

// kill -9 of the process that runs a server ends all of the server. It also does while the
// server is stopped.
func TestNothingOutlivesUs(t *testing.T) {
	needsMarks(t)
	for _, stopped := range []bool{false, true} {
		dir := t.TempDir()
		us := exec.Command(os.Args[0]) //nolint:gosec // this program
		us.Env = append(os.Environ(), role+"="+dir)
		us.Stderr = t.Output()
		in, err := us.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if err := orphan.Start(us); err != nil {
			t.Fatal(err)
		}
		all := pids(t, dir)
		if stopped {
			for _, pid := range all {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
		}
		if err := us.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = us.Wait()
		allOver(t, all)
	}
}

// The error says how a server ended, and what it printed last.
func TestExit(t *testing.T) {
	for name, tc := range map[string]struct{ script, want string }{
		"status":  {`echo one; echo two >&2; exit 3`, "sh ended: exit status 3; its last lines: one | two"},
		"success": {`exit 0`, "sh ended: exit status 0"},
		"signal":  {`kill -SEGV $$`, "sh ended: signal: segmentation fault"},
		"no end":  {`printf 'half a line'`, "last lines: half a line"},
		"bars":    {`printf '10%%\r20%%\r\n\n100%%\n'`, "last lines: 10% | 20% | 100%"},
		"many":    {`for i in $(seq 1000); do echo line $i; done`, "last lines: line 998 | line 999 | line 1000"},
		"long":    {`printf '%010000d\n' 7; echo next`, strings.Repeat("0", 100) + " ... | next"},
		"binary":  {`printf 'a\377b\n'`, "a?b"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := run(t, nil, tc.script)
			err := ended(t, p)
			if !strings.Contains(err.Error(), tc.want) || len(err.Error()) > 2000 {
				t.Errorf("got %q, want %q", err, tc.want)
			}
			if err := p.Stop(soon(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A server gets its variables; what they keep secret is not in the log.
func TestSecrets(t *testing.T) {
	p, log := run(t, []string{"PLAIN=visible-1", "VLLM_API_KEY=sk-secret-1", "HF_TOKEN=short"}, `echo "$PLAIN $VLLM_API_KEY $HF_TOKEN"`)
	if err := ended(t, p); strings.Contains(err.Error(), "sk-secret") || !strings.Contains(err.Error(), "visible-1 *** short") {
		t.Error(err)
	}
	if strings.Contains(log.String(), "sk-secret") || !strings.Contains(log.String(), "visible-1 ***") {
		t.Errorf("the log is %s", log.String())
	}
}

func TestNoProgram(t *testing.T) {
	_, err := Start(Config{Words: []string{"/no/such/program"}, Env: []string{"A_TOKEN=sk-secret"}, Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, os.ErrNotExist) || strings.Contains(err.Error(), "sk-secret") {
		t.Error(err)
	}
}

// A server that prints without end is read without end, in bounded memory.
func TestOutputIsBounded(t *testing.T) {
	p, _ := run(t, nil, `yes | head -c 3000000 | tr -d '\n'; yes 2>/dev/null | head -n 1000`)
	if err := ended(t, p); len(err.Error()) > 2000 || !strings.HasSuffix(err.Error(), "y | y") {
		t.Errorf("%d bytes", len(err.Error()))
	}
}
