package cli

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cluster"
)

func TestDryRunOfOrders(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 2})
	w.up(0, 2)
	desire := func() cluster.Desire {
		t.Helper()
		kv, err := w.store.Get(t.Context(), cluster.AssignmentKey(w.ns, "worker-1"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(kv.Value), `"desire":"drain"`) {
			return cluster.DesireDrain
		}
		return cluster.DesireRun
	}
	if r := w.ok("drain", "worker-1", "--dry-run", "--read-only"); r.stdout != "would drain worker-1: ready, 2 sequences to finish or hand over\n" || desire() != cluster.DesireRun {
		t.Errorf("drain: %+v, asked to %s", r, desire())
	}
	if r := w.ok("resume", "worker-1", "--dry-run"); r.stdout != "would leave worker-1 as it is: ready\n" {
		t.Errorf("resume of one that runs: %+v", r)
	}
	r := w.run("drain", "worker-2", "worker-9", "--dry-run")
	if r.code != exit.Partly || r.stdout != "would drain worker-2: ready, 2 sequences to finish or hand over\n" || !strings.Contains(r.stderr, "cannot drain worker-9: no such worker") {
		t.Errorf("one of two: %+v", r)
	}
	if r := w.run("drain", "worker-9", "--dry-run"); r.code != exit.Failed || r.stdout != "" {
		t.Errorf("nobody: %+v", r)
	}
	w.ok("drain", "worker-1")
	if r := w.ok("resume", "worker-1", "--dry-run", "-o", "json"); !strings.Contains(r.stdout, `"plan": "would start worker-1 again: drained"`) || desire() != cluster.DesireDrain {
		t.Errorf("resume: %+v, asked to %s", r, desire())
	}
	if r := w.ok("resume", "node/node-1", "--dry-run"); r.stdout != "would leave node-1 as it is: ready\n" {
		t.Errorf("%+v", r)
	}
	if r := w.ok("drain", "node/node-1", "--dry-run"); !strings.HasPrefix(r.stdout, "would drain node-1: 2 workers (worker-1, worker-2) would leave, ") {
		t.Errorf("%+v", r)
	}
	if r := w.run("drain", "node/node-9", "--dry-run"); r.code != exit.Failed || !strings.Contains(r.stderr, "cannot drain node/node-9: ") {
		t.Errorf("%+v", r)
	}
	if r := w.ok("drain", "worker-1", "--dry-run"); r.stdout != "would leave worker-1 as it is: drained\n" {
		t.Errorf("drain of one that is drained: %+v", r)
	}
}
