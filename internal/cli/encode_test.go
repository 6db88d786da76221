package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// Encode workers are scaled, listed, explained, drained, restarted, rolled back and ended as
// the others are.
func TestEncodeWorkers(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 2})
	w.ok("up", "--prefill", "1", "--decode", "1", "--model", cluster.BuiltinVisionName)
	r := w.ok("scale", "--encode", "2", "--dry-run")
	clitest.Has(t, "dry run", r.stdout+r.stderr, "would change lab from 1 prefill + 1 decode worker to 1 prefill + 1 decode + 2 encode workers\n")
	var scaled struct{ Prefill, Decode, Encode int }
	if r := w.ok("scale", "--encode", "2", "-o", "json"); json.Unmarshal([]byte(r.stdout), &scaled) != nil || scaled.Prefill != 1 || scaled.Decode != 1 || scaled.Encode != 2 {
		t.Errorf("scale: %s", r.stdout)
	}
	if r := w.run("scale", "--encode", "-1"); r.code != exit.Usage {
		t.Errorf("a negative number: %+v", r)
	}
	// Figures that they do not have are absent.
	clitest.Has(t, "ps", w.ok("ps").stdout, "worker-3\tencode\tcpu0 2c\tready\t2\t-\tnode-1", "worker-2\tdecode\tcpu0 2c\tready\t2\t34/4096\tnode-1")
	clitest.Has(t, "get topology", w.ok("get", "topology").stdout, "\tPREFILL\tDECODE\tENCODE\t", "\t1/1\t1/1\t2/2\t")
	clitest.Has(t, "get namespaces", w.ok("get", "namespaces").stdout, "\t1\t1\t2\t4/4\t")
	clitest.Has(t, "explain", w.ok("explain", "worker", "worker-3").stdout, "the vision tower is loaded", "2 images in work, 0 waiting")
	clitest.Has(t, "file", w.ok("get", "topology", "-o", "yaml").stdout, "encode:\n  workers: 2\n")
	if r := w.ok("get", "queues"); strings.Contains(r.stdout, "worker-3") || !strings.Contains(r.stdout, "worker-2") {
		t.Errorf("queues:\n%s", r.stdout)
	}

	for args, want := range map[string]string{
		"worker-2 role=encode": "role: encode workers have only the vision tower: no worker can become one",
		"worker-3 role=decode": "its role cannot change now: from encode to decode: an encode worker has only the vision tower",
	} {
		for _, dry := range [][]string{nil, {"--dry-run"}} {
			r := w.run(append(append([]string{"set"}, strings.Fields(args)...), dry...)...)
			if r.code == exit.OK || !strings.Contains(r.stderr, want) || !strings.Contains(r.stderr, "try: dynctl scale --encode N") {
				t.Errorf("set %s: exit %d, %s", args, r.code, r.stderr)
			}
		}
	}

	w.ok("drain", "worker-4")
	clitest.Has(t, "drained", w.ok("ps").stdout, "worker-4\tencode\tcpu0 2c\tdrained\t-\t-\t")
	w.ok("resume", "worker-4")
	w.ok("restart", "worker-3")
	w.ok("restart", "--rolling")

	w.ok("scale", "--encode", "0")
	clitest.Has(t, "history", w.ok("rollback", "--list").stdout, "\tPREFILL\tDECODE\tENCODE\tMODEL", "\t1\t1\t0\t", "\t1\t1\t2\t")
	clitest.Has(t, "rollback", w.ok("rollback", "--yes").stdout, "1 prefill + 1 decode + 2 encode workers")
	if topo := w.topology(); topo.Encode != 2 {
		t.Errorf("rolled back: %+v", topo)
	}
	w.ok("down")
	if topo := w.topology(); topo.Workers() != 0 {
		t.Errorf("after down: %+v", topo)
	}
}

// A node that declines an encode worker says why on screen.
func TestEncodeWorkerThatANodeDeclines(t *testing.T) {
	const why = "load model: model /m has no vision tower: only models that see images have encode workers"
	w := newWorld(t)
	w.agent(fakeConfig{Fail: map[string]string{"worker-3": why}})
	w.ok("up", "--prefill", "1", "--decode", "1", "--model", cluster.BuiltinVisionName)
	r := w.run("scale", "--encode", "1")
	if r.code != exit.Failed {
		t.Errorf("exit %d", r.code)
	}
	clitest.Has(t, "stderr", r.stderr, "worker-3 did not start: "+why)
	clitest.Has(t, "get topology", w.ok("get", "topology").stderr, "worker-3 failed: "+why)
	if topo := w.topology(); topo.Encode != 1 || topo.Count(cluster.RoleDecode) != 1 {
		t.Errorf("%+v", topo)
	}
}

// Encode workers of a model that sees no images are refused before anything is declared: of the
// built-in one by its name, of another one by the cards of the workers that serve it.
func TestEncodeWorkersOfAModelWithoutSight(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(1, 1)
	before := w.topology()
	for _, args := range [][]string{{"scale", "--encode", "2"}, {"scale", "--encode", "2", "--dry-run"}} {
		r := w.run(args...)
		if r.code != exit.Usage || !strings.Contains(r.stderr, "--encode: the built-in model dynctl-tiny sees no images: dynctl up --encode 2 changes it to dynctl-tiny-vision") {
			t.Errorf("%q: exit %d, %s", args, r.code, r.stderr)
		}
	}
	if !w.topology().Equal(before) {
		t.Errorf("it declared %+v", w.topology())
	}

	const dir = "/models/on-the-nodes"
	file := filepath.Join(t.TempDir(), "topology.yaml")
	if err := os.WriteFile(file, []byte("model: {name: m, path: "+dir+"}\ndecode: {workers: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ok("up", "-f", file, "--yes")
	var serving cluster.WorkerStatus
	for _, name := range strings.Fields(w.ok("ps", "-o", "name").stdout) {
		if st, _, err := store.GetJSON[cluster.WorkerStatus](t.Context(), w.store, cluster.StatusKey(w.ns, name)); err == nil && st.State.Serving() {
			serving = st
		}
	}
	card := func(images *cluster.ImageCard) {
		if _, err := store.PutJSON(t.Context(), w.store, cluster.CardKey(w.ns, "decode", "generate", serving.InstanceID), cluster.ModelCard{Images: images}); err != nil {
			t.Fatal(err)
		}
	}
	card(nil)
	why := "takes no images, as " + serving.Name + " serves it"
	for _, args := range [][]string{{"scale", "--encode", "1"}, {"scale", "--encode", "1", "--dry-run"}, {"up", "--encode", "1"}} {
		if r := w.run(args...); r.code != exit.Failed || !strings.Contains(r.stderr, why) {
			t.Errorf("%q: exit %d, %s%s", args, r.code, r.stdout, r.stderr)
		}
	}
	clitest.Has(t, "plan", w.ok("up", "--encode", "1", "--dry-run").stdout, "impossible: encode workers: the model", why)
	if err := os.WriteFile(file, []byte("model: {name: m, path: "+dir+"}\ndecode: {workers: 1}\nencode: {workers: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	clitest.Has(t, "diff", w.run("diff", "-f", file).stdout, "impossible: encode workers: the model", why)
	if topo := w.topology(); topo.Encode != 0 || topo.Model.Path != dir {
		t.Errorf("it declared %+v", topo)
	}
	card(&cluster.ImageCard{})
	w.ok("scale", "--encode", "1")
}
