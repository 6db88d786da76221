package cli

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/exit"
)

func TestLogs(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Logs: map[string]string{
		"": "agent one\nagent two\n", "worker-1": "a\nb\nc\n", "worker-2": "x\ny without an end",
	}})
	w.up(1, 1)
	if r := w.ok("logs", "worker-1"); r.stdout != "a\nb\nc\n" || r.stderr != "" {
		t.Errorf("one worker: %+v", r)
	}
	if r := w.ok("logs", "worker-1", "worker-2", "--tail", "2"); r.stdout != "worker-1 | b\nworker-1 | c\nworker-2 | x\nworker-2 | y without an end\n" {
		t.Errorf("two workers: %q", r.stdout)
	}
	if r := w.ok("logs"); r.stdout != "agent one\nagent two\n" {
		t.Errorf("the agent: %q", r.stdout)
	}
	r := w.run("logs", "worker-9")
	if r.code != exit.Failed || !strings.Contains(r.stderr, "cannot read logs of worker-9: no such worker in cluster lab") {
		t.Errorf("an unknown worker: %+v", r)
	}
}

func TestLogsOfWorkersWithoutALog(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Logs: map[string]string{"worker-1": "a\n"}})
	w.up(1, 1)
	r := w.run("logs", "worker-1", "worker-2")
	if r.code != exit.Partly || r.stdout != "worker-1 | a\n" || !strings.Contains(r.stderr, "cannot read logs of worker-2: ") || !strings.Contains(r.stderr, "no log of worker-2 on this node") {
		t.Errorf("%+v", r)
	}
	if r := w.run("logs", "worker-2"); r.code != exit.Failed {
		t.Errorf("exit %d", r.code)
	}
}

// The log of a worker that is gone may still be on this machine.
func TestLogsOfAWorkerThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	dir := filepath.Join(w.state, "lab", "node-1", "logs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "worker-7.log"), []byte("last words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := w.ok("logs", "worker-7"); r.stdout != "last words\n" {
		t.Errorf("%+v", r)
	}
}

func TestFollowLogs(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Logs: map[string]string{"worker-1": "a\nb\n", "worker-2": "x\n"}})
	w.up(1, 1)
	follow := func(ends int, args ...string) result {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		// Canceled once the last line of every source is there.
		out := &watchWriter{count: ends, want: "more of", then: cancel}
		return w.with(ctx, options{stdout: out}, append([]string{"logs", "-f"}, args...)...)
	}
	r := follow(2, "--tail", "1", "worker-1", "worker-2")
	if r.code != exit.Interrupted || !strings.Contains(r.stderr, "dynctl: stopped reading logs") {
		t.Errorf("exit %d, stderr %q", r.code, r.stderr)
	}
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	slices.Sort(lines)
	if want := []string{"worker-1 | b", "worker-1 | more of worker-1", "worker-2 | more of worker-2", "worker-2 | x"}; !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
	// Nothing of the past.
	if r := follow(1, "--tail", "0", "worker-1"); r.stdout != "more of worker-1\n" {
		t.Errorf("--tail 0: %q", r.stdout)
	}
}

func TestFollowEndsWithItsAgents(t *testing.T) {
	w := newWorld(t)
	a := w.agent(fakeConfig{Logs: map[string]string{"worker-1": "a\n"}})
	w.up(0, 1)
	got := make(chan result, 1)
	seen := make(chan struct{})
	go func() {
		out := &watchWriter{want: "more of worker-1", then: func() { close(seen) }}
		got <- w.with(t.Context(), options{stdout: out}, "logs", "-f", "worker-1")
	}()
	<-seen
	a.close()
	if r := <-got; r.code != exit.Failed || !strings.Contains(r.stderr, "cannot read logs of worker-1: read log from node") {
		t.Errorf("%+v", r)
	}
}
