package clitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/openai"
)

// Frontend is an OpenAI-compatible frontend that answers as it is told.
type Frontend struct {
	*httptest.Server
	Models []string
	// chat are the handlers of the next requests; the last one stays.
	chat []http.HandlerFunc

	mu    sync.Mutex
	asked []openai.Request
}

// NewFrontend starts one, until the test ends.
func NewFrontend(t *testing.T, chat ...http.HandlerFunc) *Frontend {
	t.Helper()
	f := &Frontend{Models: []string{"tiny"}, chat: chat}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// ServeHTTP answers as the frontend was told.
func (f *Frontend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/health":
		_, _ = io.WriteString(w, `{"status":"healthy"}`)
	case "/v1/models":
		var list struct {
			Data []openai.Model `json:"data"`
		}
		for _, m := range f.Models {
			list.Data = append(list.Data, openai.Model{ID: m})
		}
		_ = json.NewEncoder(w).Encode(list)
	case "/v1/chat/completions":
		var q openai.Request
		_ = json.NewDecoder(r.Body).Decode(&q)
		f.mu.Lock()
		f.asked = append(f.asked, q)
		h := f.chat[0]
		if len(f.chat) > 1 {
			f.chat = f.chat[1:]
		}
		f.mu.Unlock()
		h(w, r)
	default:
		http.NotFound(w, r)
	}
}

// Requests returns the requests for answers received so far.
func (f *Frontend) Requests() []openai.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// Says streams an answer, cut at odd places.
func Says(reasoning, text string) http.HandlerFunc {
	var b strings.Builder
	b.WriteString(": keep-alive\n\n")
	part := func(key, text string) {
		for _, word := range strings.SplitAfter(text, " ") {
			if word != "" {
				fmt.Fprintf(&b, "data: {\"model\":\"tiny\",\"choices\":[{\"delta\":{%q:%s},\"finish_reason\":null}]}\r\n\r\n", key, Quoted(word))
			}
		}
	}
	part("reasoning_content", reasoning)
	part("content", text)
	b.WriteString(`data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n")
	b.WriteString(`data: {"choices":[],"usage":{"prompt_tokens":1200,"completion_tokens":7,"total_tokens":1207,"prompt_tokens_details":{"cached_tokens":64}}}` + "\n\n")
	b.WriteString("data: [DONE]\n\n")
	return Streams(b.String())
}

// Quoted is s as a JSON string.
func Quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// Streams sends events in pieces of seven bytes.
func Streams(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Request-Id", "r-8f21")
		for rest := text; rest != ""; {
			n := min(7, len(rest))
			_, _ = io.WriteString(w, rest[:n])
			w.(http.Flusher).Flush()
			rest = rest[n:]
		}
	}
}

// Refuses answers with a status and OpenAI's envelope.
func Refuses(status int, retryAfter, code, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"error":{"message":%q,"type":"server_error","param":null,"code":%q}}`, message, code)
	}
}

// Hangs streams the beginning of an answer and then nothing until the client leaves.
func Hangs(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		Streams("data: {\"choices\":[{\"delta\":{\"content\":"+Quoted(text)+"}}]}\n\n")(w, r)
		<-r.Context().Done()
	}
}
