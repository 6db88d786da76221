package frontend

import (
	"strconv"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/engine/mock"
)

// Options reach the sampler of a real engine.
func TestOptionsReachTheEngine(t *testing.T) {
	w := newWorld(t)
	w.realWorker("worker-1", 0)
	f := w.frontend().waitModel(1)
	p := testProcessor()
	ids := tokens("Once")
	greedy := mock.Continue(ids, 20, p.VocabSize())
	ask := func(more body) answer {
		b := textBody(body{"temperature": 0, "max_tokens": 20, "ignore_eos": true, "skip_special_tokens": false})
		for k, v := range more {
			b[k] = v
		}
		return wholeAnswer(t, f.post("/v1/completions", b))
	}
	a, b := tokens("a")[0], tokens("b")[0]
	t.Run("allowed ids", func(t *testing.T) {
		got := ask(body{"allowed_token_ids": []uint32{a, b}})
		if s := got.Choices[0].Text; len(s) != 20 || strings.Trim(s, "ab") != "" {
			t.Errorf("got %q", s)
		}
	})
	t.Run("bad words", func(t *testing.T) {
		got := ask(body{"allowed_token_ids": []uint32{a, b}, "bad_words": []string{"ab"}})
		if s := got.Choices[0].Text; len(s) != 20 || strings.Contains(s, "ab") {
			t.Errorf("got %q", s)
		}
	})
	t.Run("bias", func(t *testing.T) {
		if s := ask(body{"logit_bias": body{strconv.Itoa(int(a)): 100}}).Choices[0].Text; s != strings.Repeat("a", 20) {
			t.Errorf("got %q", s)
		}
	})
	t.Run("penalties", func(t *testing.T) {
		// Logits lie between 0 and 16: a token that was said three times loses to the
		// other one, so none leads by more than a few.
		s := ask(body{"allowed_token_ids": []uint32{a, b}, "frequency_penalty": 2, "presence_penalty": 2, "max_tokens": 100}).Choices[0].Text
		if d := strings.Count(s, "a") - strings.Count(s, "b"); len(s) != 100 || d < -10 || d > 10 {
			t.Errorf("got %q", s)
		}
	})
	t.Run("stop token", func(t *testing.T) {
		at := 0
		for greedy[at] != greedy[5] {
			at++
		}
		for _, include := range []bool{false, true} {
			got := ask(body{"stop_token_ids": []uint32{greedy[5]}, "include_stop_str_in_output": include})
			n := at
			if include {
				n++
			}
			if *got.Choices[0].FinishReason != "stop" || got.Usage.CompletionTokens != n {
				t.Errorf("include %v: %d tokens, want %d", include, got.Usage.CompletionTokens, n)
			}
		}
		if got := ask(body{"stop_token_ids": []uint32{greedy[5]}, "min_tokens": 15}); got.Usage.CompletionTokens < 15 {
			t.Errorf("%d tokens, want 15", got.Usage.CompletionTokens)
		}
	})
	t.Run("contradiction", func(t *testing.T) {
		resp := f.post("/v1/completions", textBody(body{"allowed_token_ids": []uint32{a}, "bad_words_token_ids": []uint32{a}}))
		if e := failureOf(t, resp); resp.StatusCode != 400 || !strings.Contains(e.Error.Message, "restrictions") {
			t.Errorf("status %d, %+v", resp.StatusCode, e)
		}
	})
	t.Run("same seed, same text", func(t *testing.T) {
		more := body{"temperature": 1.2, "seed": 77, "n": 3, "repetition_penalty": 1.3}
		one, two := ask(more), ask(more)
		distinct := map[string]bool{}
		for i := range one.Choices {
			if one.Choices[i].Text != two.Choices[i].Text {
				t.Errorf("choice %d: %q and %q", i, one.Choices[i].Text, two.Choices[i].Text)
			}
			distinct[one.Choices[i].Text] = true
		}
		if len(distinct) != 3 {
			t.Errorf("%d different answers of 3", len(distinct))
		}
	})
}
