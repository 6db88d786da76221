package requestplane_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// browser returns an HTTP client of a program that is no node.
func browser(t *testing.T, h2 bool) *http.Client {
	var p http.Protocols
	p.SetHTTP1(!h2)
	p.SetUnencryptedHTTP2(h2)
	p.SetHTTP2(h2)
	tr := &http.Transport{Protocols: &p, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience.Soon}
}

// post sends JSON and returns the status and the lines of the answer.
func post(t *testing.T, c *http.Client, url, body string, headers ...string) (int, []string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var lines []string
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		lines = append(lines, sc.Text())
	}
	return resp.StatusCode, lines
}

func bearer() string { return "Bearer " + requestplane.HTTPToken(clusterKey) }

// Programs that are no nodes call endpoints in JSON, over both versions of HTTP, with and
// without TLS.
func TestHTTPJSON(t *testing.T) {
	checkLeaks(t)
	for _, secure := range []bool{false, true} {
		cfg, scheme := requestplane.ServerConfig{}, "http://"
		if secure {
			cfg.TLS, scheme = ephemeral(t), "https://"
		}
		s := listenHTTP(t, cfg)
		url := scheme + hostport(s.Addr()) + "/v1/rpc/1/"
		seen := make(chan *requestplane.Request, 1)
		handle(t, s, "1/twice", func(_ context.Context, r *requestplane.Request, send func(any) error) error {
			seen <- r
			return errors.Join(send(requestplane.Raw(r.Body)), send(requestplane.Raw(r.Body)))
		})
		handle(t, s, "1/fail", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
			return errors.Join(send(1), errors.New("boom"))
		})
		handle(t, s, "1/busy", func(context.Context, *requestplane.Request, func(any) error) error { return requestplane.ErrOverloaded })
		h := newHold()
		handle(t, s, "1/hold", h.handle)
		for _, h2 := range []bool{false, true} {
			c := browser(t, h2)
			code, lines := post(t, c, url+"twice", `{"n":9007199254740993,"x":1.5,"list":[1,"a",null,true]}`,
				"Authorization", bearer(), "X-Request-Id", "abc", "traceparent", "00-1-2-01", "tracestate", "a=b", "Cookie", "private")
			item := `{"item":{"list":[1,"a",null,true],"n":9007199254740993,"x":1.5}}`
			if code != 200 || strings.Join(lines, "|") != item+"|"+item+`|{"end":true}` {
				t.Errorf("%s h2=%t: %d %q", scheme, h2, code, lines)
			}
			if r := <-seen; r.ID != "abc" || r.Headers["traceparent"] != "00-1-2-01" || r.Headers["tracestate"] != "a=b" || len(r.Headers) != 2 {
				t.Errorf("request = %+v", r)
			}
			for _, test := range []struct {
				path, body string
				code       int
				last       string
			}{
				{"none", "{}", 404, `{"error":{"kind":"unknown_endpoint","message":"1/none","retry_safe":true}}`},
				{"busy", "", 429, `{"error":{"kind":"overloaded","message":"overloaded","retry_safe":false}}`},
				{"fail", "", 200, `{"error":{"kind":"internal","message":"boom","retry_safe":false}}`},
				{"twice", "{", 400, `{"error":{"kind":"invalid_argument","message":"body is no JSON: unexpected EOF","retry_safe":false}}`},
				{"twice", "1 2", 400, `{"error":{"kind":"invalid_argument","message":"body is no JSON: more than one value","retry_safe":false}}`},
			} {
				code, lines := post(t, c, url+test.path, test.body, "Authorization", bearer())
				if code != test.code || len(lines) == 0 || lines[len(lines)-1] != test.last {
					t.Errorf("%s%s: %d %q", url, test.path, code, lines)
				}
			}
			_, lines = post(t, c, url+"hold", "", "Authorization", bearer(), "X-Request-Timeout-Ms", "50")
			if n := len(lines); n != 2 || !strings.Contains(lines[1], `"kind":"timeout"`) {
				t.Errorf("after the time limit: %q", lines)
			}
			if err := h.cause(t); !errors.Is(err, requestplane.ErrTimeout) {
				t.Errorf("handler's cause = %v", err)
			}
			if code, _ := post(t, c, url+"hold", "", "Authorization", bearer(), "X-Request-Timeout-Ms", "soon"); code != 400 {
				t.Errorf("bad time limit: %d", code)
			}
		}
	}
}

// The example of the documentation works as it is printed.
func TestHTTPCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl on this machine")
	}
	s := listenHTTP(t, requestplane.ServerConfig{})
	handle(t, s, "694d9814/stats", func(_ context.Context, r *requestplane.Request, send func(any) error) error {
		return send(map[string]any{"worker": "worker-1"})
	})
	manual, err := os.ReadFile("../../docs/request-plane.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(manual), "```\ncurl ")
	command, rest, _ := strings.Cut(rest, "\n```")
	_, rest, _ = strings.Cut(rest, "```\n")
	want, _, _ := strings.Cut(rest, "```")
	command = strings.NewReplacer("$(dynctl credentials --token)", requestplane.HTTPToken(clusterKey), "127.0.0.1:7370", hostport(s.Addr())).Replace(command)
	ctx, cancel := context.WithTimeout(t.Context(), patience.Soon)
	defer cancel()
	for _, version := range []string{"--http1.1", "--http2-prior-knowledge"} {
		out, err := exec.CommandContext(ctx, "sh", "-c", "curl -sS "+version+" "+command).CombinedOutput()
		if err != nil || string(out) != want || want == "" {
			t.Errorf("curl %s: %q, %v; the manual says %q", command, out, err, want)
		}
	}
}

// A caller that leaves stops its handler.
func TestHTTPStrangerLeaves(t *testing.T) {
	checkLeaks(t)
	s := listenHTTP(t, requestplane.ServerConfig{})
	h := newHold()
	handle(t, s, "1/hold", h.handle)
	for _, h2 := range []bool{false, true} {
		c := browser(t, h2)
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.Addr()+"/1/hold", nil)
		req.Header.Set("Authorization", bearer())
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := h.cause(t); !errors.Is(err, requestplane.ErrStopped) && !errors.Is(err, requestplane.ErrClientGone) {
			t.Errorf("h2=%t: handler's cause = %v", h2, err)
		}
		resp.Body.Close()
	}
}

func TestHTTPTokens(t *testing.T) {
	checkLeaks(t)
	s := listenHTTP(t, requestplane.ServerConfig{})
	secure := listenHTTP(t, requestplane.ServerConfig{TLS: ephemeral(t)})
	for _, s := range []requestplane.Server{s, secure} {
		handle(t, s, "1/secret", func(context.Context, *requestplane.Request, func(any) error) error {
			t.Error("a stranger reached a handler")
			return nil
		})
	}
	other := "Bearer " + requestplane.HTTPToken(handshake.RandomKey())
	plain, encrypted := s.Addr(), "https://"+hostport(secure.Addr())+"/v1/rpc"
	for _, test := range []struct {
		name, url, token string
		code             int
	}{
		{"none", plain, "", 401},
		{"of another cluster", plain, other, 401},
		{"basic", plain, "Basic " + strings.TrimPrefix(bearer(), "Bearer "), 401},
		{"cut", plain, bearer()[:20], 401},
		{"none over tls", encrypted, "", 401},
		{"in clear text to a server with tls", secure.Addr(), bearer(), 403},
	} {
		for _, h2 := range []bool{false, true} {
			if code, lines := post(t, browser(t, h2), test.url+"/1/secret", "{}", "Authorization", test.token); code != test.code {
				t.Errorf("%s h2=%t: %d %q", test.name, h2, code, lines)
			}
		}
	}
	c := browser(t, false)
	if code, _ := post(t, c, "http://"+hostport(plain)+"/elsewhere", "", "Authorization", bearer()); code != 404 {
		t.Errorf("another path: %d", code)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, plain+"/1/secret", nil)
	req.Header.Set("Authorization", bearer())
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 405 {
		t.Errorf("GET: %s", resp.Status)
	}
}

// A connection on which nobody shows a token does not stay.
func TestHTTPSilentStranger(t *testing.T) {
	checkLeaks(t)
	s := listenHTTP(t, requestplane.ServerConfig{HandshakeTimeout: 100 * time.Millisecond})
	handle(t, s, "1/echo", echo)
	for _, say := range []string{"", "GET / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"} {
		conn := dial(t, hostport(s.Addr()))
		conn.SetDeadline(time.Now().Add(patience.Soon))
		io.WriteString(conn, say)
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, io.EOF) || isTimeout(err) {
			t.Errorf("%q: the connection is still open", say)
		}
	}
	// With a token it stays.
	c := browser(t, true)
	for i := range 2 {
		reused := false
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(g httptrace.GotConnInfo) { reused = g.Reused }})
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.Addr()+"/1/echo", strings.NewReader(`"x"`))
		req.Header.Set("Authorization", bearer())
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 || reused != (i > 0) {
			t.Errorf("call %d: %s %v, on the same connection: %t", i, resp.Status, err, reused)
		}
		resp.Body.Close()
		time.Sleep(200 * time.Millisecond) // longer than a stranger without a token may stay
	}
}

// Handlers know who has only shown the token.
func TestHTTPStrangers(t *testing.T) {
	checkLeaks(t)
	s := listenHTTP(t, requestplane.ServerConfig{})
	seen := make(chan bool, 1)
	handle(t, s, "1/who", func(_ context.Context, r *requestplane.Request, _ func(any) error) error {
		seen <- r.Stranger
		return nil
	})
	if code, lines := post(t, browser(t, true), s.Addr()+"/1/who", "{}", "Authorization", bearer()); code != 200 || !<-seen {
		t.Errorf("with the token: %d %q", code, lines)
	}
	c := requestplane.NewClient(requestplane.ClientConfig{Key: clusterKey})
	defer c.Close()
	stream, err := c.Call(t.Context(), s.Addr()+"/1/who", "r", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var item any
	if err := stream.Recv(t.Context(), &item); !errors.Is(err, io.EOF) || <-seen {
		t.Errorf("with the proof: %v", err)
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// Requests in frames that make no sense are refused, and the connection serves on.
func TestHTTPBadRequests(t *testing.T) {
	checkLeaks(t)
	s := listenHTTP(t, requestplane.ServerConfig{Limits: requestplane.Limits{MaxMessage: 1 << 20}})
	handle(t, s, "1/echo", echo)
	c := browser(t, true)
	header := "\x81\xa4path\xa6"
	for name, send := range map[string]string{
		"nothing":                        "",
		"half a length":                  "\x00\x00",
		"half a frame":                   frame(1, "xxxxxxxx")[:8],
		"wrong type":                     frame(2, "x"),
		"empty frame":                    "\x00\x00\x00\x00",
		"header longer than the request": frame(1, "\x00\x00\x00\xffx"),
		"header is not msgpack":          frame(1, "\x00\x00\x00\x01\xc1"),
		"another path":                   frame(1, "\x00\x00\x00\x0d"+header+"1/hold"),
		"over the limit":                 "\x00\x20\x00\x00\x01" + strings.Repeat("x", 2<<20),
		"announces 4 GiB":                "\xff\xff\xff\xff\x01",
	} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.Addr()+"/1/echo", strings.NewReader(send))
		req.Header.Set("Authorization", bearer())
		req.Header.Set("Content-Type", "application/vnd.dynctl.frames")
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 400 || len(got) < 6 || got[4] != 4 {
			t.Errorf("%s: %s %q %v", name, resp.Status, got, err)
		}
	}
	code, lines := post(t, c, s.Addr()+"/1/echo", `"`+strings.Repeat("x", 2<<20)+`"`, "Authorization", bearer())
	if code != 400 || !strings.Contains(lines[0], "too large") {
		t.Errorf("JSON over the limit: %d %q", code, lines)
	}
}

// An answer that breaks off or makes no sense is never taken for a complete one.
func TestHTTPBadAnswers(t *testing.T) {
	checkLeaks(t)
	item := frame(2, "\xa1x") // a string
	frames := "application/vnd.dynctl.frames"
	for name, test := range map[string]struct {
		contentType, say string
		items            int
		complete         bool
	}{
		"closes without a word": {frames, "", 0, false},
		"closes after items":    {frames, item + item, 2, false},
		"closes within an item": {frames, item + item[:5], 1, false},
		"announces 4 GiB":       {frames, item + "\xff\xff\xff\xff\x02", 1, false},
		"unknown type":          {frames, item + frame(77, "x"), 1, false},
		"a web page":            {"text/html", item + frame(3, ""), 0, false},
		"complete":              {frames, item + frame(3, ""), 1, true},
		"goes on after the end": {frames, item + frame(3, "") + item, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			addr := "http://" + serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.contentType)
				io.WriteString(w, test.say)
			}) + "/v1/rpc/1/echo"
			st, err := newClient(t, requestplane.ClientConfig{}).Call(t.Context(), addr, "r", nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			for range test.items {
				var s string
				if err := st.Recv(t.Context(), &s); err != nil || s != "x" {
					t.Fatalf("Recv = %q, %v", s, err)
				}
			}
			err = st.Recv(t.Context(), nil)
			if test.complete != (err == io.EOF) || test.complete == errors.Is(err, requestplane.ErrIncomplete) {
				t.Errorf("end = %v", err)
			}
		})
	}
}

// What the client sends to a server can be seen by a proxy that reads HTTP.
func TestHTTPOutwardHeaders(t *testing.T) {
	checkLeaks(t)
	seen := make(chan *http.Request, 1)
	addr := "http://" + serveHTTP(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r }) + "/v1/rpc/1/a b"
	headers := map[string]string{"traceparent": "00-1", "tracestate": "bad\nvalue", "private": "x"}
	st, err := newClient(t, requestplane.ClientConfig{}).Call(t.Context(), addr, "r-1", headers, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	r := <-seen
	if r.URL.Path != "/v1/rpc/1/a b" || r.Header.Get("X-Request-Id") != "r-1" || r.Header.Get("traceparent") != "00-1" || r.Header.Get("tracestate")+r.Header.Get("private") != "" {
		t.Errorf("request = %s %v", r.URL, r.Header)
	}
}

// serveHTTP serves connections of nodes with a handler of the test, and returns host:port.
func serveHTTP(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: h, Protocols: &p}
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(welcoming{ln})
	}()
	t.Cleanup(func() {
		srv.Close()
		<-done
	})
	return ln.Addr().String()
}

// welcoming is a listener that runs the server's side of the handshake.
type welcoming struct{ net.Listener }

func (l welcoming) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	o := handshake.Options{Protocol: handshake.Protocol{Name: "dynhp\x00", Version: 1}, Key: clusterKey}
	if _, _, err := handshake.Accept(conn, o, time.Now().Add(patience.Soon)); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, conn.SetDeadline(time.Time{})
}

// Whatever a stranger sends as JSON, the server answers one line that is JSON.
func FuzzHTTPJSON(f *testing.F) {
	for _, s := range []string{"", "{}", `{"a":[1,2.5,-3,1e400]}`, "18446744073709551615", "nul", `"\ud800"`} {
		f.Add([]byte(s))
	}
	s := listenHTTP(f, requestplane.ServerConfig{})
	if _, err := s.Handle("1/raw", func(_ context.Context, r *requestplane.Request, send func(any) error) error {
		return send(requestplane.Raw(r.Body))
	}); err != nil {
		f.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{}}
	f.Cleanup(c.CloseIdleConnections)
	f.Fuzz(func(t *testing.T, body []byte) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.Addr()+"/1/raw", bytes.NewReader(body))
		req.Header.Set("Authorization", bearer())
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for d := json.NewDecoder(resp.Body); ; {
			var line struct {
				Item  json.RawMessage
				End   bool
				Error json.RawMessage
			}
			if err := d.Decode(&line); err == io.EOF {
				return
			} else if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode == 200 && line.Item != nil && len(bytes.TrimSpace(body)) > 0 && !json.Valid(body) {
				t.Fatalf("%q was accepted", body)
			}
		}
	})
}
