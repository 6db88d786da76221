package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/client"
)

func TestCacheClear(t *testing.T) {
	w := newWorld(t)
	if r := w.run("cache", "clear", "--yes"); r.code != exit.Failed || !strings.Contains(r.stderr, "no workers in cluster lab") {
		t.Errorf("no worker: %+v", r)
	}
	w.agent(fakeConfig{Caches: map[string]int{"worker-1": 40, "worker-2": 0, "worker-3": -1}})
	w.up(1, 3)
	if r := w.run("cache", "clear"); r.code != exit.Usage || !strings.Contains(r.stderr, "needs --yes when not interactive") || !strings.Contains(r.stderr, "all workers") {
		t.Errorf("unasked: %+v", r)
	}
	if r := w.ok("cache", "clear", "worker-1", "worker-2", "--yes"); r.stdout != "WORKER\tBLOCKS\tRESULT\nworker-1\t40\tcleared\nworker-2\t0\tcleared\n" {
		t.Errorf("two: %q", r.stdout)
	}
	r := w.run("cache", "clear", "-y", "-o", "json")
	var done []client.ClearedCache
	if err := json.Unmarshal([]byte(r.stdout), &done); err != nil || r.code != exit.Partly || len(done) != 3 || done[0].Blocks != 40 || done[0].InstanceID == 0 || !strings.Contains(done[2].Error, "the engine failed") {
		t.Errorf("all: %+v %v", r, err)
	}
	r = w.run("cache", "clear", "-y", "worker-4", "worker-3")
	if lines := strings.Split(r.stdout, "\n"); r.code != exit.Failed || len(lines) != 4 || !slices.Contains(lines, "worker-4\t-\tis not up, and has no cache") {
		t.Errorf("failing: %+v", r)
	}
	if r := w.run("cache", "clear", "-y", "worker-9"); r.code != exit.Failed || !strings.Contains(r.stderr, "live workers: worker-1") {
		t.Errorf("unknown: %+v", r)
	}
	if r := w.ok("cache", "clear", "-y", "-q", "worker-1"); r.stdout != "worker-1\n" {
		t.Errorf("-q: %q", r.stdout)
	}
}
