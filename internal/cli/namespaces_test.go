package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
)

// Deployments side by side: each has nodes of its own, and leaves alone.
func TestNamespacesSideBySide(t *testing.T) {
	m := newMachine(t)
	ok := func(args ...string) result {
		t.Helper()
		r := m.run(args...)
		if r.code != exit.OK {
			t.Fatalf("dynctl %s: exit %d\n%s", strings.Join(args, " "), r.code, r.stderr)
		}
		return r
	}
	file := filepath.Join(t.TempDir(), "west.yaml")
	if err := os.WriteFile(file, []byte("namespace: west\ndecode: 2\nprefill: 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ok("up", "--prefill", "0", "--port", "0", "--timeout", "1m")
	clitest.Has(t, "plan", ok("up", "-f", file, "--dry-run", "--agents", "2").stdout,
		"would start west-node-1: ", "--namespace=west ", "--node-name=west-node-1", "--frontend-port=0", "would start west-node-2: ", "--frontend-enabled=false", "would declare 2 decode workers")
	r := ok("up", "-f", file, "--timeout", "1m", "-o", "name")
	if r.stdout != "worker-1\nworker-2\n" {
		t.Errorf("workers of west: %q", r.stdout)
	}
	if names := m.names(); names != "node-1 west-node-1" {
		t.Fatalf("running: %s", names)
	}
	for args, want := range map[string]string{"": "worker-1\n", "west": "worker-1\nworker-2\n", "dynamo": "worker-1\n", "empty": ""} {
		line := []string{"ps", "-q"}
		if args != "" {
			line = append(line, "-n", args)
		}
		if got := ok(line...).stdout; got != want {
			t.Errorf("%v prints %q, want %q", line, got, want)
		}
	}
	list := ok("get", "namespaces").stdout
	clitest.Has(t, "namespaces", list, "\ndynamo\tdynctl-tiny\t0\t1\t0\t1/1\t1\thttp://127.0.0.1:", "\nwest\tdynctl-tiny\t0\t2\t0\t2/2\t1\thttp://127.0.0.1:")
	clitest.Has(t, "saved", ok("get", "topology", "-n", "west", "-o", "yaml").stdout, "\nnamespace: west\n", "workers: 2\n")
	if r := m.run("diff", "-f", file); r.code != exit.OK {
		t.Errorf("diff: %+v", r)
	}
	clitest.Has(t, "completion", ok("__complete", "ps", "-n", "").stdout, "west\t2 decode workers dynctl-tiny")

	// Devices that are nowhere are told soon, and take nobody's place away.
	if r := m.run("up", "-n", "west", "--device", "gpu", "--timeout", "60s"); r.code != exit.Failed || !strings.Contains(r.stderr, "decode workers: no node has a device gpu\n  nothing was changed") {
		t.Errorf("%+v", r)
	}
	if got := ok("get", "namespaces", "west").stdout; !strings.Contains(got, "\t2/2\t") {
		t.Errorf("after that: %s", got)
	}

	// The one of the stores does not leave alone.
	if r := m.run("down", "-n", "dynamo"); r.code != exit.Usage || !strings.Contains(r.stderr, "namespace dynamo shares its store and NATS with other namespaces: west") {
		t.Errorf("%+v", r)
	}
	r = ok("down", "-n", "west")
	clitest.Has(t, "down", r.stdout, "namespace west of cluster lab is down: stopped 2 workers and 1 dynamod process")
	if names := m.names(); names != "node-1" {
		t.Fatalf("running: %s", names)
	}
	if got := ok("down", "-n", "west").stdout; got != "nothing runs in namespace west\n" {
		t.Errorf("again: %q", got)
	}
	if got := ok("ps", "-q").stdout; got != "worker-1\n" {
		t.Errorf("the other one has %q", got)
	}
	// down without a namespace takes all.
	ok("up", "-f", file, "--timeout", "1m", "--agents", "2")
	r = m.with(t.Context(), options{tty: true, input: "yes\n"}, "down")
	if r.code != exit.Failed || !strings.Contains(r.stderr, "Stop all of cluster lab? Namespaces dynamo, west, 3 dynamod processes. Type lab to go on: dynctl: cannot stop the cluster: not confirmed") {
		t.Errorf("not named: %+v", r)
	}
	if r := m.run("down", "--deadline", "0"); r.code != exit.Usage || !strings.Contains(r.stderr, "needs --yes when not interactive\n  Stop all of cluster lab?") {
		t.Errorf("nobody to ask: %+v", r)
	}
	if r = m.with(t.Context(), options{tty: true, input: "lab\n"}, "down"); r.code != 0 {
		t.Errorf("named: %+v", r)
	}
	clitest.Has(t, "down", r.stdout, "cluster lab is down: stopped 3 workers and 3 dynamod processes")
	if names := m.names(); names != "" {
		t.Errorf("running: %s", names)
	}
}

// names are the nodes that run.
func (m *machine) names() string {
	m.t.Helper()
	var names []string
	for _, r := range m.running() {
		names = append(names, r.Node.Name)
	}
	return strings.Join(names, " ")
}
