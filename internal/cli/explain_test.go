package cli

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// somePaths are what worker-1 (prefill) and worker-2 (decode) tell of each other.
func somePaths(change func(*cluster.Path)) map[string][]cluster.Path {
	there := cluster.Path{
		From: "worker-1", To: "worker-2", Transport: "tcp",
		Candidates: []cluster.PathCandidate{
			{Transport: "local", Verdict: "unsupported", Reason: "peer is in another process"},
			{Transport: "shm", Verdict: cluster.PathUnreachable, Reason: `region "kv" of the peer is private to its process`},
			{Transport: "tcp", Verdict: cluster.PathChosen, Reason: "another process of this host at 127.0.0.1:9"},
		},
		Test: &cluster.PathTest{At: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Transport: "tcp", WriteGBps: 3.14, ReadGBps: 2.5, RTTMicros: 81.4},
	}
	if change != nil {
		change(&there)
	}
	return map[string][]cluster.Path{
		"worker-1": {there},
		"worker-2": {{From: "worker-2", To: "worker-1", Inbound: "tcp", Failed: "worker-1 offers no memory"}},
	}
}

func TestExplainPath(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Paths: somePaths(nil)})
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
	var x explainedPaths
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
	if r := w.run("explain", "path", "worker-1", "worker-9"); r.code != exitFailed || !strings.Contains(r.stderr, "no worker worker-9 in cluster") {
		t.Errorf("unknown worker: %+v", r)
	}
	for _, args := range [][]string{{"worker-1"}, {"worker-1", "worker-1"}, {"worker-1", "worker-2", "--timeout", "0"}} {
		if r := w.run(append([]string{"explain", "path"}, args...)...); r.code != exitUsage {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := w.run("explain", "everything"); r.code != exitUsage {
		t.Errorf("explain everything: %+v", r)
	}
}

// TestExplainBrokenPath prints a path that failed its test, and fails.
func TestExplainBrokenPath(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Paths: somePaths(func(p *cluster.Path) { p.Test.Error = "bytes differ" })})
	w.up(1, 1)
	r := w.run("explain", "path", "worker-1", "worker-2")
	if r.code != exitFailed || !strings.Contains(r.stdout, "\tchosen\t-\t-\t-\tself-test: bytes differ\n") {
		t.Errorf("%+v", r)
	}
}

// TestExplainSilentWorkers says so when nobody tells.
func TestExplainSilentWorkers(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	w.up(1, 1)
	r := w.run("explain", "path", "worker-1", "worker-2")
	if r.code != exitFailed || !strings.Contains(r.stderr, "worker-1 does not tell its paths") {
		t.Errorf("%+v", r)
	}
}

func TestDoctorsPaths(t *testing.T) {
	fine := func(p *cluster.Path) { p.Candidates = p.Candidates[2:] }
	gone := func(p *cluster.Path) { p.Failed = "gone" }
	faster := func(p *cluster.Path) {
		fine(p)
		p.To, p.Test.WriteGBps, p.Test.ReadGBps = "worker-3", 7, 8
	}
	for _, c := range []struct {
		name          string
		measured      client.Measured
		status, found string
	}{
		{"none", client.Measured{}, checkSkip, "no two workers exchange KV blocks"},
		{"fine", client.Measured{Paths: somePaths(fine)["worker-1"], Left: 3}, checkOK, "1 path: 1 over tcp; 2.5 GB/s to 2.5 GB/s, the slowest worker-1 to worker-2; 3 more not tested"},
		{"two", client.Measured{Paths: slices.Concat(somePaths(fine)["worker-1"], somePaths(faster)["worker-1"])}, checkOK, "2 paths: 2 over tcp; 2.5 GB/s to 7.0 GB/s, the slowest worker-1 to worker-2"},
		{"second best", client.Measured{Paths: somePaths(nil)["worker-1"]}, checkWarn, `worker-1 to worker-2 over tcp and not shm: region "kv"`},
		{"broken", client.Measured{Paths: slices.Concat(somePaths(gone)["worker-1"], somePaths(gone)["worker-2"])}, checkFail, "worker-1 to worker-2: gone; and 1 more"},
		{"silent", client.Measured{Failed: []error{errors.New("no answer")}}, checkFail, "no answer"},
	} {
		if f := pathsFinding(c.measured); f.Status != c.status || !strings.HasPrefix(f.Found, c.found) {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}
