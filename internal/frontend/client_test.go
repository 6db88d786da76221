package frontend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// body is a request body.
type body map[string]any

func chatBody(more body) body {
	b := body{"model": testModel, "messages": []body{{"role": "user", "content": "Hi"}}}
	for k, v := range more {
		b[k] = v
	}
	return b
}

func textBody(more body) body {
	b := body{"model": testModel, "prompt": "Once", "max_tokens": 100}
	for k, v := range more {
		b[k] = v
	}
	return b
}

// post sends a request; v is a body, or bytes that are sent as they are.
func (f *front) post(path string, v any) *http.Response {
	f.t.Helper()
	resp, err := f.tryPost(f.t.Context(), path, v)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp
}

func (f *front) tryPost(ctx context.Context, path string, v any) (*http.Response, error) {
	raw, ok := v.([]byte)
	if !ok {
		var err error
		if raw, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL()+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return f.client.Do(req)
}

// do sends a request with headers.
func (f *front) do(method, path string, body io.Reader, headers ...string) *http.Response {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.URL()+path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := f.client.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp
}

func (f *front) get(path string) (status int, answer string) {
	f.t.Helper()
	resp, err := f.client.Get(f.URL() + path)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, readAll(f.t, resp)
}

func readAll(t testing.TB, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// envelope is an OpenAI error.
type envelope struct {
	Error struct {
		Message string
		Type    string
		Param   *string
		Code    *string
	}
}

func (e envelope) param() string {
	if e.Error.Param == nil {
		return ""
	}
	return *e.Error.Param
}

func (e envelope) code() string {
	if e.Error.Code == nil {
		return ""
	}
	return *e.Error.Code
}

// failure reads an error answer and checks its shape.
func failureOf(t testing.TB, resp *http.Response) envelope {
	t.Helper()
	var e envelope
	text := readAll(t, resp)
	if err := json.Unmarshal([]byte(text), &e); err != nil || e.Error.Message == "" || e.Error.Type == "" {
		t.Fatalf("status %d: not an error envelope: %q (%v)", resp.StatusCode, text, err)
	}
	for _, field := range []string{"message", "type", "param", "code"} {
		if !strings.Contains(text, `"`+field+`":`) {
			t.Errorf("no field %s in %s", field, text)
		}
	}
	if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("content type %q", ct)
	}
	return e
}

// answer is a completion of either endpoint, whole or put together from a stream.
type answer struct {
	ID, Object, Model string
	Choices           []struct {
		Index        int
		Text         string
		Message      struct{ Role, Content string }
		Delta        struct{ Role, Content *string }
		FinishReason *string `json:"finish_reason"`
	}
	Usage *usage
}

func wholeAnswer(t testing.TB, resp *http.Response) (a answer) {
	t.Helper()
	text := readAll(t, resp)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s", resp.StatusCode, text)
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return a
}

// streamed holds everything received over a stream.
type streamed struct {
	events []string // payloads, without [DONE]
	texts  map[int]string
	finish map[int]string
	usage  *usage
	failed *envelope
	done   bool
}

// readStream reads a stream to its end.
func readStream(t testing.TB, resp *http.Response) *streamed {
	t.Helper()
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || ct != "text/event-stream" {
		t.Fatalf("status %d, content type %q: %s", resp.StatusCode, ct, readAll(t, resp))
	}
	return parseStream(t, readAll(t, resp))
}

func parseStream(t testing.TB, text string) *streamed {
	t.Helper()
	s := &streamed{texts: map[int]string{}, finish: map[int]string{}}
	if !strings.HasSuffix(text, "\n\n") {
		t.Errorf("the stream ends inside an event: %q", text)
	}
	for _, block := range strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		if strings.HasPrefix(block, ":") {
			continue
		}
		data, ok := strings.CutPrefix(block, "data: ")
		if !ok || strings.Contains(data, "\n") || s.done {
			t.Fatalf("bad event %q in %q", block, text)
		}
		if data == "[DONE]" {
			s.done = true
			continue
		}
		s.add(t, data)
	}
	return s
}

func (s *streamed) add(t testing.TB, data string) {
	t.Helper()
	s.events = append(s.events, data)
	var e envelope
	var a answer
	if err := errors.Join(json.Unmarshal([]byte(data), &a), json.Unmarshal([]byte(data), &e)); err != nil {
		t.Fatalf("event %s: %v", data, err)
	}
	if e.Error.Message != "" {
		s.failed = &e
		return
	}
	if a.Usage != nil {
		s.usage = a.Usage
	}
	for _, c := range a.Choices {
		s.texts[c.Index] += c.Text
		if c.Delta.Content != nil {
			s.texts[c.Index] += *c.Delta.Content
		}
		if c.FinishReason != nil {
			s.finish[c.Index] = *c.FinishReason
		}
	}
}
