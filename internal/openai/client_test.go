package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// serve returns a client of a frontend with one handler.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := New(srv.URL, "secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// pieces writes a stream of events cut at every size-th byte.
func pieces(w http.ResponseWriter, text string, size int) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("X-Request-Id", "r-1")
	for len(text) > 0 {
		n := min(size, len(text))
		_, _ = io.WriteString(w, text[:n])
		w.(http.Flusher).Flush()
		text = text[n:]
	}
}

const wholeStream = `: keep-alive

data: {"model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}

data: {"choices":[{"delta":{"reasoning_content":"Hm, "},"finish_reason":null}]}

data: {"choices":[{"delta":{"reasoning":"so."},"finish_reason":null}]}

data: {"choices":[{"delta":{"content":"Grüße, \u6a21"},"finish_reason":null}]}

: keep-alive

data: {"choices":[{"delta":{"content":"型\n"},"finish_reason":null}]}

data: {"choices":[{"delta":{},"finish_reason":"length"}]}

data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":{"reasoning_tokens":2}},"nvext":{"worker_id":{"prefill_worker_id":7,"decode_worker_id":9007199254740993,"prefill_worker":"worker-1","decode_worker":"worker-3"},"timing":{"prefill":"remote","prefill_way":"queue","queue_ms":1.5,"prefill_ms":2.5,"ttft_ms":5,"total_ms":9,"moves":1}}}

data: [DONE]

`

func TestChat(t *testing.T) {
	var asked map[string]any
	for _, size := range []int{1, 3, 7, 64, len(wholeStream)} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer secret" {
				t.Errorf("asked %s with %q", r.URL.Path, r.Header.Get("Authorization"))
			}
			asked = nil
			if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
				t.Error(err)
			}
			pieces(w, wholeStream, size)
		})
		var text, reasoning string
		signs := 0
		temperature := 0.0
		a, err := c.Chat(t.Context(), Request{Model: "tiny", Messages: []Message{{"user", "Hi"}}, Temperature: &temperature}, func(d Delta) error {
			text, reasoning = text+d.Text, reasoning+d.Reasoning
			if d == (Delta{}) {
				signs++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if a.Text != "Grüße, 模型\n" || a.Text != text || a.Reasoning != "Hm, so." || a.Reasoning != reasoning || signs != 5 {
			t.Errorf("in pieces of %d: %+v, delivered %q and %q, %d signs of life", size, a, text, reasoning, signs)
		}
		if a.Finish != "length" || a.RequestID != "r-1" || a.Model != "tiny" || a.TTFT <= 0 || a.Took < a.TTFT {
			t.Errorf("in pieces of %d: %+v", size, a)
		}
		if u := a.Usage; u == nil || u.Prompt != 9 || u.Completion != 4 || u.Total != 13 || *u.Cached != 8 || *u.Reasoning != 2 {
			t.Errorf("in pieces of %d: usage %+v", size, u)
		}
		if r := a.Ran; r == nil || *r.Workers != (Workers{9007199254740993, "worker-3", 7, "worker-1"}) ||
			r.Timing.Prefill != "remote" || r.Timing.PrefillWay != "queue" || *r.Timing.TTFTMS != 5 || r.Timing.Moves != 1 {
			t.Errorf("in pieces of %d: ran %+v", size, r)
		}
	}
	want := map[string]any{
		"model": "tiny", "messages": []any{map[string]any{"role": "user", "content": "Hi"}}, "temperature": 0.0,
		"stream": true, "stream_options": map[string]any{"include_usage": true},
	}
	if fmt.Sprint(asked) != fmt.Sprint(want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
}

func TestChatErrors(t *testing.T) {
	first := `data: {"choices":[{"delta":{"content":"half"}}]}` + "\n\n"
	status := func(code int, header, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if header != "" {
				w.Header().Set("Retry-After", header)
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	stream := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { pieces(w, text, 5) }
	}
	for _, tc := range []struct {
		name    string
		h       http.HandlerFunc
		is      error
		text    string // of the error
		partial string
		want    Error
	}{
		{"closed", stream(first), ErrBroken, "the connection was closed", "half", Error{}},
		{"done without an end", stream(first + "data: [DONE]\n\n"), ErrBroken, "it has no end", "half", Error{}},
		{"no JSON", stream(first + "data: {\n\n"), ErrProtocol, "broke off", "half", Error{}},
		{
			"error event", stream(first + `data: {"error":{"message":"The workers serving this request were lost.","type":"server_error","param":null,"code":null}}` + "\n\ndata: [DONE]\n\n"),
			ErrBroken, "the answer broke off: The workers serving this request were lost", "half",
			Error{Message: "The workers serving this request were lost.", Type: "server_error"},
		},
		{
			"busy", status(503, "2", `{"error":{"message":"No worker is ready.","type":"server_error","param":null,"code":null}}`), nil,
			"No worker is ready (status 503)", "", Error{Status: 503, Message: "No worker is ready.", Type: "server_error", RetryAfter: 2 * time.Second},
		},
		{
			"wrong field", status(400, "", `{"error":{"message":"Bad.","type":"t","param":"seed","code":7}}`), nil,
			"Bad (status 400)", "", Error{Status: 400, Message: "Bad.", Type: "t", Param: "seed", Code: "7"},
		},
		{"of a proxy", status(502, "", "<html>"), nil, "status 502 Bad Gateway", "", Error{Status: 502}},
		{"no stream", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, ErrProtocol, "text/plain", "", Error{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := serve(t, tc.h).Chat(t.Context(), Request{}, func(Delta) error { return nil })
			if err == nil || tc.is != nil && !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.text) || a.Text != tc.partial {
				t.Fatalf("got %+v, %v", a, err)
			}
			var e *Error
			if errors.As(err, &e) != (tc.want != Error{}) || e != nil && *e != tc.want {
				t.Errorf("got %+v, want %+v", e, tc.want)
			}
		})
	}
}

// Whoever reads decides when it is enough, and says why.
func TestChatIsStopped(t *testing.T) {
	released := make(chan struct{})
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		pieces(w, `data: {"choices":[{"delta":{"content":"a"}}]}`+"\n\n", 9)
		<-r.Context().Done()
		close(released)
	})
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	a, err := c.Chat(ctx, Request{}, func(Delta) error { cancel(why); return nil })
	if !errors.Is(err, why) || a.Text != "a" {
		t.Errorf("got %+v, %v", a, err)
	}
	<-released
	if _, err := c.Chat(t.Context(), Request{}, func(Delta) error { return why }); !errors.Is(err, why) {
		t.Errorf("of the reader: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	c, err := New(srv.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Models(t.Context()); !errors.Is(err, ErrUnreachable) || strings.Contains(err.Error(), "Get ") {
		t.Errorf("got %v", err)
	}
}

func TestModelsAndHealth(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"a","context_window":4096},{"id":"b","max_model_len":2048}]}`)
		case "/health":
			_, _ = io.WriteString(w, `{"status":"healthy"}`)
		}
	})
	models, err := c.Models(t.Context())
	if err != nil || len(models) != 2 || models[0] != (Model{ID: "a", ContextWindow: 4096}) || models[1] != (Model{ID: "b", MaxModelLen: 2048}) {
		t.Errorf("models: %+v, %v", models, err)
	}
	if h, err := c.Health(t.Context()); err != nil || h != "healthy" {
		t.Errorf("health: %q, %v", h, err)
	}
}

func TestNew(t *testing.T) {
	for in, want := range map[string]string{
		"http://127.0.0.1:8000":     "http://127.0.0.1:8000",
		"http://127.0.0.1:8000/":    "http://127.0.0.1:8000",
		"http://127.0.0.1:8000/v1/": "http://127.0.0.1:8000",
		"https://host/llm/v1":       "https://host/llm",
		"127.0.0.1:8000":            "",
		"localhost":                 "",
		"ftp://host":                "",
		"":                          "",
	} {
		c, err := New(in, "", nil)
		if (err == nil) != (want != "") || err == nil && c.URL() != want {
			t.Errorf("New(%q): %v, %v, want %q", in, c, err, want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for _, tc := range []struct {
		text, date string
		want       time.Duration
	}{
		{"3", "", 3 * time.Second},
		{" 0 ", "", 0},
		{"-5", "", 0},
		{"", "", 0},
		{"soon", "", 0},
		{"Wed, 21 Oct 2015 07:28:09 GMT", "Wed, 21 Oct 2015 07:28:00 GMT", 9 * time.Second},
		{"Wed, 21 Oct 2015 07:28:00 GMT", "", 0},
	} {
		if got := retryAfter(tc.text, tc.date); got != tc.want {
			t.Errorf("retryAfter(%q, %q) = %s, want %s", tc.text, tc.date, got, tc.want)
		}
	}
}

func TestTokensPerSecond(t *testing.T) {
	a := Answer{TTFT: time.Second, Took: 3 * time.Second, Usage: &Usage{Completion: 21}}
	if v := a.TokensPerSecond(); v == nil || *v != 10 {
		t.Errorf("got %v", v)
	}
	for _, a := range []Answer{{}, {TTFT: 1, Took: 2}, {TTFT: 1, Took: 2, Usage: &Usage{Completion: 1}}, {TTFT: 2, Took: 2, Usage: &Usage{Completion: 5}}} {
		if v := a.TokensPerSecond(); v != nil {
			t.Errorf("%+v: %v", a, *v)
		}
	}
}

func TestComplete(t *testing.T) {
	var asked map[string]any
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/completions" {
			http.NotFound(w, r)
			return
		}
		_ = json.NewDecoder(r.Body).Decode(&asked)
		pieces(w, `data: {"choices":[{"text":"one","finish_reason":null}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}

data: {"choices":[{"text":" two","finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}

data: [DONE]

`, 11)
	})
	var deltas []Delta
	a, err := c.Complete(t.Context(), Request{Model: "tiny", Prompt: "zero", MaxTokens: 4, MinTokens: 4, IgnoreEOS: true}, func(d Delta) error {
		deltas = append(deltas, d)
		return nil
	})
	if err != nil || a.Text != "one two" || a.Finish != "length" || a.Usage.Completion != 4 {
		t.Errorf("got %+v, %v", a, err)
	}
	if fmt.Sprint(deltas) != fmt.Sprint([]Delta{{Text: "one", Tokens: 1}, {Text: " two", Tokens: 4}}) {
		t.Errorf("deltas %+v", deltas)
	}
	want := map[string]any{
		"model": "tiny", "prompt": "zero", "max_tokens": 4.0, "min_tokens": 4.0, "ignore_eos": true,
		"stream": true, "stream_options": map[string]any{"include_usage": true},
	}
	if fmt.Sprint(asked) != fmt.Sprint(want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
}

// No more connections than the limit are open, and they are kept between requests.
func TestLimit(t *testing.T) {
	var mu sync.Mutex
	opened, now, most := 0, 0, 0
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		pieces(w, `data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n", 1000)
		mu.Lock()
		now--
		mu.Unlock()
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			mu.Lock()
			opened++
			mu.Unlock()
		}
	}
	srv.Start()
	defer srv.Close()
	c, err := New(srv.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// A connection that there is when the limit comes is not counted, and ends without harm.
	if _, err := c.Chat(t.Context(), Request{}, func(Delta) error { return nil }); err != nil {
		t.Fatal(err)
	}
	c.Limit(3)
	mu.Lock()
	opened = 0
	mu.Unlock()
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			for range 4 {
				if _, err := c.Chat(t.Context(), Request{}, func(Delta) error { return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if opened > 3 || most > 3 {
		t.Errorf("%d connections were opened, %d requests at a time", opened, most)
	}
}

// An answer is complete with its last event, also where the server does not end the stream.
func TestStreamWithoutItsEnd(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		pieces(w, `data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n", 1000)
		<-r.Context().Done()
	})
	if a, err := c.Chat(t.Context(), Request{}, func(Delta) error { return nil }); err != nil || a.Text != "a" || a.Took >= finishTime {
		t.Errorf("got %+v, %v", a, err)
	}
}
