package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/topology"
	"github.com/dynctl/dynctl/internal/cli/up"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// file writes a topology file.
func (w *world) file(content string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "lab.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

const labFile = `
prefill: 1
decode:
  workers: 2
  engine: {max_num_seqs: 4}
disagg: {strategy: prefill-first}
`

// A file is declared once; applying it again changes nothing, and what was set beside it
// goes.
func TestUpWithAFile(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Devices: []string{"cpu:0", "cpu:1"}})
	file := w.file(labFile)
	if r := w.run("diff", "-f", file); r.code != exit.Failed || r.stderr != "" {
		t.Errorf("before: %+v", r)
	} else {
		clitest.Has(t, "diff", r.stdout, "+ model.name ", "+ decode.engine.max_num_seqs  4\n", "+ disagg.strategy ", "2 decode workers start\n")
	}
	r := w.ok("up", "-f", file, "--timeout", "20s")
	clitest.Has(t, "answer", r.stderr, "lab is ready after", "1 prefill + 2 decode workers")
	topo := w.topology()
	if topo.Decode != 2 || topo.DecodeSpec.Engine.MaxSeqs != 4 || topo.Model.Name != cluster.BuiltinModelName || !strings.HasPrefix(topo.Reason, "dynctl up --file ") {
		t.Errorf("declared %+v", topo)
	}
	clitest.Has(t, "settings", w.ok("set").stdout, "disagg.strategy\tprefill-first\t")
	if r := w.ok("diff", "-f", file); r.stdout != "nothing would change in lab\n" {
		t.Errorf("diff of the same: %+v", r)
	}
	r = w.ok("up", "-f", file, "--timeout", "20s")
	clitest.Has(t, "answer", r.stderr, "nothing changed: lab is as lab.yaml says: 1 prefill + 2 decode workers")
	if again := w.topology(); !again.Equal(topo) {
		t.Errorf("applied again: %+v", again)
	}

	saved := w.ok("get", "topology", "-o", "yaml").stdout
	clitest.Has(t, "saved", saved, "# cluster lab, generation 1, ", "\nnamespace: "+w.ns+"\n", "max_num_seqs: 4\n", "disagg:\n  strategy: prefill-first\n")
	if r := w.ok("diff", "-f", w.file(saved)); r.stdout != "nothing would change in lab\n" {
		t.Errorf("diff of what was saved: %+v", r)
	}

	w.ok("set", "router.policy=round-robin", "disagg.strategy=decode-first")
	w.ok("scale", "--decode", "3", "--timeout", "20s")
	r = w.run("diff", "-f", file, "-o", "json")
	var d topology.DiffResult
	if err := json.Unmarshal([]byte(r.stdout), &d); err != nil || r.code != exit.Failed || len(d.Changes) != 3 {
		t.Fatalf("%v %+v", err, r)
	}
	if d.Changes[0].Path != "decode.workers" || d.Changes[2].Path != "router.policy" || d.Changes[2].To != nil || d.Effects[0] != "1 decode worker drains and leaves" {
		t.Errorf("%+v", d)
	}
	clitest.Has(t, "dry run", w.ok("up", "-f", file, "--dry-run").stdout, "would change 1 prefill + 3 decode workers to 1 prefill + 2 decode workers", "~ decode.workers   3 → 2\n", "- router.policy    round-robin\n")
	r = w.ok("up", "-f", file, "--timeout", "20s", "--why", "back to the file", "-o", "json")
	var up up.Result
	if err := json.Unmarshal([]byte(r.stdout), &up); err != nil || !up.Changed || up.Generation != 3 || up.Decode != 2 {
		t.Errorf("%v %+v", err, up)
	}
	if s := w.ok("set").stdout; strings.Contains(s, "round-robin\t") || !strings.Contains(s, "disagg.strategy\tprefill-first\t") {
		t.Errorf("settings after the file:\n%s", s)
	}
	if why := w.topology().Reason; why != "back to the file" {
		t.Errorf("reason %q", why)
	}
}

// The command line can say what files do, and wins over them.
func TestUpWithFields(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Devices: []string{"cpu:0", "cpu:1"}})
	w.ok("up", "--timeout", "20s", "--placement", "pack", "--backend", "mock", "--device", "cpu:1", "--set", "decode.engine.max_num_seqs=3", "--set", "disagg.strategy=prefill-first")
	topo := w.topology()
	if topo.Placement != cluster.PlacementPack || topo.Engine.Backend != "mock" || topo.Engine.Device != "cpu:1" || topo.DecodeSpec.Engine.MaxSeqs != 3 {
		t.Errorf("declared %+v", topo)
	}
	if !strings.Contains(topo.Reason, "--set decode.engine.max_num_seqs=3 --set disagg.strategy=prefill-first") {
		t.Errorf("reason %q", topo.Reason)
	}
	clitest.Has(t, "settings", w.ok("set").stdout, "disagg.strategy\tprefill-first\t")
	file := w.file(labFile)
	w.ok("up", "-f", file, "--timeout", "20s", "--decode", "1", "--set", "disagg.strategy=", "--set", "prefill=0")
	topo = w.topology()
	if topo.Prefill != 0 || topo.Decode != 1 || topo.DecodeSpec.Engine.MaxSeqs != 4 || topo.Placement != "" {
		t.Errorf("declared %+v", topo)
	}
	if s := w.ok("set").stdout; strings.Contains(s, "disagg.strategy\tprefill-first\t") {
		t.Errorf("settings: %s", s)
	}
	for _, args := range [][]string{{"up", "--set", "decode.workers=many"}, {"up", "--backend", "rocm"}, {"up", "--placement", "dense"}, {"diff"}, {"diff", "-f", file, "--set", "x=1"}, {"up", "-f", ""}} {
		if r := w.run(args...); r.code != exit.Usage {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

// Whatever takes away the model asks first.
func TestUpWithAnotherModel(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(0, 1)
	file := w.file("decode: 1\nmodel: {name: other}")
	r := w.run("up", "-f", file, "--timeout", "20s")
	if r.code != exit.Usage || !strings.Contains(r.stderr, "needs --yes when not interactive") || !strings.Contains(r.stderr, "Replace the model dynctl-tiny by other, worker by worker?") {
		t.Errorf("%+v", r)
	}
	if w.topology().Model.Name != cluster.BuiltinModelName {
		t.Error("it was declared")
	}
	dir := modeltest.Generate(t, modeltest.Spec{Family: "llama", KVHeads: 2, Vocab: 600})
	for _, args := range [][]string{{"--model", dir}, {"--set", "model.name=other"}, {"--served-model-name", "other"}} {
		r := w.run(append([]string{"up", "--timeout", "20s"}, args...)...)
		if r.code != exit.Usage || !strings.Contains(r.stderr, "Replace the model dynctl-tiny by ") {
			t.Errorf("%v: %+v", args, r)
		}
		if second := strings.Contains(r.stderr, "dynctl up -c lab-2 --port 8001 --model "+dir); second != (args[0] == "--model") {
			t.Errorf("%v: advice: %s", args, r.stderr)
		}
	}
	if w.topology().Model.Name != cluster.BuiltinModelName {
		t.Error("it was declared")
	}
	w.ok("up", "-f", file, "--no-wait", "--dry-run")
	if r := w.run("up", "-f", file, "--yes", "--no-wait"); r.code != exit.Accepted || w.topology().Model.Name != "other" {
		t.Errorf("%+v", r)
	}
}

func TestRollback(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	if r := w.run("rollback"); r.code != exit.Failed || !strings.Contains(r.stderr, "nothing was ever declared") {
		t.Errorf("%+v", r)
	}
	w.up(0, 1)
	if r := w.run("rollback", "--yes"); r.code != exit.Failed || !strings.Contains(r.stderr, "no earlier generation differs") {
		t.Errorf("%+v", r)
	}
	w.ok("up", "--decode", "3", "--set", "disagg.strategy=prefill-first", "--timeout", "20s")
	w.ok("up", "--decode", "2", "--set", "disagg.strategy=", "--timeout", "20s")

	lines := strings.Split(strings.TrimSpace(w.ok("rollback", "--list", "-o", "wide").stdout), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[1], "now 3\t") || !strings.HasPrefix(lines[2], "2\t") || !strings.Contains(lines[2], "disagg.strategy=prefill-first") || !strings.Contains(lines[3], "dynctl up --prefill 0 --decode 1") {
		t.Errorf("list:\n%s", strings.Join(lines, "\n"))
	}
	var list []topology.Generation
	if err := json.Unmarshal([]byte(w.ok("rollback", "--list", "-o", "json", "--read-only").stdout), &list); err != nil || len(list) != 3 || !list[0].Present || list[1].Settings["disagg.strategy"] != "prefill-first" {
		t.Errorf("%v %+v", err, list)
	}
	if got := w.ok("rollback", "--list", "-q").stdout; got != "3\n2\n1\n" {
		t.Errorf("names %q", got)
	}

	clitest.Has(t, "dry run", w.ok("rollback", "--dry-run").stdout, "would go back to generation 2 of lab:", "~ decode.workers   2 → 3\n", "+ disagg.strategy  prefill-first\n", "1 decode worker starts\n")
	if r := w.run("rollback"); r.code != exit.Usage || !strings.Contains(r.stderr, "needs --yes when not interactive") {
		t.Errorf("%+v", r)
	}
	if r := w.run("rollback", "--to", "9", "--yes"); r.code != exit.Failed || !strings.Contains(r.stderr, "generation 9 is not kept\n  kept: 2, 1\n") {
		t.Errorf("%+v", r)
	}
	if r := w.run("rollback", "--list", "--to", "2"); r.code != exit.Usage {
		t.Errorf("%+v", r)
	}
	if r := w.run("rollback", "--yes", "--read-only"); r.code != exit.Failed || !strings.Contains(r.stderr, "read-only") {
		t.Errorf("%+v", r)
	}
	r := w.with(t.Context(), options{tty: true, input: "n\n"}, "rollback")
	if r.code != exit.Failed || !strings.Contains(r.stderr, "Declare generation 2 again in lab? It changes 2 fields. [y/N]") || w.topology().Generation != 3 {
		t.Errorf("%+v", r)
	}

	r = w.ok("rollback", "--yes", "--timeout", "20s", "--why", "too slow")
	clitest.Has(t, "answer", r.stdout, "lab is as in generation 2 after", "generation 4, 3 decode workers")
	if topo := w.topology(); topo.Decode != 3 || topo.Generation != 4 || topo.Reason != "too slow" {
		t.Errorf("declared %+v", topo)
	}
	clitest.Has(t, "settings", w.ok("set").stdout, "disagg.strategy\tprefill-first\t")
	// To and fro: the latest that differs is the one before.
	r = w.run("rollback", "--yes", "--no-wait", "-o", "json")
	var res topology.RollbackResult
	if err := json.Unmarshal([]byte(r.stdout), &res); err != nil || r.code != exit.Accepted || res.To != 3 || res.Generation != 5 || res.Converged {
		t.Errorf("%v %+v", err, r)
	}
	if got := w.ok("rollback", "--to", "5", "--yes").stdout; got != "nothing changes: lab already has generation 5.\n" {
		t.Errorf("to the present: %q", got)
	}
	clitest.Has(t, "completion", w.ok("__complete", "rollback", "--to", "").stdout, "4\t3 decode workers dynctl-tiny", "1\t1 decode worker dynctl-tiny")
}
