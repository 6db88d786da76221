//go:build !race

package frontend

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/engine/mock"
)

// logprobOf is the formula: the logarithm of the softmax, in float64.
func logprobOf(before []uint32, id uint32) float64 {
	logits := mock.Logits(before, testProcessor().VocabSize())
	var sum float64
	for _, l := range logits {
		sum += math.Exp(float64(l))
	}
	return float64(logits[id]) - math.Log(sum)
}

// likeliest are the n most likely tokens after others.
func likeliest(before []uint32, n int) []uint32 {
	logits := mock.Logits(before, testProcessor().VocabSize())
	ids := make([]uint32, len(logits))
	for i := range ids {
		ids[i] = uint32(i)
	}
	slices.SortStableFunc(ids, func(a, b uint32) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	return ids[:n]
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(1, math.Abs(b)) }

// spelling returns the name of a token in a chat; every token of the test model is one
// byte, or special.
func spelling(id uint32, prefix string) string {
	b := testProcessor().TokenBytes(id)
	if utf8.Valid(b) {
		return string(b)
	}
	return fmt.Sprintf(`%s\x%02x`, prefix, b[0])
}

// tokenOf finds a token by its bytes.
func tokenOf(bytes []int64) (id uint32) {
	for fmt.Sprint(testProcessor().TokenBytes(id)) != fmt.Sprint(bytes) {
		id++
	}
	return id
}

// checkChat compares the entries of a chat with the tokens that must be there.
func checkChat(t *testing.T, got []openai.ChatCompletionTokenLogprob, prompt, want []uint32, top int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	before := slices.Clone(prompt)
	for i, id := range want {
		e := got[i]
		bytes := testProcessor().TokenBytes(id)
		if e.Token != spelling(id, "") || !near(e.Logprob, logprobOf(before, id)) || fmt.Sprint(e.Bytes) != fmt.Sprint(bytes) || len(e.TopLogprobs) != top {
			t.Fatalf("entry %d: %s, want token %q with %v and %d others", i, e.RawJSON(), bytes, logprobOf(before, id), top)
		}
		for k, alt := range likeliest(before, top) {
			if a := e.TopLogprobs[k]; a.Token != spelling(alt, "") || !near(a.Logprob, logprobOf(before, alt)) {
				t.Fatalf("entry %d: other %d is %s, want %q", i, k, a.RawJSON(), spelling(alt, ""))
			}
		}
		before = append(before, id)
	}
}

func TestChatLogprobs(t *testing.T) {
	w := newWorld(t)
	w.realWorker("worker-1", 0)
	f := w.frontend().waitModel(1)
	client := f.official()
	prompt := tokens("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
	const n = 40
	params := openai.ChatCompletionNewParams{
		Model: testModel, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hi")}, MaxCompletionTokens: openai.Int(n),
		Temperature: openai.Float(0), Logprobs: openai.Bool(true),
	}
	free := mock.Continue(prompt, n, testProcessor().VocabSize(), testProcessor().EOS()...)
	for _, top := range []int{0, 1, 20} {
		params.TopLogprobs = openai.Int(int64(top))
		got, err := client.Chat.Completions.New(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		checkChat(t, got.Choices[0].Logprobs.Content, prompt, free, top)

		stream := client.Chat.Completions.NewStreaming(t.Context(), params)
		var acc openai.ChatCompletionAccumulator
		var entries []openai.ChatCompletionTokenLogprob
		for stream.Next() {
			chunk := stream.Current()
			acc.AddChunk(chunk)
			entries = append(entries, chunk.Choices[0].Logprobs.Content...)
		}
		if err := stream.Err(); err != nil || acc.Choices[0].Message.Content != got.Choices[0].Message.Content {
			t.Errorf("streamed %q, whole %q, %v", acc.Choices[0].Message.Content, got.Choices[0].Message.Content, err)
		}
		checkChat(t, entries, prompt, free, top)
		checkChat(t, acc.Choices[0].Logprobs.Content, prompt, free, top)
	}
	t.Run("penalties and temperature do not show", func(t *testing.T) {
		params := params
		params.Temperature, params.FrequencyPenalty, params.Seed = openai.Float(1.5), openai.Float(1), openai.Int(8)
		got, err := client.Chat.Completions.New(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		before := slices.Clone(prompt)
		for i, e := range got.Choices[0].Logprobs.Content {
			id := tokenOf(e.Bytes)
			if !near(e.Logprob, logprobOf(before, id)) {
				t.Fatalf("entry %d: %s, want %v", i, e.RawJSON(), logprobOf(before, id))
			}
			before = append(before, id)
		}
	})
	t.Run("tokens as ids", func(t *testing.T) {
		got, err := client.Chat.Completions.New(t.Context(), params, option.WithJSONSet("return_tokens_as_token_ids", true))
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range got.Choices[0].Logprobs.Content {
			if want := fmt.Sprint("token_id:", free[i]); e.Token != want || !strings.HasPrefix(e.TopLogprobs[3].Token, "token_id:") {
				t.Fatalf("entry %d: %s, want %s", i, e.RawJSON(), want)
			}
		}
	})
	t.Run("not asked for", func(t *testing.T) {
		resp := f.post("/v1/chat/completions", chatBody(body{"max_tokens": 3, "logprobs": false}))
		if all := readAll(t, resp); !strings.Contains(all, `"logprobs":null`) {
			t.Errorf("got %s", all)
		}
	})
	t.Run("nothing generated", func(t *testing.T) {
		eos := fmt.Sprint(testProcessor().EOS()[0])
		for _, stream := range []bool{false, true} {
			b := chatBody(body{"logprobs": true, "max_tokens": 3, "logit_bias": body{eos: 100}, "temperature": 0, "stream": stream})
			all := readAll(t, f.post("/v1/chat/completions", b))
			if stream == strings.Contains(all, `"logprobs":{"content":[],"refusal":null}`) || !strings.Contains(all, `"finish_reason":"stop"`) {
				t.Errorf("stream %v: got %s", stream, all)
			}
		}
	})
}

// textLogprobs is the form of text completions.
type textLogprobs struct {
	Tokens        []string              `json:"tokens"`
	TokenLogprobs []*float64            `json:"token_logprobs"`
	TopLogprobs   []*map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                 `json:"text_offset"`
}

func (l *textLogprobs) add(raw string) {
	var more textLogprobs
	if json.Unmarshal([]byte(raw), &more) == nil {
		l.Tokens, l.TokenLogprobs = append(l.Tokens, more.Tokens...), append(l.TokenLogprobs, more.TokenLogprobs...)
		l.TopLogprobs, l.TextOffset = append(l.TopLogprobs, more.TopLogprobs...), append(l.TextOffset, more.TextOffset...)
	}
}

// checkText compares the columns with a sequence, from token from on. The first
// token of all has no value.
func checkText(t *testing.T, got textLogprobs, all []uint32, from, top int) {
	t.Helper()
	n := len(all) - from
	if len(got.Tokens) != n || len(got.TokenLogprobs) != n || len(got.TopLogprobs) != n || len(got.TextOffset) != n {
		t.Fatalf("%d, %d, %d and %d entries, want %d", len(got.Tokens), len(got.TokenLogprobs), len(got.TopLogprobs), len(got.TextOffset), n)
	}
	for i := range n {
		at := from + i
		id, before := all[at], all[:at]
		if got.Tokens[i] != spelling(id, "bytes:") {
			t.Errorf("token %d is %q, want %q", i, got.Tokens[i], spelling(id, "bytes:"))
		}
		if at == 0 {
			if got.TokenLogprobs[i] != nil || got.TopLogprobs[i] != nil {
				t.Error("the first token of the prompt has a value")
			}
			continue
		}
		if v := got.TokenLogprobs[i]; v == nil || !near(*v, logprobOf(before, id)) {
			t.Errorf("token %d has %v, want %v", i, v, logprobOf(before, id))
		}
		want := map[string]bool{spelling(id, "bytes:"): true}
		for _, alt := range likeliest(before, top) {
			want[spelling(alt, "bytes:")] = true
			if v, ok := (*got.TopLogprobs[i])[spelling(alt, "bytes:")]; !ok || !near(v, logprobOf(before, alt)) {
				t.Errorf("token %d: %v, want %q with %v", i, got.TopLogprobs[i], spelling(alt, "bytes:"), logprobOf(before, alt))
			}
		}
		if len(*got.TopLogprobs[i]) != len(want) {
			t.Errorf("token %d: %d names, want %d", i, len(*got.TopLogprobs[i]), len(want))
		}
	}
}

// offsets returns where the tokens of a sequence begin in its text, in characters.
func offsets(all []uint32) (at []int, text string) {
	d := testProcessor().NewDetokenizer(chat.Stops{}, false, true)
	for _, id := range all {
		at = append(at, utf8.RuneCountInString(text))
		piece, _ := d.Push([]uint32{id})
		text += piece
	}
	return at, text + d.Flush()
}

func TestTextLogprobs(t *testing.T) {
	w := newWorld(t)
	w.realWorker("worker-1", 0)
	f := w.frontend().waitModel(1)
	client := f.official()
	const text = "Ein Sätzchen → 😀"
	prompt := tokens(text)
	for _, tc := range []struct {
		echo   bool
		n, top int
	}{{false, 30, 0}, {false, 30, 5}, {true, 30, 2}, {true, 0, 3}, {true, 1, 0}} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			all := append(slices.Clone(prompt), mock.Continue(prompt, tc.n, testProcessor().VocabSize(), testProcessor().EOS()...)...)
			from := len(prompt)
			if tc.echo {
				from = 0
			}
			wantAt, wantText := offsets(all[from:])
			params := openai.CompletionNewParams{
				Model: testModel, Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String(text)}, MaxTokens: openai.Int(int64(tc.n)),
				Temperature: openai.Float(0), Logprobs: openai.Int(int64(tc.top)), Echo: openai.Bool(tc.echo),
			}
			check := func(how, text, finish string, got textLogprobs) {
				if text != wantText || !slices.Equal(got.TextOffset, wantAt) || tc.n < 30 && finish != "length" {
					t.Errorf("%s: %q, %s, offsets %v; want %q and %v", how, text, finish, got.TextOffset, wantText, wantAt)
				}
				checkText(t, got, all, from, tc.top)
			}
			whole, err := client.Completions.New(t.Context(), params)
			if err != nil {
				t.Fatal(err)
			}
			var got textLogprobs
			got.add(whole.Choices[0].Logprobs.RawJSON())
			check("whole", whole.Choices[0].Text, string(whole.Choices[0].FinishReason), got)
			if u := whole.Usage; u.PromptTokens != int64(len(prompt)) || u.CompletionTokens != int64(len(all)-len(prompt)) {
				t.Errorf("usage %+v", u)
			}

			stream := client.Completions.NewStreaming(t.Context(), params)
			got = textLogprobs{}
			streamed, finish := "", ""
			for stream.Next() {
				c := stream.Current().Choices[0]
				streamed += c.Text
				finish += string(c.FinishReason)
				got.add(c.Logprobs.RawJSON())
			}
			if err := stream.Err(); err != nil {
				t.Fatal(err)
			}
			check("streamed", streamed, finish, got)
		})
	}
}

// An echo of the prompt alone needs no worker.
func TestEchoAlone(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("!"))
	f := w.frontend().waitModel(1)
	a := wholeAnswer(t, f.post("/v1/completions", textBody(body{"prompt": []string{"Once", "Twice"}, "echo": true, "max_tokens": 0})))
	if len(a.Choices) != 2 || a.Choices[1].Text != "Twice" || *a.Choices[1].FinishReason != "length" || a.Usage.CompletionTokens != 0 || a.Usage.PromptTokens != 9 {
		t.Errorf("got %+v, usage %+v", a.Choices, a.Usage)
	}
	s := readStream(t, f.post("/v1/completions", textBody(body{"echo": true, "max_tokens": 0, "stream": true})))
	if s.texts[0] != "Once" || s.finish[0] != "length" || !s.done {
		t.Errorf("got %+v", s)
	}
	if len(fk.got()) > 0 {
		t.Error("the worker was asked")
	}
	long := strings.Repeat("x", testContext)
	if a := wholeAnswer(t, f.post("/v1/completions", textBody(body{"prompt": long, "echo": true, "max_tokens": 0}))); a.Choices[0].Text != long {
		t.Error("a prompt that fills the context is not echoed")
	}
	if resp := f.post("/v1/completions", textBody(body{"prompt": long + "x", "echo": true, "max_tokens": 0})); resp.StatusCode != http.StatusBadRequest || failureOf(t, resp).param() != "prompt" {
		t.Errorf("status %d", resp.StatusCode)
	}
}
