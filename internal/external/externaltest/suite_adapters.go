package externaltest

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// adapted returns a request for an adapter.
func adapted(r *external.Request, name string) *external.Request {
	r.Model, r.Adapter = name, name
	return r
}

// A server tells its adapters, and answers with the one that is asked for: in both legs, from
// tokens and from bodies.
func (s Setup) adapters(t *testing.T) {
	loras := []string{"tuned", "a/sql"}
	d, e := s.start(t, Options{Loras: loras}, nil)
	f, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !s.Adapters {
		if len(f.Adapters) > 0 {
			t.Errorf("adapters %v, which requests cannot name", f.Adapters)
		}
		return
	}
	if !slices.Equal(f.Adapters, []string{"a/sql", "tuned"}) {
		t.Errorf("adapters %v", f.Adapters)
	}
	prompt := Prompt(20)
	want := Continue(Adapted(Hash(512), 512, "tuned"), prompt, 6)
	s.same(t, collect(t, e, adapted(Ask(prompt, 6), "tuned")), want)
	s.same(t, collect(t, e, Ask(prompt, 6)), Continue(Hash(512), prompt, 6))
	text := Text(Continue(Adapted(Hash(512), 512, "a/sql"), PromptOf([]byte("once")), 6))
	a := collect(t, e, adapted(AskBody(protocol.APICompletions, `{"model":"x","prompt":"once","max_tokens":6}`), "a/sql"))
	if got, _ := readRaw(t, a.Raw); got != text {
		t.Errorf("text %q, want %q", got, text)
	}
	if sent := string(d.Last(t).Body); !strings.Contains(sent, `"model":"a/sql"`) {
		t.Errorf("sent %s", sent)
	}
	_, err = Collect(t.Context(), t, e, adapted(Ask(prompt, 6), "gone"))
	Kind(t, err, requestplane.KindUnavailable) // another server may have it
	for _, connector := range s.Connectors {
		t.Run(connector, func(t *testing.T) {
			p := s.pair(t, connector, loras...)
			for _, name := range loras {
				_, a, err := p.run(t.Context(), t, adapted(Ask(prompt, 6), name))
				if err != nil {
					t.Fatal(err)
				}
				s.same(t, a, Continue(Adapted(Hash(512), 512, name), prompt, 6))
				if _, _, err := p.run(t.Context(), t, adapted(AskBody(protocol.APICompletions, `{"prompt":"once","max_tokens":6}`), name)); err != nil {
					t.Fatal(err)
				}
			}
			if n := p.Fabric.Moved(); n != 4 {
				t.Errorf("KV moved %d times, want 4", n)
			}
		})
	}
	t.Run("in place of the base", func(t *testing.T) {
		_, e := s.start(t, Options{Loras: loras}, func(c *wire.Config) { c.Model = "tuned" })
		if f, err := e.Probe(t.Context()); err != nil || len(f.Adapters) > 0 || f.Parents["tuned"] != "m" {
			t.Errorf("adapters %v, parents %v of an adapter, %v", f.Adapters, f.Parents, err)
		}
	})
}
