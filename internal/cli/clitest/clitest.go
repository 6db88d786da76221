package clitest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Update is the flag -update: golden files are written, and not compared.
var Update = flag.Bool("update", false, "write golden files")

// Golden compares got with a golden file below testdata.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *Update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got\n%s\nwant\n%s", path, got, want)
	}
}

// Noon is a time for tests.
var Noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// Draw shows a screen on a terminal of 100x30, 21 seconds after its beginning.
func Draw(s progress.Screen) string {
	var b bytes.Buffer
	now := Noon
	d := progress.New(progress.Options{
		Mode: "tty", Now: func() time.Time { return now },
		Streams: term.Streams{Err: &b, Measure: func() (int, int) { return 100, 30 }},
	})
	now = Noon.Add(21 * time.Second)
	d.Show(s)
	d.Close()
	return strings.ReplaceAll(b.String(), "\r\x1b[2K", "")
}

// Nodes are two nodes of this machine, the second with a GPU.
func Nodes() []cluster.Node {
	host, _ := os.Hostname()
	return []cluster.Node{
		{ID: "n1", Name: "node-1", Host: host, PID: 11, Devices: []cluster.Device{{ID: "cpu:0", Cores: 8}}, Roles: []cluster.Role{cluster.RoleDecode}, FrontendURL: "http://127.0.0.1:8000"},
		{ID: "n2", Name: "node-2", Host: host, PID: 12, Devices: []cluster.Device{{ID: "gpu:0", Name: "NVIDIA H200"}}, Roles: []cluster.Role{cluster.RolePrefill}},
	}
}

// Eventually waits for a condition.
func Eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// Matches fails unless text matches a pattern.
func Matches(t *testing.T, what, text, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).MatchString(text) {
		t.Errorf("%s does not match %q:\n%s", what, pattern, text)
	}
}

// Has fails unless text holds every wanted piece.
func Has(t *testing.T, what, text string, want ...string) {
	t.Helper()
	for _, s := range want {
		if !strings.Contains(text, s) {
			t.Errorf("%s lacks %q:\n%s", what, s, text)
		}
	}
}

// GPU is the GPU of an index, with all its figures.
func GPU(index int) cluster.GPU {
	return cluster.GPU{
		Index: index, Name: "NVIDIA H200", MemoryBytes: new(int64(141 << 30)), MemoryUsed: new(int64(21 << 30)), Utilization: new(0.5 + 0.25*float64(index)),
		PowerWatts: new(412.5), Temperature: new(61), SMClockMHz: new(1305), Throttled: []string{"power cap"}, Processes: []cluster.GPUProcess{{PID: 4711}, {PID: 12}},
	}
}

// Paths returns the paths that worker-1 (prefill) and worker-2 (decode) report to each other.
func Paths(change func(*cluster.Path)) map[string][]cluster.Path {
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
