package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/explain"
)

func TestExplainFromTheCluster(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 1})
	w.up(0, 1)
	for _, args := range [][]string{{"worker", "worker-1"}, {"lease", "worker-1"}, {"lease", "node-1"}, {"node", "node-1"}} {
		r := w.ok("explain", args[0], args[1])
		clitest.Has(t, args[0], r.stdout, args[0]+"\t"+args[1]+"\nstate\t", "\nwhy\t", "\nsince\t20", "\nnext\t")
		var x explain.Explanation
		if err := json.Unmarshal([]byte(w.ok("explain", args[0], args[1], "-o", "json").stdout), &x); err != nil {
			t.Fatal(err)
		}
		if x.Kind != args[0] || x.Name != args[1] || x.Why == "" || x.Since == nil || x.Try == nil {
			t.Errorf("%v: %+v", args, x)
		}
		if args[0] == "lease" && (x.Lease == nil || x.Lease.Lease == nil || len(x.Lease.Endpoints) == 0) {
			t.Errorf("%v: %+v", args, x.Lease)
		}
		if r := w.run("explain", args[0], "worker-9"); r.code != exit.Failed || !strings.Contains(r.stderr, "worker-9") {
			t.Errorf("unknown: %+v", r)
		}
		if r := w.run("explain", args[0]); r.code != exit.Usage {
			t.Errorf("nobody: %+v", r)
		}
		if r := w.ok("explain", args[0], args[1], "-q"); r.stdout != args[1]+"\n" {
			t.Errorf("-q: %q", r.stdout)
		}
	}
	r := w.with(t.Context(), options{tty: true}, "explain", "worker", "worker-1")
	clitest.Has(t, "terminal", r.stdout, "\x1b[32m● ready\x1b[0m\n", "s ago)\n")
	if r := w.ok("__complete", "explain", "node", ""); !strings.HasPrefix(r.stdout, "node-1\t") {
		t.Errorf("completion: %q", r.stdout)
	}
	if r := w.ok("__complete", "explain", "lease", ""); !strings.HasPrefix(r.stdout, "worker-1\tdecode ready\nnode-1\t") {
		t.Errorf("completion: %q", r.stdout)
	}
	if r := w.ok("__complete", "explain", "lease", "worker-1", ""); strings.Contains(r.stdout, "node-1") {
		t.Errorf("completion of a second name: %q", r.stdout)
	}
}
