package wire

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// serve starts a server and a client of it.
func serve(t *testing.T, handler http.HandlerFunc, change func(*Config)) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c := Config{URL: server.URL}
	if change != nil {
		change(&c)
	}
	client, err := NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// Answers are read to their end, also where a mark ends them: connections are used again.
func TestConnectionsAreUsedAgain(t *testing.T) {
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/stream":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: x\n\ndata: [DONE]\n\n")
			w.(http.Flusher).Flush()
			<-time.After(20 * time.Millisecond) // the end comes after the mark was read
		case "/refuse":
			http.Error(w, "no", http.StatusBadRequest)
		default:
			_, _ = io.WriteString(w, "{}")
		}
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	c, err := NewClient(Config{URL: server.URL + "/v1/"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for range 5 {
		if _, err := c.Stream(t.Context(), "/stream", nil, []byte("{}"), func([]byte) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Compute(t.Context(), "/whole", nil, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Get(t.Context(), "/refuse"); err == nil {
			t.Fatal("a refusal is no error")
		}
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections for one call at a time", n)
	}
}

func TestStream(t *testing.T) {
	for name, test := range map[string]struct {
		kind, body string
		want       []string
		marked     bool
		text       string // of the error
	}{
		"events":     {"text/event-stream", "data: a\n\ndata:b\n\ndata: [DONE]\n\ndata: c\n\n", []string{"a", "b"}, true, ""},
		"keep-alive": {"text/event-stream; charset=utf-8", ": ping\n\n\n\n:\n\ndata:\n\nevent: x\ndata: a\r\n\r\ndata: [DONE]\n\n", []string{"a"}, true, ""},
		"unmarked":   {"text/event-stream", "data: a\n\n", []string{"a"}, false, ""},
		"no stream":  {"application/json", "{}", nil, false, "no stream of events"},
		"no kind":    {"", "data: a\n\n", nil, false, "no stream of events"},
		"long line":  {"text/event-stream", "data: " + strings.Repeat("x", 5<<20) + "\n\n", nil, false, "longer"},
		"long event": {"text/event-stream", strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 6) + "\n", nil, false, "longer"},
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{test.kind}
			_, _ = io.WriteString(w, test.body)
		}, nil)
		var got []string
		marked, err := c.Stream(t.Context(), "/x", nil, nil, func(b []byte) error {
			got = append(got, string(b))
			return nil
		})
		if marked != test.marked || !slices.Equal(got, test.want) || (err != nil) != (test.text != "") || err != nil && !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %q, marked %v, %v", name, got, marked, err)
		}
	}
}

// A server's texts are fit for a log: short, on one line, without the key.
func TestRefusals(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		status int
		body   string
		kind   requestplane.Kind
		text   string
	}{
		"openai":         {400, `{"error":{"message":"too hot","type":"x"}}`, requestplane.KindInvalidArgument, "/x: status 400: too hot"},
		"old vllm":       {400, `{"object":"error","message":"too long"}`, requestplane.KindInvalidArgument, "/x: status 400: too long"},
		"text in error":  {422, `{"error":"no"}`, requestplane.KindInvalidArgument, "/x: status 422: no"},
		"fastapi":        {422, `{"detail":[{"msg":"a"}]}`, requestplane.KindInvalidArgument, `/x: status 422: [{"msg":"a"}]`},
		"fastapi text":   {413, `{"detail":"big"}`, requestplane.KindInvalidArgument, "/x: status 413: big"},
		"plain":          {500, "oh\n\tno\x00\xff", requestplane.KindUnavailable, "/x: status 500: oh no\x00\ufffd"},
		"empty":          {502, "", requestplane.KindUnavailable, "/x: status 502"},
		"key":            {400, "bearer s3cret s3cret", requestplane.KindInvalidArgument, "/x: status 400: bearer [key] [key]"},
		"model":          {404, `{"error":{"message":"no model"}}`, requestplane.KindUnavailable, "/x: status 404: no model"},
		"wrong key":      {401, "", requestplane.KindUnavailable, "/x: status 401"},
		"forbidden":      {403, "", requestplane.KindUnavailable, "/x: status 403"},
		"busy":           {503, "", requestplane.KindOverloaded, "/x: status 503"},
		"too many":       {429, "", requestplane.KindOverloaded, "/x: status 429"},
		"odd":            {299, "", requestplane.KindUnavailable, "/x: status 299"},
		"long":           {400, strings.Repeat("é", 4000), requestplane.KindInvalidArgument, "/x: status 400: " + strings.Repeat("é", 512) + "…"},
		"long, unevenly": {400, "x" + strings.Repeat("é", 4000), requestplane.KindInvalidArgument, "/x: status 400: x" + strings.Repeat("é", 511) + "…"},
	} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer s3cret" {
				t.Errorf("authorization %q", r.Header.Get("Authorization"))
			}
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.body)
		}, func(c *Config) { c.Engine.Server.KeyFile = key })
		_, err := c.Get(t.Context(), "/x")
		var remote *requestplane.RemoteError
		if !errors.As(Remote(t.Context(), err), &remote) || remote.Kind != test.kind || remote.Message != test.text {
			t.Errorf("%s: %v, want %s: %s", name, err, test.kind, test.text)
		}
	}
}

func TestFailure(t *testing.T) {
	c := serve(t, func(http.ResponseWriter, *http.Request) {}, nil)
	for event, want := range map[string]int{
		`{"error":{"message":"x","code":400}}`: 400, `{"error":{"message":"x"}}`: 500, `{"error":"x"}`: 500, `{"object":"error","message":"x","code":429}`: 429,
		`{"error":{"message":"x","code":"oops"}}`: 500, `{"error":{"message":"x","code":200}}`: 500,
		`{"error":null,"choices":[]}`: 0, `{"choices":[]}`: 0, `not json`: 0, `{"object":"chat.completion.chunk"}`: 0,
	} {
		err := c.Failure("/x", []byte(event))
		var r *Refusal
		if errors.As(err, &r); (r == nil) != (want == 0) || r != nil && r.Status != want {
			t.Errorf("%s: %v, want status %d", event, err, want)
		}
	}
}

func TestLimits(t *testing.T) {
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}, func(c *Config) { c.Limits = Limits{Control: 100 * time.Millisecond, Silence: 200 * time.Millisecond} })
	if _, err := c.Get(t.Context(), "/slow"); err == nil || !strings.Contains(err.Error(), "/slow: no answer within 100ms") {
		t.Errorf("a control call: %v", err)
	}
	if _, err := c.Compute(t.Context(), "/slow", nil, nil); err == nil || !errors.Is(err, errSilent) {
		t.Errorf("a silent server: %v", err)
	}
	d := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(make([]byte, maxControl+1<<20))
		<-r.Context().Done()
	}, func(c *Config) { c.Limits.Control = 5 * time.Second })
	if _, err := d.Get(t.Context(), "/huge"); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("an endless answer: %v", err)
	}
}

// A server that goes on saying something may take longer than the limit of silence.
func TestSlowIsNotSilent(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 6 {
			_, _ = io.WriteString(w, ": ping\n\n")
			w.(http.Flusher).Flush()
			select {
			case <-time.After(100 * time.Millisecond): // together longer than the limit
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}, func(c *Config) { c.Limits.Silence = 400 * time.Millisecond })
	if marked, err := c.Stream(t.Context(), "/x", nil, nil, func([]byte) error { return nil }); err != nil || !marked {
		t.Errorf("marked %v, %v", marked, err)
	}
}

func TestCause(t *testing.T) {
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil)
	cause := errors.New("the client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
	_, err := c.Compute(ctx, "/x", nil, nil)
	if err = Remote(ctx, err); !errors.Is(err, cause) {
		t.Errorf("error %v, want the cause", err)
	}
}

func TestCertificates(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":[]}`) }))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = nil
	stranger, err := NewClient(Config{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stranger.Close)
	_, err = stranger.Models(t.Context(), "", &external.Facts{})
	if err == nil || errors.Is(err, external.ErrNotReady) || !strings.Contains(err.Error(), "ca_file") {
		t.Errorf("a server that is not trusted: %v", err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{URL: server.URL}
	c.Engine.Server.CAFile = file
	friend, err := NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(friend.Close)
	if _, err := friend.Models(t.Context(), "", &external.Facts{}); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewClient(c); err == nil {
		t.Error("a file without certificates was taken")
	}
}

func TestKeyFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	k := keyFile{path: path}
	for name, content := range map[string]string{"empty": " \n", "two lines": "a\nb", "control": "a\x01", "long": strings.Repeat("a", maxKey+1), "not ASCII": "schlüssel"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if key, err := k.get(); err == nil || strings.Contains(err.Error(), content) {
			t.Errorf("%s: key %q, %v", name, key, err)
		}
	}
	if err := os.WriteFile(path, []byte("\tkey-1 \r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key, err := k.get(); key != "key-1" || err != nil {
		t.Errorf("key %q, %v", key, err)
	}
	// The same length and another time is another key.
	if err := os.WriteFile(path, []byte("\tkey-2 \r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if key, err := k.get(); key != "key-2" || err != nil {
		t.Errorf("key %q, %v", key, err)
	}
	if key, err := (&keyFile{}).get(); key != "" || err != nil {
		t.Errorf("without a file: %q, %v", key, err)
	}
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]struct {
		base, host string
		port       int
	}{
		"http://gpu-3:8001":       {"http://gpu-3:8001", "gpu-3", 8001},
		"http://gpu-3:8001/v1/":   {"http://gpu-3:8001", "gpu-3", 8001},
		"https://api.x/openai/v1": {"https://api.x/openai", "api.x", 443},
		"http://[::1]":            {"http://[::1]", "::1", 80},
	} {
		c, err := NewClient(Config{URL: address})
		if err != nil || c.base != want.base || c.Host() != want.host || c.Port() != want.port {
			t.Errorf("%s: %+v, %v", address, c, err)
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("data: {\"a\":1}\n\ndata: [DONE]\n\n")
	f.Add(": c\r\rdata:x\r\n\r\n\ufeffdata: y")
	f.Fuzz(func(t *testing.T, s string) {
		n := 0
		err := readEvents(strings.NewReader(s), func(b []byte) error {
			n += len(b)
			if len(b) == 0 || string(b) == done {
				t.Errorf("%q gives %q", s, b)
			}
			return nil
		})
		if err == nil || n > len(s) {
			t.Errorf("%q gives %d bytes, %v", s, n, err)
		}
	})
}
