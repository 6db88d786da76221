package frontend

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

func TestChatWhole(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("Hello, wörld!"))
	f := w.frontend().waitModel(1)
	a := wholeAnswer(t, f.post("/v1/chat/completions", chatBody(nil)))
	if len(a.Choices) != 1 || a.Choices[0].Message.Content != "Hello, wörld!" || a.Choices[0].Message.Role != "assistant" || *a.Choices[0].FinishReason != "stop" {
		t.Errorf("choices %+v", a.Choices)
	}
	prompt := "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
	req := fk.got()[0]
	if got, want := fmt.Sprint(req.TokenIDs), fmt.Sprint(tokens(prompt)); got != want {
		t.Errorf("the worker got %s, want %s", got, want)
	}
	if req.Stop.MaxTokens != testContext-len(req.TokenIDs) {
		t.Errorf("max_tokens %d with a prompt of %d, want all the room", req.Stop.MaxTokens, len(req.TokenIDs))
	}
	if req.ModelSum != testDigest || len(req.Stop.StopTokenIDs) != 1 || req.ReceivedAt.IsZero() {
		t.Errorf("request %+v", req)
	}
	want := usage{PromptTokens: len(req.TokenIDs), CompletionTokens: 14, TotalTokens: len(req.TokenIDs) + 14, Details: usageDetails{CachedTokens: len(req.TokenIDs) / 2}}
	if a.Usage == nil || *a.Usage != want || a.Object != "chat.completion" || a.Model != testModel || !strings.HasPrefix(a.ID, "chatcmpl-") {
		t.Errorf("got %+v with usage %+v, want usage %+v", a, a.Usage, want)
	}
}

func TestChatStreamed(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("Hello, wörld!"))
	f := w.frontend().waitModel(1)
	s := readStream(t, f.post("/v1/chat/completions", chatBody(body{"stream": true})))
	if s.texts[0] != "Hello, wörld!" || s.finish[0] != "stop" || !s.done || s.failed != nil || s.usage != nil {
		t.Errorf("got %+v", s)
	}
}

func TestCompletionWholeAndStreamed(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say(" upon a time, many moons ago"))
	f := w.frontend().waitModel(1)
	// OpenAI's default of 16 tokens applies.
	b := textBody(nil)
	delete(b, "max_tokens")
	a := wholeAnswer(t, f.post("/v1/completions", b))
	if a.Object != "text_completion" || a.Choices[0].Text != " upon a time, ma" || *a.Choices[0].FinishReason != "length" || a.Usage.CompletionTokens != 16 {
		t.Errorf("whole: %+v, usage %+v", a, a.Usage)
	}
	s := readStream(t, f.post("/v1/completions", textBody(body{"stream": true, "echo": true})))
	if s.texts[0] != "Once upon a time, many moons ago" || s.finish[0] != "stop" || !s.done {
		t.Errorf("streamed with echo: %+v", s)
	}
	a = wholeAnswer(t, f.post("/v1/completions", textBody(body{"echo": true})))
	if a.Choices[0].Text != "Once upon a time, many moons ago" {
		t.Errorf("whole with echo: %+v", a)
	}
	if got, want := fmt.Sprint(fk.got()[0].TokenIDs), fmt.Sprint(tokens("Once")); got != want {
		t.Errorf("the worker got %s, want %s", got, want)
	}
}

func TestPromptForms(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("!"))
	f := w.frontend().waitModel(1)
	a, b := tokens("ab"), tokens("xyz")
	for _, tc := range []struct {
		name   string
		prompt any
		want   [][]uint32
	}{
		{"string", "ab", [][]uint32{a}},
		{"one string", []string{"ab"}, [][]uint32{a}},
		{"strings", []string{"ab", "xyz"}, [][]uint32{a, b}},
		{"ids", a, [][]uint32{a}},
		{"lists of ids", [][]uint32{a, b}, [][]uint32{a, b}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := len(fk.got())
			ans := wholeAnswer(t, f.post("/v1/completions", textBody(body{"prompt": tc.prompt})))
			got := fk.got()[before:]
			if len(got) != len(tc.want) || len(ans.Choices) != len(tc.want) {
				t.Fatalf("%d requests, %d choices, want %d", len(got), len(ans.Choices), len(tc.want))
			}
			total := 0
			for i, want := range tc.want {
				total += len(want)
				found := false
				for _, r := range got {
					found = found || fmt.Sprint(r.TokenIDs) == fmt.Sprint(want)
				}
				if !found || ans.Choices[i].Index != i || ans.Choices[i].Text != "!" {
					t.Errorf("prompt %d: %v not among the requests, or choice %+v", i, want, ans.Choices[i])
				}
			}
			if ans.Usage.PromptTokens != total || ans.Usage.CompletionTokens != len(tc.want) {
				t.Errorf("usage %+v, want %d prompt tokens", ans.Usage, total)
			}
		})
	}
}

func TestSeveralChoices(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("abc"))
	f := w.frontend().waitModel(1)
	a := wholeAnswer(t, f.post("/v1/chat/completions", chatBody(body{"n": 3, "seed": 7})))
	if len(a.Choices) != 3 {
		t.Fatalf("%d choices", len(a.Choices))
	}
	for i, c := range a.Choices {
		if c.Index != i || c.Message.Content != "abc" || *c.FinishReason != "stop" {
			t.Errorf("choice %d: %+v", i, c)
		}
	}
	prompt := len(fk.got()[0].TokenIDs)
	if a.Usage.PromptTokens != prompt || a.Usage.CompletionTokens != 9 {
		t.Errorf("usage %+v: the prompt of %d counts once, the answers all", a.Usage, prompt)
	}
	seeds, ids := map[uint64]bool{}, map[string]bool{}
	for _, r := range fk.got() {
		seeds[r.Sampling.Seed], ids[r.RequestID] = true, true
	}
	if len(seeds) != 3 || len(ids) != 3 {
		t.Errorf("seeds %v and ids %v of the choices are not all different", seeds, ids)
	}

	s := readStream(t, f.post("/v1/completions", textBody(body{"n": 2, "stream": true, "prompt": []string{"x", "y"}, "stream_options": body{"include_usage": true}})))
	if len(s.texts) != 4 || s.usage == nil || s.usage.CompletionTokens != 12 || s.usage.PromptTokens != 2 {
		t.Errorf("streamed: %+v, usage %+v", s, s.usage)
	}
	for i := range 4 {
		if s.texts[i] != "abc" || s.finish[i] != "stop" {
			t.Errorf("choice %d: %q %q", i, s.texts[i], s.finish[i])
		}
	}
}

// Every token is one byte: a stop string is always split over several.
func TestStopStrings(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("one STOPPED STOP two"))
	f := w.frontend().waitModel(1)
	for _, tc := range []struct {
		name   string
		more   body
		text   string
		tokens int
		finish string
	}{
		{"none found", body{"stop": []string{"three"}}, "one STOPPED STOP two", 20, "stop"},
		{"found", body{"stop": "STOP"}, "one ", 8, "stop"},
		{"longer one", body{"stop": []string{"STOP ", "zzz"}}, "one STOPPED ", 17, "stop"},
		{"first in the text, not in the list", body{"stop": []string{"two", "STOP"}}, "one ", 8, "stop"},
		{"included", body{"stop": "STOP", "include_stop_str_in_output": true}, "one STOP", 8, "stop"},
		{"a beginning at the end is text", body{"stop": "two!"}, "one STOPPED STOP two", 20, "stop"},
		{"cut by the limit", body{"stop": "STOP", "max_tokens": 6}, "one ST", 6, "length"},
		{"min_tokens shields", body{"stop": "STOP", "min_tokens": 8}, "one STOPPED ", 16, "stop"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := wholeAnswer(t, f.post("/v1/completions", textBody(tc.more)))
			c := a.Choices[0]
			if c.Text != tc.text || *c.FinishReason != tc.finish || a.Usage.CompletionTokens != tc.tokens {
				t.Errorf("whole: %q, %s, %d tokens; want %q, %s, %d", c.Text, *c.FinishReason, a.Usage.CompletionTokens, tc.text, tc.finish, tc.tokens)
			}
			more := body{"stream": true, "stream_options": body{"include_usage": true}}
			for k, v := range tc.more {
				more[k] = v
			}
			s := readStream(t, f.post("/v1/completions", textBody(more)))
			if s.texts[0] != tc.text || s.finish[0] != tc.finish || s.usage.CompletionTokens != tc.tokens {
				t.Errorf("streamed: %q, %s, %+v; want %q, %s, %d", s.texts[0], s.finish[0], s.usage, tc.text, tc.finish, tc.tokens)
			}
		})
	}
	patience.Until(t, "no request runs", func() bool { return fk.running.Load() == 0 })
}

// A worker may send several tokens at once; those after a stop string count for
// nothing.
func TestStopStringInsideOneOutput(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", func(_ context.Context, _ protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		return send(protocol.EngineOutput{TokenIDs: tokens("yes STOP and more"), Finish: protocol.FinishLength})
	})
	f := w.frontend().waitModel(1)
	a := wholeAnswer(t, f.post("/v1/completions", textBody(body{"stop": "STOP"})))
	if c := a.Choices[0]; c.Text != "yes " || *c.FinishReason != "stop" || a.Usage.CompletionTokens != 8 {
		t.Errorf("%q, %s, %d tokens", c.Text, *c.FinishReason, a.Usage.CompletionTokens)
	}
}

// Characters that a client cannot show must not reach it in halves.
func TestCharactersSplitOverTokens(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("añ→😀"))
	f := w.frontend().waitModel(1)
	s := readStream(t, f.post("/v1/completions", textBody(body{"stream": true})))
	if s.texts[0] != "añ→😀" || len(s.events) != 5 {
		t.Errorf("%q in %d events, want one for each character and the end", s.texts[0], len(s.events))
	}
	s = readStream(t, f.post("/v1/completions", textBody(body{"stream": true, "max_tokens": 2})))
	if s.texts[0] != "a\ufffd" || s.finish[0] != "length" {
		t.Errorf("cut inside a character: %q", s.texts[0])
	}
}

// What a model's chat template refuses is the client's mistake, and so is asking a
// model to chat that has none.
func TestConversationsThatTemplatesRefuse(t *testing.T) {
	for name, tc := range map[string]struct{ template, param, says string }{
		"raised": {`{{ raise_exception('Roles must alternate.') }}`, "messages", "Roles must alternate."},
		"broken": {`{{ messages[0].content.nothing.at.all }}`, "messages", "chat template"},
		"none":   {"", "model", "cannot chat"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			fk := w.fake("worker-1", say("!"), func(fk *fake) {
				fk.files = map[string][]byte{chat.TokenizerFile: testFiles()[chat.TokenizerFile]}
				if tc.template != "" {
					fk.files[chat.TemplateFile] = []byte(tc.template)
				}
			})
			f := w.frontend().waitModel(1)
			resp := f.post("/v1/chat/completions", chatBody(body{"stream": true}))
			if e := failureOf(t, resp); resp.StatusCode != http.StatusBadRequest || e.param() != tc.param || !strings.Contains(e.Error.Message, tc.says) {
				t.Errorf("status %d, %+v", resp.StatusCode, e)
			}
			if len(fk.got()) > 0 {
				t.Error("the worker was asked")
			}
			wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
		})
	}
}

func TestSamplingOptions(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("!"), func(fk *fake) {
		fk.files = map[string][]byte{"generation_config.json": []byte(`{"temperature":0.5,"top_k":40,"top_p":0.75,"repetition_penalty":1.25,"eos_token_id":[9]}`)}
		for name, content := range testFiles() {
			fk.files[name] = content
		}
	})
	f := w.frontend().waitModel(1)
	for _, tc := range []struct {
		name string
		more body
		want protocol.SamplingOptions
	}{
		{"the model's own", nil, protocol.SamplingOptions{Temperature: 0.5, TopP: 0.75, TopK: 40, RepetitionPenalty: 1.25}},
		{"the client's", body{"temperature": 1.5, "top_p": 0.25, "top_k": -1, "min_p": 0.125, "repetition_penalty": 1}, protocol.SamplingOptions{Temperature: 1.5, TopP: 0.25, TopK: -1, MinP: 0.125, RepetitionPenalty: 1}},
		{"greedy", body{"temperature": 0}, protocol.SamplingOptions{TopP: 0.75, TopK: 40, RepetitionPenalty: 1.25}},
		{"top_p of nothing is greedy", body{"top_p": 0}, protocol.SamplingOptions{TopK: 40, RepetitionPenalty: 1.25}},
		{"penalties", body{"repetition_penalty": 2, "presence_penalty": -2, "frequency_penalty": 0.5},
			protocol.SamplingOptions{Temperature: 0.5, TopP: 0.75, TopK: 40, RepetitionPenalty: 2, PresencePenalty: -2, FrequencyPenalty: 0.5}},
		{"biases", body{"logit_bias": body{"70": -100, "9": 1.5, "010": 2, "8": nil}, "repetition_penalty": 1},
			protocol.SamplingOptions{Temperature: 0.5, TopP: 0.75, TopK: 40, RepetitionPenalty: 1, LogitBias: []protocol.TokenBias{{Token: 9, Bias: 1.5}, {Token: 10, Bias: 2}, {Token: 70, Bias: -100}}}},
		{"allowed and forbidden", body{"allowed_token_ids": []int{3, 4}, "bad_words_token_ids": [][]int{{1, 2}, {3}}, "repetition_penalty": 1},
			protocol.SamplingOptions{Temperature: 0.5, TopP: 0.75, TopK: 40, RepetitionPenalty: 1, AllowedTokenIDs: []uint32{3, 4}, BadWords: [][]uint32{{1, 2}, {3}}}},
		{"forbidden words", body{"bad_words_token_ids": []int{5}, "bad_words": []string{" no", "no"}, "repetition_penalty": 1},
			protocol.SamplingOptions{Temperature: 0.5, TopP: 0.75, TopK: 40, RepetitionPenalty: 1, BadWords: [][]uint32{{5}, tokens("no"), tokens(" no")}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := textBody(tc.more)
			b["seed"] = 5
			wholeAnswer(t, f.post("/v1/completions", b))
			all := fk.got()
			got := all[len(all)-1]
			tc.want.Seed = 5
			if !reflect.DeepEqual(got.Sampling, tc.want) {
				t.Errorf("got %+v, want %+v", got.Sampling, tc.want)
			}
		})
	}
	wholeAnswer(t, f.post("/v1/completions", textBody(body{"ignore_eos": true, "stop_token_ids": []int{1, 2}, "min_tokens": 3})))
	all := fk.got()
	if got := all[len(all)-1].Stop; fmt.Sprint(got.StopTokenIDs) != "[1 2]" || got.MinTokens != 3 || got.MaxTokens != 100 {
		t.Errorf("ignoring the end of text: %+v", got)
	}
	wholeAnswer(t, f.post("/v1/completions", textBody(body{"include_stop_str_in_output": true, "stop_token_ids": []int{1, 2}})))
	all = fk.got()
	if got := all[len(all)-1].Stop; fmt.Sprint(got.StopTokenIDsVisible) != "[1 2]" || len(got.StopTokenIDs) != 2 || got.StopTokenIDs[0] != 9 {
		t.Errorf("ends that show: %+v", got)
	}
	if got := all[0].Stop; len(got.StopTokenIDs) != 2 || got.StopTokenIDs[0] != 9 {
		t.Errorf("ends of text: %+v", got)
	}
}
