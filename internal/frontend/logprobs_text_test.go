//go:build !race

package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// rate generates a text in pieces of so many tokens, with -1 as the log probability
// of the first token, -2 of the second and so on, and then finishes.
func rate(ids []uint32, piece int, finish protocol.FinishReason) generator {
	return func(_ context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		at := req.Generated
		for part := range slices.Chunk(ids[at:], piece) {
			o := protocol.EngineOutput{TokenIDs: part, Logprobs: &protocol.Logprobs{}}
			for range part {
				at++
				o.Logprobs.Tokens = append(o.Logprobs.Tokens, float32(-at))
			}
			if err := send(o); err != nil {
				return err
			}
		}
		return send(protocol.EngineOutput{Finish: finish})
	}
}

// told are the tokens that the events of a stream tell, after each event together
// with the text so far.
func told(t *testing.T, s *streamed) (tokens []string, values []float64, at []int) {
	t.Helper()
	text := 0
	for _, e := range s.events {
		var chunk struct {
			Choices []struct {
				Text     string
				Logprobs *textLogprobs
			}
		}
		if err := json.Unmarshal([]byte(e), &chunk); err != nil {
			t.Fatal(err)
		}
		for _, c := range chunk.Choices {
			text += len(c.Text)
			for i, v := range c.Logprobs.TokenLogprobs {
				tokens, values, at = append(tokens, c.Logprobs.Tokens[i]), append(values, *v), append(at, c.Logprobs.TextOffset[i])
			}
			if (c.Text == "") != (len(c.Logprobs.Tokens) == 0) {
				t.Errorf("an event has text %q and %d tokens", c.Text, len(c.Logprobs.Tokens))
			}
		}
	}
	return tokens, values, at
}

// Tokens are told with their text: what is held back waits, what a stop string drops
// is not told.
func TestLogprobsFollowText(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		more       body
		want       string // the text, and as many tokens
	}{
		{"plain", "hello", nil, "hello"},
		{"stop string", "one STOP two", body{"stop": "STOP"}, "one "},
		{"stop string that shows", "one STOP two", body{"stop": "STOP", "include_stop_str_in_output": true}, "one STOP"},
		{"only the beginning of one", "one STO", body{"stop": "STOP"}, "one STO"},
		{"stop at once", "STOP", body{"stop": "STOP"}, ""},
		{"the earlier of two", "a bb ccc", body{"stop": []string{"ccc", "b"}}, "a "},
		{"minimum", "..a.b", body{"stop": ".", "min_tokens": 2}, "..a"},
		{"characters of several bytes", "añ→😀", nil, "añ→😀"},
		{"stop after such a character", "añ→😀STOP", body{"stop": "STOP"}, "añ→😀"},
	} {
		for _, piece := range []int{1, 2, 3, 100} {
			t.Run(fmt.Sprintf("%s by %d", tc.name, piece), func(t *testing.T) {
				w := newWorld(t)
				w.fake("worker-1", rate(tokens(tc.text), piece, protocol.FinishLength))
				f := w.frontend().waitModel(1)
				b := textBody(tc.more)
				b["logprobs"], b["stream"] = 0, true
				s := readStream(t, f.post("/v1/completions", b))
				names, values, at := told(t, s)
				if s.texts[0] != tc.want || len(names) != len(tc.want) {
					t.Fatalf("%q with %d tokens, want %q and as many tokens as bytes", s.texts[0], len(names), tc.want)
				}
				for i := range names {
					want := len([]rune(strings.ToValidUTF8(tc.want[:i], "")))
					if names[i] != spelling(tokens(tc.text)[i], "bytes:") || values[i] != float64(-i-1) || at[i] != want {
						t.Errorf("token %d is %q, %v at %d; want offset %d", i, names[i], values[i], at[i], want)
					}
				}
			})
		}
	}
}

// An incomplete character at the end of the text is told, too.
func TestLogprobsOfIncompleteCharacter(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", rate(tokens("a😀")[:3], 1, protocol.FinishLength))
	f := w.frontend().waitModel(1)
	s := readStream(t, f.post("/v1/completions", textBody(body{"logprobs": 0, "stream": true})))
	if names, _, at := told(t, s); s.texts[0] != "a\ufffd" || fmt.Sprint(names) != `[a bytes:\xf0 bytes:\x9f]` || fmt.Sprint(at) != "[0 1 1]" {
		t.Errorf("%q, %v at %v", s.texts[0], names, at)
	}
}

// A stop string can be complete only when the text ends.
func TestStopStringAtTheEnd(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", rate(tokens("ab😀")[:3], 1, protocol.FinishLength))
	f := w.frontend().waitModel(1)
	s := readStream(t, f.post("/v1/completions", textBody(body{"logprobs": 0, "stream": true, "stop": "b\ufffd"})))
	if names, _, _ := told(t, s); s.texts[0] != "a" || s.finish[0] != "stop" || fmt.Sprint(names) != "[a]" {
		t.Errorf("%q, %s, %v", s.texts[0], s.finish[0], names)
	}
}

// An engine whose log probabilities do not fit its tokens is at fault, not the
// client.
func TestBadLogprobs(t *testing.T) {
	for name, o := range map[string]protocol.EngineOutput{
		"none":          {TokenIDs: tokens("ab")},
		"too few":       {TokenIDs: tokens("ab"), Logprobs: &protocol.Logprobs{Tokens: []float32{-1}}},
		"ragged":        {TokenIDs: tokens("a"), Logprobs: &protocol.Logprobs{Tokens: []float32{-1}, Width: 2, TopIDs: []uint32{1}, TopValues: []float32{1}}},
		"negative":      {TokenIDs: tokens("a"), Logprobs: &protocol.Logprobs{Tokens: []float32{-1}, Width: -1}},
		"prompt's left": {TokenIDs: tokens("a"), Logprobs: &protocol.Logprobs{Tokens: []float32{-1}}},
		"prompt's bad":  {TokenIDs: tokens("a"), Logprobs: &protocol.Logprobs{Tokens: []float32{-1}}, PromptLogprobs: &protocol.Logprobs{Tokens: []float32{-1}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fake("worker-1", func(_ context.Context, _ protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
				return send(o)
			})
			f := w.frontend().waitModel(1)
			resp := f.post("/v1/completions", textBody(body{"logprobs": 2, "echo": strings.HasPrefix(name, "prompt")}))
			if e := failureOf(t, resp); resp.StatusCode != 500 {
				t.Errorf("status %d, %+v", resp.StatusCode, e)
			}
		})
	}
}

// Penalties, draws, bans, stop strings and log probabilities go on after a worker is
// lost as if it had not been.
func TestOptionsSurviveLostWorkers(t *testing.T) {
	w := newWorld(t)
	step := 2 * time.Millisecond
	_, stopOne := w.realWorker("worker-1", step)
	f := w.frontend().waitModel(1)
	ask := func(i int) body {
		return textBody(body{
			"prompt": fmt.Sprintf("Question %d?", i%4), "max_tokens": 90, "min_tokens": 85, "seed": i, "temperature": 0.9, "top_k": 90, "top_p": 0.97, "min_p": 0.001,
			"repetition_penalty": 1.2, "frequency_penalty": 0.8, "presence_penalty": -0.5, "logit_bias": body{"70": 2, "71": -100},
			"bad_words_token_ids": [][]int{{70, 70}, {72}}, "logprobs": 3, "echo": i%2 == 0, "n": 1 + i%2, "stream": true,
		})
	}
	const requests = 8
	run := func() []string {
		got := make([]string, requests)
		var wg sync.WaitGroup
		for i := range requests {
			wg.Go(func() {
				resp, err := f.tryPost(t.Context(), "/v1/completions", ask(i))
				if err != nil {
					t.Error(err)
					return
				}
				s := readStream(t, resp)
				names, values, at := toldByChoice(t, s)
				got[i] = fmt.Sprintf("%v %v %v %v %v %v", s.texts, s.finish, s.failed, names, values, at)
			})
		}
		wg.Wait()
		return got
	}
	want := run()
	w.realWorker("worker-2", step)
	f.waitModel(2)
	before := f.metric(`dynamo_frontend_output_tokens_total{model="tiny"}`)
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		patience.Until(t, "the requests generate", func() bool {
			return f.metric(`dynamo_frontend_output_tokens_total{model="tiny"}`) > before+200
		})
		stopOne()
	}()
	got := run()
	<-lost
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("request %d: got %s, want %s", i, got[i], want[i])
		}
	}
	if n := f.metric(`dynamo_frontend_model_migration_total{migration_type="ongoing_request",model="tiny"}`); n < 1 {
		t.Errorf("%v requests moved, want some", n)
	}
}

// toldByChoice is told for choices whose events come in any order, and for echoes.
func toldByChoice(t *testing.T, s *streamed) (names map[int][]string, values map[int][]string, at map[int][]int) {
	t.Helper()
	names, values, at = map[int][]string{}, map[int][]string{}, map[int][]int{}
	for _, e := range s.events {
		var chunk struct {
			Choices []struct {
				Index    int
				Logprobs *textLogprobs
			}
		}
		if err := json.Unmarshal([]byte(e), &chunk); err != nil {
			t.Fatal(err)
		}
		for _, c := range chunk.Choices {
			names[c.Index] = append(names[c.Index], c.Logprobs.Tokens...)
			at[c.Index] = append(at[c.Index], c.Logprobs.TextOffset...)
			for i, v := range c.Logprobs.TokenLogprobs {
				b, err := json.Marshal([]any{v, c.Logprobs.TopLogprobs[i]})
				if err != nil {
					t.Fatal(err)
				}
				values[c.Index] = append(values[c.Index], string(b))
			}
		}
	}
	return names, values, at
}
