package frontend

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// The frames of a stream are OpenAI's: role first, finish reason last and alone,
// then the usage with no choices, then the mark of the end.
func TestStreamFraming(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("Hi <b>"))
	f := w.frontend().waitModel(1)
	chunk := func(object, choices, usage string) string {
		return `{"id":"ID","object":"` + object + `","created":0,"model":"tiny","system_fingerprint":null,"choices":[` + choices + `]` + usage + `}`
	}
	delta := func(delta, finish string) string {
		return `{"index":0,"delta":{` + delta + `},"logprobs":null,"finish_reason":` + finish + `}`
	}
	text := func(text, finish string) string {
		return `{"index":0,"text":"` + text + `","logprobs":null,"finish_reason":` + finish + `}`
	}
	const null, counted = `,"usage":null`, `,"usage":{"prompt_tokens":P,"completion_tokens":6,"total_tokens":T,"prompt_tokens_details":{"cached_tokens":C}}`
	chat := func(null string) (out []string) {
		out = append(out, chunk("chat.completion.chunk", delta(`"role":"assistant","content":""`, "null"), null))
		for _, c := range "Hi <b>" {
			out = append(out, chunk("chat.completion.chunk", delta(`"content":"`+string(c)+`"`, "null"), null))
		}
		return append(out, chunk("chat.completion.chunk", delta("", `"stop"`), null))
	}
	completion := func(null string) (out []string) {
		for _, c := range "Hi <b>" {
			out = append(out, chunk("text_completion", text(string(c), "null"), null))
		}
		return append(out, chunk("text_completion", text("", `"stop"`), null))
	}
	for _, tc := range []struct {
		name, path string
		body       body
		want       []string
	}{
		{"chat", "/v1/chat/completions", chatBody(nil), chat("")},
		{"chat with usage", "/v1/chat/completions", chatBody(body{"stream_options": body{"include_usage": true}}),
			append(chat(null), chunk("chat.completion.chunk", "", counted))},
		{"completion", "/v1/completions", textBody(nil), completion("")},
		{"completion with usage", "/v1/completions", textBody(body{"stream_options": body{"include_usage": true}}),
			append(completion(null), chunk("text_completion", "", counted))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.body["stream"] = true
			resp := f.post(tc.path, tc.body)
			for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"} {
				if got := resp.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			s := readStream(t, resp)
			if !s.done || len(s.events) != len(tc.want) {
				t.Fatalf("%d events, want %d:\n%s", len(s.events), len(tc.want), strings.Join(s.events, "\n"))
			}
			for i, want := range tc.want {
				if got := anonymous(t, s.events[i]); got != want {
					t.Errorf("event %d:\n got %s\nwant %s", i, got, want)
				}
			}
		})
	}
}

// anonymous replaces what differs from run to run in an event.
func anonymous(t *testing.T, event string) string {
	t.Helper()
	var e struct {
		ID      json.RawMessage
		Created json.RawMessage
		Usage   struct {
			Prompt  json.RawMessage `json:"prompt_tokens"`
			Total   json.RawMessage `json:"total_tokens"`
			Details struct {
				Cached json.RawMessage `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal([]byte(event), &e); err != nil {
		t.Fatal(err)
	}
	for _, r := range [][3]string{
		{`"id":`, string(e.ID), `"ID"`}, {`"created":`, string(e.Created), "0"}, {`"prompt_tokens":`, string(e.Usage.Prompt), "P"},
		{`"total_tokens":`, string(e.Usage.Total), "T"}, {`"cached_tokens":`, string(e.Usage.Details.Cached), "C"},
	} {
		event = strings.Replace(event, r[0]+r[1], r[0]+r[2], min(len(r[1]), 1))
	}
	return event
}

func TestAppendStringIsJSON(t *testing.T) {
	for _, s := range []string{"", "plain", `a"b\c`, "line\nbreak\r\t\x00\x1f\x7f", "ünï→😀\u2028", "<&>", "bad \xff\xc3 end\xe2\x82"} {
		got := appendString([]byte("x"), s)[1:]
		var back string
		if err := json.Unmarshal(got, &back); err != nil || back != strings.ToValidUTF8(s, "\ufffd") && utf8.ValidString(s) {
			t.Errorf("%q became %s: %q, %v", s, got, back, err)
		}
	}
}

func FuzzAppendString(f *testing.F) {
	f.Add("a\"\\\n\xff😀")
	f.Fuzz(func(t *testing.T, s string) {
		got := appendString(nil, s)
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var a, b string
		if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal(want, &b)); err != nil || a != b || !utf8.Valid(got) {
			t.Errorf("%q became %s, want %s: %v", s, got, want, err)
		}
	})
}

// An idle stream gets comments, which clients skip, and goes on afterwards.
func TestKeepAlive(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	w.fake("worker-1", say("abc", hold(0, release)))
	f := w.frontend(func(f *Frontend) { f.limits.keepAlive = 5 * time.Millisecond }).waitModel(1)
	resp := f.post("/v1/completions", textBody(body{"stream": true})) // the headers come with the first comment
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	for range 4 {
		if line, err := r.ReadString('\n'); err != nil || line != ": keep-alive\n" && line != "\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	close(release)
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	s := parseStream(t, strings.TrimPrefix(string(rest), "\n"))
	if s.texts[0] != "abc" || !s.done {
		t.Errorf("got %q", rest)
	}
}

// After a comment the status is sent: an error is an event then.
func TestErrorAfterKeepAlive(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	w.fake("worker-1", say("abc", hold(0, release), failAt(0, &requestplane.RemoteError{Kind: requestplane.KindInternal})))
	f := w.frontend(func(f *Frontend) { f.limits.keepAlive = 5 * time.Millisecond }).waitModel(1)
	resp := f.post("/v1/completions", textBody(body{"stream": true}))
	close(release)
	if s := readStream(t, resp); s.failed == nil || s.failed.Error.Type != "server_error" || !s.done {
		t.Errorf("got %+v", s)
	}
}

// An error before the first event is an ordinary response, also for a stream.
func TestErrorBeforeFirstEvent(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", refuse(requestplane.KindInternal))
	f := w.frontend().waitModel(1)
	resp := f.post("/v1/chat/completions", chatBody(body{"stream": true}))
	if e := failureOf(t, resp); resp.StatusCode != http.StatusInternalServerError || e.Error.Type != "server_error" {
		t.Errorf("status %d, %+v", resp.StatusCode, e)
	}
}

// A client that does not read holds up nobody, and is cut off in the end.
func TestSlowClient(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("0123456789abcdef", 64)
	endless := func(ctx context.Context, _ protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		for {
			if err := send(protocol.EngineOutput{TokenIDs: tokens(long)}); err != nil {
				return err
			}
		}
	}
	quick := say("quick")
	fk := w.fake("worker-1", func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		if req.Stop.MaxTokens == 77 {
			return endless(ctx, req, send)
		}
		return quick(ctx, req, send)
	})
	f := w.frontend(func(f *Frontend) {
		f.limits.write = 300 * time.Millisecond
		f.ln = smallBuffers{f.ln}
	}).waitModel(1)
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	raw := `{"model":"tiny","prompt":"x","stream":true,"max_tokens":77}`
	if _, err := io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 59\r\n\r\n"+raw); err != nil || len(raw) != 59 {
		t.Fatal(err, len(raw))
	}
	patience.Until(t, "the slow request runs", func() bool { return fk.running.Load() == 1 })
	for start := time.Now(); fk.running.Load() > 0; {
		begin := time.Now()
		if a := wholeAnswer(t, f.post("/v1/completions", textBody(nil))); a.Choices[0].Text != "quick" {
			t.Fatalf("got %+v", a)
		}
		if d := time.Since(begin); d > time.Minute {
			t.Fatalf("a request beside a slow client took %s", d)
		}
		if time.Since(start) > time.Minute {
			t.Fatal("the slow client is never cut off")
		}
	}
	if fk.cancelled.Load() != 1 {
		t.Errorf("%d handlers cancelled", fk.cancelled.Load())
	}
	patience.Until(t, "the request is counted as cancelled", func() bool {
		return f.metric(`dynamo_frontend_requests_total{endpoint="completions",error_type="cancelled",model="tiny",request_type="stream",status="error"}`) == 1
	})
}

// smallBuffers makes connections that hold little before a writer must wait.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4096)
	}
	return c, err
}
