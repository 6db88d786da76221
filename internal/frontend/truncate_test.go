package frontend

import (
	"slices"
	"strings"
	"testing"
)

// TestTruncatePromptTokens: the end of the prompt is left, as vLLM documents: k tokens, or for
// -1 what fits beside max_tokens.
func TestTruncatePromptTokens(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("!"))
	f := w.frontend().waitModel(1)
	long := strings.Repeat("0123456789", testContext/5)
	chat := "<|im_start|>user\n" + long + "<|im_end|>\n<|im_start|>assistant\n"
	turn := []body{{"role": "user", "content": long}}
	for _, tc := range []struct {
		name string
		path string
		b    body
		want []uint32 // the whole prompt
		keep int
	}{
		{"chat", "chat/completions", chatBody(body{"messages": turn, "truncate_prompt_tokens": 40}), tokens(chat), 40},
		{"one", "completions", textBody(body{"prompt": long, "truncate_prompt_tokens": 1}), tokens(long), 1},
		{"text", "completions", textBody(body{"prompt": long, "truncate_prompt_tokens": -1}), tokens(long), testContext - 100},
		{"chat without a limit", "chat/completions", chatBody(body{"messages": turn, "truncate_prompt_tokens": -1}), tokens(chat), testContext - 1},
		{"default limit", "completions", body{"model": testModel, "prompt": long, "truncate_prompt_tokens": -1}, tokens(long), testContext - defaultCompletionTokens},
		{"ids", "completions", textBody(body{"prompt": tokens(long), "truncate_prompt_tokens": 7}), tokens(long), 7},
		{"short enough", "completions", textBody(body{"prompt": "abc", "truncate_prompt_tokens": 7}), tokens("abc"), 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp := f.post("/v1/"+tc.path, tc.b)
			if text := readAll(t, resp); resp.StatusCode != 200 {
				t.Fatal(text)
			}
			all := fk.got()
			if got := all[len(all)-1].TokenIDs; !slices.Equal(got, tc.want[len(tc.want)-tc.keep:]) {
				t.Errorf("the prompt has %d tokens, want the last %d", len(got), tc.keep)
			}
		})
	}
	huge := strings.Repeat(long, truncatable)
	for _, tc := range []struct {
		b           body
		param, code string
	}{
		{textBody(body{"truncate_prompt_tokens": testContext + 1}), "truncate_prompt_tokens", "invalid_value"},
		{textBody(body{"truncate_prompt_tokens": -2}), "truncate_prompt_tokens", "invalid_value"},
		{textBody(body{"truncate_prompt_tokens": 0}), "prompt", "invalid_value"},
		{textBody(body{"truncate_prompt_tokens": "1"}), "truncate_prompt_tokens", "invalid_type"},
		{textBody(body{"prompt": huge, "truncate_prompt_tokens": 1}), "prompt", "context_length_exceeded"},
		{textBody(body{"prompt": tokens(huge), "truncate_prompt_tokens": 1}), "prompt", "context_length_exceeded"},
		{textBody(body{"prompt": long, "max_tokens": testContext, "truncate_prompt_tokens": -1}), "prompt", "context_length_exceeded"},
	} {
		resp := f.post("/v1/completions", tc.b)
		if e := failureOf(t, resp); resp.StatusCode != 400 || e.param() != tc.param || e.code() != tc.code {
			t.Errorf("%v: %d, %q, %q, %s", tc.b["truncate_prompt_tokens"], resp.StatusCode, e.param(), e.code(), e.Error.Message)
		}
	}
}

// TestContinueFinalMessage: the prompt ends where the last message does, and as in vLLM not
// together with a generation prompt.
func TestContinueFinalMessage(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("!"))
	f := w.frontend().waitModel(1)
	with := func(more body) body {
		b := chatBody(body{"messages": []body{{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well, "}}, "continue_final_message": true})
		for k, v := range more {
			b[k] = v
		}
		return b
	}
	want := tokens("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nWell, ")
	for _, more := range []body{nil, {"add_generation_prompt": false}, {"add_generation_prompt": nil}} {
		if a := wholeAnswer(t, f.post("/v1/chat/completions", with(more))); a.Choices[0].Message.Content != "!" {
			t.Errorf("%v: %+v", more, a)
		}
		if all := fk.got(); !slices.Equal(all[len(all)-1].TokenIDs, want) {
			t.Errorf("%v: prompt %q", more, testProcessor().Decode(all[len(all)-1].TokenIDs))
		}
	}
	resp := f.post("/v1/chat/completions", with(body{"add_generation_prompt": true}))
	if e := failureOf(t, resp); resp.StatusCode != 400 || e.param() != "continue_final_message" || !strings.Contains(e.Error.Message, "add_generation_prompt") {
		t.Errorf("%d, %q, %s", resp.StatusCode, e.param(), e.Error.Message)
	}
	resp = f.post("/v1/chat/completions", with(body{"messages": []body{{"role": "assistant", "content": nil}}}))
	if e := failureOf(t, resp); resp.StatusCode != 400 || e.param() != "messages" {
		t.Errorf("%d, %q, %s", resp.StatusCode, e.param(), e.Error.Message)
	}
}
