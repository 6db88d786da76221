package frontend

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

const saga = "The añcient mariner told his tale → to the wedding guest. He said: STOP it, and ended."

// pair starts two workers that tell the saga. The first request of all, on whatever
// worker it is, ends as how says before token n.
func (w *world) pair(n int, how func(context.Context, *fake) error) (a, b *fake) {
	var once atomic.Bool
	start := func(name string) *fake {
		var self atomic.Pointer[fake]
		fk := w.fake(name, say(saga, func(ctx context.Context, at int) error {
			if at == n && once.CompareAndSwap(false, true) {
				return how(ctx, self.Load())
			}
			return nil
		}))
		self.Store(fk)
		return fk
	}
	return start("worker-1"), start("worker-2")
}

// Ways in which a worker is lost.
func crashes(ctx context.Context, fk *fake) error {
	go fk.crash()
	<-ctx.Done()
	return context.Cause(ctx)
}

func engineStops(context.Context, *fake) error {
	return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: "engine is closed"}
}

// A worker that is lost is replaced by another one, and the client sees nothing of
// it: no token is lost or doubled, half characters and half stop strings survive.
func TestMigration(t *testing.T) {
	ids := tokens(saga)
	insideChar := len("The a") + 1
	insideStop := strings.Index(saga, "STOP") + 2
	for _, way := range []struct {
		name string
		how  func(context.Context, *fake) error
	}{{"crash", crashes}, {"engine stops", engineStops}} {
		for _, at := range []struct {
			name string
			n    int
		}{{"before the first token", 0}, {"after the first token", 1}, {"inside a character", insideChar}, {"inside a stop string", insideStop}, {"before the end", len(ids)}} {
			for _, stop := range []bool{false, true} {
				if stop && at.n == len(ids) {
					continue
				}
				for _, stream := range []bool{false, true} {
					name := fmt.Sprintf("%s %s, stop %v, stream %v", way.name, at.name, stop, stream)
					t.Run(name, func(t *testing.T) { testMigration(t, at.n, way.how, stop, stream) })
				}
			}
		}
	}
}

func testMigration(t *testing.T, n int, how func(context.Context, *fake) error, stop, stream bool) {
	w := newWorld(t)
	a, b := w.pair(n, how)
	f := w.frontend().waitModel(2)
	more := body{"max_tokens": 200, "min_tokens": 4, "seed": 3}
	want, count := saga, len(tokens(saga))
	if stop {
		more["stop"] = "STOP"
		want = saga[:strings.Index(saga, "STOP")]
		count = len(tokens(want + "STOP"))
	}
	var text, finish string
	var u usage
	if stream {
		more["stream"], more["stream_options"] = true, body{"include_usage": true}
		s := readStream(t, f.post("/v1/completions", textBody(more)))
		if s.failed != nil || !s.done || s.usage == nil {
			t.Fatalf("stream %+v, error %+v", s, s.failed)
		}
		text, finish, u = s.texts[0], s.finish[0], *s.usage
	} else {
		ans := wholeAnswer(t, f.post("/v1/completions", textBody(more)))
		text, finish, u = ans.Choices[0].Text, *ans.Choices[0].FinishReason, *ans.Usage
	}
	prompt := tokens("Once")
	if text != want || finish != "stop" || u.CompletionTokens != count || u.PromptTokens != len(prompt) || u.Details.CachedTokens > len(prompt) {
		t.Errorf("%q, %s, usage %+v; want %q and %d tokens", text, finish, u, want, count)
	}
	requests := append(a.got(), b.got()...)
	if len(requests) != 2 || len(a.got()) != 1 {
		t.Fatalf("%d and %d requests, want one on each worker", len(a.got()), len(b.got()))
	}
	one, two := requests[0], requests[1]
	if one.Generated > two.Generated || len(one.TokenIDs) > len(two.TokenIDs) {
		one, two = two, one
	}
	if n == 0 {
		return // which was first does not show
	}
	all := append(append([]uint32{}, prompt...), tokens(saga)[:n]...)
	if two.Generated != n || fmt.Sprint(two.TokenIDs) != fmt.Sprint(all) || two.Stop.MaxTokens != 200-n || two.Stop.MinTokens != max(4-n, 0) ||
		!reflect.DeepEqual(two.Sampling, one.Sampling) || two.RequestID == one.RequestID {
		t.Errorf("second attempt %+v of the first %+v, after %d tokens", two, one, n)
	}
	kind := "ongoing_request"
	if got := f.metric(`dynamo_frontend_model_migration_total{migration_type="` + kind + `",model="tiny"}`); got != 1 {
		t.Errorf("%v migrations counted", got)
	}
}

func TestMigrationBeforeFirstTokenIsCounted(t *testing.T) {
	w := newWorld(t)
	w.pair(0, crashes)
	f := w.frontend().waitModel(2)
	wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
	if got := f.metric(`dynamo_frontend_model_migration_total{migration_type="new_request",model="tiny"}`); got != 1 {
		t.Errorf("%v migrations counted", got)
	}
}

// A stream that ends properly, but without a finish reason, is a lost worker, too.
func TestEndWithoutFinishReason(t *testing.T) {
	w := newWorld(t)
	var calls atomic.Int32
	whole := say("abcdef")
	gen := func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		if calls.Add(1) == 1 {
			return send(protocol.EngineOutput{TokenIDs: tokens("abc")})
		}
		return whole(ctx, req, send)
	}
	w.fake("worker-1", gen)
	f := w.frontend().waitModel(1) // it goes on where it was: the only worker gets another try
	a := wholeAnswer(t, f.post("/v1/completions", textBody(nil)))
	if a.Choices[0].Text != "abcdef" || calls.Load() != 2 {
		t.Errorf("%+v after %d calls", a.Choices, calls.Load())
	}
}

// A worker lost between its last token and the word that it was the last costs
// nothing: there is nothing left to generate.
func TestLostAfterTheLastToken(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", func(_ context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		return send(protocol.EngineOutput{TokenIDs: tokens("abcdef")[:req.Stop.MaxTokens]})
	})
	f := w.frontend().waitModel(1)
	a := wholeAnswer(t, f.post("/v1/completions", textBody(body{"max_tokens": 3})))
	if a.Choices[0].Text != "abc" || *a.Choices[0].FinishReason != "length" || len(fk.got()) != 1 {
		t.Errorf("%+v after %d calls", a.Choices, len(fk.got()))
	}
}

func TestMigrationLimit(t *testing.T) {
	for _, limit := range []int{0, 1, 3} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("limit %d, stream %v", limit, stream), func(t *testing.T) {
				w := newWorld(t)
				var calls atomic.Int32
				dying := func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
					calls.Add(1)
					at := req.Generated
					if err := send(protocol.EngineOutput{TokenIDs: tokens(saga)[at : at+1]}); err != nil {
						return err
					}
					return engineStops(ctx, nil)
				}
				for i := range 5 {
					w.fake(fmt.Sprintf("worker-%d", i), dying)
				}
				f := w.configured(func(c *Config) { c.MigrationLimit = limit }).waitModel(5)
				resp := f.post("/v1/completions", textBody(body{"stream": stream}))
				if stream {
					s := readStream(t, resp)
					if s.texts[0] != saga[:limit+1] || s.failed == nil || !s.done || s.finish[0] != "" {
						t.Errorf("stream %+v", s)
					}
				} else if e := failureOf(t, resp); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(e.Error.Message, "lost") {
					t.Errorf("status %d, %+v", resp.StatusCode, e)
				}
				if got := int(calls.Load()); got != limit+1 {
					t.Errorf("%d attempts, want %d", got, limit+1)
				}
			})
		}
	}
}

// When nobody is left, the client gets an error, not a stream that just ends.
func TestAllWorkersLost(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			w := newWorld(t)
			reached, never := make(chan struct{}), make(chan struct{})
			reach := sync.OnceFunc(func() { close(reached) })
			tell := say(saga, func(ctx context.Context, n int) error {
				if n == 5 {
					reach()
				}
				return hold(5, never)(ctx, n)
			})
			one, two := w.fake("worker-1", tell), w.fake("worker-2", tell)
			f := w.frontend(func(f *Frontend) { f.limits.takeover, f.limits.card = 200*time.Millisecond, 200*time.Millisecond }).waitModel(2)
			got := make(chan *http.Response, 1)
			go func() { got <- f.post("/v1/completions", textBody(body{"stream": stream})) }()
			<-reached
			one.crash()
			two.crash()
			resp := <-got
			if stream {
				if s := readStream(t, resp); s.texts[0] != saga[:5] || s.failed == nil || !strings.Contains(s.failed.Error.Message, "lost") || !s.done {
					t.Errorf("stream %+v", s)
				}
			} else if e := failureOf(t, resp); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(e.Error.Message, "lost") || resp.Header.Get("Retry-After") != "1" {
				t.Errorf("status %d, %+v", resp.StatusCode, e)
			}
			// The next request finds nobody and is told so.
			resp = f.post("/v1/completions", textBody(body{"stream": stream}))
			if e := failureOf(t, resp); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(e.Error.Message, "No worker") {
				t.Errorf("status %d, %+v", resp.StatusCode, e)
			}
		})
	}
}

// A request whose only worker was lost waits for the next one and goes on there.
func TestTakeoverByNewWorker(t *testing.T) {
	w := newWorld(t)
	reached := make(chan struct{})
	one := w.fake("worker-1", say(saga, func(ctx context.Context, n int) error {
		if n != 7 {
			return nil
		}
		close(reached)
		<-ctx.Done()
		return context.Cause(ctx)
	}))
	f := w.frontend().waitModel(1)
	got := make(chan *streamed, 1)
	go func() {
		got <- readStream(t, f.post("/v1/completions", textBody(body{"stream": true, "max_tokens": 200})))
	}()
	<-reached
	one.crash()
	patience.Until(t, "the loss is seen", func() bool { return w.log.count("request moves to another worker") == 1 })
	two := w.fake("worker-2", say(saga))
	if s := <-got; s.texts[0] != saga || s.finish[0] != "stop" || s.failed != nil {
		t.Errorf("got %+v, error %+v", s, s.failed)
	}
	if r := two.got(); len(r) != 1 || r[0].Generated != 7 {
		t.Errorf("the new worker got %+v", r)
	}
}
