package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/statedir"
)

// The test binary plays dynamod when it is called by that name: its first argument
// says how it behaves, the second is the directory of its node.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == Program {
		os.Exit(fakeDynamod(os.Args[1], os.Args[2]))
	}
	os.Exit(m.Run())
}

func fakeDynamod(mode, dir string) int {
	if mode == "fail" {
		fmt.Println("time=2026-07-01T12:00:00Z level=INFO msg=starting")
		fmt.Fprintln(os.Stderr, "dynamod: frontend 127.0.0.1:8000: port is in use")
		return 1
	}
	terms := make(chan os.Signal, 4)
	signal.Notify(terms, syscall.SIGTERM)
	lock, err := (statedir.Node{Path: dir}).Lock()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dynamod: "+err.Error())
		return 1
	}
	for range terms {
		switch mode {
		case "stubborn":
		case "slow":
			mode = "polite" // the second one ends it
		default:
			_ = lock.Release()
			return 0
		}
	}
	return 0
}

// program installs this test binary as dynamod.
func program(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), Program)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func start(t *testing.T, c statedir.Cluster, name, mode string) *Process {
	t.Helper()
	n, err := c.Node(name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(Options{Program: program(t), Args: []string{mode, n.Path}, Environ: os.Environ(), Node: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
		<-p.Exited()
	})
	return p
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func lab(t *testing.T) statedir.Cluster {
	t.Helper()
	c, err := statedir.Open(t.TempDir(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func locked(t *testing.T, p *Process) {
	t.Helper()
	eventually(t, p.Node.Name+" holds its lock", func() bool {
		pid, held := p.Node.Holder()
		return held && pid == p.PID
	})
}

func TestFind(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	self := func() (string, error) { return filepath.Join(dir, "dynctl"), nil }
	path := other + string(filepath.ListSeparator) + "relative"
	if _, err := Find(Program, self, path); !errors.Is(err, ErrNoProgram) || !strings.Contains(err.Error(), dir) {
		t.Errorf("nothing there: %v", err)
	}
	write := func(dir string, mode os.FileMode) string {
		p := filepath.Join(dir, Program)
		if err := os.WriteFile(p, nil, mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	inPath := write(other, 0o755)
	if got, err := Find(Program, self, path); got != inPath || err != nil {
		t.Errorf("in PATH: %q %v", got, err)
	}
	beside := write(dir, 0o644)
	if got, _ := Find(Program, self, path); got != inPath {
		t.Errorf("a file that is no program: %q", got)
	}
	if err := os.Chmod(beside, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Find(Program, self, path); filepath.Base(filepath.Dir(got)) != filepath.Base(dir) || err != nil {
		t.Errorf("beside: %q %v", got, err)
	}
	if _, err := Find(Program, func() (string, error) { return "", errors.New("unknown") }, ""); !errors.Is(err, ErrNoProgram) {
		t.Errorf("no executable: %v", err)
	}
}

func TestStartInTheBackground(t *testing.T) {
	c := lab(t)
	p := start(t, c, "node-1", "polite")
	locked(t, p)
	// SysProcAttr.Setsid: the process leads its own session.
	if sid, err := unix.Getsid(p.PID); err != nil || sid != p.PID {
		t.Errorf("session %d %v, want its own, %d", sid, err, p.PID)
	}
	got, err := List(c)
	if err != nil || len(got) != 1 || got[0].PID != p.PID || got[0].Node.Name != "node-1" {
		t.Errorf("List: %+v %v", got, err)
	}
	if p.Err() != nil {
		t.Errorf("it runs, Err is %v", p.Err())
	}
}

func TestEarlyExit(t *testing.T) {
	c := lab(t)
	n, _ := c.Node("node-1")
	if err := n.Create(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.Output(), []byte("dynamod: error of an earlier run\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, c, "node-1", "fail")
	select {
	case <-p.Exited():
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	if got := p.Complaint(); !slices.Equal(got, []string{"frontend 127.0.0.1:8000: port is in use"}) {
		t.Errorf("complaint %q", got)
	}
	if p.Err() == nil {
		t.Error("no error for exit status 1")
	}
	if _, err := Start(Options{Program: "/no/such/dynamod", Node: n}); err == nil {
		t.Error("started a program that does not exist")
	}
}

func TestUnwritableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(Options{Program: program(t), Node: statedir.Node{Path: filepath.Join(file, "node-1"), Name: "node-1"}}); err == nil {
		t.Error("started without a directory")
	}
}

func TestStop(t *testing.T) {
	for _, tc := range []struct {
		mode            string
		hurried, killed bool
	}{
		{"polite", false, false},
		{"slow", true, false},
		{"stubborn", true, true},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			c := lab(t)
			p := start(t, c, "node-1", tc.mode)
			locked(t, p)
			wait := 100 * time.Millisecond
			if tc.mode == "polite" {
				wait = 20 * time.Second
			}
			grace := 20 * time.Second
			if tc.killed {
				grace = 100 * time.Millisecond
			}
			running, err := List(c)
			if err != nil {
				t.Fatal(err)
			}
			shown := 0
			got, err := Stop(t.Context(), running, Times{Hurry: time.Now().Add(wait), Grace: grace}, func([]Ending) { shown++ })
			if err != nil {
				t.Fatal(err)
			}
			if e := got[0]; !e.Gone || e.Hurried != tc.hurried || e.Killed != tc.killed {
				t.Errorf("got %+v", e)
			}
			if shown == 0 {
				t.Error("nothing was shown")
			}
			if Alive(p.PID) {
				t.Error("the process is alive")
			}
			if left, err := Sweep(c); len(left) > 0 || err != nil {
				t.Errorf("left %q %v", left, err)
			}
			if nodes, _ := c.Nodes(); len(nodes) > 0 {
				t.Errorf("locks are left: %v", nodes)
			}
		})
	}
}

func TestStopIsInterrupted(t *testing.T) {
	c := lab(t)
	p := start(t, c, "node-1", "stubborn")
	locked(t, p)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("ctrl-c")
	cancel(why)
	running, _ := List(c)
	got, err := Stop(ctx, running, Times{Hurry: time.Now().Add(time.Hour)}, nil)
	if !errors.Is(err, why) || got[0].Gone {
		t.Errorf("got %+v %v", got, err)
	}
}

func TestSweepAfterAKill(t *testing.T) {
	c := lab(t)
	p := start(t, c, "node-1", "polite")
	locked(t, p)
	if err := c.WriteEndpoints(statedir.Endpoints{Node: "node-1", PID: p.PID}); err != nil {
		t.Fatal(err)
	}
	if left, err := Sweep(c); len(left) != 1 || err != nil || !strings.Contains(left[0], "still runs node-1") {
		t.Errorf("while it runs: %q %v", left, err)
	}
	if _, err := c.Endpoints(); err != nil {
		t.Errorf("the address of a running cluster is gone: %v", err)
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	if left, err := Sweep(c); len(left) > 0 || err != nil {
		t.Errorf("after the kill: %q %v", left, err)
	}
	for _, name := range []string{"cluster.json", "node-1/lock"} {
		if _, err := os.Stat(filepath.Join(c.Path, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}

func TestComplaint(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"empty", "", nil},
		{"last words", "x\ndynamod: cannot start: disk full\n  need 2 GiB\n  try: df\nother\n", []string{"cannot start: disk full", "need 2 GiB", "try: df"}},
		{"text log", "time=1 level=INFO msg=up\ntime=2 level=ERROR msg=\"stopping: a part broke\" error=\"embedded etcd failed: \\\"x\\\"\" node=node-1\ntime=3 level=INFO msg=bye\n", []string{`stopping: a part broke: embedded etcd failed: "x"`}},
		{"json log", `{"level":"ERROR","msg":"no","error":"disk full"}` + "\n", []string{"no: disk full"}},
		{"log without a cause", "level=ERROR msg=no", []string{"no"}},
		{"crash", "dynamod: x\npanic: runtime error: index out of range\n\ngoroutine 1:\n", []string{"dynamod crashed: panic: runtime error: index out of range"}},
		{"anything", "one\ntwo\n\n", []string{"two"}},
		{"broken log", "level=\"ERROR\nlast", []string{"last"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := complaint(tc.text); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func FuzzComplaint(f *testing.F) {
	f.Add("dynamod: x\n  y")
	f.Add("level=ERROR msg=\"a")
	f.Add(`{"level":"ERROR"`)
	f.Fuzz(func(t *testing.T, text string) {
		if got := complaint(text); len(got) > maxComplaint+1 {
			t.Errorf("%d lines", len(got))
		}
	})
}
