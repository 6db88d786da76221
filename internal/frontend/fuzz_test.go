package frontend

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Whatever a client sends, it gets valid JSON back: an answer, an error with the
// right shape, or a stream of them.
func fuzzEndpoint(f *testing.F, path string, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	w := newWorld(f)
	w.c.Log = slog.New(slog.DiscardHandler)
	w.fake("worker-1", say("ab"))
	fr := w.frontend().waitModel(1)
	f.Fuzz(func(t *testing.T, raw []byte) {
		rec := httptest.NewRecorder()
		fr.srv.Handler.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(raw)))
		text := rec.Body.String()
		if rec.Code >= 500 {
			t.Fatalf("status %d: %s", rec.Code, text)
		}
		if rec.Header().Get("Content-Type") == "text/event-stream" {
			if s := parseStream(t, text); !s.done || s.failed != nil {
				t.Fatalf("stream %s", text)
			}
			return
		}
		if !json.Valid([]byte(text)) {
			t.Fatalf("status %d: %q", rec.Code, text)
		}
		var e envelope
		if err := json.Unmarshal([]byte(text), &e); rec.Code != 200 && (err != nil || e.Error.Message == "" || e.Error.Type == "") {
			t.Fatalf("status %d: %s", rec.Code, text)
		}
	})
}

var fuzzSeeds = []string{
	``, `{}`, `null`, `[]`, `{"model":"tiny"}`, `{"model":`, "{\"model\":\"\xff\"}", `{"model":"tiny","x":1}`, strings.Repeat("[", 20000),
	`{"model":"tiny","stream":true,"stream_options":{"include_usage":true,"x":null},"n":2,"stop":["a",""],"temperature":1e999}`,
	`{"model":"tiny","n":129,"seed":-9223372036854775808,"stop_token_ids":[4294967295],"logit_bias":{},"top_p":0}`,
	`{"model":"tiny","logit_bias":{"1":100,"01":-100,"-1":0},"allowed_token_ids":[1],"bad_words":["a"," "],"bad_words_token_ids":[[1],2],"repetition_penalty":0}`,
}

func FuzzChat(f *testing.F) {
	fuzzEndpoint(f, "/v1/chat/completions", append(fuzzSeeds,
		`{"model":"tiny","messages":[{"role":"user","content":"Hi"}],"stream":true,"stream_options":{"include_usage":true}}`,
		`{"model":"tiny","messages":[{"role":"system","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1}"}}]}],"max_completion_tokens":3,"n":2}`,
		`{"model":"tiny","messages":[{"role":"tool","content":"x","tool_call_id":5}],"chat_template_kwargs":{"tools":[],"a":{"b":[1.5,"x"]}},"reasoning_effort":"low"}`,
		`{"model":"tiny","messages":[{"role":"tool","content":"x","tool_call_id":"1"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":"auto","parallel_tool_calls":false,"stream":true}`,
		`{"model":"tiny","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}}`,
		`{"model":"tiny","messages":[{"role":"user","content":"\ud800 \u0000"}],"stop":"b","min_tokens":1,"include_stop_str_in_output":true}`,
		`{"model":"tiny","messages":[{"role":"user","content":"Hi"}],"logprobs":true,"top_logprobs":2,"n":2,"return_tokens_as_token_ids":true,"stop":"b"}`,
	)...)
}

func FuzzCompletions(f *testing.F) {
	fuzzEndpoint(f, "/v1/completions", append(fuzzSeeds,
		`{"model":"tiny","prompt":"Once","stream":true,"echo":true}`, `{"model":"tiny","prompt":["a","b"],"n":2,"stop":"b"}`,
		`{"model":"tiny","prompt":[1,2,3],"max_tokens":1}`, `{"model":"tiny","prompt":[[1],[2,3]],"stream":true,"ignore_eos":true}`,
		`{"model":"tiny","prompt":[1,null]}`, `{"model":"tiny","prompt":[[]]}`, `{"model":"tiny","prompt":[-1]}`, `{"model":"tiny","prompt":{"a":1}}`,
		`{"model":"tiny","prompt":["Once","😀"],"echo":true,"logprobs":2,"max_tokens":0,"stream":true}`, `{"model":"tiny","prompt":"é","echo":true,"logprobs":0,"stop":"a","n":2}`,
	)...)
}
