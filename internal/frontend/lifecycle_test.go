package frontend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/store"
)

func TestHealth(t *testing.T) {
	w := newWorld(t)
	f := w.frontend()
	if status, text := f.get("/health"); status != 200 || text != `{"endpoints":[],"instances":[],"status":"healthy"}`+"\n" {
		t.Errorf("without workers: %d %s", status, text)
	}
	w.fake("worker-1", say("x"))
	f.waitModel(1)
	if status, text := f.get("/health"); status != 200 || !strings.Contains(text, `"dyn://dynamo.decode.generate"`) || !strings.Contains(text, `"worker":"worker-1"`) {
		t.Errorf("with a worker: %d %s", status, text)
	}
	if status, text := f.get("/live"); status != 200 || text != `{"message":"Service is live","status":"live"}`+"\n" {
		t.Errorf("live: %d %s", status, text)
	}
}

// A frontend is ready while a request would go to a worker; its health lists no others.
func TestReady(t *testing.T) {
	w := newWorld(t)
	f := w.frontend()
	ready := func(query string, want int, says string) {
		t.Helper()
		if status, text := f.get("/ready" + query); status != want || !strings.Contains(text, says) {
			t.Errorf("%q: %d %s, want %d %s", query, status, text, want, says)
		}
	}
	patience.Until(t, "it has started", func() bool {
		_, text := f.get("/ready")
		return !strings.Contains(text, `"stage":"starting"`)
	})
	ready("", 503, `"stage":"no worker"`)
	drt := w.runtime("worker-9", nil) // it has no card
	if _, err := drt.Serve(t.Context(), cluster.RoleDecode.Component(), cluster.EndpointGenerate, (&fake{}).handler(say("x"))); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "it is found", func() bool { return len(f.workers.Instances()) == 1 })
	ready("", 503, "no worker")
	if _, text := f.get("/health"); strings.Contains(text, "worker-9") {
		t.Errorf("health lists a worker without a card: %s", text)
	}
	fk := w.fake("worker-1", say("x"))
	f.waitModel(1)
	ready("", 200, `"status":"ready"`)
	ready("?model="+testModel, 200, "ready")
	ready("?model=other", 503, "no worker")
	f.workers.ReportDown(fk.drt.ID())
	ready("", 503, "no worker")
	f.gate.close()
	ready("", 503, "draining")
}

// Drain lets what is in flight end, refuses what is new, and leaves discovery.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	fk := w.fake("worker-1", say("abcdef", hold(3, release)))
	f := w.frontend().waitModel(1)
	announced := func() int {
		kvs, _, err := w.c.Store.List(t.Context(), cluster.InstancePrefix(cluster.DefaultNamespace, cluster.ComponentFrontend, cluster.EndpointHTTP))
		if err != nil {
			t.Fatal(err)
		}
		return len(kvs)
	}
	patience.Until(t, "the frontend is announced", func() bool { return announced() == 1 })
	got := make(chan *streamed, 1)
	go func() { got <- readStream(t, f.post("/v1/completions", textBody(body{"stream": true}))) }()
	patience.Until(t, "the request runs", func() bool { return fk.running.Load() == 1 })

	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := f.Drain(short); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 requests in flight") {
		t.Errorf("drain with a request in flight: %v", err)
	}
	if n := announced(); n != 0 {
		t.Errorf("%d registrations of a draining frontend", n)
	}
	resp := f.post("/v1/completions", textBody(nil))
	if e := failureOf(t, resp); resp.StatusCode != http.StatusServiceUnavailable || e.Error.Type != "server_error" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, %+v", resp.StatusCode, e)
	}
	if status, text := f.get("/health"); status != 503 || !strings.Contains(text, `"stage":"draining"`) {
		t.Errorf("health: %d %s", status, text)
	}
	if status, _ := f.get("/live"); status != 200 {
		t.Errorf("live: %d", status)
	}
	drained := make(chan error, 1)
	go func() { drained <- f.Drain(t.Context()) }()
	close(release)
	if err := <-drained; err != nil {
		t.Errorf("drain: %v", err)
	}
	if s := <-got; s.texts[0] != "abcdef" || s.finish[0] != "stop" {
		t.Errorf("the request in flight got %+v", s)
	}
}

// A stop that does not wait tells clients so, instead of breaking off.
func TestStopEndsRequestsInFlight(t *testing.T) {
	w := newWorld(t)
	never := make(chan struct{})
	fk := w.fake("worker-1", say("abcdef", hold(3, never)))
	f := w.frontend().waitModel(1)
	stream, whole := make(chan *streamed, 1), make(chan *http.Response, 1)
	go func() { stream <- readStream(t, f.post("/v1/completions", textBody(body{"stream": true}))) }()
	go func() { whole <- f.post("/v1/completions", textBody(nil)) }()
	patience.Until(t, "the requests run", func() bool { return f.metric(`dynamo_frontend_output_tokens_total{model="tiny"}`) == 6 })
	if err := f.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if s := <-stream; s.texts[0] != "abc" || s.failed == nil || !strings.Contains(s.failed.Error.Message, "shutting down") || !s.done {
		t.Errorf("the stream got %+v", s)
	}
	resp := <-whole
	if e := failureOf(t, resp); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(e.Error.Message, "shutting down") {
		t.Errorf("status %d, %+v", resp.StatusCode, e)
	}
	patience.Until(t, "the worker is free", func() bool { return fk.running.Load() == 0 })
	if _, err := net.Dial("tcp", strings.TrimPrefix(f.URL(), "http://")); err == nil {
		t.Error("the port is still open")
	}
	rec := httptest.NewRecorder()
	f.srv.Handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/live", nil))
	if rec.Code != http.StatusServiceUnavailable || !strings.Contains(rec.Body.String(), "shutting_down") {
		t.Errorf("live: %d %s", rec.Code, rec.Body)
	}
}

// Connections that ask nothing, or read nothing, do not hold up a stop for long.
func TestStopWithIdleAndStuckClients(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", func(_ context.Context, _ protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		for {
			if err := send(protocol.EngineOutput{TokenIDs: tokens(strings.Repeat("x", 1000))}); err != nil {
				return err
			}
		}
	})
	f := w.frontend(func(f *Frontend) {
		f.limits.stop = 200 * time.Millisecond
		f.ln = smallBuffers{f.ln}
	}).waitModel(1)
	idle, err := net.Dial("tcp", strings.TrimPrefix(f.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	resp, err := f.tryPost(t.Context(), "/v1/completions", textBody(body{"stream": true})) // and never read
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	begin := time.Now()
	if err := f.stop(); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > patience.Soon/4 {
		t.Errorf("the stop took %s", d)
	}
	patience.Until(t, "the worker is free", func() bool { return fk.running.Load() == 0 })
	if n := w.log.count("did not end when told to"); n != 0 {
		t.Error("a request did not end")
	}
}

func TestClose(t *testing.T) {
	w := newWorld(t)
	cfg := Config{
		Runtime: w.c.Runtime(t, "node-1"), Node: "node-1", Host: "127.0.0.1", BodyLimit: 1 << 20, Settings: settings("round-robin"),
		Metrics: metrics.NewRegistry(), Log: w.c.Log,
	}
	t.Run("ends Run", func(t *testing.T) {
		f, err := New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- f.Run(context.Background()) }()
		patience.Until(t, "it serves", func() bool {
			resp, err := http.Get(f.URL() + "/live")
			if err == nil {
				resp.Body.Close()
			}
			return err == nil
		})
		http.DefaultClient.CloseIdleConnections()
		closed(t, f)
		closed(t, f)
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Run("without Run frees the port", func(t *testing.T) {
		f, err := New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		closed(t, f)
		closed(t, f)
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(f.URL(), "http://"))
		again := cfg
		if again.Port, err = strconv.Atoi(port); err != nil {
			t.Fatal(err)
		}
		g, err := New(t.Context(), again)
		if err != nil {
			t.Fatal(err)
		}
		closed(t, g)
		if err := f.Run(t.Context()); err != nil {
			t.Errorf("Run after Close: %v", err)
		}
	})
}

func TestNewFails(t *testing.T) {
	w := newWorld(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	cfg := Config{
		Runtime: w.c.Runtime(t, "node-1"), Host: "127.0.0.1", Port: ln.Addr().(*net.TCPAddr).Port, Settings: settings("least-loaded"),
		Metrics: metrics.NewRegistry(), Log: w.c.Log,
	}
	if _, err := New(t.Context(), cfg); !errors.Is(err, ErrPortInUse) {
		t.Errorf("a port in use: %v", err)
	}
	cfg.Settings = settings("best")
	if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "best") {
		t.Errorf("an unknown policy: %v", err)
	}
	cfg.Settings, cfg.Port, cfg.Host = settings("least-loaded"), 0, "256.0.0.1"
	if _, err := New(t.Context(), cfg); err == nil {
		t.Error("a bad host is taken")
	}
	w.c.Store.SetOutage(true)
	defer w.c.Store.SetOutage(false)
	cfg.Host = "127.0.0.1"
	if _, err := New(t.Context(), cfg); err == nil {
		t.Error("it starts without a store")
	}
}

// A frontend that nobody could find is a failure of the start.
// A store that is away when a frontend starts ends it not: it serves, and is announced
// when the store is back, unless it has been drained meanwhile.
func TestAnnouncedWhenTheStoreIsBack(t *testing.T) {
	for _, drained := range []bool{false, true} {
		t.Run(fmt.Sprintf("drained %t", drained), func(t *testing.T) {
			w := newWorld(t)
			f, err := New(t.Context(), Config{
				Runtime: w.c.Runtime(t, "node-1"), Host: "127.0.0.1", Settings: settings("least-loaded"), Metrics: metrics.NewRegistry(), Log: w.c.Log,
			})
			if err != nil {
				t.Fatal(err)
			}
			f.limits.retry, f.limits.retryMost = time.Millisecond, 5*time.Millisecond
			w.c.Store.SetOutage(true)
			ended := make(chan error, 1)
			go func() { ended <- f.Run(t.Context()) }()
			resp, err := http.Get(f.URL() + "/live")
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if drained {
				if err := f.Drain(t.Context()); err != nil {
					t.Error(err)
				}
			}
			w.c.Store.SetOutage(false)
			announced := func() []store.KV {
				kvs, _, err := w.c.Store.List(t.Context(), cluster.InstancePrefix(cluster.DefaultNamespace, cluster.ComponentFrontend, ""))
				if err != nil {
					t.Fatal(err)
				}
				return kvs
			}
			if !drained {
				patience.Until(t, "all are announced", func() bool { return len(announced()) == announcements })
			}
			closed(t, f)
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
			if kvs := announced(); len(kvs) != 0 {
				t.Errorf("still announced: %v", kvs)
			}
		})
	}
}

// announcements is how many endpoints a frontend has in discovery.
const announcements = 6

// What can never be announced ends a frontend with the reason.
func TestAnnouncedOnce(t *testing.T) {
	w := newWorld(t)
	drt := w.c.Runtime(t, "node-1")
	fresh := func() *Frontend {
		f, err := New(t.Context(), Config{Runtime: drt, Host: "127.0.0.1", Settings: settings("least-loaded"), Metrics: metrics.NewRegistry(), Log: w.c.Log})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first := fresh()
	ended := make(chan error, 1)
	go func() { ended <- first.Run(t.Context()) }()
	patience.Until(t, "it is announced", func() bool {
		first.mu.Lock()
		defer first.mu.Unlock()
		return len(first.announced) == announcements
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := fresh().Run(ctx); err == nil || !strings.Contains(err.Error(), "announce the frontend: ") {
		t.Errorf("a second one of the same runtime: %v", err)
	}
	closed(t, first)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAdvertisedAddress(t *testing.T) {
	w := newWorld(t)
	f := w.configured(func(c *Config) { c.Host, c.AdvertiseHost = "0.0.0.0", "127.0.0.1" })
	if !strings.HasPrefix(f.URL(), "http://127.0.0.1:") {
		t.Errorf("URL %s", f.URL())
	}
	if status, _ := f.get("/live"); status != 200 {
		t.Errorf("status %d", status)
	}
}

// A panic costs the request in which it happens, not the process.
func TestPanics(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("abcdef"))
	f := w.frontend().waitModel(1)
	t.Run("in a handler", func(t *testing.T) {
		h := f.recovered(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oops") }))
		resp := serveOnce(t, h)
		if e := failureOf(t, resp); resp.StatusCode != 500 || strings.Contains(e.Error.Message, "oops") {
			t.Errorf("status %d, %+v", resp.StatusCode, e)
		}
	})
	t.Run("in a handler that has begun to answer", func(t *testing.T) {
		h := f.recovered(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("half"))
			_ = http.NewResponseController(w).Flush()
			panic("oops")
		}))
		if resp, err := tryOnce(t, h); err == nil {
			defer resp.Body.Close()
			if _, err := resp.Body.Read(make([]byte, 100)); err == nil {
				_, err = resp.Body.Read(make([]byte, 100))
				if err == nil || err.Error() == "EOF" {
					t.Error("half an answer looks whole")
				}
			}
		}
	})
	t.Run("while generating", func(t *testing.T) {
		j := &job{f: f.Frontend, id: "id", arrived: time.Now(), prompts: []int{1}}
		m := f.registry.find(testModel)
		c := &choice{} // without a detokenizer
		c.gen = f.newGeneration(m, protocol.PreprocessedRequest{TokenIDs: tokens("x"), ModelSum: testDigest, Stop: protocol.StopConditions{MaxTokens: 5}}, nil)
		c.gen.id = "id"
		j.choices = []*choice{c}
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		err := j.generateAll(ctx, cancel, sink{put: func(delta) error { return nil }})
		var api *apiError
		if !errors.As(err, &api) || api.status != 500 {
			t.Errorf("got %v", err)
		}
		if n := f.load.InFlight(f.workers.Instances()[0].InstanceID); n != 0 {
			t.Errorf("the router counts %d requests on the worker", n)
		}
	})
	if n := w.log.count("panicked"); n != 3 {
		t.Errorf("%d panics logged", n)
	}
	wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
}

func serveOnce(t *testing.T, h http.Handler) *http.Response {
	t.Helper()
	resp, err := tryOnce(t, h)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func tryOnce(t *testing.T, h http.Handler) (*http.Response, error) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.Client().Get(srv.URL)
}
