package externaltest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Server is any server that runs, a double or not, with an adapter for it.
type Server struct {
	// Config is the adapter's, with the URL and the model, and New makes the adapter.
	Config wire.Config
	New    func(wire.Config) (external.Engine, error)
	// Prompt is one in tokens of the model, and Words one in text. End are the tokens that end its
	// answers, which are not to end here.
	Prompt []uint32
	Words  string
	End    []uint32
	// Context is the longest prompt and answer that it takes; 0 if it does not tell.
	Context int
	// AnyModel says that it does not look at the names of models in requests.
	AnyModel bool
	// Running counts the requests that it answers.
	Running func() int
}

// ServerSuite checks what an adapter and its server do together, as far as the server must not be
// told to fail for that: it runs over servers that compute.
func ServerSuite(t *testing.T, s Server) {
	t.Run("probe", s.probe)
	t.Run("generate", s.generate)
	t.Run("bodies", s.bodies)
	t.Run("control fields", s.controlFields)
	t.Run("refusals", s.refusals)
	t.Run("cancel", s.cancel)
	t.Run("emit fails", s.emitFails)
}

func (s Server) start(t *testing.T, change func(*wire.Config)) external.Engine {
	t.Helper()
	c := s.Config
	if change != nil {
		change(&c)
	}
	e, err := s.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// ask returns a request in tokens, which chooses the most likely one each time.
func (s Server) ask(most int) *external.Request {
	r := Ask(s.Prompt, most)
	r.Model = s.Config.Model
	for _, id := range s.End {
		r.Sampling.LogitBias = append(r.Sampling.LogitBias, protocol.TokenBias{Token: id, Bias: -100})
	}
	return r
}

// body is ask in a client's words.
func (s Server) body(api protocol.API, members string) *external.Request {
	prompt := `"prompt":"` + s.Words + `"`
	if api == protocol.APIChat {
		prompt = `"messages":[{"role":"user","content":"` + s.Words + `"}]`
	}
	bias := ""
	for _, id := range s.End {
		bias += fmt.Sprintf(`,"%d":-100`, id)
	}
	if bias != "" {
		members += `,"logit_bias":{` + bias[1:] + `}`
	}
	r := AskBody(api, `{"model":"any","temperature":0,`+prompt+members+`}`)
	r.Model = s.Config.Model
	return r
}

func (s Server) probe(t *testing.T) {
	e := s.start(t, nil)
	f, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f.MaxModelLen != s.Context || len(f.Models) == 0 {
		t.Errorf("models %v, prompts and answers of %d tokens, want %d", f.Models, f.MaxModelLen, s.Context)
	}
	if err := e.Health(t.Context()); err != nil {
		t.Errorf("health: %v", err)
	}
	if _, err := e.Load(t.Context()); err != nil {
		t.Errorf("load: %v", err)
	}
	other := s.start(t, func(c *wire.Config) { c.Model = "another model" })
	if _, err := other.Probe(t.Context()); err == nil || errors.Is(err, external.ErrNotReady) || !strings.Contains(err.Error(), s.Config.Model) {
		t.Errorf("a model that it does not serve: %v", err)
	}
}

func (s Server) generate(t *testing.T) {
	e := s.start(t, nil)
	text := ""
	// A server that computes faster than it writes may send several tokens in one piece, now and then.
	for i, streamed := 0, false; i < 2 || !streamed; i++ {
		if i == 20 {
			t.Fatal("no answer was a stream")
		}
		a := collect(t, e, s.ask(12))
		streamed = streamed || len(a.Outputs) > 1
		want := protocol.Usage{PromptTokens: len(s.Prompt), CompletionTokens: 12}
		if a.Finish != protocol.FinishLength || a.Usage == nil {
			t.Fatalf("finish %q, usage %+v", a.Finish, a.Usage)
		}
		want.CachedTokens = a.Usage.CachedTokens
		if *a.Usage != want || want.CachedTokens < 0 || want.CachedTokens > want.PromptTokens {
			t.Errorf("usage %+v, want %+v", *a.Usage, want)
		}
		if a.Text == "" && len(a.IDs) == 0 {
			t.Error("an empty answer")
		}
		if text != "" && a.Text != text {
			t.Errorf("text %q, and then %q", text, a.Text)
		}
		text = a.Text
	}
	if a := collect(t, e, s.ask(1)); a.Finish != protocol.FinishLength || a.Usage.CompletionTokens != 1 {
		t.Errorf("one token: finish %q, usage %+v", a.Finish, a.Usage)
	}
}

func (s Server) bodies(t *testing.T) {
	e := s.start(t, nil)
	for _, api := range []protocol.API{protocol.APIChat, protocol.APICompletions} {
		text := ""
		for members, form := range map[string]struct{ stream, usage bool }{
			`,"max_tokens":9`:                                                                  {false, true},
			`,"max_tokens":9,"stream":false`:                                                   {false, true},
			`,"max_tokens":9,"stream":true`:                                                    {true, false},
			`,"max_tokens":9,"stream":true,"stream_options":null`:                              {true, false},
			`,"max_tokens":9,"stream" : true,"stream_options":{"include_usage":false}`:         {true, false},
			`,"max_tokens":9,"stream":true,"stream_options":{"include_usage":true},"user":"u"`: {true, true},
		} {
			a := collect(t, e, s.body(api, members))
			got, usages := readRaw(t, a.Raw)
			if text == "" {
				text = got
			}
			if got == "" || got != text {
				t.Errorf("%s%s: text %q, in another form %q", api, members, got, text)
			}
			// One object without usage is a stream, too, of tokens that were computed faster than written.
			if (usages > 0) != form.usage || !form.stream && len(a.Raw) != 1 || form.stream && form.usage && len(a.Raw) < 2 {
				t.Errorf("%s%s: %d chunks, %d with usage", api, members, len(a.Raw), usages)
			}
			if a.Finish != protocol.FinishLength || a.Usage == nil || a.Usage.CompletionTokens != 9 || a.Usage.PromptTokens < 1 {
				t.Errorf("%s%s: finish %q, usage %+v", api, members, a.Finish, a.Usage)
			}
			for _, raw := range a.Raw {
				if !strings.Contains(raw, `"`+s.Config.Model+`"`) {
					t.Errorf("%s%s: an object does not name the model: %s", api, members, raw)
				}
			}
		}
	}
}

// What controls servers does not come through, and does not end the request either.
func (s Server) controlFields(t *testing.T) {
	e := s.start(t, nil)
	for _, more := range []string{``, `,"stream":true`} {
		a := collect(t, e, s.body(protocol.APIChat, `,"max_tokens":3,`+forbidden+more))
		for _, raw := range a.Raw {
			for _, word := range []string{"evil", "transfer_params", "bootstrap_", "disaggregated_params"} {
				if strings.Contains(raw, word) {
					t.Errorf("the answer has %s: %s", word, raw)
				}
			}
		}
	}
}

func (s Server) refusals(t *testing.T) {
	e := s.start(t, nil)
	for _, stream := range []string{``, `,"stream":true`} {
		for _, api := range []protocol.API{protocol.APIChat, protocol.APICompletions} {
			for _, members := range []string{`,"top_p":7`, `,"max_tokens":-1`} {
				_, err := Collect(t.Context(), t, e, s.body(api, members+stream))
				remote := Kind(t, err, requestplane.KindInvalidArgument)
				if field := members[2:6]; !strings.Contains(remote.Message, field) { // SGLang has max_new_tokens
					t.Errorf("%s%s: the error does not name it: %s", api, members, remote.Message)
				}
			}
		}
	}
	if r := s.ask(4); !s.AnyModel {
		r.Model = "another model"
		_, err := Collect(t.Context(), t, e, r)
		Kind(t, err, requestplane.KindUnavailable) // another server may have it
	}
	if n := s.Running(); n != 0 {
		t.Errorf("%d requests run", n)
	}
}

// longest is the length of answers that are not to end before they are cancelled.
const longest = 1000

// long asks for the longest answers, of each kind.
func (s Server) long() map[string]*external.Request {
	return map[string]*external.Request{
		"tokens": s.ask(longest),
		"stream": s.body(protocol.APIChat, fmt.Sprintf(`,"max_tokens":%d,"stream":true`, longest)),
		"body":   s.body(protocol.APIChat, fmt.Sprintf(`,"max_tokens":%d`, longest)),
	}
}

func (s Server) cancel(t *testing.T) {
	e := s.start(t, nil)
	for name, r := range s.long() {
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the client left")
		ended := make(chan error, 1)
		go func() {
			ended <- e.Generate(ctx, r, func(protocol.EngineOutput) error { return nil })
		}()
		eventually(t, name+": the server answers", func() bool { return s.Running() > 0 || len(ended) > 0 })
		cancel(cause)
		if err := <-ended; !errors.Is(err, cause) {
			t.Errorf("%s: error %v, want the cause", name, err)
		}
		eventually(t, name+": the server sees that the client left", func() bool { return s.Running() == 0 })
	}
}

func (s Server) emitFails(t *testing.T) {
	e := s.start(t, nil)
	stop := errors.New("stop")
	for name, r := range s.long() {
		if name == "body" {
			continue // it has one output
		}
		if err := e.Generate(t.Context(), r, func(protocol.EngineOutput) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("%s: error %v, want that of emit", name, err)
		}
		eventually(t, name+": the server sees that the client left", func() bool { return s.Running() == 0 })
	}
}

// server runs ServerSuite over a double.
func (s Setup) server(t *testing.T) {
	var config wire.Config
	d, e := s.start(t, Options{Gate: func(ctx context.Context) error {
		select {
		case <-time.After(time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}, func(c *wire.Config) { config = *c })
	f, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ServerSuite(t, Server{
		Config: config, New: s.New, Prompt: Prompt(20), Words: "once", Context: f.MaxModelLen, Running: d.Open,
		AnyModel: s.Backend == cluster.BackendSGLang || s.Backend == cluster.BackendTensorRTLLM,
	})
}
