package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/explain"
	"github.com/dynctl/dynctl/internal/cluster"
)

func TestExplainPath(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Paths: clitest.Paths(nil)})
	w.up(1, 1)
	r := w.ok("explain", "path", "worker-1", "worker-2")
	want := "FROM\tTO\tTRANSPORT\tVERDICT\tWRITE\tREAD\tLATENCY\tWHY\n" +
		"worker-1\tworker-2\tlocal\tunsupported\t-\t-\t-\tpeer is in another process\n" +
		"worker-1\tworker-2\tshm\tunreachable\t-\t-\t-\tregion \"kv\" of the peer is private to its process\n" +
		"worker-1\tworker-2\ttcp\tchosen\t3.1 GB/s\t2.5 GB/s\t81 µs\tanother process of this host at 127.0.0.1:9\n" +
		"worker-2\tworker-1\t-\tnone\t-\t-\t-\tworker-1 offers no memory; worker-1 is connected to it over tcp\n"
	if r.stdout != want || r.stderr != "" {
		t.Errorf("table:\n%s%s", r.stdout, r.stderr)
	}
	var x explain.Paths
	if err := json.Unmarshal([]byte(w.ok("explain", "path", "worker-2", "worker-1", "-o", "json").stdout), &x); err != nil {
		t.Fatal(err)
	}
	if len(x.Paths) != 2 || x.Paths[0].From != "worker-2" || x.Paths[1].Test == nil || x.Paths[1].Test.WriteGBps != 3.14 {
		t.Errorf("JSON: %+v", x)
	}
	if r := w.ok("explain", "path", "worker-1", "worker-2", "-o", "yaml"); !strings.Contains(r.stdout, "verdict: unreachable\n") {
		t.Errorf("YAML: %s", r.stdout)
	}
	if r := w.ok("explain", "path", "worker-1", "worker-2", "-q"); r.stdout != "tcp\n" {
		t.Errorf("-q: %q", r.stdout)
	}
	if r := w.run("explain", "path", "worker-1", "worker-9"); r.code != exit.Failed || !strings.Contains(r.stderr, "no worker worker-9 in cluster") {
		t.Errorf("unknown worker: %+v", r)
	}
	for _, args := range [][]string{{"worker-1"}, {"worker-1", "worker-1"}, {"worker-1", "worker-2", "--timeout", "0"}} {
		if r := w.run(append([]string{"explain", "path"}, args...)...); r.code != exit.Usage {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := w.run("explain", "everything"); r.code != exit.Usage {
		t.Errorf("explain everything: %+v", r)
	}
}

// TestExplainBrokenPath prints a path that failed its test, and fails.
func TestExplainBrokenPath(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Paths: clitest.Paths(func(p *cluster.Path) { p.Test.Error = "bytes differ" })})
	w.up(1, 1)
	r := w.run("explain", "path", "worker-1", "worker-2")
	if r.code != exit.Failed || !strings.Contains(r.stdout, "\tchosen\t-\t-\t-\tself-test: bytes differ\n") {
		t.Errorf("%+v", r)
	}
}

// TestExplainSilentWorkers says so when nobody tells.
func TestExplainSilentWorkers(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(1, 1)
	r := w.run("explain", "path", "worker-1", "worker-2")
	if r.code != exit.Failed || !strings.Contains(r.stderr, "worker-1 does not report its paths") {
		t.Errorf("%+v", r)
	}
}
