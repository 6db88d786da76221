package frontend

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// A worker that takes no new requests is passed over, and nobody notices: not the
// client, not the count of migrations, and no limit of them applies.
func TestDrainingWorkerIsInvisible(t *testing.T) {
	for name, prepare := range map[string]func(*world) *fake{
		"the handler refuses": func(w *world) *fake { return w.fake("worker-1", refuse(requestplane.KindDraining)) },
		"the engine is closed": func(w *world) *fake {
			return w.fake("worker-1", refuse(requestplane.KindUnavailable))
		},
		"the endpoint is being removed": func(w *world) *fake {
			fk := w.fake("worker-1", say("never"))
			if err := fk.served.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			// Discovery still lists it, as a frontend that lags behind sees it.
			if _, err := fk.drt.Announce(t.Context(), "decode", "generate", fk.served.Instance().Transport); err != nil {
				t.Fatal(err)
			}
			return fk
		},
		"the process is gone": func(w *world) *fake {
			fk := w.fake("worker-1", say("never"))
			fk.crash()
			return fk
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			prepare(w)
			w.fake("worker-2", say("abc"))
			f := w.configured(func(c *Config) { c.MigrationLimit, c.Settings = 0, settings("round-robin") }).waitModel(2)
			for range 4 {
				if a := wholeAnswer(t, f.post("/v1/completions", textBody(nil))); a.Choices[0].Text != "abc" {
					t.Errorf("got %+v", a)
				}
			}
			for _, kind := range []string{"new_request", "ongoing_request"} {
				if got := f.metric(`dynamo_frontend_model_migration_total{migration_type="` + kind + `",model="tiny"}`); got > 0 {
					t.Errorf("%v migrations counted", got)
				}
			}
		})
	}
}

// A refusal by every worker ends after a while, although none counts as a move.
func TestRefusedByAll(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", refuse(requestplane.KindUnavailable))
	f := w.frontend(func(f *Frontend) { f.limits.takeover = 200 * time.Millisecond }).waitModel(1)
	resp := f.post("/v1/completions", textBody(nil))
	if e := failureOf(t, resp); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(e.Error.Message, "lost") {
		t.Errorf("status %d, %+v", resp.StatusCode, e)
	}
	if n := len(fk.got()); n < 2 || n > 6 {
		t.Errorf("the worker was asked %d times in 200 ms, want a few", n)
	}
}

// A request that waited long in the queue of a worker that then stops has all the
// time again to find another one.
func TestRefusedAfterLongWait(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	var open atomic.Bool
	w.fake("worker-1", func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		if !open.Load() {
			return refuse(requestplane.KindDraining)(ctx, req, send)
		}
		return say("abc")(ctx, req, send)
	})
	two := w.fake("worker-2", func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return refuse(requestplane.KindUnavailable)(ctx, req, send)
	})
	f := w.frontend(func(f *Frontend) { f.limits.takeover, f.limits.forgive = 300*time.Millisecond, 20*time.Millisecond }).waitModel(2)
	const n = 4
	got := make(chan answer, n)
	for range n {
		go func() { got <- wholeAnswer(t, f.post("/v1/completions", textBody(nil))) }()
	}
	patience.Until(t, "all wait", func() bool { return two.running.Load() == n })
	time.Sleep(400 * time.Millisecond) // longer than a search may take
	open.Store(true)
	close(release)
	for range n {
		if a := <-got; a.Choices[0].Text != "abc" {
			t.Errorf("got %+v", a.Choices)
		}
	}
}

func TestOverloaded(t *testing.T) {
	w := newWorld(t)
	var busy atomic.Bool
	busy.Store(true)
	gen := func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		if busy.Load() {
			return refuse(requestplane.KindOverloaded)(ctx, req, send)
		}
		return say("abc")(ctx, req, send)
	}
	one, two := w.fake("worker-1", gen), w.fake("worker-2", gen)
	f := w.frontend().waitModel(2)
	for _, stream := range []bool{false, true} {
		resp := f.post("/v1/chat/completions", chatBody(body{"stream": stream}))
		e := failureOf(t, resp)
		if resp.StatusCode != http.StatusTooManyRequests || e.Error.Type != "rate_limit_error" || e.code() != "overloaded" || resp.Header.Get("Retry-After") != "1" {
			t.Errorf("stream %v: status %d, Retry-After %q, %+v", stream, resp.StatusCode, resp.Header.Get("Retry-After"), e)
		}
	}
	if len(one.got()) != 2 || len(two.got()) != 2 {
		t.Errorf("%d and %d requests: every worker is asked once", len(one.got()), len(two.got()))
	}
	if got := f.metric(`dynamo_frontend_model_rejection_total{endpoint="chat_completions",model="tiny"}`); got != 2 {
		t.Errorf("%v rejections counted", got)
	}
	busy.Store(false)
	wholeAnswer(t, f.post("/v1/chat/completions", chatBody(nil)))
}

// A stream that has begun is not ended because the other workers are busy.
func TestOngoingRequestWaitsForBusyWorkers(t *testing.T) {
	w := newWorld(t)
	var busy atomic.Bool
	busy.Store(true)
	lost := make(chan struct{})
	lose := sync.OnceFunc(func() { close(lost) })
	one := w.fake("worker-1", say(saga, func(ctx context.Context, n int) error {
		if n == 3 {
			lose()
			return engineStops(ctx, nil)
		}
		return nil
	}))
	f := w.frontend().waitModel(1)
	got := make(chan *streamed, 1)
	two := w.fake("worker-2", func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		if busy.Load() {
			return refuse(requestplane.KindOverloaded)(ctx, req, send)
		}
		return say(saga)(ctx, req, send)
	})
	if err := two.served.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	go func() {
		got <- readStream(t, f.post("/v1/completions", textBody(body{"stream": true, "max_tokens": 200})))
	}()
	<-lost
	if err := one.served.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := two.served.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the other worker refuses", func() bool { return len(two.got()) > 1 })
	busy.Store(false)
	if s := <-got; s.texts[0] != saga || s.failed != nil {
		t.Errorf("got %+v, error %+v", s, s.failed)
	}
}

func TestNoWorkerInDiscovery(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("abc"))
	f := w.frontend().waitModel(1)
	if err := fk.served.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.waitModel(0) // the card is still there
	resp := f.post("/v1/completions", textBody(nil))
	if e := failureOf(t, resp); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(e.Error.Message, "No worker is ready") {
		t.Errorf("status %d, %+v", resp.StatusCode, e)
	}
	if _, list := f.get("/v1/models"); strings.Contains(list, testModel) {
		t.Errorf("a model without workers is listed: %s", list)
	}
	if err := fk.served.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.waitModel(1)
	wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
}

// What the engine says a request got wrong is the client's to read.
func TestEngineRefusesArgument(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", refuse(requestplane.KindInvalidArgument))
	f := w.frontend().waitModel(1)
	resp := f.post("/v1/completions", textBody(body{"stream": true}))
	if e := failureOf(t, resp); resp.StatusCode != http.StatusBadRequest || e.Error.Message != "refused by test" || len(fk.got()) != 1 {
		t.Errorf("status %d, %+v after %d attempts", resp.StatusCode, e, len(fk.got()))
	}
}

func TestEngineReportsError(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", func(_ context.Context, _ protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		return send(protocol.EngineOutput{Finish: protocol.FinishError, Error: "NaN in /secret/path"})
	})
	f := w.frontend().waitModel(1)
	resp := f.post("/v1/completions", textBody(nil))
	if e := failureOf(t, resp); resp.StatusCode != http.StatusInternalServerError || strings.Contains(e.Error.Message, "secret") {
		t.Errorf("status %d, %+v", resp.StatusCode, e)
	}
	if got := f.metric(`dynamo_frontend_requests_total{endpoint="completions",error_type="internal",model="tiny",request_type="unary",status="error"}`); got != 1 {
		t.Errorf("%v failures counted", got)
	}
}
