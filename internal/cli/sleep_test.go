package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// A server sleeps when its worker is drained, until it is woken.
func TestSleepAndWake(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 2, NoSleep: map[string]string{"worker-3": "it takes --enable-sleep-mode"}})
	w.up(0, 1)
	for _, at := range []string{"http://a:1 --engine vllm", "http://b:1 --engine vllm", "http://c:1 --engine trtllm"} {
		w.ok(append([]string{"attach", "--model", cluster.BuiltinModelName}, strings.Fields(at)...)...)
	}
	if r := w.ok("sleep", "worker-2", "--level", "2", "--dry-run"); r.stdout != "would drain worker-2: ready, 2 sequences to finish or hand over; then its server would sleep at level 2\n" {
		t.Errorf("%+v", r)
	}
	r := w.ok("sleep", "worker-2", "--level", "2")
	if !regexp.MustCompile(`^worker-2 sleeps at level 2 after \d+\.\ds: 2 finished, 0 moved, 0 cancelled\. dynctl wake brings it back\.\n$`).MatchString(r.stdout) {
		t.Errorf("answer %q", r.stdout)
	}
	clitest.Has(t, "progress", r.stderr, "worker-2 finish-sequences", "worker-2 sleep done\n")
	clitest.Has(t, "ps", w.ok("ps").stdout, "worker-2\tdecode\tvllm a:1\tsleeping")
	clitest.Has(t, "ps -o json", w.ok("ps", "-o", "json").stdout, `"sleep": 2`)
	clitest.Has(t, "describe", w.ok("explain", "worker", "worker-2").stdout, "dynctl sleep has put its server to sleep at level 2", "dynctl wake worker-2")
	if r := w.ok("sleep", "worker-2", "--level", "2"); r.stdout != "worker-2 sleeps at level 2 already. safe to stop.\n" {
		t.Errorf("again: %+v", r)
	}
	for args, want := range map[string]string{
		"sleep worker-2":           "worker-2 sleeps at level 2: it wakes before it sleeps at another one",
		"sleep worker-1":           "the built-in engine does not sleep; a drain gives its memory back",
		"sleep worker-4":           "servers of trtllm do not sleep",
		"sleep worker-3":           "worker-3 did not sleep: it takes --enable-sleep-mode",
		"wake worker-1":            "cannot wake worker-1: it cannot sleep: the built-in engine",
		"sleep worker-2 --level 3": "--level: 3 is not 1 or 2",
		"sleep node/node-1":        "dynctl sleep takes workers, and node/node-1 is a node",
		"wake node/node-1":         "dynctl wake takes workers",
	} {
		if r := w.run(strings.Fields(args)...); r.code == exit.OK || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v, want %s", args, r, want)
		}
	}
	// What was declined is taken back, so that nothing waits for it.
	if a, _, err := store.GetJSON[cluster.Assignment](t.Context(), w.store, cluster.AssignmentKey(w.ns, "worker-3")); err != nil || a.Desire != cluster.DesireRun || a.Sleep != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	clitest.Has(t, "completion", w.ok("__complete", "sleep", "").stdout, "worker-2\tdecode sleeping\nworker-3\tdecode ready\n:")
	if r := w.ok("wake", "worker-2"); !strings.HasPrefix(r.stdout, "worker-2 serves again after ") {
		t.Errorf("%+v", r)
	}
	w.ok("sleep", "worker-2")
	if r := w.ok("drain", "worker-2"); !strings.HasPrefix(r.stdout, "worker-2 drained in ") {
		t.Errorf("a drain ends it: %+v", r)
	}
	w.ok("resume", "worker-2")
}
