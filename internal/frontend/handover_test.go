package frontend

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// leaves is a pair of workers that say a text; the first request leaves its worker
// before token n, in the way that how says.
func (w *world) leaves(text string, n int, how func(ctx context.Context, from, to *fake) error, changes ...func(*fake)) (workers [2]*fake) {
	var once atomic.Bool
	var all [2]atomic.Pointer[fake]
	for i := range workers {
		workers[i] = w.fake(fmt.Sprint("worker-", i+1), say(text, func(ctx context.Context, at int) error {
			if at == n && once.CompareAndSwap(false, true) {
				return how(ctx, all[i].Load(), all[1-i].Load())
			}
			return nil
		}), changes...)
		all[i].Store(workers[i])
	}
	return workers
}

// departures are the ways in which a sequence leaves its worker.
var departures = map[string]func(ctx context.Context, from, to *fake) error{
	"crash":        func(ctx context.Context, from, _ *fake) error { return crashes(ctx, from) },
	"engine stops": func(ctx context.Context, from, _ *fake) error { return engineStops(ctx, from) },
	"hand-over":    func(_ context.Context, _, to *fake) error { return to.at("h-1") },
}

var varying = regexp.MustCompile(`"(id|created)":("[^"]*"|\d+)`)

// spoken is an answer without what differs between two requests.
func spoken(t *testing.T, resp *http.Response) string {
	t.Helper()
	text := readAll(t, resp)
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return varying.ReplaceAllString(text, `"$1":0`)
}

// Nothing in an answer, byte by byte, tells that its sequence went from one worker to
// another, whatever the request asks for and wherever the border is.
func TestNothingShowsOfDepartures(t *testing.T) {
	const calls = "Well.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"São \\\"P\\\" 😀\"}}\n</tool_call>"
	const thought = "<think>\nHm, 😀.\n</think>\n\nThe answer is STOP 42."
	const object = `{"name":"Zoë","age":42}`
	reasons := func(fk *fake) { fk.card.Runtime.ReasoningParser = "qwen3" }
	schema := body{"type": "object", "properties": body{"name": body{"type": "string"}, "age": body{"type": "integer"}}}
	for name, tc := range map[string]struct {
		text, path string
		request    body
		change     func(*fake)
		borders    []string // the sequence leaves after these
	}{
		"tools":     {calls, "/v1/chat/completions", chatBody(body{"tools": []any{tool(body{"name": "get_weather"})}}), roomy, []string{"W", "<tool", "get_w", "\"S\xc3", "\xf0\x9f", "}}"}},
		"reasoning": {thought, "/v1/chat/completions", chatBody(nil), reasons, []string{"<thi", "Hm", "\xf0\x9f\x98", "</th", "</think>\n"}},
		"chat log probabilities": {thought, "/v1/chat/completions", chatBody(body{"logprobs": true, "top_logprobs": 2}), func(*fake) {},
			[]string{"<", "\xf0\x9f", "42"}},
		"stop string": {thought, "/v1/chat/completions", chatBody(body{"stop": []string{"STOP 4", "never"}, "logprobs": true}), func(*fake) {},
			[]string{"is S", "STOP", "STOP "}},
		"echo": {thought, "/v1/completions", textBody(body{"echo": true, "logprobs": 2, "prompt": "Once upon"}), func(*fake) {},
			[]string{"<", "\xf0\x9f\x98", "42"}},
		"length": {thought, "/v1/completions", textBody(body{"max_tokens": 20, "min_tokens": 3}), func(*fake) {}, []string{"<", "<th", "Hm, "}},
		"guided": {object, "/v1/completions", textBody(body{"guided_json": schema, "temperature": 0.7, "seed": 5}), func(*fake) {},
			[]string{"{", `"na`, "Zo\xc3", "42"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, stream := range []bool{false, true} {
				if stream {
					tc.request["stream"], tc.request["stream_options"] = true, body{"include_usage": true}
				}
				calm := newWorld(t)
				calm.fake("worker-1", say(tc.text), tc.change)
				want := spoken(t, calm.frontend().waitModel(1).post(tc.path, tc.request))
				for way, how := range departures {
					for _, border := range tc.borders[:patience.Rounds(len(tc.borders))] {
						n := strings.Index(tc.text, border) + len(border)
						if !strings.Contains(tc.text, border) {
							t.Fatalf("no %q in %q", border, tc.text)
						}
						testDeparture(t, fmt.Sprintf("%s after %q, stream %t", way, border, stream), tc.text, n, how, tc.path, tc.request, want, tc.change)
					}
				}
			}
		})
	}
}

func testDeparture(t *testing.T, what, text string, n int, how func(context.Context, *fake, *fake) error, path string, request body, want string, change func(*fake)) {
	t.Helper()
	w := newWorld(t)
	workers := w.leaves(text, n, how, change)
	f := w.frontend().waitModel(2)
	if got := spoken(t, f.post(path, request)); got != want {
		t.Errorf("%s: got\n%s\nwant\n%s", what, got, want)
	}
	requests := slices.Concat(workers[0].got(), workers[1].got())
	if len(requests) != 2 || len(workers[0].got()) != 1 {
		t.Fatalf("%s: %d and %d requests", what, len(workers[0].got()), len(workers[1].got()))
	}
	one, two := requests[0], requests[1]
	if one.Generated > two.Generated {
		one, two = two, one
	}
	all := slices.Concat(one.TokenIDs, tokens(text)[:n])
	if two.Generated != n || !slices.Equal(two.TokenIDs, all) || !reflect.DeepEqual(two.Sampling, one.Sampling) || !reflect.DeepEqual(two.Guided, one.Guided) ||
		!reflect.DeepEqual(two.Output.Logprobs, one.Output.Logprobs) || two.Output.PromptLogprobs != nil || two.Stop.MaxTokens != one.Stop.MaxTokens-n {
		t.Errorf("%s: second request %+v after %+v", what, two, one)
	}
	handover, migrations := "", 1.0
	if strings.HasPrefix(what, "hand-over") {
		handover, migrations = "h-1", -1
	}
	if got := f.metric(`dynamo_frontend_model_migration_total{migration_type="ongoing_request",model="tiny"}`); two.Handover != handover || one.Handover != "" || got != migrations {
		t.Errorf("%s: hand-over %q, %v migrations", what, two.Handover, got)
	}
}

// A sequence that moves on and on is followed, however often.
func TestFollowManyTimes(t *testing.T) {
	w := newWorld(t)
	var all [2]atomic.Pointer[fake]
	for i := range all {
		last := -1
		all[i].Store(w.fake(fmt.Sprint("worker-", i+1), say(saga, func(_ context.Context, at int) error {
			if at%5 == 4 && at%2 == i && at != last {
				last = at
				return all[1-i].Load().at(fmt.Sprint("h-", at))
			}
			return nil
		})))
	}
	f := w.configured(func(c *Config) { c.MigrationLimit = 0 }).waitModel(2)
	s := readStream(t, f.post("/v1/completions", textBody(body{"stream": true, "max_tokens": 200})))
	if s.texts[0] != saga || s.finish[0] != "stop" || s.failed != nil {
		t.Errorf("got %+v, error %+v", s, s.failed)
	}
	if n := len(all[0].Load().got()) + len(all[1].Load().got()); n < 10 {
		t.Errorf("%d requests: hardly moved", n)
	}
}

// Where the target of a hand-over is gone, refuses or forgot the sequence, the answer
// is computed again from what the client has.
func TestMovedToTrouble(t *testing.T) {
	for name, trouble := range map[string]func(t *testing.T, w *world) *fake{
		"gone": func(t *testing.T, w *world) *fake {
			b := w.fake("worker-2", say(saga))
			b.vanish(t)
			return b
		},
		"crashed": func(_ *testing.T, w *world) *fake {
			b := w.fake("worker-2", say(saga))
			b.crash()
			return b
		},
		"draining": func(_ *testing.T, w *world) *fake {
			return w.fake("worker-2", refuse(requestplane.KindUnavailable))
		},
		"does not know it": func(_ *testing.T, w *world) *fake { return w.fake("worker-2", say(saga)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var target atomic.Pointer[fake]
			moved := make(chan struct{})
			var once atomic.Bool
			w.fake("worker-1", say(saga, func(_ context.Context, n int) error {
				if n == 9 && once.CompareAndSwap(false, true) {
					target.Store(trouble(t, w))
					close(moved)
					return target.Load().at("h-1")
				}
				return nil
			}))
			f := w.frontend().waitModel(1)
			s := readStream(t, f.post("/v1/completions", textBody(body{"stream": true, "max_tokens": 200})))
			if s.texts[0] != saga || s.finish[0] != "stop" || s.failed != nil {
				t.Errorf("got %+v, error %+v", s, s.failed)
			}
			<-moved
		})
	}
}

// A worker that says moved and not where is taken for lost; the client that leaves
// between two workers leaves both.
func TestMovedToNowhere(t *testing.T) {
	w := newWorld(t)
	var once atomic.Bool
	whole := say(saga)
	w.fake("worker-1", func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		if once.CompareAndSwap(false, true) {
			return send(protocol.EngineOutput{TokenIDs: tokens(saga)[:3], Finish: protocol.FinishMoved})
		}
		return whole(ctx, req, send)
	})
	f := w.frontend().waitModel(1)
	if a := wholeAnswer(t, f.post("/v1/completions", textBody(body{"max_tokens": 200}))); a.Choices[0].Text != saga {
		t.Errorf("got %+v", a.Choices)
	}
}

func TestClientLeavesAfterMove(t *testing.T) {
	w := newWorld(t)
	never := make(chan struct{})
	b := w.fake("worker-2", say(saga, hold(9, never)))
	reached := make(chan struct{})
	w.fake("worker-1", say(saga, func(_ context.Context, n int) error {
		if n == 9 {
			close(reached)
			return b.at("h-1")
		}
		return nil
	}))
	f := w.frontend().waitModel(2)
	for moved := false; !moved; {
		ctx, leave := context.WithTimeout(t.Context(), 20*time.Second)
		done := make(chan struct{})
		go func() {
			defer close(done)
			resp, err := f.tryPost(ctx, "/v1/completions", textBody(body{"stream": true}))
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body) // until it leaves
				resp.Body.Close()
			}
		}()
		patience.Until(t, "the request is at the other worker", func() bool { return b.running.Load() == 1 })
		select {
		case <-reached:
			moved = true
		default: // it went there at once; the next one begins at the first
		}
		leave()
		<-done
		patience.Until(t, "nobody works for it any more", func() bool { return b.running.Load() == 0 })
	}
}

// A sequence that is handed over takes its KV along: no prefill worker is asked to compute
// it again, and with enforce none is missed.
func TestMovedIsNotPrefilled(t *testing.T) {
	for _, gone := range []bool{false, true} {
		w := newWorld(t)
		pre := w.prefiller("worker-9", holds("worker-9", nil))
		var f *front
		w.leaves("abcdef", 3, func(_ context.Context, _, to *fake) error {
			if gone {
				pre.vanish(t)
				patience.Until(t, "the frontend knows it", func() bool { return len(f.prefills.Instances()) == 0 })
			}
			return to.at("h-1")
		})
		s := routing()
		s.change(func(k *Settings) { k.Prefill.Enforce = true })
		f = w.routed(s, 1, 2)
		a := readStream(t, f.post("/v1/completions", textBody(body{"stream": true, "prompt": strings.Repeat("x", 40)})))
		if a.texts[0] != "abcdef" || a.failed != nil || len(pre.got()) != 1 {
			t.Errorf("prefill worker gone %t: got %+v, error %+v, it was asked %d times", gone, a, a.failed, len(pre.got()))
		}
	}
}
