package frontend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// A client that leaves frees the worker, whatever it was waiting for.
func TestDisconnectCancelsWorker(t *testing.T) {
	for _, tc := range []struct {
		name   string
		stream bool
		at     int // token the worker stops at
	}{
		{"whole, before the first token", false, 0},
		{"whole, in the middle", false, 3},
		{"stream, before the first token", true, 0},
		{"stream, in the middle", true, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			never := make(chan struct{})
			fk := w.fake("worker-1", say("abcdef", hold(tc.at, never)))
			f := w.frontend().waitModel(1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := make(chan error, 1)
			if tc.stream && tc.at > 0 {
				resp, err := f.tryPost(ctx, "/v1/completions", textBody(body{"stream": true}))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				failed <- context.Canceled
			} else {
				go func() {
					resp, err := f.tryPost(ctx, "/v1/completions", textBody(body{"stream": tc.stream}))
					if err == nil {
						resp.Body.Close()
					}
					failed <- err
				}()
			}
			patience.Until(t, "the request runs", func() bool { return fk.running.Load() == 1 })
			if got := f.metric(`dynamo_frontend_inflight_requests{model="tiny"}`); got != 1 {
				t.Errorf("%v requests in flight", got)
			}
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("the client got %v", err)
			}
			patience.Until(t, "the worker is free", func() bool { return fk.running.Load() == 0 && fk.cancelled.Load() == 1 })
			kind := map[bool]string{false: "unary", true: "stream"}[tc.stream]
			series := fmt.Sprintf(`dynamo_frontend_requests_total{endpoint="completions",error_type="cancelled",model="tiny",request_type="%s",status="error"}`, kind)
			patience.Until(t, "the request is counted as cancelled", func() bool { return f.metric(series) == 1 })
			for name, want := range map[string]float64{
				"dynamo_frontend_disconnected_clients":            1,
				`dynamo_frontend_inflight_requests{model="tiny"}`: 0,
				`dynamo_frontend_queued_requests{model="tiny"}`:   0,
				fmt.Sprintf(`dynamo_frontend_model_cancellation_total{endpoint="completions",model="tiny",request_type="%s"}`, kind): 1,
			} {
				if got := f.metric(name); got != want {
					t.Errorf("%s is %v, want %v", name, got, want)
				}
			}
			if n := f.load.InFlight(fk.drt.ID()); n != 0 {
				t.Errorf("the router counts %d requests on the worker", n)
			}
		})
	}
}

// A client that leaves while it sends is no bad request.
func TestDisconnectWhileSending(t *testing.T) {
	w := newWorld(t)
	f := w.frontend()
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	patience.Until(t, "the request is counted as cancelled", func() bool {
		return f.metric(`dynamo_frontend_requests_total{endpoint="completions",error_type="cancelled",model="unknown_model",request_type="unary",status="error"}`) == 1
	})
}

// When one of several choices fails, the others are told to stop.
func TestOneFailedChoiceEndsTheOthers(t *testing.T) {
	w := newWorld(t)
	never := make(chan struct{})
	var calls atomic.Int32
	waiting, failing := say("abc", hold(1, never)), refuse(requestplane.KindInternal)
	fk := w.fake("worker-1", func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		if calls.Add(1) < 3 {
			return waiting(ctx, req, send)
		}
		return failing(ctx, req, send)
	})
	f := w.frontend().waitModel(1)
	resp := f.post("/v1/completions", textBody(body{"n": 3}))
	if e := failureOf(t, resp); resp.StatusCode != http.StatusInternalServerError || e.Error.Type != "server_error" {
		t.Errorf("status %d, %+v", resp.StatusCode, e)
	}
	patience.Until(t, "the worker is free", func() bool { return fk.running.Load() == 0 && fk.cancelled.Load() == 2 })
}

func TestRequestTimeout(t *testing.T) {
	w := newWorld(t)
	never := make(chan struct{})
	fk := w.fake("worker-1", say("abcdef", hold(3, never)))
	f := w.configured(func(c *Config) { c.RequestTimeout = 100 * time.Millisecond }).waitModel(1)
	resp := f.post("/v1/completions", textBody(nil))
	if e := failureOf(t, resp); resp.StatusCode != http.StatusGatewayTimeout || e.Error.Type != "server_error" {
		t.Errorf("status %d, %+v", resp.StatusCode, e)
	}
	s := readStream(t, f.post("/v1/completions", textBody(body{"stream": true})))
	if s.texts[0] != "abc" || s.failed == nil || !s.done {
		t.Errorf("stream: %+v", s)
	}
	patience.Until(t, "the worker is free", func() bool { return fk.running.Load() == 0 })
	for _, kind := range []string{"unary", "stream"} {
		series := `dynamo_frontend_requests_total{endpoint="completions",error_type="response_timeout",model="tiny",request_type="` + kind + `",status="error"}`
		patience.Until(t, kind+" is counted", func() bool { return f.metric(series) == 1 })
	}
}
