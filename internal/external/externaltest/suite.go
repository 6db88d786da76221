package externaltest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Setup says what an adapter is and can do.
type Setup struct {
	Backend string
	New     func(wire.Config) (external.Engine, error)
	// Tokens says that answers have tokens; else they have text.
	Tokens bool
	// Logprobs is how many most likely tokens it can tell; -1: no log probabilities at all.
	Logprobs int
	// Connectors are those that exchange KV.
	Connectors []string
	// Early says that the cached tokens are known with the first token.
	Early bool
	// Adapters says that requests may name LoRA adapters.
	Adapters bool
	// Encodes says that servers encode for each other.
	Encodes bool
	// Double changes the options of the doubles.
	Double func(*Options)
}

// Suite checks an adapter against doubles of its server.
func Suite(t *testing.T, s Setup) {
	t.Run("generate", s.generate)
	t.Run("limits", s.limits)
	t.Run("logprobs", s.logprobs)
	t.Run("bodies", s.bodies)
	t.Run("control fields", s.controlFields)
	t.Run("failures", s.failures)
	t.Run("silence", s.silence)
	t.Run("cancel", s.cancel)
	t.Run("emit fails", s.emitFails)
	t.Run("keys", s.keys)
	t.Run("unsupported", s.unsupported)
	t.Run("probe", s.probe)
	t.Run("load", s.load)
	t.Run("sleep", s.sleep)
	t.Run("exchange", s.exchange)
	t.Run("adapters", s.adapters)
	t.Run("encode", s.encode)
	t.Run("server", s.server)
}

// start starts a double and an adapter of it.
func (s Setup) start(t testing.TB, o Options, change func(*wire.Config)) (*Double, external.Engine) {
	t.Helper()
	o.Backend = s.Backend
	if o.Connector == "" && s.Backend != cluster.BackendOpenAI {
		o.Connector = wire.ConnectorNone
	}
	if s.Double != nil {
		s.Double(&o)
	}
	d := New(t, o)
	c := wire.Config{
		Engine: cluster.EngineSpec{Backend: s.Backend, Server: cluster.External{URL: d.URL, Connector: o.Connector}},
		Role:   o.Role, Model: d.o.Model, Limits: wire.Limits{Control: patience, Silence: patience},
	}
	if d.boot != nil {
		c.Engine.Server.BootstrapPort = d.BootstrapPort()
	}
	if change != nil {
		change(&c)
	}
	e, err := s.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return d, e
}

// Prompt is a prompt of n tokens.
func Prompt(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i*7 + 3) // #nosec G115 -- small
	}
	return ids
}

// Ask returns a request for most tokens after a prompt.
func Ask(prompt []uint32, most int) *external.Request {
	return &external.Request{Model: "m", PreprocessedRequest: &protocol.PreprocessedRequest{
		RequestID: "req-1", TokenIDs: prompt, Stop: protocol.StopConditions{MaxTokens: most},
	}}
}

// AskBody returns a request with a client's body.
func AskBody(api protocol.API, body string) *external.Request {
	return &external.Request{Model: "m", PreprocessedRequest: &protocol.PreprocessedRequest{
		RequestID: "req-1", Body: json.RawMessage(body), API: api,
	}}
}

// Answer is what an adapter emitted.
type Answer struct {
	Outputs []protocol.EngineOutput
	IDs     []uint32
	Text    string
	Raw     []string
	Logs    protocol.Logprobs
	Finish  protocol.FinishReason
	Usage   *protocol.Usage
}

// Collect generates an answer. It fails the test if outputs come after the last one, or none
// is the last.
func Collect(ctx context.Context, t testing.TB, e external.Engine, r *external.Request) (Answer, error) {
	t.Helper()
	var a Answer
	err := e.Generate(ctx, r, func(o protocol.EngineOutput) error {
		if a.Finish != "" {
			t.Errorf("an output after the last one: %+v", o)
		}
		a.add(o)
		return nil
	})
	if err == nil && a.Finish == "" {
		t.Error("no output was the last one")
	}
	return a, err
}

func (a *Answer) add(o protocol.EngineOutput) {
	a.Outputs = append(a.Outputs, o)
	a.IDs, a.Text = append(a.IDs, o.TokenIDs...), a.Text+o.Text
	if o.Raw != nil {
		a.Raw = append(a.Raw, string(o.Raw))
	}
	if o.Logprobs != nil {
		a.Logs.Width = o.Logprobs.Width
		a.Logs.Append(o.Logprobs)
	}
	a.Finish, a.Usage = o.Finish, o.Usage
}

func collect(t testing.TB, e external.Engine, r *external.Request) Answer {
	t.Helper()
	a, err := Collect(t.Context(), t, e, r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// same fails unless an answer has the tokens want.
func (s Setup) same(t testing.TB, a Answer, want []uint32) {
	t.Helper()
	if s.Tokens && !slices.Equal(a.IDs, want) {
		t.Errorf("tokens %v, want %v", a.IDs, want)
	}
	if text := Text(want); !s.Tokens && a.Text != text {
		t.Errorf("text %q, want %q", a.Text, text)
	}
}

// Kind fails unless an error is a RemoteError of a kind.
func Kind(t testing.TB, err error, want ...requestplane.Kind) *requestplane.RemoteError {
	t.Helper()
	var r *requestplane.RemoteError
	if !errors.As(err, &r) || !slices.Contains(want, r.Kind) {
		t.Fatalf("error %v, want one of %v", err, want)
	}
	return r
}

func (s Setup) generate(t *testing.T) {
	_, e := s.start(t, Options{Comments: true}, nil)
	prompt := Prompt(40)
	a := collect(t, e, Ask(prompt, 12))
	s.same(t, a, Continue(Hash(512), prompt, 12))
	if a.Finish != protocol.FinishLength {
		t.Errorf("finish %q, want length", a.Finish)
	}
	want := protocol.Usage{PromptTokens: 40, CompletionTokens: 12, CachedTokens: cachedOf(40)}
	if a.Usage == nil || *a.Usage != want {
		t.Errorf("usage %+v, want %+v", a.Usage, want)
	}
	if len(a.Outputs) < 12 {
		t.Errorf("%d outputs: the answer was no stream", len(a.Outputs))
	}
	if timing := a.Outputs[0].Timing; s.Early && (timing == nil || timing.CachedTokens != cachedOf(40)) {
		t.Errorf("timing %+v of the first output, want %d cached tokens", timing, cachedOf(40))
	}
	for i, o := range a.Outputs {
		if i > 0 && o.Timing != nil || o.Raw != nil || o.Usage != nil && i < len(a.Outputs)-1 {
			t.Errorf("output %d: %+v", i, o)
		}
	}
	// A migrated answer: what was generated before is part of the prompt.
	r := Ask(append(slices.Clone(prompt), a.IDs...), 4)
	r.Generated = len(a.IDs)
	if more := collect(t, e, r); s.Tokens {
		s.same(t, more, Continue(Hash(512), prompt, 16)[12:])
		if more.Usage.PromptTokens != 40 {
			t.Errorf("%d prompt tokens of a migrated request, want 40", more.Usage.PromptTokens)
		}
	}
}

func (s Setup) limits(t *testing.T) {
	if !s.Tokens {
		t.Skip("answers have no tokens")
	}
	prompt := Prompt(20)
	all := Continue(Hash(512), prompt, 30)
	d, e := s.start(t, Options{EOS: all[2]}, nil)
	for name, test := range map[string]struct {
		stop   protocol.StopConditions
		want   []uint32
		finish protocol.FinishReason
	}{
		"length":          {protocol.StopConditions{MaxTokens: 7}, all[:7], protocol.FinishLength},
		"one":             {protocol.StopConditions{MaxTokens: 1}, all[:1], protocol.FinishLength},
		"hidden":          {protocol.StopConditions{MaxTokens: 30, StopTokenIDs: []uint32{all[5]}}, all[:5], protocol.FinishStop},
		"visible":         {protocol.StopConditions{MaxTokens: 30, StopTokenIDsVisible: []uint32{all[5]}}, all[:6], protocol.FinishStop},
		"first":           {protocol.StopConditions{MaxTokens: 30, StopTokenIDs: []uint32{all[0]}}, nil, protocol.FinishStop},
		"stop at length":  {protocol.StopConditions{MaxTokens: 6, StopTokenIDs: []uint32{all[5]}}, all[:5], protocol.FinishStop},
		"end not asked":   {protocol.StopConditions{MaxTokens: 9}, all[:9], protocol.FinishLength},
		"minimum":         {protocol.StopConditions{MaxTokens: 8, MinTokens: 8, StopTokenIDs: []uint32{all[5]}}, nil, protocol.FinishLength},
		"minimum too big": {protocol.StopConditions{MaxTokens: 8, MinTokens: 80}, all[:8], protocol.FinishLength},
	} {
		t.Run(name, func(t *testing.T) {
			r := Ask(prompt, 0)
			r.Stop = test.stop
			a := collect(t, e, r)
			if name == "minimum" {
				if len(a.IDs) != 8 || slices.Contains(a.IDs, all[5]) {
					t.Errorf("tokens %v: 8 of them without %d are asked for", a.IDs, all[5])
				}
			} else if !slices.Equal(a.IDs, test.want) {
				t.Errorf("tokens %v, want %v", a.IDs, test.want)
			}
			if a.Finish != test.finish || a.Usage.CompletionTokens != len(a.IDs) {
				t.Errorf("finish %q and %d tokens counted, want %q and %d", a.Finish, a.Usage.CompletionTokens, test.finish, len(a.IDs))
			}
		})
	}
	if n := d.Cancelled(); n != 0 {
		t.Errorf("%d answers were left before their end", n)
	}
}

func (s Setup) logprobs(t *testing.T) {
	if s.Logprobs < 0 {
		t.Skip("it tells none")
	}
	prompt := Prompt(20)
	all := Continue(Hash(512), prompt, 8)
	_, e := s.start(t, Options{}, nil)
	for width := range min(s.Logprobs, 3) + 1 {
		r := Ask(prompt, 8)
		r.Output.Logprobs = &width
		r.Stop.StopTokenIDs = []uint32{all[6]}
		a := collect(t, e, r)
		if len(a.IDs) != 6 || !a.Logs.Valid(6) || a.Logs.Width != width {
			t.Fatalf("%d tokens with log probabilities %+v, want 6 of width %d", len(a.IDs), a.Logs, width)
		}
		ids := slices.Clone(prompt)
		for i, id := range a.IDs {
			if got, want := a.Logs.Tokens[i], Logprob(ids, id); got != want {
				t.Errorf("log probability %v of token %d, want %v", got, i, want)
			}
			top, values := a.Logs.Top(i)
			for k, want := range Top(ids, 512, width) {
				if values[k] != Logprob(ids, want) {
					t.Errorf("token %d: most likely %v %v, want %d with %v at %d", i, top, values, want, Logprob(ids, want), k)
				}
			}
			ids = append(ids, id)
		}
	}
}

func (s Setup) unsupported(t *testing.T) {
	d, e := s.start(t, Options{}, nil)
	for field, change := range map[string]func(*protocol.PreprocessedRequest){
		"bad_words":       func(r *protocol.PreprocessedRequest) { r.Sampling.BadWords = [][]uint32{{1}} },
		"prompt_logprobs": func(r *protocol.PreprocessedRequest) { r.Output.PromptLogprobs = new(int) },
		"max_tokens":      func(r *protocol.PreprocessedRequest) { r.Stop.MaxTokens = 0 },
		"images":          func(r *protocol.PreprocessedRequest) { r.Media = []protocol.MediaPart{{}} },
		"after reasoning": func(r *protocol.PreprocessedRequest) {
			r.Guided = &protocol.Guided{Kind: "json_object", After: []uint32{1}}
		},
		"nonsense": func(r *protocol.PreprocessedRequest) { r.Guided = &protocol.Guided{Kind: "nonsense"} },
	} {
		r := Ask(Prompt(4), 4)
		change(r.PreprocessedRequest)
		_, err := Collect(t.Context(), t, e, r)
		if remote := Kind(t, err, requestplane.KindInvalidArgument); !strings.Contains(remote.Message, field) && field != "nonsense" {
			t.Errorf("%s: the error does not name it: %v", field, err)
		}
	}
	if n := len(d.Seen()); n != 0 {
		t.Errorf("%d requests reached the server", n)
	}
}

func (s Setup) keys(t *testing.T) {
	const first, second = "key-one-1234567890", "key-two-0987654321"
	path := filepath.Join(t.TempDir(), "key")
	write := func(key string, at time.Time) {
		if err := os.WriteFile(path, []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	write(first, now)
	d, e := s.start(t, Options{Key: second}, func(c *wire.Config) { c.Engine.Server.KeyFile = path })
	_, err := Collect(t.Context(), t, e, Ask(Prompt(4), 4))
	Kind(t, err, requestplane.KindUnavailable)
	if _, err := e.Probe(t.Context()); err == nil || errors.Is(err, external.ErrNotReady) || !strings.Contains(err.Error(), "api_key_file") {
		t.Errorf("probe with a wrong key: %v", err)
	}
	write(second, now.Add(time.Second))
	collect(t, e, Ask(Prompt(4), 4))
	if _, err := e.Probe(t.Context()); err != nil {
		t.Errorf("probe: %v", err)
	}
	for _, f := range []Failure{EchoKey, Internal, Cut, Redirect} {
		d.Fail(f)
		_, err := Collect(t.Context(), t, e, Ask(Prompt(4), 4))
		if err == nil || strings.Contains(err.Error(), second) {
			t.Errorf("failure %d: %v", f, err)
		}
	}
	for _, seen := range d.Seen() {
		if strings.Contains(string(seen.Body), second) {
			t.Error("a body has the key")
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err = Collect(t.Context(), t, e, Ask(Prompt(4), 4))
	Kind(t, err, requestplane.KindUnavailable)
}
