package frontend

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// vllmWorker makes a fake a worker whose engine is a server of vLLM.
func vllmWorker(pair string) func(*fake) {
	return func(fk *fake) {
		rt := &fk.card.Runtime
		rt.Backend, rt.Exchange, rt.Pair = cluster.BackendVLLM, "sequential", pair
	}
}

// sglangWorker makes a fake one of SGLang, whose prefill servers are met at a port.
func sglangWorker(fk *fake) {
	rt := &fk.card.Runtime
	rt.Backend, rt.Exchange, rt.Pair = cluster.BackendSGLang, "concurrent", "x"
	if fk.card.WorkerType == cluster.RolePrefill {
		rt.Meets = &cluster.ServerPlace{Host: "gpu-1", Port: 8998, Params: json.RawMessage(`{"a":9007199254740993}`)}
	} else {
		rt.NeedsPrefill = true
	}
}

// handsOver answers as a prefill server does that tells where the KV is.
func handsOver(handoff string) generator {
	return func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		err := send(protocol.EngineOutput{
			Timing: &protocol.Timing{CachedTokens: 2 * testBlock},
			Params: &protocol.DisaggregatedParams{Worker: "p", Deadline: req.Disagg.Deadline, Handoff: json.RawMessage(handoff), Cached: 2 * testBlock},
		})
		if err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

// Servers of other engines exchange KV only within a pair, whatever the strategy of the others
// is, and what one tells the other is kept byte for byte.
func TestServersArePaired(t *testing.T) {
	w := newWorld(t)
	const handoff = `{"remote_block_ids": [[9007199254740993]],"x":1.0}`
	w.prefiller("p-other", handsOver("{}"), vllmWorker("b"))
	pre := w.prefiller("p", handsOver(handoff), vllmWorker("a"))
	same := w.fake("d", say("abcdef"), vllmWorker("a"))
	own := w.fake("own", say("abcdef"))
	s := routing()
	s.change(func(k *Settings) { k.Strategy = protocol.StrategyDecodeFirst })
	f := w.configured(func(c *Config) { c.Settings = s.get }).waitModel(2)
	patience.Until(t, "the prefill worker is known", func() bool {
		return len(f.registry.find(testModel).prefills) == 1 && len(f.prefills.Instances()) == 2 // nobody takes the KV of p-other
	})
	for range 4 {
		if a := wholeAnswer(t, f.post("/v1/completions", longPrompt())); a.Choices[0].Text != "abcdef" {
			t.Fatalf("%+v", a)
		}
	}
	if len(pre.got()) != 4 || len(same.got()) != 4 || len(own.got()) != 0 {
		t.Fatalf("%d prefills, %d at the pair, %d elsewhere", len(pre.got()), len(same.got()), len(own.got()))
	}
	first, second := pre.got()[0], same.got()[0]
	if second.Disagg.Params == nil || string(second.Disagg.Params.Handoff) != handoff || second.Disagg.Strategy != protocol.StrategyPrefillFirst {
		t.Errorf("second leg %+v", second.Disagg)
	}
	if first.Stop.MaxTokens != second.Stop.MaxTokens || first.RequestID != second.RequestID {
		t.Errorf("the legs differ: %+v %+v", first, second)
	}
	// A short prompt stays with one worker, of either kind.
	for range 8 {
		wholeAnswer(t, f.post("/v1/completions", textBody(body{"prompt": "ab"})))
	}
	if len(pre.got()) != 4 || len(same.got())+len(own.got()) != 12 || len(own.got()) == 0 {
		t.Errorf("%d prefills, %d at the pair, %d elsewhere", len(pre.got()), len(same.got()), len(own.got()))
	}
}

// The answer goes on at a worker of another kind, which has the same model.
func TestServerIsLost(t *testing.T) {
	w := newWorld(t)
	broken := errors.New("broken")
	w.prefiller("p", handsOver("{}"), vllmWorker("a"))
	d := w.fake("d", say("abcdef", func(_ context.Context, n int) error {
		if n == 3 {
			return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: broken.Error()}
		}
		return nil
	}), vllmWorker("a"))
	own := w.fake("own", say("abcdef"))
	f := w.routed(routing(), 1, 2)
	if a := wholeAnswer(t, f.post("/v1/completions", longPrompt())); a.Choices[0].Text != "abcdef" {
		t.Fatalf("%+v", a)
	}
	if r := own.got(); len(r) != 1 || r[0].Generated != 3 || len(d.got()) != 1 || r[0].Disagg.Params != nil {
		t.Errorf("%+v", r)
	}
}

// KV whose only taker is gone holds nobody up: another worker computes the prompt.
func TestPairIsLost(t *testing.T) {
	w := newWorld(t)
	var d *fake
	var f *front
	w.prefiller("p", func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		d.vanish(t)
		patience.Until(t, "the decode server is gone", func() bool { return len(f.workers.Instances()) == 1 })
		return handsOver("{}")(ctx, req, send)
	}, vllmWorker("a"))
	d = w.fake("d", say("abcdef"), vllmWorker("a"))
	own := w.fake("own", say("abcdef"))
	f = w.routed(routing(), 1, 2)
	if a := wholeAnswer(t, f.post("/v1/completions", longPrompt())); a.Choices[0].Text != "abcdef" {
		t.Fatalf("%+v", a)
	}
	if r := own.got(); len(r) != 1 || r[0].Disagg.Params != nil || len(d.got()) != 0 {
		t.Errorf("%+v", r)
	}
}

// The first token of a prefill server may be the last one of the answer.
func TestPrefillServerAnswers(t *testing.T) {
	w := newWorld(t)
	w.prefiller("p", say("a"), vllmWorker("a"))
	d := w.fake("d", say("abcdef"), vllmWorker("a"))
	f := w.routed(routing(), 1, 1)
	a := wholeAnswer(t, f.post("/v1/completions", longPrompt()))
	if a.Choices[0].Text != "a" || len(d.got()) != 0 {
		t.Errorf("%+v, %d at the decode server", a, len(d.got()))
	}
}

// A prefill server that neither hands over nor answers is let go of before the answer ends: it
// would go on for nobody.
func TestPrefillServerSaysNothing(t *testing.T) {
	w := newWorld(t)
	let := make(chan struct{})
	pieces := 0
	w.prefiller("p", func(ctx context.Context, _ protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		defer close(let)
		for ctx.Err() == nil && pieces < 10*maxFirstAnswer {
			if send(protocol.EngineOutput{TokenIDs: []uint32{'a'}}) != nil {
				break
			}
			pieces++
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}, vllmWorker("a"))
	w.fake("d", say("abcdef", func(context.Context, int) error {
		select {
		case <-let:
		case <-time.After(patience.Soon):
			t.Error("the prefill server still works")
		}
		return nil
	}), vllmWorker("a"))
	f := w.routed(routing(), 1, 1)
	if a := wholeAnswer(t, f.post("/v1/completions", longPrompt())); a.Choices[0].Text != "abcdef" {
		t.Errorf("%+v", a)
	}
}

// Servers that meet get one request each, at once, with one room for each attempt. When one of
// them fails, the other one is let go of at once.
func TestServersMeet(t *testing.T) {
	w := newWorld(t)
	var fails, first atomic.Bool // the first time
	fails.Store(true)
	first.Store(true)
	waiting := make(chan struct{}) // closed when the decode server waits
	failing := func(ctx context.Context, _ protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		if err := send(protocol.EngineOutput{}); err != nil {
			return err
		}
		if fails.CompareAndSwap(true, false) {
			select {
			case <-waiting:
			case <-time.After(patience.Soon):
				t.Error("the decode server has not been asked meanwhile")
			}
			return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: "out of memory"}
		}
		if err := send(protocol.EngineOutput{Timing: &protocol.Timing{}}); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	waits := func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		if first.CompareAndSwap(true, false) {
			close(waiting)
			<-ctx.Done() // for a prefill that never comes
			return context.Cause(ctx)
		}
		return say("abcdef")(ctx, req, send)
	}
	one := w.prefiller("p-1", failing, sglangWorker)
	two := w.prefiller("p-2", failing, sglangWorker)
	d := w.fake("d", waits, sglangWorker)
	f := w.routed(routing(), 2, 1)
	if a := wholeAnswer(t, f.post("/v1/completions", longPrompt())); a.Choices[0].Text != "abcdef" {
		t.Fatalf("%+v", a)
	}
	patience.Until(t, "the first attempt is let go of", func() bool { return d.running.Load() == 0 && one.running.Load()+two.running.Load() == 0 })
	if len(one.got()) != 1 || len(two.got()) != 1 || len(d.got()) != 2 {
		t.Fatalf("%d and %d prefills, %d decodes", len(one.got()), len(two.got()), len(d.got()))
	}
	rooms := map[uint64]int{}
	for _, fk := range []*fake{one, two, d} {
		for _, r := range fk.got() {
			b := r.Disagg.Bootstrap
			if b == nil || b.Place == nil || b.Place.Host != "gpu-1" || string(b.Place.Params) != `{"a":9007199254740993}` || b.Room >= 1<<63 || r.Stop.MaxTokens < 6 {
				t.Fatalf("%s: %+v", fk.name, r.Disagg)
			}
			rooms[b.Room]++
		}
	}
	if len(rooms) != 2 {
		t.Errorf("rooms %v", rooms)
	}
	// Short prompts, too: the decode server computes none.
	if a := wholeAnswer(t, f.post("/v1/completions", textBody(body{"prompt": "ab"}))); a.Choices[0].Text != "abcdef" {
		t.Errorf("%+v", a)
	}
	for _, fk := range []*fake{one, two} {
		fk.vanish(t)
	}
	patience.Until(t, "no prefill worker is left", func() bool { return len(f.prefills.Instances()) == 0 })
	if resp := f.post("/v1/completions", longPrompt()); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without prefill servers: %s", resp.Status)
	}
}

// textModel makes a fake a worker of a model that only its server tokenizes.
func textModel(fk *fake) {
	fk.card.ModelInput, fk.card.Files, fk.files = cluster.InputText, []cluster.CardFile{}, nil
	fk.card.Runtime.Backend, fk.card.ContextLength = cluster.BackendOpenAI, 0 // it does not tell
}

// raw answers with objects as a server gives them.
func raw(objects ...string) generator {
	return func(_ context.Context, _ protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		for i, o := range objects {
			out := protocol.EngineOutput{Raw: json.RawMessage(o)}
			if i == 0 {
				out.Timing = &protocol.Timing{CacheUnknown: true}
			}
			if err := send(out); err != nil {
				return err
			}
		}
		return send(protocol.EngineOutput{Finish: protocol.FinishStop, Usage: &protocol.Usage{PromptTokens: 11, CompletionTokens: 7, CachedTokens: 3}})
	}
}

// The decode server of a pair counts the whole prompt as cached: what clients are told is what the
// prefill server found, in streams and whole answers, and nothing where that one does not tell.
func TestCachedTokensOfPairs(t *testing.T) {
	const usage = `"usage":{"prompt_tokens":11,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":11,"audio_tokens":0}}`
	for name, tc := range map[string]struct {
		concurrent, unknown bool
		late                bool // the prefill server tells after the decode server
		want                string
	}{
		"sequential":          {want: `"cached_tokens":4`},
		"sequential, unknown": {unknown: true, want: `"cached_tokens":null`},
		"concurrent":          {concurrent: true, want: `"cached_tokens":4`},
		"concurrent, late":    {concurrent: true, late: true, want: `"cached_tokens":4`},
		"concurrent, unknown": {concurrent: true, unknown: true, want: `"cached_tokens":null`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			answered := make(chan struct{}, 8)
			kind, way := vllmWorker("a"), protocol.WayPull
			if tc.concurrent {
				kind, way = sglangWorker, protocol.WayBackground
			}
			text := func(fk *fake) {
				textModel(fk)
				kind(fk)
			}
			timing := &protocol.Timing{CachedTokens: 4, CacheUnknown: tc.unknown}
			w.prefiller("p", func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
				if !tc.concurrent {
					return handsOverWith(ctx, send, timing, protocol.DisaggregatedParams{Worker: "p", Deadline: req.Disagg.Deadline, Handoff: json.RawMessage("{}"), CacheUnknown: tc.unknown, Cached: 4})
				}
				if err := send(protocol.EngineOutput{}); err != nil {
					return err
				}
				if tc.late {
					<-answered
				}
				return send(protocol.EngineOutput{Timing: timing})
			}, text)
			w.fake("d", func(_ context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
				begin := protocol.EngineOutput{Timing: &protocol.Timing{PrefillWay: way, CacheUnknown: true}, Raw: json.RawMessage(`{"id":"1","choices":[]}`)}
				if !strings.Contains(string(req.Body), `"stream":true`) {
					begin.Raw = json.RawMessage(`{"id":"1",` + usage + `}`)
				} else if err := send(begin); err != nil {
					return err
				} else {
					begin = protocol.EngineOutput{Raw: json.RawMessage(`{"id":"1","choices":[],` + usage + `}`)}
				}
				answered <- struct{}{}
				if err := send(begin); err != nil {
					return err
				}
				return send(protocol.EngineOutput{Finish: protocol.FinishStop, Usage: &protocol.Usage{PromptTokens: 11, CompletionTokens: 7, CachedTokens: 11}})
			}, text)
			f := w.routed(routing(), 1, 1)
			for _, stream := range []string{"", `,"stream":true`} {
				resp, err := http.Post(f.url+"/v1/completions", "application/json", strings.NewReader(`{"model":"tiny","prompt":"`+strings.Repeat("word ", 200)+`"`+stream+`}`))
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || !strings.Contains(string(got), tc.want) || strings.Contains(string(got), `"cached_tokens":11`) || !strings.Contains(string(got), `"audio_tokens":0`) {
					t.Errorf("stream %q: %v\n%s", stream, err, got)
				}
			}
		})
	}
}

// handsOverWith answers as a prefill server and holds the KV.
func handsOverWith(ctx context.Context, send func(protocol.EngineOutput) error, timing *protocol.Timing, params protocol.DisaggregatedParams) error {
	if err := send(protocol.EngineOutput{Timing: timing, Params: &params}); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestBodiesAreForwarded(t *testing.T) {
	w := newWorld(t)
	chunks := []string{`{"id":"1","model":"other","choices":[{"delta":{"reasoning_content":"a\n"}}],"n":9007199254740993}`, "{\"id\":\"1\",\n\"choices\":[]}"}
	fk := w.fake("d", raw(chunks...), textModel)
	f := w.configured(func(c *Config) { c.Settings = routing().get }).waitModel(1)

	const sent = `{"model":"tiny","messages":[{"role":"user","content":"é"}],"strange":{"b":1.50},"stream":true,"max_tokens":5,"nvext":{"session_id":"s"}}`
	resp, err := http.Post(f.url+"/v1/chat/completions", "application/json", strings.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	want := `data: {"id":"1","model":"tiny","choices":[{"delta":{"reasoning_content":"a\n"}}],"n":9007199254740993}` + "\n\n" +
		`data: {"id":"1","choices":[],"model":"tiny"}` + "\n\n" + "data: [DONE]\n\n"
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	r := fk.got()[0]
	if string(r.Body) != strings.Replace(sent, `,"nvext":{"session_id":"s"}`, "", 1) || r.API != protocol.APIChat || len(r.TokenIDs) != 0 || r.Stop.MaxTokens != 5 {
		t.Errorf("the worker got %s, %+v", r.Body, r)
	}
	for text, param := range map[string]string{
		`{"model":"tiny","kv_transfer_params":{"remote_host":"10.0.0.1"}}`: "kv_transfer_params",
		`{"model":"tiny","bootstrap_room":1}`:                              "bootstrap_room",
		`{"model":"tiny","prompt":"a","prompt":"b"}`:                       "prompt",
		`{"model":"tiny","stream":1}`:                                      "stream",
		`{"model":"tiny"`:                                                  "",
		`{"model":"tiny",` + keys(maxMembers) + `}`:                        "",
	} {
		resp, err := http.Post(f.url+"/v1/completions", "application/json", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		var e struct{ Error struct{ Param *string } }
		if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || resp.StatusCode/100 != 4 {
			t.Errorf("%s: %s, %v", text, resp.Status, err)
		} else if param != "" && (e.Error.Param == nil || *e.Error.Param != param) {
			t.Errorf("%s: %+v", text, e)
		}
		_ = resp.Body.Close()
	}
	if n := len(fk.got()); n != 1 {
		t.Errorf("%d requests reached the worker", n)
	}
}

// The choice of a worker is the same for bodies: a request may name it, and an unknown one is told.
func TestBodiesNameTheirWorker(t *testing.T) {
	w := newWorld(t)
	one, two := w.fake("one", raw(`{"id":"y"}`), textModel), w.fake("two", raw(`{"id":"y"}`), textModel)
	f := w.configured(func(c *Config) { c.Settings = settings("round-robin") }).waitModel(2)
	for range 3 {
		readAll(t, f.post("/v1/completions", body{"model": "tiny", "prompt": "a", "nvext": body{"decode_worker_id": two.drt.ID()}}))
	}
	if len(one.got()) != 0 || len(two.got()) != 3 {
		t.Errorf("%d and %d requests", len(one.got()), len(two.got()))
	}
	resp := f.post("/v1/completions", body{"model": "tiny", "prompt": "a", "nvext": body{"decode_worker_id": 77}})
	if e := failureOf(t, resp); resp.StatusCode != http.StatusBadRequest || !strings.Contains(e.Error.Message, "no decode worker 77") {
		t.Errorf("status %d, %+v", resp.StatusCode, e)
	}
}

// An answer that a server has begun in its own words cannot go on elsewhere; one that has not
// begun can.
func TestForwardedBodiesMove(t *testing.T) {
	w := newWorld(t)
	var begun atomic.Bool
	lost := &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: "gone"}
	broken := func(_ context.Context, _ protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		if begun.Load() {
			if err := send(protocol.EngineOutput{Raw: json.RawMessage(`{"id":"x"}`)}); err != nil {
				return err
			}
		}
		return lost
	}
	one := w.fake("one", broken, textModel)
	two := w.fake("two", raw(`{"id":"y"}`), textModel)
	f := w.configured(func(c *Config) { c.Settings = settings("round-robin") }).waitModel(2)
	ask := func() (int, string) {
		resp, err := http.Post(f.url+"/v1/completions", "application/json", strings.NewReader(`{"model":"tiny","prompt":"a"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	for range 4 { // whichever is asked first
		if code, text := ask(); code != http.StatusOK || text != `{"id":"y","model":"tiny"}`+"\n" && text != `{"id":"y","model":"tiny"}` {
			t.Fatalf("%d %s", code, text)
		}
	}
	if len(one.got()) == 0 {
		t.Fatal("the broken worker was not asked")
	}
	begun.Store(true)
	two.vanish(t)
	patience.Until(t, "one worker is left", func() bool { return len(f.workers.Instances()) == 1 })
	if code, text := ask(); code < 500 {
		t.Errorf("%d %s", code, text)
	}
}
