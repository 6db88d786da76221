package cli

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cluster"
)

// What no node can carry out is refused before it is declared, by name.
func TestUpRefusesTheImpossible(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(1, 1)
	before := w.topology()
	r := w.run("up", "--device", "gpu:9")
	if r.code != exit.Failed || !w.topology().Equal(before) {
		t.Errorf("exit %d, generation %d after %d", r.code, w.topology().Generation, before.Generation)
	}
	clitest.Has(t, "stderr", r.stderr, "dynctl: cannot declare the topology: it cannot be carried out\n  prefill workers: no node has a device gpu:9\n  decode workers: no node has a device gpu:9\n  nothing was changed\n")
	clitest.Has(t, "dry run", w.ok("up", "--device", "gpu:9", "--dry-run").stdout, "impossible: decode workers: no node has a device gpu:9\n")
}

// Encode workers are declared only for a model that sees images, where dynctl knows the
// model. Without --model, the built-in one that sees takes the place of the one that does not.
func TestUpRefusesEncodeWithoutImages(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(1, 1)
	before := w.topology()
	r := w.run("up", "--encode", "1", "--model", cluster.BuiltinModelName)
	if r.code != exit.Usage || !w.topology().Equal(before) || !strings.Contains(r.stderr, cluster.BuiltinModelName+" sees no images; --model "+cluster.BuiltinVisionName+" does") {
		t.Errorf("exit %d, generation %d after %d, %s", r.code, w.topology().Generation, before.Generation, r.stderr)
	}
	w.ok("up", "--encode", "1")
	if got := w.topology(); got.Model.Name != cluster.BuiltinVisionName || got.Encode != 1 {
		t.Errorf("%+v", got)
	}
	if r := w.run("up", "--prefill", "0", "--decode", "0", "--encode", "1"); r.code != exit.Usage || !strings.Contains(r.stderr, "--decode: encode workers need at least one decode worker") {
		t.Errorf("alone: %+v", r)
	}
}

// up says what it changes, before it does, and how that is taken back when it fails: what
// serves is named.
func TestUpSaysWhatItChanges(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Fail: map[string]string{"worker-2": "disk on fire"}})
	w.up(0, 1)
	r := w.run("up", "--max-num-seqs", "7")
	if r.code != exit.Failed {
		t.Errorf("exit %d", r.code)
	}
	clitest.Has(t, "stderr", r.stderr, "changes from 1 decode worker to 1 decode worker, generation 1 to 2:\n+ engine.max_num_seqs  7\n1 decode worker restarts\n",
		"dynctl: worker-2 did not start: disk on fire\n  worker-1 still serves, unchanged\n", "\n  try: dynctl rollback\n")
	if st := w.ok("get", "topology"); !strings.Contains(st.stderr, "worker-2 failed: disk on fire") {
		t.Errorf("get topology says %q", st.stderr)
	}
	w.ok("rollback", "--yes")
	if got := w.topology(); got.Engine != (cluster.EngineSpec{}) {
		t.Errorf("after the rollback: %+v", got.Engine)
	}
	if r := w.ok("up"); strings.Contains(r.stderr, "changes from") {
		t.Errorf("nothing changes, and up says %q", r.stderr)
	}
}
