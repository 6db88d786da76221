package sglang

import (
	"context"
	"encoding/json"
	"errors"
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

var setup = externaltest.Setup{
	Backend: cluster.BackendSGLang,
	New:     func(c wire.Config) (external.Engine, error) { return New(c) },
	Tokens:  true, Logprobs: 20, Connectors: []string{"bootstrap"}, Early: true,
}

func TestSuite(t *testing.T) { externaltest.Suite(t, setup) }

// With --stream-output a server sends new tokens alone.
func TestSuiteIncremental(t *testing.T) {
	s := setup
	s.Double = func(o *externaltest.Options) { o.Incremental = true }
	externaltest.Suite(t, s)
}

// Older releases have other names for the same.
func TestSuiteOld(t *testing.T) {
	s := setup
	s.Double = func(o *externaltest.Options) { o.Version = "old" }
	externaltest.Suite(t, s)
}

// start starts a double and an Engine of it.
func start(t *testing.T, o externaltest.Options, change func(*wire.Config)) (*externaltest.Double, *Engine) {
	t.Helper()
	o.Backend = cluster.BackendSGLang
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
	_, e := start(t, externaltest.Options{Role: cluster.RolePrefill, Ranks: 2}, nil)
	f, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := external.Facts{
		Version: "0.5.4", Models: []string{"m"}, MaxModelLen: 8192, BlockSize: 16, KVBlocks: 2048, KVDType: "auto", Ranks: 2, TensorParallel: 2, MaxSeqs: 64,
		Mode: "prefill", Meets: &cluster.ServerPlace{Host: "127.0.0.1", Port: 8998},
		Pair: "sglang|bootstrap|mooncake|0.5.4|/models/m|auto|tp2|page16",
	}
	got, _ := json.Marshal(f)
	if wanted, _ := json.Marshal(want); string(got) != string(wanted) {
		t.Errorf("facts\n%s, want\n%s", got, wanted)
	}
}

func TestPlace(t *testing.T) {
	for name, test := range map[string]struct {
		server cluster.External
		info   serverInfo
		want   cluster.ServerPlace
	}{
		"address":       {cluster.External{}, serverInfo{}, cluster.ServerPlace{Host: "gpu-1", Port: 8998}},
		"told":          {cluster.External{}, serverInfo{BootstrapPort: 7000}, cluster.ServerPlace{Host: "gpu-1", Port: 7000}},
		"several nodes": {cluster.External{}, serverInfo{DistInit: "10.0.0.9:5000"}, cluster.ServerPlace{Host: "10.0.0.9", Port: 8998}},
		"configured":    {cluster.External{Host: "rdma-1", BootstrapPort: 6000}, serverInfo{BootstrapPort: 7000, DistInit: "10.0.0.9:5000"}, cluster.ServerPlace{Host: "rdma-1", Port: 6000}},
		"nonsense":      {cluster.External{}, serverInfo{BootstrapPort: 70000, DistInit: "x"}, cluster.ServerPlace{Host: "gpu-1", Port: 8998}},
	} {
		e, err := New(wire.Config{URL: "http://gpu-1:30000", Engine: cluster.EngineSpec{Backend: cluster.BackendSGLang, Server: test.server}})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.place(test.info); got.Host != test.want.Host || got.Port != test.want.Port {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// A server does what it was started for, whatever it is configured as.
func TestModes(t *testing.T) {
	for name, test := range map[string]struct {
		server    cluster.Role // what it was started for
		connector string
		role      cluster.Role
		text      string // of the error
	}{
		"prefill":             {cluster.RolePrefill, "bootstrap", cluster.RolePrefill, ""},
		"decode":              {cluster.RoleDecode, "bootstrap", cluster.RoleDecode, ""},
		"any, as decode":      {"", "bootstrap", cluster.RoleDecode, ""},
		"any, as prefill":     {"", "bootstrap", cluster.RolePrefill, "--disaggregation-mode prefill"},
		"the other":           {cluster.RoleDecode, "bootstrap", cluster.RolePrefill, "is configured as prefill"},
		"alone":               {"", wire.ConnectorNone, cluster.RoleDecode, ""},
		"half a pair, alone":  {cluster.RoleDecode, wire.ConnectorNone, cluster.RoleDecode, "set connector"},
		"role not configured": {cluster.RolePrefill, "bootstrap", "", ""},
	} {
		_, e := start(t, externaltest.Options{Role: test.server, Connector: "bootstrap"}, func(c *wire.Config) {
			c.Role, c.Engine.Server.Connector = test.role, test.connector
		})
		_, err := e.Probe(t.Context())
		if (err != nil) != (test.text != "") || err != nil && (!strings.Contains(err.Error(), test.text) || errors.Is(err, external.ErrNotReady)) {
			t.Errorf("%s: error %v, want %q", name, err, test.text)
		}
	}
}

// pair starts a prefill and a decode server with a short patience.
func pair(t *testing.T, wait time.Duration) (fabric *externaltest.Fabric, prefill, decode *Engine, servers [2]*externaltest.Double) {
	t.Helper()
	fabric = externaltest.NewFabric()
	fabric.Wait = wait
	servers[0], prefill = start(t, externaltest.Options{Role: cluster.RolePrefill, Fabric: fabric}, nil)
	servers[1], decode = start(t, externaltest.Options{Role: cluster.RoleDecode, Fabric: fabric}, nil)
	return fabric, prefill, decode, servers
}

func meeting(room uint64) *external.Meeting {
	return &external.Meeting{ServerPlace: cluster.ServerPlace{Host: "10.0.0.7", Port: 8998}, Room: room}
}

// A leg whose other one never comes ends by the server's own limit, and its room is spoiled.
func TestLostLeg(t *testing.T) {
	_, prefill, decode, _ := pair(t, 50*time.Millisecond)
	r := externaltest.Ask(externaltest.Prompt(8), 4)
	r.Meeting = meeting(7)
	_, err := prefill.Prefill(t.Context(), r)
	if remote := externaltest.Kind(t, err, requestplane.KindUnavailable); !strings.Contains(remote.Message, "timed out") {
		t.Errorf("error %v", err)
	}
	_, err = externaltest.Collect(t.Context(), t, decode, r)
	externaltest.Kind(t, err, requestplane.KindUnavailable)
	r.Meeting = nil
	_, err = externaltest.Collect(t.Context(), t, decode, r)
	if remote := externaltest.Kind(t, err, requestplane.KindInvalidArgument); !strings.Contains(remote.Message, "room") {
		t.Errorf("without a room: %v", err)
	}
	_, err = prefill.Prefill(t.Context(), r)
	externaltest.Kind(t, err, requestplane.KindUnavailable)
	for _, bad := range []*external.Meeting{{Room: 1}, meeting(1 << 63)} {
		r.Meeting = bad
		_, err := prefill.Prefill(t.Context(), r)
		externaltest.Kind(t, err, requestplane.KindUnavailable)
	}
}

// Both legs get the request as the client gave it, the room as a whole number.
func TestLegsAreEqual(t *testing.T) {
	_, prefill, decode, servers := pair(t, time.Minute)
	r := externaltest.AskBody(protocol.APIChat, `{"messages":[ ],"max_tokens":40,"stream":true}`)
	r.Meeting = meeting(1<<63 - 1)
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
	ids := map[string]bool{}
	for _, server := range servers {
		sent := string(server.Last(t).Body)
		for _, part := range []string{`"messages":[ ]`, `"max_tokens":40`, `"stream":true`, `"bootstrap_host":"10.0.0.7","bootstrap_port":8998,"bootstrap_room":9223372036854775807`} {
			if !strings.Contains(sent, part) {
				t.Errorf("%s is not in %s", part, sent)
			}
		}
		var v struct {
			ID string `json:"rid"`
		}
		if err := json.Unmarshal([]byte(sent), &v); err != nil || !strings.HasPrefix(v.ID, "req-1-") || ids[v.ID] {
			t.Errorf("id %q, %v", v.ID, err)
		}
		ids[v.ID] = true
	}
}

// A request that its client left is aborted by its id.
func TestAbort(t *testing.T) {
	d, e := start(t, externaltest.Options{Connector: wire.ConnectorNone}, nil)
	if _, err := externaltest.Collect(t.Context(), t, e, externaltest.Ask(externaltest.Prompt(8), 8)); err != nil || len(d.Aborted()) != 0 {
		t.Errorf("a request that came to its end: %v, aborted %v", err, d.Aborted())
	}
	d.Fail(externaltest.Stall)
	ctx, cancel := context.WithCancel(t.Context())
	err := e.Generate(ctx, externaltest.Ask(externaltest.Prompt(8), 8), func(protocol.EngineOutput) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	var sent struct {
		ID string `json:"rid"`
	}
	if err := json.Unmarshal(d.Last(t).Body, &sent); err != nil {
		t.Fatal(err)
	}
	if got := d.Aborted(); len(got) != 1 || got[0] != sent.ID {
		t.Errorf("aborted %v, want %q", got, sent.ID)
	}
}

func TestOptions(t *testing.T) {
	r := externaltest.Ask([]uint32{1, 2}, 40)
	r.Sampling = protocol.SamplingOptions{Temperature: 0.7, TopP: 0.9, TopK: 5, MinP: 0.1, Seed: 7, RepetitionPenalty: 1.1, FrequencyPenalty: 0.2, PresencePenalty: -0.3, LogitBias: []protocol.TokenBias{{Token: 9, Bias: -2}}}
	r.Stop = protocol.StopConditions{MaxTokens: 40, MinTokens: 3, StopTokenIDs: []uint32{6}, StopTokenIDsVisible: []uint32{7}}
	r.Guided = &protocol.Guided{Kind: "choice", Choices: []string{"a.", "b"}}
	body, err := tokenRequest(r, "id")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"input_ids":[1,2],"rid":"id","stream":true,"sampling_params":{"max_new_tokens":40,"min_new_tokens":3,"stop_token_ids":[6,7],"ignore_eos":true,"skip_special_tokens":false,"no_stop_trim":true,` +
		`"temperature":0.7,"top_p":0.9,"min_p":0.1,"repetition_penalty":1.1,"frequency_penalty":0.2,"presence_penalty":-0.3,"sampling_seed":7,"logit_bias":{"9":-2},"top_k":5,"regex":"(a\\.|b)"}}`
	if string(body) != want {
		t.Errorf("request\n%s, want\n%s", body, want)
	}
}

// Servers count what they send; a count that does not fit is an error, not a guess.
func TestReader(t *testing.T) {
	for name, test := range map[string]struct {
		events []string
		want   string
	}{
		"all so far":    {[]string{`{"output_ids":[1],"meta_info":{"completion_tokens":1}}`, `{"output_ids":[1,2,3],"meta_info":{"completion_tokens":3}}`}, "[1][2 3]"},
		"new ones":      {[]string{`{"output_ids":[1,2],"meta_info":{"completion_tokens":2}}`, `{"output_ids":[3],"meta_info":{"completion_tokens":3}}`}, "[1 2][3]"},
		"nothing new":   {[]string{`{"output_ids":[1],"meta_info":{"completion_tokens":1}}`, `{"output_ids":[1],"meta_info":{"completion_tokens":1}}`, `{"output_ids":[],"meta_info":{"completion_tokens":1}}`}, "[1][][]"},
		"a gap":         {[]string{`{"output_ids":[1],"meta_info":{"completion_tokens":1}}`, `{"output_ids":[4],"meta_info":{"completion_tokens":4}}`}, "[1]error"},
		"back":          {[]string{`{"output_ids":[1,2],"meta_info":{"completion_tokens":2}}`, `{"output_ids":[1],"meta_info":{"completion_tokens":1}}`}, "[1 2]error"},
		"text":          {[]string{`{"text":"a","meta_info":{"completion_tokens":1}}`, `{"text":"ab","meta_info":{"completion_tokens":2}}`}, "ab"},
		"text by parts": {[]string{`{"text":"xy","meta_info":{}}`, `{"text":"z","meta_info":{}}`}, "xyz"},
	} {
		var r reader
		var got strings.Builder
		for _, raw := range test.events {
			var ev event
			if err := json.Unmarshal([]byte(raw), &ev); err != nil {
				t.Fatal(err)
			}
			p, err := r.piece(&ev)
			switch {
			case err != nil:
				got.WriteString("error")
			case ev.IDs != nil:
				got.WriteString(strings.ReplaceAll(strings.ReplaceAll(stringOf(p.IDs), ",", " "), "null", "[]"))
			default:
				got.WriteString(p.Text)
			}
		}
		if got.String() != test.want {
			t.Errorf("%s: %s, want %s", name, got.String(), test.want)
		}
	}
}

func stringOf(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// An answer that the server gave up is no answer.
func TestAborted(t *testing.T) {
	for raw, want := range map[string]requestplane.Kind{
		`{"type":"abort","message":"KV transfer failed","status_code":500}`: requestplane.KindUnavailable,
		`{"type":"abort","message":"input is too long","status_code":400}`:  requestplane.KindInvalidArgument,
		`{"type":"abort","message":"the queue is full.","status_code":503}`: requestplane.KindOverloaded,
		`{"type":"abort"}`: requestplane.KindUnavailable,
		`"abort"`:          requestplane.KindUnavailable,
	} {
		var f finish
		if err := json.Unmarshal([]byte(raw), &f); err != nil {
			t.Fatal(err)
		}
		externaltest.Kind(t, wire.Remote(t.Context(), f.failure()), want)
	}
	var f finish
	if err := json.Unmarshal([]byte(`"length"`), &f); err != nil || f.failure() != nil || f.Type != "length" {
		t.Errorf("%+v, %v", f, err)
	}
}

func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"output_ids":[1],"meta_info":{"completion_tokens":1,"output_token_logprobs":[[-1,1,null]],"output_top_logprobs":[[[-1,1,null]]],"finish_reason":{"type":"length"}}}`))
	f.Add([]byte(`{"text":"a","meta_info":{"finish_reason":"stop","output_token_logprobs":[[]]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var ev event
		if json.Unmarshal(b, &ev) != nil {
			return
		}
		width := 1
		for _, r := range []reader{{}, {width: &width}, {n: 1}} {
			p, err := r.piece(&ev)
			if err == nil && p.Logprobs != nil && !p.Logprobs.Valid(len(p.IDs)) {
				t.Errorf("%q gives %+v", b, p)
			}
		}
		_ = ev.Meta.Finish.failure()
	})
}
