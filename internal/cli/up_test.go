package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/up"
)

// With stores of its own the agents of a cluster run elsewhere.
func TestUpOnExternalStores(t *testing.T) {
	w := newWorld(t)
	r := w.run("up")
	if r.code != exit.Failed || !strings.Contains(r.stderr, "dynctl: cannot start the cluster: no node is up\n  etcd: 127.0.0.1:") {
		t.Errorf("no nodes: %+v", r)
	}
	// Everybody says how to get one, and it is no "dynctl up", which has just failed.
	start := "dynamod --cluster lab --namespace " + w.ns + " --etcd-endpoints 127.0.0.1:"
	const here = " --node-name NAME --node-advertise-host ADDRESS   on each node"
	clitest.Has(t, "up", r.stderr, "try: "+start, here)
	for _, line := range []string{"ps", "ps --nodes"} {
		clitest.Has(t, line, w.ok(strings.Fields(line)...).stderr, " is up; start one: "+start, here)
	}
	r = w.run("doctor", "--timeout", "5s")
	if clitest.Has(t, "doctor", r.stdout, start, here+", then dynctl up"); strings.Count(r.stdout, "dynctl up") != 1 {
		t.Errorf("doctor:\n%s", r.stdout)
	}
	w.agent(fakeConfig{})
	r = w.ok("up", "--decode", "2", "-o", "json")
	var got up.Result
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
		t.Fatal(err)
	}
	if !got.Ready || got.Prefill != 1 || got.Decode != 2 || got.Model != "dynctl-tiny" || !strings.HasPrefix(got.URL, "http://127.0.0.1:") || len(got.Workers) != 3 {
		t.Errorf("got %s", r.stdout)
	}
	if r := w.ok("up", "-q"); r.stdout != "worker-1\nworker-2\nworker-3\n" || r.stderr != "" {
		t.Errorf("-q: %+v", r)
	}
	clitest.Has(t, "dry run", w.ok("up", "--dry-run", "--decode", "1").stdout, "would change 1 prefill + 2 decode workers to 1 prefill + 1 decode worker, model dynctl-tiny (built-in)\n")
	clitest.Has(t, "dry run of nothing", w.ok("up", "--dry-run").stdout, "would change nothing: 1 prefill + 2 decode workers")
	r = w.run("up", "--served-model-name", "it's")
	if r.code != exit.Usage {
		t.Errorf("exit %d", r.code)
	}
	clitest.Has(t, "another name", r.stderr, "dynctl: cannot serve it's in cluster lab: needs --yes when not interactive\n  Replace the model dynctl-tiny by it's, worker by worker? Requests that name dynctl-tiny will fail.\n")
	// The formats of the model can change while it is served.
	w.ok("up", "--tool-parser", "hermes", "--reasoning-parser", "none", "-o", "json")
	w.ok("up", "--tool-parser", "pythonic", "-o", "json")
	if topo := w.topology(); topo.Model.ToolParser != "pythonic" || topo.Model.ReasoningParser != "none" || topo.Decode != 2 {
		t.Errorf("topology %+v", topo)
	}
	// So can the type of its weights.
	r = w.ok("up", "--quantize", "q8_0")
	clitest.Has(t, "quantized", r.stderr, "model dynctl-tiny as q8_0\n")
	if topo := w.topology(); topo.Model.Quantize != "q8_0" || topo.Model.ToolParser != "pythonic" {
		t.Errorf("topology %+v", topo)
	}
	clitest.Has(t, "ps", w.ok("ps", "-o", "wide").stdout, "\tWEIGHTS\t", "\tdynctl-tiny\tq8_0\t", "\tTP\tSERVES\n", "\t1\t-\n")
	clitest.Has(t, "JSON", w.ok("ps", "-o", "json").stdout, `"weights": "q8_0"`)
	clitest.Has(t, "dry run", w.ok("up", "--dry-run").stdout, "would change nothing", "(built-in) as q8_0\n")
	w.ok("up", "--quantize", "none", "-o", "json")
	if topo := w.topology(); topo.Model.Quantize != "" {
		t.Errorf("topology %+v", topo)
	}
	clitest.Eventually(t, "the workers of before have left", func() bool { return strings.Count(w.ok("ps", "-q").stdout, "\n") == 3 })
	// Down takes the workers away; the agent was not started here and stays.
	r = w.ok("down")
	clitest.Has(t, "down", r.stdout, "cluster lab has no workers: stopped 3 workers in ")
	clitest.Has(t, "down", r.stderr, "agents that were not started here go on without workers: node-1 on ")
	if r := w.ok("down"); !strings.Contains(r.stdout, "nothing of cluster lab runs on this machine") {
		t.Errorf("again: %+v", r)
	}
}

func TestUpTimesOut(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Fail: map[string]string{"worker-1": "no"}, Backoff: 1 << 40})
	r := w.run("up", "--prefill", "0", "--timeout", "2s")
	if r.code != exit.Deadline {
		t.Errorf("exit %d", r.code)
	}
	clitest.Has(t, "stderr", r.stderr, "dynctl: cluster lab is not ready after 2.0s: it waits for 1 decode worker\n  cluster lab goes on starting\n  try: dynctl ps\n")
}

func TestUpWithoutAFrontend(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Port: -1})
	r := w.ok("up")
	if r.stdout != "" {
		t.Errorf("stdout %q", r.stdout)
	}
	clitest.Has(t, "stderr", r.stderr, "no node of this cluster has a frontend")
}
