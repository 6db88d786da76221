package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cluster"
)

func TestPs(t *testing.T) {
	w := newWorld(t)
	r := w.ok("ps")
	clitest.Has(t, "stderr of an empty cluster", r.stderr, "no workers in cluster lab")
	if r := w.ok("ps", "-o", "json"); r.stdout != "[]\n" || r.stderr != "" {
		t.Errorf("empty JSON: %q %q", r.stdout, r.stderr)
	}
	w.agent(fakeConfig{Sequences: 3})
	w.up(1, 2)

	r = w.ok("ps")
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[1], "worker-1\tprefill\tcpu0 2c\tready\t3\t51/4096\tnode-1\t20") {
		t.Errorf("got\n%s", r.stdout)
	}
	r = w.with(t.Context(), options{tty: true}, "ps")
	clitest.Has(t, "terminal", r.stdout, "NAME      ROLE     DEVICE   STATE    SEQS       KV  NODE    UPTIME", "● ready", "\x1b[32m")
	clitest.Matches(t, "uptime", r.stdout, `node-1 +\d+s\n`)
	r = w.with(t.Context(), options{tty: true, env: []string{"NO_COLOR=1"}}, "ps")
	if strings.Contains(r.stdout, "\x1b") {
		t.Errorf("colors in spite of NO_COLOR:\n%s", r.stdout)
	}
	// A locale without UTF-8 gets ASCII signs, in columns as wide.
	r = w.with(t.Context(), options{tty: true, env: []string{"LC_ALL=C", "NO_COLOR=1"}}, "ps")
	if clitest.Has(t, "LC_ALL=C", r.stdout, "  * ready  "); strings.ContainsFunc(r.stdout, func(r rune) bool { return r > 0x7f }) {
		t.Errorf("LC_ALL=C:\n%s", r.stdout)
	}
	if r := w.ok("ps", "-q"); r.stdout != "worker-1\nworker-2\nworker-3\n" {
		t.Errorf("-q: %q", r.stdout)
	}
	if r := w.ok("ps", "-o", "name", "--nodes"); r.stdout != "node-1\n" {
		t.Errorf("--nodes -o name: %q", r.stdout)
	}
	clitest.Has(t, "nodes", w.ok("ps", "--nodes", "-o", "wide").stdout, "worker-1, worker-2, worker-3", "v0.0.0-test", "http://127.0.0.1:")
	clitest.Has(t, "yaml", w.ok("ps", "-o", "yaml").stdout, "- name: worker-1\n  role: prefill\n", "  tokens_per_s: null\n")

	var workers []cluster.Worker
	r = w.ok("ps", "-o", "json")
	if err := json.Unmarshal([]byte(r.stdout), &workers); err != nil {
		t.Fatal(err)
	}
	if len(workers) != 3 || workers[2].Stats.Running != 3 || workers[0].Lease == nil || workers[0].Uptime == nil {
		t.Errorf("got %+v", workers)
	}
	if !strings.Contains(r.stdout, `"prefix_hit_ratio": null`) {
		t.Errorf("unknown is not null:\n%s", r.stdout)
	}
}

// A worker that does not answer is not shown as what it said last.
func TestPsShowsMuteWorkers(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Mute: map[string]bool{"worker-2": true}})
	w.up(1, 1)
	r := w.ok("ps")
	clitest.Matches(t, "stdout", r.stdout, `worker-1\tprefill\tcpu0 2c\tready\t`)
	clitest.Matches(t, "stdout", r.stdout, `worker-2\tdecode\tcpu0 2c\tunknown\t`)
	clitest.Has(t, "stderr", r.stderr, "worker-2 unknown: it does not answer; it was ready\n")
	clitest.Has(t, "get", w.ok("get", "workers").stdout, "\tunknown\t")
}

func TestPsShowsWhyWorkersDoNotServe(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Fail: map[string]string{"worker-1": "not enough\nmemory"}})
	if r := w.run("up", "--prefill", "0", "--no-wait"); r.code != exit.Accepted {
		t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
	clitest.Eventually(t, "worker-1 fails", func() bool { return strings.Contains(w.ok("ps").stdout, "failed") })
	clitest.Has(t, "stderr", w.ok("ps").stderr, "worker-1 failed: not enough memory")
	r := w.with(t.Context(), options{tty: true}, "ps")
	clitest.Has(t, "terminal", r.stdout, "✕ failed", "worker-1 failed: not enough memory")
}
