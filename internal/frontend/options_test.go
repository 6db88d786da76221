package frontend

import (
	"strings"
	"testing"
)

func TestSamplingValidation(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("!"))
	f := w.frontend().waitModel(1)
	const chat, text = "/v1/chat/completions", "/v1/completions"
	long := make([][]int, maxBadWords+1)
	for i := range long {
		long[i] = []int{1}
	}
	for _, tc := range []struct {
		name, path string
		more       body
		param      string
		code       string
		says       string
	}{
		{"presence high", chat, body{"presence_penalty": 2.1}, "presence_penalty", "invalid_value", "between -2 and 2"},
		{"frequency low", text, body{"frequency_penalty": -3}, "frequency_penalty", "invalid_value", "between -2 and 2"},
		{"frequency a string", text, body{"frequency_penalty": "1"}, "frequency_penalty", "invalid_type", "number"},
		{"repetition 0", text, body{"repetition_penalty": 0}, "repetition_penalty", "invalid_value", "greater than 0"},
		{"repetition negative", text, body{"repetition_penalty": -1}, "repetition_penalty", "invalid_value", "between 0 and 2"},
		{"repetition high", chat, body{"repetition_penalty": 2.5}, "repetition_penalty", "invalid_value", "between 0 and 2"},
		{"bias a list", chat, body{"logit_bias": []int{1}}, "logit_bias", "invalid_type", "object"},
		{"bias of a word", chat, body{"logit_bias": body{"hello": 1}}, "logit_bias.hello", "invalid_value", "not a token id"},
		{"bias of a negative id", chat, body{"logit_bias": body{"-1": 1}}, "logit_bias.-1", "invalid_value", "not a token id"},
		{"bias too strong", text, body{"logit_bias": body{"5": 101}}, "logit_bias.5", "invalid_value", "between -100 and 100"},
		{"bias a string", text, body{"logit_bias": body{"5": "1"}}, "logit_bias.5", "invalid_type", "number"},
		{"bias of no token", text, body{"logit_bias": body{"99999": 1}}, "logit_bias", "invalid_value", "99999"},
		{"nothing allowed", text, body{"allowed_token_ids": []int{}}, "allowed_token_ids", "invalid_value", "empty"},
		{"allowed a number", text, body{"allowed_token_ids": 5}, "allowed_token_ids", "invalid_type", "list"},
		{"allowed of no token", text, body{"allowed_token_ids": []int{99999}}, "allowed_token_ids", "invalid_value", "99999"},
		{"bad words a string", chat, body{"bad_words": "no"}, "bad_words", "invalid_type", "list of strings"},
		{"bad words with null", chat, body{"bad_words": []any{nil}}, "bad_words", "invalid_type", "list of strings"},
		{"blank bad word", chat, body{"bad_words": []string{" "}}, "bad_words", "invalid_value", "empty"},
		{"too many bad words", chat, body{"bad_words": strings.Split(strings.Repeat("a", maxBadWords+1), "")}, "bad_words", "invalid_value", "at most 1024"},
		{"bad ids a string", chat, body{"bad_words_token_ids": "no"}, "bad_words_token_ids", "invalid_type", "list"},
		{"bad ids empty", chat, body{"bad_words_token_ids": [][]int{{}}}, "bad_words_token_ids", "invalid_value", "empty"},
		{"bad ids with null", chat, body{"bad_words_token_ids": []any{nil}}, "bad_words_token_ids", "invalid_type", "list"},
		{"bad ids of no token", chat, body{"bad_words_token_ids": [][]int{{1, 99999}}}, "bad_words_token_ids", "invalid_value", "99999"},
		{"too many bad ids", chat, body{"bad_words_token_ids": long}, "bad_words_token_ids", "invalid_value", "at most 1024"},

		{"chat logprobs a number", chat, body{"logprobs": 3}, "logprobs", "invalid_type", "boolean"},
		{"top_logprobs high", chat, body{"logprobs": true, "top_logprobs": 21}, "top_logprobs", "invalid_value", "between 0 and 20"},
		{"top_logprobs alone", chat, body{"top_logprobs": 1}, "top_logprobs", "invalid_value", "'logprobs'"},
		{"top_logprobs without", chat, body{"logprobs": false, "top_logprobs": 1}, "top_logprobs", "invalid_value", "'logprobs'"},
		{"top_logprobs of text", text, body{"top_logprobs": 1}, "top_logprobs", "unknown_parameter", ""},
		{"text logprobs a flag", text, body{"logprobs": true}, "logprobs", "invalid_type", "integer"},
		{"text logprobs high", text, body{"logprobs": 6}, "logprobs", "invalid_value", "between 0 and 5"},
		{"prompt_logprobs", text, body{"prompt_logprobs": 1}, "prompt_logprobs", "unknown_parameter", ""},
		{"tokens as ids a string", text, body{"return_tokens_as_token_ids": "yes"}, "return_tokens_as_token_ids", "invalid_type", "boolean"},
		{"no tokens without echo", text, body{"max_tokens": 0, "echo": false}, "max_tokens", "invalid_value", "echo"},
		{"no tokens of a chat", chat, body{"max_tokens": 0}, "max_tokens", "invalid_value", "between 1"},
		{"negative tokens with echo", text, body{"max_tokens": -1, "echo": true}, "max_tokens", "invalid_value", "between 0"},
		{"min over no tokens", text, body{"max_tokens": 0, "echo": true, "min_tokens": 1}, "min_tokens", "invalid_value", "max_tokens"},
		{"echo of a chat", chat, body{"echo": true}, "echo", "unknown_parameter", ""},
		{"beams", text, body{"use_beam_search": true}, "use_beam_search", "unknown_parameter", ""},
		{"length_penalty", text, body{"length_penalty": 1}, "length_penalty", "unknown_parameter", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := textBody(tc.more)
			if tc.path == chat {
				b = chatBody(tc.more)
			}
			resp := f.post(tc.path, b)
			e := failureOf(t, resp)
			if resp.StatusCode != 400 || e.param() != tc.param || e.code() != tc.code || !strings.Contains(e.Error.Message, tc.says) {
				t.Errorf("status %d, param %q, code %q, %q; want %q, %q, ...%s...", resp.StatusCode, e.param(), e.code(), e.Error.Message, tc.param, tc.code, tc.says)
			}
		})
	}
	if n := len(fk.got()); n > 0 {
		t.Errorf("%d invalid requests reached the worker", n)
	}
}
