package cli

import (
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/help"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
)

// Every command says what it does in one sentence, has three examples, says whether
// it changes anything, and its short help fits a screen.
func TestEveryCommandIsDocumented(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
		}
		path := cmd.CommandPath()
		if !cmd.HasParent() || cmd.Annotations[command.TopicAnnotation] != "" || cmd.Name() == "help" || cmd.Parent().Name() == "completion" || cmd.Hidden {
			return
		}
		if n := len(strings.Split(cmd.Annotations[command.ExampleAnnotation], "\n")); n != 3 {
			t.Errorf("%s has %d examples, want 3", path, n)
		}
		for ex := range strings.Lines(cmd.Annotations[command.ExampleAnnotation]) {
			if !strings.Contains(ex, "dynctl ") {
				t.Errorf("%s: example %q", path, ex)
			}
		}
		if i := cmd.Annotations[command.ImpactAnnotation]; i != "read-only" && i != "changing" && i != "local" {
			t.Errorf("%s: impact %q", path, i)
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short help %q", path, cmd.Short)
		}
		r := runMain(t.Context(), options{}, append(strings.Fields(path)[1:], "--help")...)
		if r.code != 0 || r.stderr != "" {
			t.Errorf("%s --help: %+v", path, r)
		}
		if n := strings.Count(r.stdout, "\n"); n > 30 {
			t.Errorf("%s: help of %d lines", path, n)
		}
		for line := range strings.Lines(r.stdout) {
			if len([]rune(line)) > help.Width+1 {
				t.Errorf("%s: line of %d characters: %s", path, len([]rune(line)), line)
			}
		}
	}
	root := root(command.New(session.Env{}))
	root.InitDefaultHelpCmd()
	walk(root)
}

func TestVerboseTellsTheCauses(t *testing.T) {
	r := runMain(t.Context(), options{env: []string{"HOME=/nowhere"}}, "ps", "--etcd-endpoints", "127.0.0.1:1", "-v")
	if r.code != exit.Unreachable {
		t.Errorf("exit %d", r.code)
	}
	clitest.Has(t, "stderr", r.stderr, "dynctl: cannot list workers: cluster not reachable", "\n  because: ")
}

// A command leaves no goroutine behind.
func TestCommandsLeakNothing(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 1, Logs: map[string]string{"worker-1": "a\n"}})
	w.up(1, 1)
	w.ok("ps") // the servers start goroutines of their own for what they see first
	w.ok("top", "--once", "--interval", "100ms")
	commands := func() error {
		before := goleak.IgnoreCurrent()
		w.ok("ps")
		w.ok("ps", "--nodes")
		w.ok("logs", "worker-1")
		w.ok("top", "--once", "--interval", "100ms")
		w.ok("up", "--dry-run")
		w.ok("events", "--for", "50ms")
		w.run("doctor")
		w.run("explain", "path", "worker-1", "worker-2")
		w.run("chat", "hi")
		f := clitest.NewFrontend(t, clitest.Says("", "Hi."))
		runChat(t, f, options{tty: true, input: "hi\n/exit\n"})
		f.Close()
		w.run("drain", "worker-9")
		return goleak.Find(before)
	}
	// What a command leaves, it leaves each time. The agent and the servers beside it only
	// now and then have a new goroutine, such as for a connection that they lost.
	var err error
	for range 3 {
		if err = commands(); err == nil {
			return
		}
	}
	t.Error(err)
}

func TestCompletionFromTheLiveCluster(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(1, 1)
	r := w.ok("__complete", "drain", "worker-1", "")
	if r.stdout != "worker-2\tdecode ready\nnode/node-1\tall workers of the node\n:36\n" {
		t.Errorf("drain worker-1 <tab>: %q", r.stdout)
	}
	if r := w.ok("__complete", "logs", ""); !strings.HasPrefix(r.stdout, "worker-1\tprefill ready\nworker-2\t") {
		t.Errorf("logs <tab>: %q", r.stdout)
	}
	if r := w.ok("__complete", "ps", "-c", ""); !strings.HasSuffix(r.stdout, ":4\n") {
		t.Errorf("-c <tab>: %q", r.stdout)
	}
	// A cluster that does not answer is no reason to complain at a prompt.
	if r := w.with(t.Context(), options{env: []string{"ETCD_ENDPOINTS=127.0.0.1:1"}}, "__complete", "drain", ""); r.code != 0 || r.stdout != ":36\n" {
		t.Errorf("unreachable: %+v", r)
	}
}

// unread is a stream that nobody reads any longer, as after "| head".
type unread struct{}

func (unread) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestAnswersThatNobodyReadsEndQuietly(t *testing.T) {
	for line, want := range map[string]int{"--help": exit.OK, "version -o json": exit.Failed} {
		var errs strings.Builder
		env := session.Env{Streams: term.Streams{Out: unread{}, Err: &errs}, Environ: []string{"HOME=" + t.TempDir()}}
		if code := Main(t.Context(), strings.Fields(line), env); code != want || errs.String() != "" {
			t.Errorf("dynctl %s: exit %d, want %d: %s", line, code, want, errs.String())
		}
	}
}
