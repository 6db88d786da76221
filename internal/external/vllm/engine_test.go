package vllm

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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
	Backend: cluster.BackendVLLM,
	New:     func(c wire.Config) (external.Engine, error) { return New(c) },
	Tokens:  true, Logprobs: 20, Connectors: []string{"nixl", "mooncake"}, Adapters: true, Encodes: true,
}

func TestSuite(t *testing.T) { externaltest.Suite(t, setup) }

// llm-d-inference-sim tells tokens by another endpoint, and has no /version.
func TestSuiteSimulator(t *testing.T) {
	s := setup
	s.Double = func(o *externaltest.Options) { o.Simulator = true }
	externaltest.Suite(t, s)
}

// start starts a double and an Engine of it.
func start(t *testing.T, o externaltest.Options, change func(*wire.Config)) (*externaltest.Double, *Engine) {
	t.Helper()
	o.Backend = cluster.BackendVLLM
	d := externaltest.New(t, o)
	c := wire.Config{Engine: cluster.EngineSpec{Backend: o.Backend, Server: cluster.External{URL: d.URL, Connector: o.Connector}}, Role: o.Role}
	if change != nil {
		change(&c)
	}
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return d, e
}

func TestFacts(t *testing.T) {
	_, e := start(t, externaltest.Options{Ranks: 2}, func(c *wire.Config) { c.Engine.Server.Pair = "rack-7" })
	f, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := external.Facts{
		Version: "0.12.0", Models: []string{"m"}, MaxModelLen: 4096, BlockSize: 16, KVBlocks: 2048, KVDType: "auto", Ranks: 2,
		Pair: "vllm|nixl|0.12.0|/models/m|auto|rack-7",
	}
	got, _ := json.Marshal(f)
	if wanted, _ := json.Marshal(want); string(got) != string(wanted) {
		t.Errorf("facts\n%s, want\n%s", got, wanted)
	}
}

// Releases differ in how they spell metrics.
func TestOldMetrics(t *testing.T) {
	_, e := start(t, externaltest.Options{OldMetrics: true}, nil)
	l, err := e.Load(t.Context())
	if err != nil || l.KVUsage == nil || *l.KVUsage != 0.25 || l.PrefixHits == nil || *l.PrefixHits != 32 || l.PrefixLookups == nil || *l.PrefixLookups != 128 {
		t.Errorf("load %+v, %v", l, err)
	}
	if l.Prompt == nil || *l.Prompt != 1000 || l.Generated == nil || *l.Generated != 500 {
		t.Errorf("tokens %v and %v", l.Prompt, l.Generated)
	}
}

// The host that a server tells is often one that only itself can reach.
func TestHostOverride(t *testing.T) {
	fabric := externaltest.NewFabric()
	_, prefill := start(t, externaltest.Options{Fabric: fabric}, func(c *wire.Config) { c.Engine.Server.Host = "gpu-3" })
	_, decode := start(t, externaltest.Options{Fabric: fabric}, nil)
	r := externaltest.Ask(externaltest.Prompt(20), 4)
	p, err := prefill.Prefill(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	fabric.Rehost("gpu-3")
	if p.Lease <= 0 || !strings.Contains(string(p.Handoff), `"remote_host":"gpu-3"`) {
		t.Errorf("prefilled %s, lease %v", p.Handoff, p.Lease)
	}
	r.Handoff = p.Handoff
	if _, err := externaltest.Collect(t.Context(), t, decode, r); err != nil || fabric.Moved() != 1 {
		t.Errorf("%v; moved %d", err, fabric.Moved())
	}
}

// A server that tells its own loopback address is no use to another machine.
func TestLoopback(t *testing.T) {
	var log bytes.Buffer
	for address, want := range map[string]int{"http://gpu-3:8001": 1, "http://127.0.0.1:8001": 0} {
		log.Reset()
		e, err := New(wire.Config{URL: address, Engine: cluster.EngineSpec{Backend: cluster.BackendVLLM}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		for _, params := range []string{`{"remote_host":"10.0.0.1"}`, `{"remote_host":null}`, `{"remote_host":"localhost"}`, `{"remote_host":"127.0.0.1"}`} {
			if got, err := e.handoff(json.RawMessage(params)); err != nil || string(got) != params {
				t.Errorf("%s becomes %s, %v", params, got, err)
			}
		}
		if n := strings.Count(log.String(), "loopback"); n != want {
			t.Errorf("%s: %d warnings, want %d: %s", address, n, want, &log)
		}
	}
}

// vLLM itself takes the params of /inference/v1/generate elsewhere than other servers do.
func TestExchangeByGenerate(t *testing.T) {
	fabric := externaltest.NewFabric()
	_, prefill := start(t, externaltest.Options{Fabric: fabric}, nil)
	server, decode := start(t, externaltest.Options{Fabric: fabric}, nil)
	tokensOnly := &dialect{version: "0.13.0", generate: true}
	prefill.learned, decode.learned = tokensOnly, tokensOnly
	prompt := externaltest.Prompt(20)
	r := externaltest.Ask(prompt, 4)
	p, err := prefill.Prefill(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	r.Handoff = p.Handoff
	a, err := externaltest.Collect(t.Context(), t, decode, r)
	if err != nil || !slices.Equal(a.IDs, externaltest.Continue(externaltest.Hash(512), prompt, 4)) || fabric.Moved() != 1 || server.Last(t).Path != pathGenerate {
		t.Errorf("tokens %v, %v; moved %d, wrong %v", a.IDs, err, fabric.Moved(), fabric.Wrong())
	}
}

// A server without a connector answers as if nothing were amiss.
func TestNoParams(t *testing.T) {
	for name, o := range map[string]externaltest.Options{"vLLM": {Connector: wire.ConnectorNone}, "simulator": {Connector: wire.ConnectorNone, Simulator: true}} {
		_, e := start(t, o, func(c *wire.Config) { c.Engine.Server.Connector = connectorNIXL })
		_, err := e.Prefill(t.Context(), externaltest.Ask(externaltest.Prompt(20), 4))
		if remote := externaltest.Kind(t, err, requestplane.KindUnavailable); !strings.Contains(remote.Message, "NixlConnector") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a client asks for belongs to the second leg.
func TestFirstLeg(t *testing.T) {
	for name, test := range map[string]struct{ body, want string }{
		"stream": {
			`{"stream":true,"stream_options":{"include_usage":true},"x": 1.0,"max_tokens":50,"min_tokens":9}`,
			`{"stream":false,"x":1.0,"max_tokens":1,"model":"m"}`,
		},
		"no limit":       {`{"messages":[ ]}`, `{"messages":[ ],"model":"m","stream":false,"max_tokens":1}`},
		"new limit":      {`{"max_completion_tokens":50}`, `{"max_completion_tokens":1,"model":"m","stream":false,"max_tokens":1}`},
		"null limit":     {`{"max_completion_tokens":null}`, `{"max_completion_tokens":null,"model":"m","stream":false,"max_tokens":1}`},
		"other minimums": {`{"min_completion_tokens":4,"logprobs":3}`, `{"logprobs":3,"model":"m","stream":false,"max_tokens":1}`},
	} {
		b, err := wire.ClientBody([]byte(test.body), "m")
		if err != nil {
			t.Fatal(err)
		}
		if got := string(firstLeg(b).Bytes()); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	// Of tokens, the first leg asks for nothing but the prompt.
	width := 3
	r := externaltest.Ask(externaltest.Prompt(4), 40)
	r.Output.Logprobs, r.Stop.MinTokens, r.Guided = &width, 20, &protocol.Guided{Kind: "json_object"}
	for _, d := range []dialect{{}, {generate: true}} {
		_, body, err := d.tokenRequest(r, firstHalf, json.RawMessage(remoteDecode))
		if err != nil {
			t.Fatal(err)
		}
		if s := string(body); !strings.Contains(s, `"max_tokens":1`) || strings.Contains(s, "min_tokens") || strings.Contains(s, "logprobs") || strings.Contains(s, "structured") || strings.Contains(s, `"stream":true`) || strings.Contains(s, "stream_options") {
			t.Errorf("first leg %s", s)
		}
	}
}

func TestOptions(t *testing.T) {
	r := externaltest.Ask([]uint32{1, 2}, 40)
	r.Sampling = protocol.SamplingOptions{
		Temperature: 0.7, TopP: 0.9, TopK: 5, MinP: 0.1, Seed: 1<<63 + 7, RepetitionPenalty: 1.1, FrequencyPenalty: 0.2, PresencePenalty: -0.3,
		LogitBias: []protocol.TokenBias{{Token: 9, Bias: -2}}, AllowedTokenIDs: []uint32{4, 5},
	}
	r.Stop = protocol.StopConditions{MaxTokens: 40, MinTokens: 3, StopTokenIDs: []uint32{6}, StopTokenIDsVisible: []uint32{7}}
	r.Guided = &protocol.Guided{Kind: "choice", Choices: []string{"a", "b<"}, Compact: true}
	_, body, err := dialect{version: "0.12.1"}.tokenRequest(r, whole, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if err := json.Unmarshal([]byte(`{"model":"m","stream":true,"stream_options":{"include_usage":true},"prompt":[1,2],"add_special_tokens":false,
		"return_token_ids":true,"return_tokens_as_token_ids":true,"temperature":0.7,"top_p":0.9,"min_p":0.1,"repetition_penalty":1.1,"frequency_penalty":0.2,
		"presence_penalty":-0.3,"seed":7,"logit_bias":{"9":-2},"top_k":5,"allowed_token_ids":[4,5],"ignore_eos":true,"skip_special_tokens":false,
		"stop_token_ids":[6,7],"max_tokens":40,"min_tokens":3,"structured_outputs":{"choice":["a","b<"],"disable_any_whitespace":true}}`), &want); err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(got)
	if b, _ := json.Marshal(want); string(a) != string(b) {
		t.Errorf("request\n%s, want\n%s", a, b)
	}
	for kind, text := range map[string]string{
		"json_object": `{"json_object":true}`, "json_schema": `{"json":"T"}`, "regex": `{"regex":"T"}`, "ebnf": `{"grammar":"T"}`,
	} {
		if got := string(structured(&protocol.Guided{Kind: kind, Text: "T"})); got != text {
			t.Errorf("%s: %s, want %s", kind, got, text)
		}
	}
}

// A server that ignores what it does not know would leave a constraint out.
func TestOldServersTakeNoConstraints(t *testing.T) {
	for version, old := range map[string]bool{"0.10.2": true, "0.9.0.1": true, "0.11.0": false, "1.0.0": false, "": false, "dev": false, "0.11.0rc1": false} {
		_, e := start(t, externaltest.Options{Version: version}, nil)
		r := externaltest.Ask(externaltest.Prompt(4), 4)
		r.Guided = &protocol.Guided{Kind: "json_object"}
		if _, err := externaltest.Collect(t.Context(), t, e, r); (err != nil) != old {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

// Each rank has a cache of its own: both legs must mean the same one.
func TestMooncakeRanks(t *testing.T) {
	fabric := externaltest.NewFabric()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := externaltest.New(t, externaltest.Options{Backend: cluster.BackendVLLM, Connector: connectorMooncake, Role: cluster.RolePrefill, Ranks: 3, Fabric: fabric, Key: "secret"})
	prefill, err := New(wire.Config{
		Engine: cluster.EngineSpec{Backend: cluster.BackendVLLM, Server: cluster.External{Connector: connectorMooncake, BootstrapPort: server.BootstrapPort(), KeyFile: key}},
		URL:    server.URL, Role: cluster.RolePrefill,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(prefill.Close)
	f, err := prefill.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f.Mode != "prefill" || f.Meets == nil || f.Meets.Port != server.BootstrapPort() || f.Meets.Host != "127.0.0.1" {
		t.Fatalf("mode %q, place %+v", f.Mode, f.Meets)
	}
	_, decode := start(t, externaltest.Options{Connector: connectorMooncake, Role: cluster.RoleDecode, Fabric: fabric}, nil)
	var ranks []string
	for room := range uint64(3) {
		r := externaltest.Ask(externaltest.Prompt(20), 4)
		r.Meeting = &external.Meeting{ServerPlace: *f.Meets, Room: 900 + room}
		done := make(chan error, 1)
		go func() {
			_, err := prefill.Prefill(t.Context(), r)
			done <- err
		}()
		if _, err := externaltest.Collect(t.Context(), t, decode, r); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		ranks = append(ranks, server.Last(t).Header.Get("X-Data-Parallel-Rank"))
	}
	if slices.Sort(ranks); !slices.Equal(ranks, []string{"0", "1", "2"}) || fabric.Moved() != 3 || len(fabric.Wrong()) > 0 {
		t.Errorf("ranks %v, moved %d, wrong %v", ranks, fabric.Moved(), fabric.Wrong())
	}
	r := externaltest.Ask(externaltest.Prompt(4), 4)
	r.Meeting = &external.Meeting{ServerPlace: cluster.ServerPlace{Host: "h", Port: 1, Params: json.RawMessage(`{"1":{"engine_id":"x"}}`)}}
	_, err = prefill.Prefill(t.Context(), r)
	externaltest.Kind(t, err, requestplane.KindUnavailable)
}

// A server that is there while its bootstrap server is not is not ready.
func TestMooncakeWithoutBootstrap(t *testing.T) {
	_, e := start(t, externaltest.Options{Connector: connectorMooncake, Role: cluster.RolePrefill}, func(c *wire.Config) { c.Engine.Server.BootstrapPort = 1 })
	if _, err := e.Probe(t.Context()); !errors.Is(err, external.ErrNotReady) || !strings.Contains(err.Error(), "bootstrap") {
		t.Errorf("error %v", err)
	}
}

func FuzzHandoff(f *testing.F) {
	for _, s := range []string{`{"remote_host":"a","n":9007199254740993}`, `{}`, `null`, `[]`, `{"remote_host":1,"remote_host":2}`, `{"\u0072emote_host": "x"}`} {
		f.Add([]byte(s))
	}
	plain, err := New(wire.Config{URL: "http://x", Engine: cluster.EngineSpec{Backend: cluster.BackendVLLM}})
	if err != nil {
		f.Fatal(err)
	}
	named, err := New(wire.Config{URL: "http://x", Engine: cluster.EngineSpec{Backend: cluster.BackendVLLM, Server: cluster.External{Host: "gpu-3"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		same, err := plain.handoff(b)
		if err == nil && string(same) != string(b) {
			t.Errorf("%q became %q", b, same)
		}
		other, err2 := named.handoff(b)
		if err2 == nil {
			var v struct {
				Host string `json:"remote_host"`
			}
			if err := json.Unmarshal(other, &v); err != nil || v.Host != "gpu-3" {
				t.Errorf("%q became %q: %v", b, other, err)
			}
			if err != nil {
				t.Errorf("%q is taken with a host, and refused without: %v", b, err)
			}
		}
		_, _ = readEngines(b)
	})
}
