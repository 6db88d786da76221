package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Instances that Dynamo registers in its own layouts are listed. They are called where their
// transport is one of ours, and the others say why not.
func TestForeignInstances(t *testing.T) {
	w := newWorld(t)
	a := w.agent(fakeConfig{})
	ns := w.ns + "-other"
	path := "2a/generate"
	remove, err := a.server.Handle(path, requestplane.Handler(mirror("foreign")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = remove(t.Context()) }()
	put := func(key, transport string, id cluster.InstanceID) {
		t.Helper()
		e, _, ok := cluster.ParseInstanceKey(key)
		if !ok {
			t.Fatal(key)
		}
		value := fmt.Sprintf(`{"namespace":%q,"component":%q,"endpoint":%q,"instance_id":%d,"transport":%s}`, e.Namespace, e.Component, e.Name, id, transport)
		if _, err := w.store.Put(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	put("v1/instances/"+ns+"/backend/generate/2a", fmt.Sprintf(`{"tcp":%q}`, a.server.Addr()), 0x2a)
	put("/services/"+ns+"/backend/load-2b", `{"nats_tcp":"backend.load-2b"}`, 0x2b)
	put("/services/"+ns+"/backend/load2/2c", `{"nats_tcp":"backend.load2-2c"}`, 0x2c)
	put("instances/"+ns+"/backend/generate/2a", `{"nats_tcp":"twice"}`, 0x2a)
	const head = "ENDPOINT\tINSTANCE\tTRANSPORT\tWORKER\tNODE\n"
	name := "dyn://" + ns + ".backend."
	generate := name + "generate\t2a\ttcp://" + a.server.Addr() + "\t-\t-\n"
	load := name + "load\t2b\tnats_tcp:backend.load-2b (not supported)\t-\t-\n"
	load2 := name + "load2\t2c\tnats_tcp:backend.load2-2c (not supported)\t-\t-\n"
	for query, want := range map[string]string{ns: generate + load + load2, ns + ".backend": generate + load + load2, name + "generate": generate, name + "load": load} {
		if r := w.ok("get", "endpoints", query); r.stdout != head+want {
			t.Errorf("%s: %q, want %q", query, r.stdout, head+want)
		}
	}
	if r := w.ok("call", name+"generate"); r.stdout != `{"worker":"foreign"}`+"\n" {
		t.Errorf("called: %+v", r)
	}
	if r := w.ok("call", name+"generate", "--id", "2a"); !strings.Contains(r.stdout, "foreign") {
		t.Errorf("called by id: %+v", r)
	}
	for _, of := range []string{"load", "load2"} {
		r := w.run("call", name+of)
		clitest.Has(t, of, r.stderr, "cannot call "+name+of, "cannot be called: instance 2", "it takes requests over NATS as Dynamo does (nats_tcp, subject backend."+of+"-2", "which is not supported")
		if r.code == 0 {
			t.Errorf("%s: %+v", of, r)
		}
	}
	if r := w.run("call", name+"generate", "--id", "2d"); r.code == 0 || !strings.Contains(r.stderr, "no instance") {
		t.Errorf("an id that nobody has: %+v", r)
	}
}
