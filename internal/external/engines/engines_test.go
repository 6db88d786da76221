package engines

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/externaltest"
)

// Every backend has an adapter that knows its connectors, and no other ones.
func TestNew(t *testing.T) {
	for _, backend := range cluster.ExternalBackends() {
		for _, connector := range append(cluster.ExternalConnectors(backend), "") {
			e, err := New(Config{Engine: cluster.EngineSpec{Backend: backend, Server: cluster.External{Connector: connector}}, URL: "http://127.0.0.1:1"})
			if err != nil {
				t.Errorf("%s, %q: %v", backend, connector, err)
				continue
			}
			alone := connector == "none" || backend == cluster.BackendOpenAI
			if (e.Exchange() == external.ExchangeNone) != alone {
				t.Errorf("%s, %q: exchange %q", backend, connector, e.Exchange())
			}
			e.Close()
		}
		if e, err := New(Config{Engine: cluster.EngineSpec{Backend: backend, Server: cluster.External{Connector: "pigeon"}}, URL: "http://127.0.0.1:1"}); err == nil || e != nil || !strings.Contains(err.Error(), backend) {
			t.Errorf("%s: %v, %v", backend, e, err)
		}
	}
	if e, err := New(Config{Engine: cluster.EngineSpec{Backend: "mock"}, URL: "http://127.0.0.1:1"}); err == nil || e != nil {
		t.Errorf("mock: %v, %v", e, err)
	}
}

// Servers of different engines answer a prompt alike where their models are alike: the doubles
// show that no adapter adds or loses a token.
func TestSameTokens(t *testing.T) {
	prompt := externaltest.Prompt(40)
	want := externaltest.Text(externaltest.Continue(externaltest.Hash(512), prompt, 16))
	for _, backend := range cluster.ExternalBackends() {
		d := externaltest.New(t, externaltest.Options{Backend: backend, Connector: "none"})
		e, err := New(Config{Engine: cluster.EngineSpec{Backend: backend, Server: cluster.External{URL: d.URL, Connector: "none"}}, Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		a, err := externaltest.Collect(t.Context(), t, e, externaltest.Ask(prompt, 16))
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Text + externaltest.Text(a.IDs); got != want {
			t.Errorf("%s: %q, want %q", backend, got, want)
		}
	}
}
