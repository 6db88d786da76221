package frontend

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestValidation(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("!"))
	f := w.configured(func(c *Config) { c.BodyLimit = 16 << 10 }).waitModel(1)
	const chat, text = "/v1/chat/completions", "/v1/completions"
	with := func(b body, key string, v any) body {
		b[key] = v
		return b
	}
	without := func(b body, key string) body {
		delete(b, key)
		return b
	}
	messages := func(list ...any) body { return with(chatBody(nil), "messages", list) }
	long := strings.Repeat("x", testContext)
	for _, tc := range []struct {
		name, path string
		body       any
		status     int
		param      string
		code       string
		says       string // part of the message
	}{
		{"empty body", chat, []byte(""), 400, "", "", "empty"},
		{"blank body", chat, []byte(" \n"), 400, "", "", "empty"},
		{"not JSON", chat, []byte(`{"model":`), 400, "", "", "not valid JSON"},
		{"trailing garbage", chat, []byte(`{} {}`), 400, "", "", "not valid JSON"},
		{"a list", chat, []byte(`[]`), 400, "", "", "JSON object"},
		{"null", chat, []byte(`null`), 400, "", "", "JSON object"},
		{"not UTF-8", chat, []byte("{\"model\":\"\xff\"}"), 400, "", "", "UTF-8"},
		{"too large", chat, with(chatBody(nil), "user", strings.Repeat("x", 20<<10)), 413, "", "", "larger than 16384 bytes"},
		{"much too large", text, with(textBody(nil), "user", strings.Repeat("x", 3<<20)), 413, "", "", "larger than 16384 bytes"},

		{"unknown parameter", chat, with(chatBody(nil), "temprature", 1), 400, "temprature", "unknown_parameter", "temprature"},
		{"unknown parameter of text", text, with(textBody(nil), "messages", "x"), 400, "messages", "unknown_parameter", "messages"},
		{"unsupported parameter", chat, with(chatBody(nil), "audio", body{}), 400, "audio", "unsupported_parameter", "audio"},
		{"unsupported value", chat, with(chatBody(nil), "modalities", []string{"audio"}), 400, "modalities", "unsupported_parameter", "text"},
		{"unsupported best_of", text, with(textBody(nil), "best_of", 2), 400, "best_of", "unsupported_parameter", "1"},
		{"tool without a function", chat, with(chatBody(nil), "tools", []body{{"type": "function"}}), 400, "tools[0].function", "missing_required_parameter", ""},

		{"model missing", chat, without(chatBody(nil), "model"), 400, "model", "missing_required_parameter", "model"},
		{"model null", chat, with(chatBody(nil), "model", nil), 400, "model", "missing_required_parameter", "model"},
		{"model not a string", chat, with(chatBody(nil), "model", 5), 400, "model", "invalid_type", "a string"},
		{"model unknown", chat, with(chatBody(nil), "model", "gpt"), 404, "model", "model_not_found", "tiny"},
		{"messages missing", chat, without(chatBody(nil), "messages"), 400, "messages", "missing_required_parameter", "messages"},
		{"messages empty", chat, messages(), 400, "messages", "missing_required_parameter", "messages"},
		{"messages a string", chat, with(chatBody(nil), "messages", "hi"), 400, "messages", "invalid_type", "list"},
		{"message null", chat, messages(nil), 400, "messages[0]", "invalid_type", "messages[0]"},
		{"message a string", chat, messages(body{"role": "user", "content": "a"}, "hi"), 400, "messages[1]", "invalid_type", "messages[1]"},
		{"role missing", chat, messages(body{"content": "a"}), 400, "messages[0].role", "missing_required_parameter", ""},
		{"role unknown", chat, messages(body{"role": "boss", "content": "a"}), 400, "messages[0].role", "invalid_value", "boss"},
		{"content a number", chat, messages(body{"role": "user", "content": 5}), 400, "messages[0].content", "invalid_type", ""},
		{"image part", chat, messages(body{"role": "user", "content": []body{{"type": "image_url"}}}), 400, "messages[0].content[0].image_url", "missing_required_parameter", "image_url"},
		{"image for a model of text", chat, messages(body{"role": "user", "content": []body{{"type": "image_url", "image_url": body{"url": "data:image/png;base64,AAAA"}}}}), 400, "messages[0].content[0].image_url", "", "does not take images"},
		{"image without a url", chat, messages(body{"role": "user", "content": []body{{"type": "image_url", "image_url": body{"detail": "high"}}}}), 400, "messages[0].content[0].image_url.url", "missing_required_parameter", "url"},
		{"image that is a number", chat, messages(body{"role": "user", "content": []body{{"type": "image_url", "image_url": 3}}}), 400, "messages[0].content[0].image_url", "invalid_type", "an object with a url"},
		{"unknown detail", chat, messages(body{"role": "user", "content": []body{{"type": "image_url", "image_url": body{"url": "x", "detail": "middle"}}}}), 400, "messages[0].content[0].image_url.detail", "invalid_value", "middle"},
		{"audio part", chat, messages(body{"role": "user", "content": []body{{"type": "input_audio"}}}), 400, "messages[0].content[0].type", "invalid_value", "input_audio"},
		{"text part without text", chat, messages(body{"role": "user", "content": []body{{"type": "text"}}}), 400, "messages[0].content[0].text", "missing_required_parameter", ""},
		{"template arguments", chat, with(chatBody(nil), "chat_template_kwargs", 1), 400, "chat_template_kwargs", "invalid_type", "object"},
		{"template argument of ours", chat, with(chatBody(nil), "chat_template_kwargs", body{"messages": 1}), 400, "messages", "", "messages"},

		{"prompt missing", text, without(textBody(nil), "prompt"), 400, "prompt", "missing_required_parameter", "prompt"},
		{"prompt empty", text, with(textBody(nil), "prompt", ""), 400, "prompt", "invalid_value", "no tokens"},
		{"prompts empty", text, with(textBody(nil), "prompt", []string{}), 400, "prompt", "invalid_value", "empty"},
		{"one prompt empty", text, with(textBody(nil), "prompt", []string{"a", ""}), 400, "prompt", "invalid_value", "no tokens"},
		{"empty list of ids", text, with(textBody(nil), "prompt", [][]int{{}}), 400, "prompt", "invalid_value", "no tokens"},
		{"prompt an object", text, with(textBody(nil), "prompt", body{}), 400, "prompt", "invalid_type", "list of token ids"},
		{"prompts mixed", text, with(textBody(nil), "prompt", []any{"a", 1}), 400, "prompt", "invalid_type", ""},
		{"prompt with null", text, with(textBody(nil), "prompt", []any{1, nil}), 400, "prompt", "invalid_type", ""},
		{"prompts with null", text, with(textBody(nil), "prompt", []any{[]any{1, nil}}), 400, "prompt", "invalid_type", ""},
		{"negative id", text, with(textBody(nil), "prompt", []int{-1}), 400, "prompt", "invalid_type", ""},
		{"id of no token", text, with(textBody(nil), "prompt", []int{1, 4000000000}), 400, "prompt", "invalid_value", "4000000000"},
		{"too many prompts", text, with(with(textBody(nil), "prompt", []string{"a", "b"}), "n", 65), 400, "prompt", "invalid_value", "130"},

		{"temperature high", chat, with(chatBody(nil), "temperature", 2.5), 400, "temperature", "invalid_value", "between 0 and 2"},
		{"temperature a string", chat, with(chatBody(nil), "temperature", "1"), 400, "temperature", "invalid_type", "number"},
		{"temperature infinite", chat, []byte(`{"model":"tiny","temperature":1e999}`), 400, "temperature", "invalid_type", ""},
		{"top_p high", text, with(textBody(nil), "top_p", 1.01), 400, "top_p", "invalid_value", ""},
		{"min_p low", text, with(textBody(nil), "min_p", -1), 400, "min_p", "invalid_value", ""},
		{"top_k low", text, with(textBody(nil), "top_k", -2), 400, "top_k", "invalid_value", ""},
		{"n 0", chat, with(chatBody(nil), "n", 0), 400, "n", "invalid_value", ""},
		{"n 129", chat, with(chatBody(nil), "n", 129), 400, "n", "invalid_value", ""},
		{"n a fraction", chat, with(chatBody(nil), "n", 1.5), 400, "n", "invalid_type", "integer"},
		{"seed a fraction", chat, with(chatBody(nil), "seed", 0.5), 400, "seed", "invalid_type", "integer"},
		{"stream a number", chat, with(chatBody(nil), "stream", 1), 400, "stream", "invalid_type", "boolean"},
		{"stop a number", chat, with(chatBody(nil), "stop", 1), 400, "stop", "invalid_type", ""},
		{"stop empty", chat, with(chatBody(nil), "stop", []string{"a", ""}), 400, "stop", "invalid_value", ""},
		{"stop null inside", chat, with(chatBody(nil), "stop", []any{nil}), 400, "stop", "invalid_type", ""},
		{"33 stops", chat, with(chatBody(nil), "stop", strings.Split(strings.Repeat("a", 33), "")), 400, "stop", "invalid_value", "at most 32"},
		{"stop token unknown", chat, with(chatBody(nil), "stop_token_ids", []int{99999}), 400, "stop_token_ids", "invalid_value", "99999"},
		{"max_tokens 0", text, with(textBody(nil), "max_tokens", 0), 400, "max_tokens", "invalid_value", ""},
		{"min over max", text, with(textBody(nil), "min_tokens", 101), 400, "min_tokens", "invalid_value", "max_tokens"},
		{"min over max of chat", chat, with(chatBody(body{"max_completion_tokens": 5}), "min_tokens", 6), 400, "min_tokens", "invalid_value", "max_completion_tokens"},
		{"stream_options without stream", chat, with(chatBody(nil), "stream_options", body{}), 400, "stream_options", "", "stream"},
		{"stream_options a list", chat, with(chatBody(nil), "stream_options", []int{}), 400, "stream_options", "invalid_type", "object"},
		{"stream_options unknown", chat, with(chatBody(body{"stream": true}), "stream_options", body{"x": 1}), 400, "stream_options.x", "unknown_parameter", ""},
		{"include_usage a string", chat, with(chatBody(body{"stream": true}), "stream_options", body{"include_usage": "y"}), 400, "stream_options.include_usage", "invalid_type", "boolean"},

		{"prompt too long", text, with(textBody(nil), "prompt", long), 400, "prompt", "context_length_exceeded", "512"},
		{"conversation too long", chat, messages(body{"role": "user", "content": long}), 400, "messages", "context_length_exceeded", "512"},
		{"too many tokens", text, with(textBody(nil), "max_tokens", 509), 400, "max_tokens", "context_length_exceeded", "513"},
		{"too many tokens of chat", chat, with(chatBody(nil), "max_completion_tokens", 512), 400, "max_completion_tokens", "context_length_exceeded", ""},
	} {
		for _, stream := range []bool{false, true} {
			name := tc.name
			if b, ok := tc.body.(body); ok && stream {
				if _, given := b["stream"]; given || b["stream_options"] != nil {
					continue
				}
				b["stream"] = true
				name += ", streamed"
			} else if stream {
				continue
			}
			t.Run(name, func(t *testing.T) {
				resp := f.post(tc.path, tc.body)
				e := failureOf(t, resp)
				if resp.StatusCode != tc.status || e.param() != tc.param || e.code() != tc.code || !strings.Contains(e.Error.Message, tc.says) || e.Error.Type != "invalid_request_error" {
					t.Errorf("status %d, param %q, code %q, %q; want %d, %q, %q, ...%s...",
						resp.StatusCode, e.param(), e.code(), e.Error.Message, tc.status, tc.param, tc.code, tc.says)
				}
			})
		}
	}
	if n := len(fk.got()); n > 0 {
		t.Errorf("%d invalid requests reached the worker", n)
	}
}

func TestAcceptedRequests(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("!"))
	f := w.frontend().waitModel(1)
	for name, b := range map[string]body{
		"nulls are absent": {"temperature": nil, "stop": nil, "n": nil, "tools": nil, "stream_options": nil, "max_tokens": nil},
		"what asks for nothing": {"logprobs": false, "top_logprobs": 0, "presence_penalty": 0.0, "frequency_penalty": 0, "logit_bias": body{},
			"response_format": body{"type": "text"}, "tools": []int{}, "tool_choice": "auto", "store": true, "service_tier": "flex", "prompt_cache_retention": "24h", "priority": -3, "max_tokens": 5.0, "modalities": []string{"text"}},
		"hints":                  {"user": "me", "metadata": body{"a": "b"}, "prompt_cache_key": "k", "safety_identifier": "s", "verbosity": "low", "reasoning_effort": "low"},
		"text parts":             {"messages": []body{{"role": "developer", "content": "a"}, {"role": "user", "content": []body{{"type": "text", "text": "b"}}}, {"role": "assistant", "content": nil, "tool_calls": []body{{"id": "1", "type": "function", "function": body{"name": "f", "arguments": "{}"}}}}, {"role": "tool", "tool_call_id": "1", "content": "c"}}},
		"template arguments":     {"chat_template_kwargs": body{"enable_thinking": false}, "add_generation_prompt": false},
		"both names of a limit":  {"max_tokens": 3, "max_completion_tokens": 2},
		"all the context allows": {"max_tokens": testContext - len(tokens("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"))},
	} {
		t.Run(name, func(t *testing.T) {
			if a := wholeAnswer(t, f.post("/v1/chat/completions", chatBody(b))); a.Choices[0].Message.Content != "!" {
				t.Errorf("got %+v", a)
			}
			if all := fk.got(); name == "both names of a limit" && all[len(all)-1].Stop.MaxTokens != 2 {
				t.Errorf("limit %d, want that of the newer name", all[len(all)-1].Stop.MaxTokens)
			}
		})
	}
}

func TestUnknownURLsAndMethods(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("!"))
	f := w.frontend().waitModel(1)
	for _, tc := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{"GET", "/", 404, "unknown_url", ""},
		{"POST", "/v1/embeddings", 404, "unknown_url", ""},
		{"OPTIONS", "/v2", 404, "unknown_url", ""},
		{"POST", "/v1//completions", 404, "unknown_url", ""},
		{"POST", "/v1/x/../completions", 404, "unknown_url", ""},
		{"GET", "/v1/completions", 405, "method_not_allowed", "POST, OPTIONS"},
		{"DELETE", "/v1/chat/completions", 405, "method_not_allowed", "POST, OPTIONS"},
		{"POST", "/v1/models", 405, "method_not_allowed", "GET, HEAD, OPTIONS"},
		{"DELETE", "/v1/models/tiny", 405, "method_not_allowed", "GET, HEAD, OPTIONS"},
		{"POST", "/health", 405, "method_not_allowed", "GET, HEAD, OPTIONS"},
		{"GET", "/v1/models/nobody/home", 404, "model_not_found", ""},
		{"GET", "/v1/models/", 404, "model_not_found", ""},
		{"GET", "/v1/models/a%2Fb", 404, "model_not_found", ""},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			resp := f.do(tc.method, tc.path, nil)
			e := failureOf(t, resp)
			if resp.StatusCode != tc.status || e.code() != tc.code || resp.Header.Get("Allow") != tc.allow {
				t.Errorf("status %d, code %q, Allow %q: %s", resp.StatusCode, e.code(), resp.Header.Get("Allow"), e.Error.Message)
			}
		})
	}
	for _, tc := range []struct {
		method, path string
		status       int
	}{
		{"OPTIONS", "/v1/completions", 204}, {"OPTIONS", "/v1/models/tiny", 204}, {"HEAD", "/v1/models", 200},
		{"HEAD", "/v1/models/tiny", 200}, {"HEAD", "/health", 200}, {"HEAD", "/v1/completions", 405}, {"HEAD", "/nowhere", 404},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			resp := f.do(tc.method, tc.path, nil)
			if text := readAll(t, resp); resp.StatusCode != tc.status || text != "" {
				t.Errorf("status %d, body %q", resp.StatusCode, text)
			}
			if tc.method == "OPTIONS" && resp.Header.Get("Allow") == "" {
				t.Error("no Allow header")
			}
		})
	}
}

func TestAPIKey(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("!"))
	f := w.configured(func(c *Config) { c.APIKey = "s3cret" }).waitModel(1)
	for _, tc := range []struct {
		name, header string
		status       int
	}{
		{"none", "", 401}, {"wrong", "Bearer s3cre", 401}, {"another scheme", "Basic s3cret", 401}, {"no scheme", "s3cret", 401},
		{"right", "Bearer s3cret", 200}, {"lower case scheme", "bearer s3cret", 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp := f.do("GET", "/v1/models", nil, "Authorization", tc.header)
			if resp.StatusCode != tc.status {
				t.Errorf("status %d", resp.StatusCode)
			}
			if tc.status == 200 {
				readAll(t, resp)
				return
			}
			if e := failureOf(t, resp); e.code() != "invalid_api_key" || strings.Contains(e.Error.Message, "s3c") || resp.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%+v", e)
			}
		})
	}
	resp := f.do("POST", "/v1/chat/completions", strings.NewReader("{"))
	if failureOf(t, resp); resp.StatusCode != 401 {
		t.Errorf("a request without a key is looked at: status %d", resp.StatusCode)
	}
	for open, want := range map[string]string{
		"/health": `{"status":"healthy"}`, "/live": `{"message":"Service is live","status":"live"}`,
	} {
		if status, text := f.get(open); status != 200 || strings.TrimSpace(text) != want {
			t.Errorf("%s without a key: %d %s", open, status, text)
		}
	}
	resp = f.do("GET", "/metrics", nil)
	if failureOf(t, resp); resp.StatusCode != 401 {
		t.Errorf("metrics without a key: status %d", resp.StatusCode)
	}
	for path, want := range map[string]string{"/health": `"worker":"worker-1"`, "/metrics": "dynamo_frontend_"} {
		resp := f.do("GET", path, nil, "Authorization", "Bearer s3cret")
		if text := readAll(t, resp); resp.StatusCode != 200 || !strings.Contains(text, want) {
			t.Errorf("%s with the key: %d %.300s", path, resp.StatusCode, text)
		}
	}
}

// Without an API key, what is more than state is told over loopback only.
func TestInsider(t *testing.T) {
	with := func(local net.IP, header string) *http.Request {
		r := httptest.NewRequest("GET", "/health", nil)
		r.Header.Set("Authorization", header)
		return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: local, Port: 1})))
	}
	loopback, other := net.IPv4(127, 0, 0, 1), net.IPv4(192, 0, 2, 1)
	for _, tc := range []struct {
		name string
		r    *http.Request
		key  string
		want int
	}{
		{"loopback, no key there is", with(loopback, ""), "", 200},
		{"loopback v6", with(net.IPv6loopback, ""), "", 200},
		{"another address, no key there is", with(other, ""), "", 403},
		{"another address, some key", with(other, "Bearer x"), "", 403},
		{"another address, an empty key", with(other, "Bearer "), "", 403},
		{"no address", httptest.NewRequest("GET", "/health", nil), "", 403},
		{"loopback without the key", with(loopback, ""), "k", 401},
		{"another address with the key", with(other, "Bearer k"), "k", 200},
	} {
		w := httptest.NewRecorder()
		Insiders(tc.key, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, tc.r)
		if w.Code != tc.want || Insider(tc.r, tc.key) != (tc.want == 200) {
			t.Errorf("%s: %d", tc.name, w.Code)
		}
	}
}

func TestRequestID(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("!"))
	f := w.frontend().waitModel(1)
	resp := f.do("POST", "/v1/completions", strings.NewReader(`{"model":"tiny","prompt":"x"}`), "X-Request-Id", "mine-1")
	wholeAnswer(t, resp)
	if got := resp.Header.Get("X-Request-Id"); got != "mine-1" {
		t.Errorf("echoed as %q", got)
	}
	resp = f.do("POST", "/v1/completions", strings.NewReader(`{"model":"tiny","prompt":"x"}`), "X-Request-Id", "mine-1")
	wholeAnswer(t, resp)
	a, b := fk.got()[0].RequestID, fk.got()[1].RequestID
	if a == b || !strings.HasPrefix(a, "mine-1-") || !strings.HasPrefix(b, "mine-1-") {
		t.Errorf("engines get %q and %q: want the client's id, made unique", a, b)
	}
	for name, id := range map[string]string{"none": "", "too long": strings.Repeat("x", 129), "with a blank": "a b"} {
		resp := f.do("GET", "/nowhere", nil, "X-Request-Id", id)
		failureOf(t, resp)
		if got := resp.Header.Get("X-Request-Id"); got == "" || got == id {
			t.Errorf("%s: answered with %q", name, got)
		}
	}
}

// A client that sends its body byte by byte does not hold a place for ever.
func TestSlowBody(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("!"))
	f := w.frontend(func(f *Frontend) { f.limits.body = 50 * time.Millisecond }).waitModel(1)
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 59\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	got, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 408 ") || !strings.Contains(string(got), "did not arrive") {
		t.Errorf("got %q, %v", got, err)
	}
	// The limit is for the body alone.
	release := make(chan struct{})
	w.fake("worker-2", say("late", hold(0, release)))
	f.waitModel(2)
	time.AfterFunc(100*time.Millisecond, func() { close(release) })
	for range 2 {
		wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
	}
}
