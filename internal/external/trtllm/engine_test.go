package trtllm

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/externaltest"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

func TestSuite(t *testing.T) {
	externaltest.Suite(t, externaltest.Setup{
		Backend: cluster.BackendTensorRTLLM,
		New:     func(c wire.Config) (external.Engine, error) { return New(c) },
		Tokens:  true, Connectors: []string{"context-first", "generation-first"},
	})
}

// start starts a double and an Engine of it.
func start(t *testing.T, o externaltest.Options) (*externaltest.Double, *Engine) {
	t.Helper()
	o.Backend = cluster.BackendTensorRTLLM
	d := externaltest.New(t, o)
	return d, at(t, d.URL, o)
}

func at(t *testing.T, url string, o externaltest.Options) *Engine {
	t.Helper()
	e, err := New(wire.Config{Engine: cluster.EngineSpec{Backend: cluster.BackendTensorRTLLM, Server: cluster.External{URL: url, Connector: o.Connector}}, Role: o.Role})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func TestFacts(t *testing.T) {
	for connector, meets := range map[string]bool{"context-first": false, "generation-first": true} {
		_, e := start(t, externaltest.Options{Connector: connector, Role: cluster.RolePrefill})
		f, err := e.Probe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if f.Version != "1.2.0" || f.BlockSize != 32 || f.KVBlocks != 512 || f.Pair != "trtllm|"+connector+"|1.2.0|m" || (f.Meets != nil) != meets {
			t.Errorf("%s: facts %+v", connector, f)
		}
	}
	// A server of a release without generation-first says so before any request.
	d, _ := start(t, externaltest.Options{Connector: "context-first"})
	e := at(t, d.URL, externaltest.Options{Connector: "generation-first", Role: cluster.RolePrefill})
	if _, err := e.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "context-first") {
		t.Errorf("error %v", err)
	}
}

// The first token may end the answer: then there is no second leg.
func TestFirstLegIsTheAnswer(t *testing.T) {
	prompt := externaltest.Prompt(20)
	first := externaltest.Hash(512)(prompt)
	_, e := start(t, externaltest.Options{})
	for name, test := range map[string]struct {
		stop protocol.StopConditions
		want int // tokens
	}{
		"hidden":  {protocol.StopConditions{MaxTokens: 9, StopTokenIDs: []uint32{first}}, 0},
		"visible": {protocol.StopConditions{MaxTokens: 9, StopTokenIDsVisible: []uint32{first}}, 1},
	} {
		r := externaltest.Ask(prompt, 9)
		r.Stop = test.stop
		p, err := e.Prefill(t.Context(), r)
		if err != nil || p.Handoff != nil || len(p.Answer) == 0 {
			t.Fatalf("%s: %+v, %v", name, p, err)
		}
		n := 0
		for _, o := range p.Answer {
			n += len(o.TokenIDs)
		}
		last := p.Answer[len(p.Answer)-1]
		if n != test.want || last.Finish != protocol.FinishStop || last.Usage == nil || last.Usage.PromptTokens != 20 || last.Usage.CompletionTokens != n {
			t.Errorf("%s: %d tokens, last %+v", name, n, last)
		}
	}
	// One token that does not end the answer goes on to the generation server, which tells it.
	p, err := e.Prefill(t.Context(), externaltest.Ask(prompt, 1))
	if err != nil || p.Answer != nil || p.Handoff == nil {
		t.Errorf("one token: %+v, %v", p, err)
	}
}

// Where both servers were asked at once, the generation server answers in any case.
func TestFirstLegIsNoAnswerAtOnce(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"choices":[{"finish_reason":"stop","token_ids":[7]}],"usage":{"prompt_tokens":1}}`))
	}))
	t.Cleanup(server.Close)
	e := at(t, server.URL, externaltest.Options{Connector: "generation-first"})
	r := externaltest.Ask([]uint32{1}, 4)
	r.Meeting = &external.Meeting{Room: 5}
	if p, err := e.Prefill(t.Context(), r); err != nil || p.Answer != nil || p.Handoff != nil || p.PromptTokens != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

// For a client's body, the answer has the form that the client asked for.
func TestFirstLegIsTheAnswerToABody(t *testing.T) {
	const messages = `[{"role":"user","content":"x"}]`
	chat := externaltest.Hash(512)(externaltest.PromptOf([]byte(messages)))
	text := externaltest.Hash(512)(externaltest.PromptOf([]byte("once")))
	for name, test := range map[string]struct {
		eos  uint32
		api  protocol.API
		body string
		want []string // pieces of each object; "" for an output without one
	}{
		"whole chat":  {chat, protocol.APIChat, `{"messages":` + messages + `}`, []string{`"object":"chat.completion"`}},
		"stream":      {chat, protocol.APIChat, `{"messages":` + messages + `,"stream":true}`, []string{`"delta":{"content":""`, ""}},
		"with usage":  {chat, protocol.APIChat, `{"messages":` + messages + `,"stream":true,"stream_options":{"include_usage":true}}`, []string{`"object":"chat.completion.chunk"`, `"choices":[]`, ""}},
		"text stream": {text, protocol.APICompletions, `{"prompt":"once","stream":true}`, []string{`"text":""`, ""}},
	} {
		_, e := start(t, externaltest.Options{EOS: test.eos})
		p, err := e.Prefill(t.Context(), externaltest.AskBody(test.api, test.body))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(p.Answer) != len(test.want) {
			t.Fatalf("%s: %d outputs %+v, want %d", name, len(p.Answer), p.Answer, len(test.want))
		}
		for i, o := range p.Answer {
			last := i == len(p.Answer)-1
			if !strings.Contains(string(o.Raw), test.want[i]) || (test.want[i] == "") != (o.Raw == nil) || strings.Contains(string(o.Raw), "disaggregated_params") || strings.Contains(string(o.Raw), "prompt_token_ids") {
				t.Errorf("%s: object %d is %s", name, i, o.Raw)
			}
			if (o.Finish == protocol.FinishStop) != last || (o.Usage != nil) != last {
				t.Errorf("%s: output %d: %+v", name, i, o)
			}
			if usage := strings.Contains(string(o.Raw), `"usage"`); usage != strings.Contains(test.want[i], "choices\":[]") && name != "whole chat" {
				t.Errorf("%s: object %d has usage: %v", name, i, usage)
			}
		}
	}
}

// A context server's answer that lacks something is not sent on.
func TestContextReplies(t *testing.T) {
	var reply string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(reply))
	}))
	t.Cleanup(server.Close)
	e := at(t, server.URL, externaltest.Options{})
	for name, test := range map[string]struct{ reply, text string }{
		"no choice":    {`{"choices":[],"prompt_token_ids":[1]}`, "0 choices"},
		"two choices":  {`{"choices":[{},{}],"prompt_token_ids":[1]}`, "2 choices"},
		"no params":    {`{"choices":[{"finish_reason":"length"}],"prompt_token_ids":[1]}`, "cache_transceiver_config"},
		"null params":  {`{"choices":[{"finish_reason":"length","disaggregated_params":null}],"prompt_token_ids":[1]}`, "cache_transceiver_config"},
		"no id":        {`{"choices":[{"finish_reason":"length","disaggregated_params":{"x":1}}],"prompt_token_ids":[1]}`, "ctx_request_id"},
		"no prompt":    {`{"choices":[{"finish_reason":"length","disaggregated_params":{"ctx_request_id":5}}]}`, "prompt_token_ids"},
		"empty prompt": {`{"choices":[{"finish_reason":"not_finished","disaggregated_params":{"ctx_request_id":5}}],"prompt_token_ids":[]}`, "prompt_token_ids"},
		"text":         {`Hello`, "answer"},
		"error":        {`{"object":"error","message":"no memory","code":503}`, "no memory"},
	} {
		reply = test.reply
		_, err := e.Prefill(t.Context(), externaltest.Ask([]uint32{1}, 4))
		if remote := externaltest.Kind(t, err, requestplane.KindUnavailable, requestplane.KindOverloaded); !strings.Contains(remote.Message, test.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The parts that the server told keep their bytes.
	const params = `{"ctx_request_id": 1152921504606846977,"encoded_opaque_state":"AA\u003d","request_type":"context_only","x":1.0}`
	for _, ids := range []string{`[1,2]`, `[[1,2]]`} {
		reply = `{"choices":[{"finish_reason":"length","disaggregated_params":` + params + `}],"prompt_token_ids":` + ids + `,"usage":{"prompt_tokens":7}}`
		p, err := e.Prefill(t.Context(), externaltest.Ask([]uint32{1}, 4))
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"disaggregated_params":` + params + `,"prompt_token_ids":[1,2],"prompt_tokens":7}`; string(p.Handoff) != want {
			t.Errorf("handoff %s, want %s", p.Handoff, want)
		}
		h, err := readHandoff(p.Handoff)
		if err != nil || h.PromptTokens != 7 {
			t.Fatalf("%+v, %v", h, err)
		}
		second, err := h.second()
		if want := `{"ctx_request_id":1152921504606846977,"encoded_opaque_state":"AA\u003d","request_type":"generation_only","x":1.0}`; err != nil || string(second) != want {
			t.Errorf("second leg %s, %v, want %s", second, err, want)
		}
	}
}

// The generation server's own count of the prompt is not the client's.
func TestUsageOfTheContextServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"choices":[{"finish_reason":"stop","message":{}}],"usage":{"prompt_tokens":1,"completion_tokens":3}}`))
	}))
	t.Cleanup(server.Close)
	e := at(t, server.URL, externaltest.Options{})
	r := externaltest.AskBody(protocol.APIChat, `{"messages":[]}`)
	r.Handoff = handoff{Params: json.RawMessage(`{"ctx_request_id":1}`), IDs: json.RawMessage(`[1,2,3]`), PromptTokens: 31}.bytes()
	a, err := externaltest.Collect(t.Context(), t, e, r)
	if err != nil || a.Usage.PromptTokens != 31 || a.Usage.CompletionTokens != 3 {
		t.Errorf("usage %+v, %v", a.Usage, err)
	}
}

// Servers keep ids below 2^42 for themselves, and ids above 2^63 are no int64.
func TestIDs(t *testing.T) {
	var s, other idSource
	s.init()
	other.init()
	seen := map[uint64]bool{}
	now := time.UnixMilli(1_800_000_000_000)
	for range 1000 {
		id := s.next(now)
		if id < minID || id >= endID || seen[id] {
			t.Fatalf("id %d", id)
		}
		seen[id] = true
	}
	if id := s.next(now.Add(time.Millisecond)); seen[id] {
		t.Errorf("id %d again, a millisecond later", id)
	}
	for _, room := range []uint64{0, 1, minID, endID - 1} {
		if id := inRange(room); id < minID || id >= endID {
			t.Errorf("room %d becomes %d", room, id)
		}
	}
	if inRange(5) == inRange(6) {
		t.Error("two rooms have one id")
	}
}

func TestOptions(t *testing.T) {
	zero := 0
	r := externaltest.Ask([]uint32{1, 2}, 40)
	r.Sampling = protocol.SamplingOptions{Temperature: 0.7, TopP: 0.9, TopK: -1, Seed: 7}
	r.Stop = protocol.StopConditions{MaxTokens: 40, MinTokens: 3, StopTokenIDs: []uint32{6}, StopTokenIDsVisible: []uint32{7}}
	r.Output.Logprobs = &zero
	r.Guided = &protocol.Guided{Kind: "json_schema", Text: `{"type":"object"}`}
	body, err := tokenRequest(r, true, json.RawMessage(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"model":"m","prompt":[1,2],"stream":true,"stream_options":{"include_usage":true},"detokenize":false,"max_tokens":40,"min_tokens":3,"stop_token_ids":[6,7],"ignore_eos":true,` +
		`"include_stop_str_in_output":true,"skip_special_tokens":false,"add_special_tokens":false,"temperature":0.7,"top_p":0.9,"min_p":0,"repetition_penalty":1,"frequency_penalty":0,"presence_penalty":0,` +
		`"seed":7,"top_k":0,"logprobs":1,"response_format":{"type":"json","schema":{"type":"object"}},"disaggregated_params":{"a":1}}`
	if string(body) != want {
		t.Errorf("request\n%s, want\n%s", body, want)
	}
	one := 1
	r.Output.Logprobs = &one
	_, err = tokenRequest(r, true, nil)
	if remote := externaltest.Kind(t, err, requestplane.KindInvalidArgument); !strings.Contains(remote.Message, "top_logprobs") {
		t.Errorf("error %v", err)
	}
	r.Output.Logprobs, r.Guided.Text = nil, "{"
	_, err = tokenRequest(r, true, nil)
	externaltest.Kind(t, err, requestplane.KindInvalidArgument)
}

func FuzzHandoff(f *testing.F) {
	f.Add([]byte(`{"disaggregated_params":{"ctx_request_id":1152921504606846977},"prompt_token_ids":[1],"prompt_tokens":1}`))
	f.Add([]byte(`{"disaggregated_params":{"request_type":"a","request_type":"b"},"prompt_token_ids":[1]}`))
	f.Add([]byte(`{"prompt_token_ids":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHandoff(b)
		if err != nil {
			return
		}
		if params, err := h.second(); err == nil && !json.Valid(params) {
			t.Errorf("%q gives %q", b, params)
		}
		again, err := readHandoff(h.bytes())
		if err != nil || string(again.Params) != string(h.Params) || again.PromptTokens != h.PromptTokens {
			t.Errorf("%q comes back as %+v, %v", b, again, err)
		}
	})
}

func FuzzContextReply(f *testing.F) {
	f.Add([]byte(`{"choices":[{"finish_reason":"length","disaggregated_params":{"ctx_request_id":5}}],"prompt_token_ids":[[1]]}`))
	f.Add([]byte(`{"choices":[{"finish_reason":"stop","message":{"content":"x"}}],"usage":{"prompt_tokens":1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := readContext(b)
		if err != nil {
			return
		}
		if h, err := r.handoff(); err == nil {
			if _, err := readHandoff(h.bytes()); err != nil {
				t.Errorf("%q gives a handoff that is refused: %v", b, err)
			}
		}
		if clean, err := withoutParams(b); err == nil {
			_, _ = asChunks(clean, protocol.APIChat, true)
		}
	})
}
