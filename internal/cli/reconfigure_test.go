package cli

import (
	"encoding/json"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/drain"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/set"
	"github.com/dynctl/dynctl/internal/cluster"
)

func TestDrainWithASuccessor(t *testing.T) {
	w := newWorld(t)
	loads := newPacer(t, "worker-2 start-successor worker-3 loading\n", func(st cluster.WorkerStatus) bool {
		return st.Name == "worker-3" && st.State == cluster.StateLoading
	})
	w.agent(fakeConfig{Sequences: 2, Step: 20 * time.Millisecond, Pace: loads.pace})
	w.up(0, 2)
	r := w.with(t.Context(), options{stderr: loads}, "drain", "worker-2", "--replace")
	if !regexp.MustCompile(`^worker-2 drained in \d+\.\ds(: \d finished, 0 moved, 0 cancelled)?; worker-3 serves in its place\. safe to stop\.\n$`).MatchString(r.stdout) {
		t.Errorf("answer %q", r.stdout)
	}
	clitest.Has(t, "progress", r.stderr, loads.want, "worker-2 start-successor done: worker-3\n")
	clitest.Eventually(t, "the others are left", func() bool { return w.ok("ps", "-q").stdout == "worker-1\nworker-3\n" })
	r = w.ok("drain", "worker-1", "--replace", "-o", "json")
	var all []drain.Result
	if err := json.Unmarshal([]byte(r.stdout), &all); err != nil || len(all) != 1 || !all[0].Safe || all[0].Successor != "worker-2" || all[0].State != cluster.StateStopped {
		t.Errorf("%v: %s", err, r.stdout)
	}
	clitest.Eventually(t, "worker-2 follows nobody any more", func() bool { r = w.run("drain", "worker-2", "--replace", "--no-wait"); return r.code != exit.Failed })
	if r.code != exit.Accepted || !strings.Contains(r.stdout, "worker-2 drains when a successor serves, until ") {
		t.Errorf("%+v", r)
	}
}

// Until the worker has gone, its replacement is taken back, whatever it waits for.
func TestReplacementIsTakenBack(t *testing.T) {
	w := newWorld(t)
	hold := &atomic.Bool{}
	w.agent(fakeConfig{Sequences: 1, Hold: hold, Fail: map[string]string{"worker-3": "no such luck"}, FailTimes: 1, Backoff: time.Minute})
	w.up(0, 2)
	r := w.run("drain", "worker-2", "--replace", "--deadline", "3s") // by then the successor has failed
	if r.code != exit.Deadline {
		t.Errorf("exit %d", r.code)
	}
	clitest.Has(t, "stderr", r.stderr, "worker-2 did not drain in ", "no successor serves yet\n  it serves as before, and drains when a successor serves\n", "worker-3 is failed: no such luck")
	w.ok("resume", "worker-2")
	clitest.Eventually(t, "the successor has gone", func() bool { return w.ok("ps", "-q").stdout == "worker-1\nworker-2\n" })

	// While it drains, too.
	hold.Store(true)
	r = w.run("drain", "worker-2", "--replace", "--deadline", "3s")
	if r.code != exit.Deadline {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	clitest.Has(t, "stderr", r.stderr, "1 of 1 sequence left")
	clitest.Has(t, "resume", w.ok("resume", "worker-2").stdout, "worker-2 serves again")
	hold.Store(false)
	clitest.Eventually(t, "the successor has gone again", func() bool { return w.ok("ps", "-q").stdout == "worker-1\nworker-2\n" })
	hold.Store(true)
	if r := w.run("drain", "worker-1", "worker-2", "--force"); r.code != exit.Usage || !strings.Contains(r.stderr, "(1 sequence) that still run after 5m? No other decode worker serves: they fail unless one does within 15s.") {
		t.Errorf("%+v", r)
	}
	clitest.Has(t, "forced", w.ok("drain", "worker-2", "--force", "--yes", "--deadline", "1s").stdout, "worker-2 drained in ")
}

func TestDrainNode(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Port: -1, Sequences: 1, Step: 10 * time.Millisecond})
	w.agent(fakeConfig{Name: "node-2", Port: -1, Sequences: 1, Step: 10 * time.Millisecond})
	w.up(1, 3)
	// The controller may not have known the second node when it placed the workers.
	clitest.Eventually(t, "both nodes have workers", func() bool {
		return strings.Count(w.ok("ps").stdout, "\tready\t") == 4 && strings.Count(w.ok("ps").stdout, "node-2") == 2
	})
	r := w.ok("drain", "node/node-2")
	if !regexp.MustCompile(`^node-2 drained in \d+\.\ds: 2 workers left\. safe to stop\.\n$`).MatchString(r.stdout) {
		t.Errorf("answer %q\n%s", r.stdout, r.stderr)
	}
	clitest.Has(t, "progress", r.stderr, " removed\n")
	clitest.Eventually(t, "the last words have gone", func() bool { return strings.Count(w.ok("ps", "-q").stdout, "\n") == 4 })
	for _, line := range strings.Split(strings.TrimSpace(w.ok("ps").stdout), "\n")[1:] {
		if !strings.Contains(line, "node-1") || !strings.Contains(line, "\tready\t") {
			t.Errorf("afterwards: %s", line)
		}
	}
	clitest.Has(t, "nodes", w.ok("ps", "--nodes").stdout, "\tdrained\t", "\tready\t")
	if r := w.ok("drain", "node/node-2", "-o", "json"); !strings.Contains(r.stdout, `"safe": true`) || !strings.Contains(r.stdout, `"node": "node-2"`) {
		t.Errorf("again: %s", r.stdout)
	}
	r = w.run("drain", "node/node-9")
	clitest.Has(t, "no such node", r.stderr, "dynctl: cannot drain node/node-9: no such node in cluster lab\n  live nodes: node-1, node-2\n  try: dynctl ps --nodes\n")
	if r := w.ok("resume", "node/node-2"); r.stdout != "node-2 takes workers again.\n" {
		t.Errorf("resume: %q", r.stdout)
	}
	if r := w.ok("resume", "node/node-2"); r.stdout != "node-2 takes workers already.\n" {
		t.Errorf("resume again: %q", r.stdout)
	}
	// kubectl's word does the same, with the name alone.
	w.ok("drain", "node/node-2")
	if r := w.ok("uncordon", "node-2", "--dry-run"); r.stdout != "node-2 would take workers again\n" {
		t.Errorf("%q", r.stdout)
	}
	if r := w.ok("uncordon", "node-2"); r.stdout != "node-2 takes workers again.\n" {
		t.Errorf("%q", r.stdout)
	}
	if r := w.ok("uncordon", "node/node-2"); r.stdout != "node-2 takes workers already.\n" {
		t.Errorf("%q", r.stdout)
	}
	if r := w.run("uncordon", "node-9"); r.code != exit.Failed || !strings.Contains(r.stderr, "cannot uncordon node/node-9: no such node in cluster lab") {
		t.Errorf("%+v", r)
	}
	if r := w.run("resume", "node/x"); r.code != exit.Failed {
		t.Errorf("exit %d", r.code)
	}
}

// The node that hosts the stores is never safe to stop.
func TestDrainOfTheStoresNode(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Load: 300 * time.Millisecond})
	w.up(0, 1)
	r := w.ok("drain", "node/node-1")
	clitest.Has(t, "stderr", r.stderr, "note: no other node takes workers: those of node-1 stop, and requests wait until a node is resumed", "workers that no node has room for: all nodes are drained")
	clitest.Has(t, "stdout", r.stdout, "1 worker left. it hosts the cluster's etcd: not safe to stop.\n")
	if r := w.ok("resume", "node/node-1"); !strings.Contains(w.ok("ps").stdout, "\tready\t") {
		t.Errorf("it returned before the worker serves: %q", r.stdout)
	}
	clitest.Eventually(t, "it serves again", func() bool { return strings.Contains(w.ok("ps").stdout, "\tready\t") })
}

func TestSetRole(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 2, Step: 10 * time.Millisecond})
	w.up(1, 3)
	r := w.ok("set", "worker-3", "role=prefill")
	if !regexp.MustCompile(`^worker-3 is a prefill worker after \d+\.\ds; lab has 2 prefill \+ 2 decode workers\.\n$`).MatchString(r.stdout) {
		t.Errorf("answer %q\n%s", r.stdout, r.stderr)
	}
	if topo := w.topology(); topo.Prefill != 2 || topo.Decode != 2 {
		t.Errorf("topology %+v", topo)
	}
	clitest.Has(t, "ps", w.ok("ps").stdout, "worker-3\tprefill\t")
	if r := w.ok("set", "worker-3", "role=prefill"); r.stdout != "worker-3 is a prefill worker already.\n" {
		t.Errorf("again: %q", r.stdout)
	}
	var got set.RoleResult
	if err := json.Unmarshal([]byte(w.ok("set", "worker-3", "role=decode", "-o", "json").stdout), &got); err != nil || got.From != cluster.RolePrefill || got.Role != cluster.RoleDecode || got.Decode != 3 || got.DurationMS == nil {
		t.Errorf("%v: %+v", err, got)
	}
	for _, tc := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"worker-3"}, exit.Usage, "of a worker only the role can be set, one worker at a time"},
		{[]string{"worker-3", "role=cook"}, exit.Usage, `role: unknown role "cook" (known: prefill, decode, encode)`},
		{[]string{"worker-3", "role=encode"}, exit.Usage, "role: encode workers have only the vision tower: no worker can become one"},
		{[]string{"worker-3", "device=cpu:1"}, exit.Usage, `"device=cpu:1" is not role=<role>: only the role of a worker can change while it runs`},
		{[]string{"worker-9", "role=decode"}, exit.Failed, "cannot make worker-9 a decode worker: no such worker in cluster lab"},
		{[]string{"worker-3", "role=prefill", "--read-only"}, exit.Failed, "read-only is set"},
	} {
		if r := w.run(append([]string{"set"}, tc.args...)...); r.code != tc.code || !strings.Contains(r.stderr, tc.text) {
			t.Errorf("%q: exit %d, %s", tc.args, r.code, r.stderr)
		}
	}
	w.up(1, 1)
	clitest.Eventually(t, "two workers are left", func() bool { return strings.Count(w.ok("ps", "-q").stdout, "\n") == 2 })
	if r := w.run("set", "worker-2", "role=prefill"); r.code != exit.Failed || !strings.Contains(r.stderr, "prefill workers need at least one decode worker") {
		t.Errorf("the last decode worker: %+v", r)
	}
}

func TestRestart(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 1, Step: 5 * time.Millisecond})
	w.up(1, 2)
	generations := func() (out string) {
		for _, line := range strings.Split(strings.TrimSpace(w.ok("ps", "-o", "wide").stdout), "\n")[1:] {
			f := strings.Split(line, "\t")
			out += f[0] + ":" + f[10] + " "
		}
		return out
	}
	before := generations()
	if before != "worker-1:1 worker-2:1 worker-3:1 " {
		t.Fatalf("generations %q", before)
	}
	r := w.ok("restart", "worker-3")
	if !regexp.MustCompile(`^worker-3 restarted in \d+\.\ds\.\n$`).MatchString(r.stdout) || generations() != "worker-1:1 worker-2:1 worker-3:2 " {
		t.Errorf("%q, generations %q", r.stdout, generations())
	}
	r = w.ok("restart", "--rolling")
	if !regexp.MustCompile(`^all workers restarted in \d+\.\ds\.\n$`).MatchString(r.stdout) {
		t.Errorf("%q", r.stdout)
	}
	// The only prefill worker got a successor; the others keep their names.
	if got := generations(); got != "worker-2:2 worker-3:3 worker-4:1 " {
		t.Errorf("generations %q", got)
	}
	if r := w.run("restart", "--rolling", "--no-wait", "--max-unavailable", "50%"); r.code != exit.Accepted || r.stdout != "all workers restart.\n" {
		t.Errorf("%+v", r)
	}
	for _, tc := range []struct {
		args []string
		code int
		text string
	}{
		{nil, exit.Usage, "name workers, or --rolling for all of them"},
		{[]string{"--rolling", "worker-1"}, exit.Usage, "--rolling restarts all workers: name none"},
		{[]string{"worker-2", "worker-9"}, exit.Failed, "cannot restart worker-9: no such worker"},
		{[]string{"worker-2", "--max-surge", "2"}, exit.Usage, "are for --rolling"},
		{[]string{"--rolling", "--max-surge", "half"}, exit.Usage, `--max-surge: "half" is not a number of workers like 4`},
	} {
		if r := w.run(append([]string{"restart"}, tc.args...)...); r.code != tc.code || !strings.Contains(r.stderr, tc.text) {
			t.Errorf("%q: exit %d, %s", tc.args, r.code, r.stderr)
		}
	}
}
