//go:build linux

package frontend

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
)

// dialed is a connection on which one request was sent as bytes.
func (f *front) dialed(proto, path string, b body, more ...string) *net.TCPConn {
	f.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.URL(), "http://"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	text, err := json.Marshal(b)
	if err != nil {
		f.t.Fatal(err)
	}
	head := fmt.Sprintf("POST %s %s\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n", path, proto, len(text), strings.Join(more, ""))
	if _, err := conn.Write(append([]byte(head), text...)); err != nil {
		f.t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// A client that shuts down its side after the request waits for the answer, and gets it.
func TestHalfClosedClientIsAnswered(t *testing.T) {
	for _, tc := range []struct {
		name, proto string
		stream      bool
		at          int  // token at which the worker stops until the client has shut down
		early       bool // shut down with the request
	}{
		{"whole, HTTP/1.1", "HTTP/1.1", false, 3, false},
		{"whole, HTTP/1.1, at once", "HTTP/1.1", false, 0, true},
		{"whole, HTTP/1.0", "HTTP/1.0", false, 3, false},
		{"stream, before the first token", "HTTP/1.1", true, 0, false},
		{"stream, in the middle", "HTTP/1.1", true, 3, false},
		{"stream, HTTP/1.0", "HTTP/1.0", true, 3, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			goOn := make(chan struct{})
			fk := w.fake("worker-1", say("abcdef", hold(tc.at, goOn)))
			f := w.frontend().waitModel(1)
			conn := f.dialed(tc.proto, "/v1/completions", textBody(body{"stream": tc.stream}))
			if tc.early {
				if err := conn.CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			patience.Until(t, "the request runs", func() bool { return fk.running.Load() == 1 })
			in := bufio.NewReader(conn)
			if !tc.early {
				if err := conn.CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			if tc.proto == "HTTP/1.1" && (!tc.stream || tc.at == 0) {
				// The frontend has noticed when it asks.
				resp, err := http.ReadResponse(in, nil)
				if err != nil || resp.StatusCode != http.StatusContinue {
					t.Fatalf("interim response %+v %v", resp, err)
				}
			}
			if got := fk.cancelled.Load(); got != 0 {
				t.Fatal("the request was cancelled")
			}
			close(goOn)
			resp, err := http.ReadResponse(in, nil)
			for err == nil && resp.StatusCode == http.StatusContinue { // it may ask before the stream begins, too
				resp, err = http.ReadResponse(in, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("status %d, %v: %s", resp.StatusCode, err, text)
			}
			whole := bytes.Contains(text, []byte(`"text":"abcdef"`))
			if tc.stream {
				whole = bytes.Contains(text, []byte(`"text":"f"`)) && bytes.HasSuffix(text, []byte("data: [DONE]\n\n"))
			}
			if !whole {
				t.Errorf("the answer is %s", text)
			}
			if _, err := in.ReadByte(); err != io.EOF {
				t.Errorf("after the answer: %v, want the end", err)
			}
			patience.Until(t, "the request is over", func() bool { return f.gate.inFlight() == 0 })
			if got := f.metric("dynamo_frontend_disconnected_clients"); got != 0 {
				t.Errorf("%v clients are counted as gone", got)
			}
		})
	}
}

// A client that closes its socket looks the same at first, and is noticed all the same,
// while nothing is written for it; so is one that resets.
func TestClosedClientIsNoticed(t *testing.T) {
	for _, tc := range []struct {
		name   string
		stream bool
		at     int
		leave  func(*net.TCPConn) error
	}{
		{"whole, closed", false, 3, (*net.TCPConn).Close},
		{"stream, closed before the first token", true, 0, (*net.TCPConn).Close},
		{"stream, closed in the middle", true, 3, (*net.TCPConn).Close},
		{"whole, half closed, then closed", false, 3, func(c *net.TCPConn) error {
			if err := c.CloseWrite(); err != nil {
				return err
			}
			if _, err := c.Read(make([]byte, 1)); err != nil { // the frontend asks
				return err
			}
			return c.Close()
		}},
		{"whole, reset", false, 3, func(c *net.TCPConn) error {
			if err := c.SetLinger(0); err != nil {
				return err
			}
			return c.Close()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			never := make(chan struct{})
			fk := w.fake("worker-1", say("abcdef", hold(tc.at, never)))
			f := w.frontend().waitModel(1)
			conn := f.dialed("HTTP/1.1", "/v1/completions", textBody(body{"stream": tc.stream}))
			patience.Until(t, "the request runs", func() bool { return fk.running.Load() == 1 })
			if tc.stream && tc.at > 0 {
				in := bufio.NewReader(conn)
				for line := ""; !strings.Contains(line, `"text":"c"`); {
					var err error
					if line, err = in.ReadString('\n'); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := tc.leave(conn); err != nil {
				t.Fatal(err)
			}
			patience.Until(t, "the worker is free", func() bool { return fk.running.Load() == 0 && fk.cancelled.Load() == 1 })
			patience.Until(t, "the request is over", func() bool { return f.gate.inFlight() == 0 })
		})
	}
}

// A connection serves further requests after one that was watched.
func TestWatchedConnectionIsKept(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("abc"))
	f := w.frontend().waitModel(1)
	conn := f.dialed("HTTP/1.1", "/v1/completions", textBody(nil))
	in := bufio.NewReader(conn)
	text, _ := json.Marshal(textBody(nil))
	for i := range 5 {
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("answer %d: %+v %v", i, resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if _, err := fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(text), text); err != nil {
			t.Fatal(err)
		}
	}
}
