package vllm

import (
	"errors"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/externaltest"
	"github.com/dynctl/dynctl/internal/external/inferencesimtest"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// simulator starts llm-d-inference-sim, a server that nobody here has written.
func simulator(t *testing.T, connector string, flags ...string) *Engine {
	t.Helper()
	server := inferencesimtest.Start(t, append([]string{"--max-model-len", "4096", "--enable-kvcache", "--block-size", "16"}, flags...)...)
	e, err := New(wire.Config{
		URL: server.URL, Engine: cluster.EngineSpec{Backend: cluster.BackendVLLM, Server: cluster.External{Connector: connector}},
		Role: cluster.RoleDecode, Model: inferencesimtest.Model,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// simulated returns a request for the simulator's model.
func simulated(r *external.Request) *external.Request {
	r.Model = inferencesimtest.Model
	return r
}

func TestInferenceSim(t *testing.T) {
	e := simulator(t, connectorNIXL, "--mode", "echo", "--lora-modules", `{"name":"tuned"}`)
	f, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f.MaxModelLen != 4096 || f.BlockSize != 16 || f.KVBlocks != 1024 || f.Parents["tuned"] != inferencesimtest.Model {
		t.Errorf("facts %+v", f)
	}
	// In this mode it answers with the prompt.
	prompt := externaltest.Prompt(40)
	first := simulated(externaltest.Ask(prompt, 40))
	p, err := e.Prefill(t.Context(), first)
	if err != nil || len(p.Handoff) == 0 {
		t.Fatalf("prefilled %+v, %v", p, err)
	}
	second := simulated(externaltest.Ask(prompt, 40))
	second.Handoff = p.Handoff
	for _, r := range []*external.Request{first, second} {
		a, err := externaltest.Collect(t.Context(), t, e, r)
		if err != nil || !slices.Equal(a.IDs, prompt) || a.Usage.PromptTokens != 40 || a.Usage.CompletionTokens != 40 {
			t.Errorf("tokens %v, usage %+v, %v", a.IDs, a.Usage, err)
		}
	}
	// An end token of the request ends the answer, which the simulator knows nothing of.
	r := simulated(externaltest.Ask(prompt, 40))
	r.Stop.StopTokenIDs = prompt[5:6]
	if a, err := externaltest.Collect(t.Context(), t, e, r); err != nil || !slices.Equal(a.IDs, prompt[:5]) || a.Finish != protocol.FinishStop {
		t.Errorf("tokens %v, finish %q, %v", a.IDs, a.Finish, err)
	}
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"hello there"}],"stream":true,"max_tokens":20}`,
		`{"messages":[{"role":"user","content":"hello there"}],"max_tokens":20}`,
	} {
		r := simulated(externaltest.AskBody(protocol.APIChat, body))
		p, err := e.Prefill(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		r.Handoff = p.Handoff
		a, err := externaltest.Collect(t.Context(), t, e, r)
		if err != nil || len(a.Raw) == 0 || a.Usage == nil || a.Usage.CompletionTokens == 0 {
			t.Errorf("%s: %q, usage %+v, %v", body, a.Raw, a.Usage, err)
		}
	}
	patience.Until(t, "the server tells that it runs nothing, and all else", func() bool { // it counts a moment after its answer
		l, err := e.Load(t.Context())
		return err == nil && l.Running != nil && *l.Running == 0 && l.Waiting != nil && l.KVUsage != nil && l.PrefixHits != nil && *l.PrefixHits != 0 &&
			l.Prompt != nil && l.Generated != nil
	})
}

// Whether a server sleeps is looked at: this one says yes to every order.
func TestInferenceSimSleep(t *testing.T) {
	e := simulator(t, wire.ConnectorNone)
	if err := e.Sleep(t.Context(), cluster.SleepLight); !errors.Is(err, errNoSleep) {
		t.Errorf("a server without sleep mode: %v", err)
	}
	t.Setenv("VLLM_SERVER_DEV_MODE", "1")
	e = simulator(t, wire.ConnectorNone, "--enable-sleep-mode")
	for _, want := range []bool{true, false} {
		order := e.Wake
		if want {
			order = e.Sleep
		}
		if err := order(t.Context(), cluster.SleepLight); err != nil {
			t.Fatal(err)
		}
		if got, err := e.Asleep(t.Context()); got != want || err != nil {
			t.Errorf("asleep %v, %v, want %v", got, err, want)
		}
	}
}

// Its bootstrap server listens where it does.
func TestInferenceSimMooncake(t *testing.T) {
	server := inferencesimtest.Start(t, "--mode", "echo", "--max-model-len", "4096", "--enable-kvcache")
	c := wire.Config{
		URL: server.URL, Role: cluster.RolePrefill, Model: inferencesimtest.Model,
		Engine: cluster.EngineSpec{Backend: cluster.BackendVLLM, Server: cluster.External{Connector: connectorMooncake}},
	}
	at, err := wire.NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	c.Engine.Server.BootstrapPort = at.Port()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	f, err := e.Probe(t.Context())
	if err != nil || f.Meets == nil {
		t.Fatalf("facts %+v, %v", f, err)
	}
	prompt := externaltest.Prompt(40)
	r := simulated(externaltest.Ask(prompt, 40))
	r.Meeting = &external.Meeting{ServerPlace: *f.Meets, Room: 1<<62 + 1}
	if p, err := e.Prefill(t.Context(), r); err != nil || p.Handoff != nil {
		t.Errorf("prefilled %+v, %v", p, err)
	}
	if a, err := externaltest.Collect(t.Context(), t, e, r); err != nil || !slices.Equal(a.IDs, prompt) {
		t.Errorf("tokens %v, %v", a.IDs, err)
	}
}
