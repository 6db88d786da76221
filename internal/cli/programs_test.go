package cli

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/runtime"
)

// Services and programs are listed beside the workers: who they are, what they serve, since
// when, and whether they work.
func TestPsListsPrograms(t *testing.T) {
	w := newWorld(t)
	a := w.agent(fakeConfig{})
	join := func(p cluster.Program, endpoint string) (*runtime.DistributedRuntime, *runtime.Introduced) {
		d := w.offer(a, w.ns, p.Name, endpoint, mirror(p.Name))
		known, err := d.Introduce(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		return d, known
	}
	service, known := join(cluster.Program{Name: "attached-1a2b", Kind: cluster.ProgramService, Node: a.node.ID, URL: "http://127.0.0.1:9/x", Model: "echo"}, "generate")
	program, _ := join(cluster.Program{Name: "hello-42", Kind: cluster.ProgramOwn, Host: "box-7", PID: 42}, "hello")
	var list []struct {
		cluster.Worker
		Program *cluster.Program
		Serves  []string
	}
	look := func() []string {
		t.Helper()
		if err := json.Unmarshal([]byte(w.ok("ps", "-o", "json").stdout), &list); err != nil {
			t.Fatal(err)
		}
		return strings.Split(w.ok("ps").stdout, "\n")
	}
	rows := look()
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	at := func(i int) string { return list[i].StartedAt.UTC().Format(time.RFC3339) }
	if want := "attached-1a2b\tservice\t-\tready\t-\t-\tnode-1\t" + at(0); rows[1] != want {
		t.Errorf("%q, want %q", rows[1], want)
	}
	if want := "hello-42\tprogram\t-\tready\t-\t-\tbox-7\t" + at(1); rows[2] != want {
		t.Errorf("%q, want %q", rows[2], want)
	}
	name := "dyn://" + w.ns + ".backend."
	if s := list[0]; s.Program == nil || s.Program.URL != "http://127.0.0.1:9/x" || s.InstanceID != service.ID() || len(s.Serves) != 1 || s.Serves[0] != name+"generate" || time.Since(s.StartedAt) > time.Minute {
		t.Errorf("JSON: %+v", s)
	}
	clitest.Has(t, "wide", w.ok("ps", "-o", "wide").stdout, "\tSERVES\n", "\techo\t", service.ID().String(), "\t"+name+"generate\n", "\t"+name+"hello\n")
	clitest.Has(t, "YAML", w.ok("ps", "-o", "yaml").stdout, "name: hello-42", "role: program", "- "+name+"hello")
	if names := w.ok("ps", "-q").stdout; names != "attached-1a2b\nhello-42\n" {
		t.Errorf("names %q", names)
	}
	if workers := w.ok("get", "workers", "-q").stdout; workers != "" {
		t.Errorf("workers %q", workers)
	}

	// What does not work says why.
	known.Say("connection refused")
	patience.Until(t, "the service is degraded", func() bool { look(); return list[0].State == cluster.StateDegraded })
	if r := w.ok("ps"); !strings.Contains(r.stdout, "attached-1a2b\tservice\t-\tdegraded\t") || !strings.Contains(r.stderr, "attached-1a2b degraded: connection refused") {
		t.Errorf("%+v", r)
	}
	known.Say("")
	patience.Until(t, "the service is ready", func() bool {
		look()
		return list[0].State == cluster.StateReady && list[0].Program.Since.After(list[0].StartedAt)
	})

	// They hold leases.
	clitest.Has(t, "leases", w.ok("get", "leases").stdout, "attached-1a2b\t"+service.ID().String(), "hello-42\t"+program.ID().String())
	clitest.Has(t, "completion", w.ok("__complete", "get", "leases", "").stdout, "attached-1a2b\tservice ready\n", "hello-42\tprogram ready\n")
	clitest.Has(t, "lease", w.ok("explain", "lease", "hello-42").stdout, "hello-42 renews it", "backend/hello")
	if err := program.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if names := w.ok("ps", "-q").stdout; names != "attached-1a2b\n" {
		t.Errorf("after its end: %q", names)
	}
}
