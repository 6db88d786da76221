package openai

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/externaltest"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

var setup = externaltest.Setup{
	Backend:  cluster.BackendOpenAI,
	New:      func(c wire.Config) (external.Engine, error) { return New(c) },
	Logprobs: -1, Adapters: true,
}

func TestSuite(t *testing.T) { externaltest.Suite(t, setup) }

// Not all servers have /health.
func TestSuiteNoHealth(t *testing.T) {
	s := setup
	s.Double = func(o *externaltest.Options) { o.NoHealth = true }
	externaltest.Suite(t, s)
}

func at(t *testing.T, handler http.HandlerFunc) *Engine {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	e, err := New(wire.Config{URL: server.URL, Engine: cluster.EngineSpec{Backend: cluster.BackendOpenAI}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// llama.cpp answers with 503 while it loads, and tells the context of the model's training.
func TestLlamaCpp(t *testing.T) {
	loading := true
	e := at(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case loading:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`))
		case r.URL.Path == "/v1/models":
			_, _ = w.Write([]byte(`{"data":[{"id":"q.gguf","owned_by":"llamacpp","meta":{"n_ctx_train":32768}}]}`))
		}
	})
	if _, err := e.Probe(t.Context()); !errors.Is(err, external.ErrNotReady) || !strings.Contains(err.Error(), "Loading model") {
		t.Errorf("while it loads: %v", err)
	}
	loading = false
	if f, err := e.Probe(t.Context()); err != nil || f.MaxModelLen != 32768 || f.Models[0] != "q.gguf" {
		t.Errorf("facts %+v, %v", f, err)
	}
}

// Services elsewhere refuse options that they do not know: those that are off are not sent.
func TestOptions(t *testing.T) {
	r := externaltest.Ask([]uint32{1, 2}, 40)
	r.Stop.StopTokenIDs = []uint32{6}
	body, err := tokenRequest(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"model":"m","prompt":[1,2],"stream":true,"stream_options":{"include_usage":true},"max_tokens":40,"temperature":0,"top_p":1,"frequency_penalty":0,"presence_penalty":0}`
	if string(body) != want {
		t.Errorf("request %s, want %s", body, want)
	}
	r.Sampling = protocol.SamplingOptions{Temperature: 1, TopP: 0.5, TopK: 3, MinP: 0.1, RepetitionPenalty: 1.5, Seed: 9, LogitBias: []protocol.TokenBias{{Token: 3, Bias: 1}}}
	if body, err = tokenRequest(r); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"top_k": 3, "min_p": 0.1, "repetition_penalty": 1.5, "repeat_penalty": 1.5, "seed": 9, "top_p": 0.5} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	for field, change := range map[string]func(*protocol.PreprocessedRequest){
		"min_tokens":        func(r *protocol.PreprocessedRequest) { r.Stop.MinTokens = 1 },
		"stop_token_ids":    func(r *protocol.PreprocessedRequest) { r.Stop.StopTokenIDsVisible = []uint32{1} },
		"allowed_token_ids": func(r *protocol.PreprocessedRequest) { r.Sampling.AllowedTokenIDs = []uint32{1} },
		"logprobs":          func(r *protocol.PreprocessedRequest) { r.Output.Logprobs = new(int) },
		"structured":        func(r *protocol.PreprocessedRequest) { r.Guided = &protocol.Guided{Kind: "regex", Text: "a"} },
	} {
		r := externaltest.Ask([]uint32{1}, 4)
		change(r.PreprocessedRequest)
		_, err := tokenRequest(r)
		if remote := externaltest.Kind(t, err, requestplane.KindInvalidArgument); !strings.Contains(remote.Message, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Services end streams in several ways; all that is needed is that the answer is whole.
func TestEnds(t *testing.T) {
	const finish = `data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}` + "\n\n"
	const usage = `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}` + "\n\n"
	for name, test := range map[string]struct {
		body string
		ok   bool
		raw  int
	}{
		"marked":            {finish + usage + "data: [DONE]\n\n", true, 1},
		"without usage":     {finish + "data: [DONE]\n\n", true, 1},
		"unmarked":          {finish + usage, true, 1},
		"cut after the end": {finish, false, 1},
		"cut before":        {`data: {"choices":[{"delta":{"content":"x"}}]}` + "\n\n", false, 1},
		"nothing":           {"data: [DONE]\n\n", false, 0},
	} {
		e := at(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte(test.body))
		})
		a, err := externaltest.Collect(t.Context(), t, e, externaltest.AskBody(protocol.APIChat, `{"messages":[],"stream":true}`))
		if (err == nil) != test.ok || len(a.Raw) != test.raw {
			t.Errorf("%s: %v, %q", name, err, a.Raw)
		}
		if test.ok && a.Finish != protocol.FinishStop {
			t.Errorf("%s: finish %q", name, a.Finish)
		}
	}
}
