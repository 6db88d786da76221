package clustertest

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external/externaltest"
)

// attachedDouble is an attached server that is a double of a real one.
func attachedDouble(t *testing.T, c *Cluster, o externaltest.Options) (*externaltest.Double, *simulator) {
	t.Helper()
	o.Model, o.Vocab, o.NoMetrics = c.Model, 256, true // its figures are the same at all times
	d := externaltest.New(t, o)
	spec := cluster.EngineSpec{Backend: o.Backend, Server: cluster.External{URL: d.URL, Connector: o.Connector}}
	if o.Connector == "mooncake" && o.Role == cluster.RolePrefill {
		spec.Server.BootstrapPort = d.BootstrapPort()
	}
	s := &simulator{spec: cluster.Attached{Model: cluster.ModelSpec{Name: c.Model, Path: c.opts.Model}, Role: o.Role, Engine: spec}}
	return d, s
}

// Each engine computes a prompt on one server and the answer on another one, and its stream goes on
// at a server of another engine, with the text that every server gives alone.
func TestEnginesInACluster(t *testing.T) {
	c := Start(t, Options{Model: builtinFolder(t)})
	ask := func(words int) string {
		t.Helper()
		a, err := c.Complete(t.Context(), Body{"prompt": strings.Repeat("word ", words), "max_tokens": 20, "temperature": 0, "ignore_eos": true})
		if err != nil || a.Usage.CompletionTokens != 20 {
			t.Fatalf("%+v, %v", a, err)
		}
		return a.Text
	}
	_, alone := attachedDouble(t, c, externaltest.Options{Backend: cluster.BackendVLLM, Role: cluster.RoleDecode, Connector: "none"})
	c.attach(alone)
	c.WaitReady(0, 1)
	want := ask(400)
	for _, o := range []externaltest.Options{
		{Backend: cluster.BackendVLLM, Connector: "nixl"},
		{Backend: cluster.BackendVLLM, Connector: "mooncake"},
		{Backend: cluster.BackendSGLang, Connector: "bootstrap"},
		{Backend: cluster.BackendTensorRTLLM, Connector: "context-first"},
		{Backend: cluster.BackendTensorRTLLM, Connector: "generation-first"},
	} {
		t.Run(o.Backend+" "+o.Connector, func(t *testing.T) {
			fabric := externaltest.NewFabric()
			o.Fabric = fabric
			po, do := o, o
			po.Role, do.Role = cluster.RolePrefill, cluster.RoleDecode
			p, ps := attachedDouble(t, c, po)
			d, ds := attachedDouble(t, c, do)
			c.attach(ps, ds)
			c.WaitReady(1, 1)
			if got := ask(400); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if fabric.Moved() != 1 {
				t.Errorf("KV moved %d times", fabric.Moved())
			}
			// Each leg fails once: another attempt, with a room of its own where servers meet.
			c.attach(ps, ds, alone)
			c.WaitReady(1, 2)
			for _, broken := range []*externaltest.Double{p, d} {
				for _, f := range []externaltest.Failure{externaltest.Busy, externaltest.Cut} {
					broken.Fail(f)
					if got := ask(400); got != want {
						t.Errorf("after %d: got %q, want %q", f, got, want)
					}
				}
			}
			if wrong := fabric.Wrong(); len(wrong) > 0 {
				t.Errorf("%q", wrong)
			}
			c.attach(alone)
			c.WaitReady(0, 1)
		})
	}
}
