package clustertest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs testdata/script/*.txtar, one after the other, with the real programs
// against one running cluster of a prefill and two decode workers. A script leaves it as
// it was. Beside the usual commands there are:
//
//	dynctl ARGS...      runs a command line; with TTY=100x30 all three streams are
//	                    terminals of that size, standard error one of its own
//	typed SCREEN TEXT   the next one gets TEXT from the keyboard when standard output or
//	                    error shows SCREEN; "^C" is an interrupt, "^M" the enter key
//	code N              the last one exited with N
//	request [TOKENS]    sends a chat request and sets REQUEST to its id
//	eventually N ARGS   runs a command line until it exits with N
//	busy TOKENS         asks for so many tokens, again and again until the script ends
//	shows REGEXP ARGS   runs a command line until its standard output matches
//
// URL is that of the cluster's frontend.
func TestScripts(t *testing.T) {
	t.Parallel()
	p := buildPrograms(t)
	p.must(0, "up", "--prefill", "1", "--decode", "2", "--port", strconv.Itoa(p.port))
	s := &scripts{programs: p}
	testscript.RunT(serial{t}, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Vars = append(env.Vars, p.env...)
			env.Vars = append(env.Vars, "TERM=xterm-256color", "URL="+s.url(), "PORT="+strconv.Itoa(freePort(t)))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"dynctl": s.dynctl, "typed": s.typed, "code": s.code, "request": s.request, "eventually": s.eventually,
			"busy": s.busy, "shows": s.shows,
		},
	})
}

// serial runs subtests one after the other: they share a cluster.
type serial struct{ *testing.T }

func (serial) Parallel()     {}
func (serial) Verbose() bool { return testing.Verbose() }
func (s serial) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(serial{t}) })
}

// scriptTimeout bounds one command line of a script.
const scriptTimeout = time.Minute

// scriptPause is the least time from one start of a command line to the next.
const scriptPause = 250 * time.Millisecond

type scripts struct {
	*programs
	exit int
	keys []keystroke // for the next command line
}

// keystroke is typed when a screen shows a text.
type keystroke struct{ screen, text string }

func (s *scripts) url() string { return "http://127.0.0.1:" + strconv.Itoa(s.port) }

// run starts a command line, waits for its end and returns what it printed.
func (s *scripts) run(ts *testscript.TestScript, args []string) (stdout, stderr string) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "dynctl"), args...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{}
	for _, name := range []string{
		"HOME", "PATH", "TERM", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "NO_COLOR", "CI", "ACCESSIBLE",
		"DYNCTL_OUTPUT", "DYNCTL_READ_ONLY", "DYNCTL_CLUSTER", "DYNCTL_CONFIG", "ETCD_ENDPOINTS",
	} {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	keys := s.keys
	s.keys = nil
	var err error
	if size := ts.Getenv("TTY"); size != "" {
		stdout, stderr, err = runOnTerminal(cmd, size, keys)
		if errors.Is(err, errors.ErrUnsupported) {
			ts.Check(err)
		}
	} else {
		var out, errs bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(ts.Getenv("INPUT")), &out, &errs
		err = cmd.Run()
		stdout, stderr = out.String(), errs.String()
	}
	var exit *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &exit) {
		ts.Fatalf("dynctl %s: %v\n%s%s", strings.Join(args, " "), errors.Join(err, ctx.Err()), stdout, stderr)
	}
	s.exit = cmd.ProcessState.ExitCode()
	return stdout, stderr
}

func (s *scripts) dynctl(ts *testscript.TestScript, neg bool, args []string) {
	stdout, stderr := s.run(ts, args)
	_, _ = ts.Stdout().Write([]byte(stdout)) // buffers of the script
	_, _ = ts.Stderr().Write([]byte(stderr))
	if neg == (s.exit == 0) {
		ts.Fatalf("dynctl %s: exit code %d", strings.Join(args, " "), s.exit)
	}
}

func (s *scripts) typed(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: typed SCREEN TEXT")
	}
	s.keys = append(s.keys, keystroke{args[0], strings.NewReplacer("^C", "\x03", "^M", "\r", "^[", "\x1b").Replace(args[1])})
}

func (s *scripts) code(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 || args[0] != strconv.Itoa(s.exit) {
		ts.Fatalf("exit code %d, want %v", s.exit, args)
	}
}

func (s *scripts) request(ts *testscript.TestScript, _ bool, args []string) {
	tokens := 4
	if len(args) == 1 {
		n, err := strconv.Atoi(args[0])
		ts.Check(err)
		tokens = n
	}
	_, id, err := s.identified(strings.Repeat("what moves between the workers ", 20), tokens)
	ts.Check(err)
	ts.Setenv("REQUEST", id)
}

func (s *scripts) eventually(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if stdout, stderr, ok := s.until(ts, args[1:], func(string) bool { return s.exit == want }); !ok {
		ts.Fatalf("dynctl %s: exit code %d, never %d\n%s%s", strings.Join(args[1:], " "), s.exit, want, stdout, stderr)
	}
}

// until runs a command line until reached, which gets its standard output, or the time is
// over. It leaves the processors to the cluster in between.
func (s *scripts) until(ts *testscript.TestScript, args []string, reached func(string) bool) (stdout, stderr string, ok bool) {
	again := time.NewTicker(scriptPause)
	defer again.Stop()
	for end := time.Now().Add(scriptTimeout); time.Now().Before(end); <-again.C {
		if stdout, stderr = s.run(ts, args); reached(stdout) {
			return stdout, stderr, true
		}
	}
	return stdout, stderr, false
}

func (s *scripts) busy(ts *testscript.TestScript, _ bool, args []string) {
	tokens, err := strconv.Atoi(strings.Join(args, " "))
	ts.Check(err)
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			_, _, err := s.identified("what is a ticket?", tokens)
			select {
			case <-stop:
				ended <- err
				return
			default:
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	ts.Defer(func() {
		close(stop)
		if err := <-ended; err != nil {
			ts.Logf("busy: %v", err)
		}
	})
}

func (s *scripts) shows(ts *testscript.TestScript, _ bool, args []string) {
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	if stdout, stderr, ok := s.until(ts, args[1:], want.MatchString); !ok {
		ts.Fatalf("dynctl %s never shows %s\n%s%s", strings.Join(args[1:], " "), want, stdout, stderr)
	}
}

// terminalSize reads a size like 100x30.
func terminalSize(text string) (width, height uint16, err error) {
	if n, err := fmt.Sscanf(text, "%dx%d", &width, &height); n != 2 || err != nil {
		return 0, 0, fmt.Errorf("TTY=%s is not a size like 100x30", text)
	}
	return width, height, nil
}
