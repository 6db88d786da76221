package frontend

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
)

// changing are run-time settings that a test changes.
type changing struct {
	mu sync.Mutex
	k  Settings
}

func routing() *changing {
	return &changing{k: Settings{
		Policy: "least-loaded", Strategy: protocol.StrategyPrefillFirst, RemoteTimeout: 10 * time.Second,
		Prefill: router.PrefillLimits{MaxLocalTokens: 8, MaxQueueDepth: 100},
	}}
}

func (s *changing) get() Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.k
}

func (s *changing) change(f func(*Settings)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.k)
}

// prefiller starts a fake prefill worker.
func (w *world) prefiller(name string, gen generator, changes ...func(*fake)) *fake {
	return w.fake(name, gen, append([]func(*fake){func(fk *fake) { fk.card.WorkerType = cluster.RolePrefill }}, changes...)...)
}

func withBootstrap(fk *fake) {
	fk.card.Runtime.Disaggregated = &cluster.BootstrapEndpoint{Host: "127.0.0.1", Port: 7777}
}

// holds answers as a prefill worker does, and then keeps what it has until the caller
// leaves; left, if not nil, is told so.
func holds(worker string, left *atomic.Int32) generator {
	return func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		if left != nil { // also by a decode worker that was done before this one has said anything
			defer left.Add(1)
		}
		if req.Disagg.Bootstrap != nil { // the room is open
			if err := send(protocol.EngineOutput{}); err != nil {
				return err
			}
		}
		o := protocol.EngineOutput{Timing: &protocol.Timing{Worker: worker, Prefill: worker, CachedTokens: testBlock}}
		if req.Disagg.Bootstrap == nil {
			o.Params = &protocol.DisaggregatedParams{Worker: worker, Tokens: len(req.TokenIDs) - 1, Ticket: req.RequestID, Deadline: req.Disagg.Deadline}
		}
		if err := send(o); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

// longPrompt has more tokens than are prefilled locally.
func longPrompt() body { return textBody(body{"prompt": strings.Repeat("x", 40)}) }

// routed runs a frontend that has met so many workers.
func (w *world) routed(s *changing, prefill, decode int) *front {
	w.t.Helper()
	f := w.configured(func(c *Config) { c.Settings = s.get }).waitModel(decode)
	patience.Until(w.t, "the prefill workers are known", func() bool {
		m := f.registry.find(testModel)
		return m != nil && len(m.prefills) == prefill && len(f.prefills.Instances()) == prefill
	})
	return f
}

func TestPrefillFirst(t *testing.T) {
	w := newWorld(t)
	decisions := listen[cluster.RouterDecision](w, cluster.TopicRouterDecisions)
	var left atomic.Int32
	pre := w.prefiller("worker-1", holds("worker-1", &left), withBootstrap)
	release := make(chan struct{})
	dec := w.fake("worker-2", say("abcdef", hold(3, release)))
	s := routing()
	f := w.routed(s, 1, 1)
	done := make(chan answer, 1)
	go func() { done <- wholeAnswer(t, f.post("/v1/completions", longPrompt())) }()
	// The prefill worker is let go of with the first output, not with the last.
	patience.Until(t, "the prefill worker is let go", func() bool { return left.Load() == 1 })
	if n := f.prefillLoad.InFlight(pre.drt.ID()); n != 0 {
		t.Errorf("%d prefills in flight", n)
	}
	close(release)
	if a := <-done; a.Choices[0].Text != "abcdef" {
		t.Errorf("%+v", a)
	}
	first, second := pre.got()[0], dec.got()[0]
	if first.Stop.MaxTokens != 1 || len(first.TokenIDs) != 40 || first.ModelSum != testDigest || time.Until(first.Disagg.Deadline) > 10*time.Second || first.Disagg.Bootstrap != nil {
		t.Errorf("first hop %+v", first)
	}
	if p := second.Disagg.Params; second.Disagg.Strategy != protocol.StrategyPrefillFirst || p == nil || p.Worker != "worker-1" || p.Ticket != first.RequestID || second.Disagg.Bootstrap != nil || second.Disagg.Why != "" {
		t.Errorf("second hop %+v", second.Disagg)
	}
	patience.Until(t, "the decisions came", func() bool { return len(decisions()) >= 4 })
	ds := decisions()
	if ds[0].Phase != cluster.RolePrefill || ds[0].Chosen != "worker-1" || ds[0].Prefill != "" || ds[0].RequestID != ds[2].RequestID || ds[2].Phase != cluster.RoleDecode || ds[2].Chosen != "worker-2" {
		t.Errorf("decisions %+v", ds)
	}
	if d := ds[1]; d.Phase != cluster.RolePrefill || d.Prefill != "worker-1" || d.Overlap != 1 {
		t.Errorf("computed %+v", d)
	}

	// In the background both get the same room.
	s.change(func(k *Settings) { k.Background = true })
	wholeAnswer(t, f.post("/v1/completions", longPrompt()))
	first, second = pre.got()[1], dec.got()[1]
	a, b := first.Disagg.Bootstrap, second.Disagg.Bootstrap
	if a == nil || b == nil || *a != *b || second.Disagg.Params != nil || b.Worker != "worker-1" || b.Address != "127.0.0.1:7777/"+pre.drt.ID().String()+"/bootstrap" {
		t.Errorf("rooms %+v %+v", a, b)
	}
	patience.Until(t, "the prefill worker is let go", func() bool { return left.Load() == 2 })
}

// Why a prompt is prefilled by the decode worker is decided before it gets there, and
// nothing that a prefill worker does reaches the client.
func TestPrefillFallsBack(t *testing.T) {
	broken := func(context.Context, protocol.PreprocessedRequest, func(protocol.EngineOutput) error) error {
		return errors.New("engine on fire")
	}
	silent := func(_ context.Context, _ protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		return send(protocol.EngineOutput{Finish: protocol.FinishLength})
	}
	slow := func(ctx context.Context, _ protocol.PreprocessedRequest, _ func(protocol.EngineOutput) error) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for _, tc := range []struct {
		name     string
		workers  []generator
		other    string // digest of the prefill workers
		prompt   body
		settings func(*Settings)
		why      string // empty: prefilled remotely
		asked    int    // requests to prefill workers
	}{
		{name: "no prefill worker", why: "no prefill worker"},
		{name: "of another model", other: "sha256:other", workers: []generator{holds("a", nil)}, why: "no prefill worker"},
		{name: "short", workers: []generator{holds("a", nil)}, prompt: textBody(body{"prompt": "short"}), why: "short"},
		{name: "busy", workers: []generator{holds("a", nil)}, settings: func(k *Settings) { k.Prefill.MaxQueueDepth = 0 }, why: "prefill workers busy"},
		{name: "one fails", workers: []generator{broken, holds("a", nil)}},
		{name: "the only one fails", workers: []generator{broken}, why: "prefill worker failed", asked: 1},
		{name: "all fail", workers: []generator{broken, broken, broken}, why: "prefill worker failed", asked: 2},
		{name: "all refuse", workers: []generator{refuse(requestplane.KindOverloaded), refuse(requestplane.KindOverloaded)}, why: "prefill workers busy", asked: 2},
		{name: "no params", workers: []generator{silent}, why: "prefill worker failed", asked: 1},
		{name: "too slow", workers: []generator{slow}, settings: func(k *Settings) { k.RemoteTimeout = 30 * time.Millisecond }, why: "remote prefill timed out", asked: 1},
		{name: "prompt logprobs", workers: []generator{holds("a", nil)},
			prompt: textBody(body{"prompt": strings.Repeat("x", 40), "echo": true, "logprobs": 1}), why: "prompt logprobs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			dec := w.fake("worker-9", say("abc"))
			var pres []*fake
			for i, gen := range tc.workers {
				pres = append(pres, w.prefiller("worker-"+string(rune('1'+i)), gen, func(fk *fake) {
					if tc.other != "" {
						fk.card.Digest = tc.other
					}
				}))
			}
			s := routing()
			if tc.settings != nil {
				s.change(tc.settings)
			}
			known := len(pres)
			if tc.other != "" {
				known = 0
			}
			f := w.configured(func(c *Config) { c.Settings = s.get }).waitModel(1)
			patience.Until(t, "the prefill workers are known", func() bool {
				return len(f.registry.find(testModel).prefills) == known && len(f.prefills.Instances()) == len(pres)
			})
			prompt := tc.prompt
			if prompt == nil {
				prompt = longPrompt()
			}
			if a := wholeAnswer(t, f.post("/v1/completions", prompt)); !strings.HasSuffix(a.Choices[0].Text, "abc") {
				t.Errorf("%+v", a)
			}
			got := dec.got()[0].Disagg
			if got.Why != tc.why || (got.Params == nil) != (tc.why != "") || got.Strategy != protocol.StrategyPrefillFirst {
				t.Errorf("hints %+v, want %q", got, tc.why)
			}
			asked := 0
			for _, p := range pres {
				asked += len(p.got())
			}
			if tc.why != "" && asked != tc.asked {
				t.Errorf("%d requests to prefill workers, want %d", asked, tc.asked)
			}
			for _, p := range pres {
				patience.Until(t, "nothing is in flight", func() bool { return p.running.Load() == 0 && f.prefillLoad.InFlight(p.drt.ID()) == 0 })
			}
		})
	}
}

// A refusal by a decode worker wastes no prefill; the loss of one does.
func TestPrefillOfAttempts(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		w := newWorld(t)
		pre := w.prefiller("worker-1", holds("worker-1", nil))
		busy, good := w.fake("worker-2", refuse(requestplane.KindOverloaded)), w.fake("worker-3", say("abc"))
		f := w.routed(routing(), 1, 2)
		for len(busy.got()) == 0 {
			wholeAnswer(t, f.post("/v1/completions", longPrompt()))
		}
		last := good.got()[len(good.got())-1].Disagg.Params
		if want := busy.got()[0].Disagg.Params; last == nil || want == nil || last.Ticket != want.Ticket {
			t.Errorf("first %+v, then %+v", want, last)
		}
		if len(pre.got()) != len(good.got()) {
			t.Errorf("%d prefills for %d requests", len(pre.got()), len(good.got()))
		}
	})
	t.Run("lost", func(t *testing.T) {
		w := newWorld(t)
		var left atomic.Int32
		pre := w.prefiller("worker-1", holds("worker-1", &left))
		a, b := w.pair(5, engineStops)
		f := w.routed(routing(), 1, 2)
		if got := wholeAnswer(t, f.post("/v1/completions", textBody(body{"prompt": strings.Repeat("x", 40), "max_tokens": 300}))); got.Choices[0].Text != saga {
			t.Errorf("%+v", got)
		}
		both := append(a.got(), b.got()...)
		if len(both) != 2 || len(pre.got()) != 2 || both[0].Disagg.Params.Ticket == both[1].Disagg.Params.Ticket {
			t.Errorf("%d attempts, %d prefills", len(both), len(pre.got()))
		}
		if n := len(pre.got()[1].TokenIDs); n != 45 {
			t.Errorf("the second prefill has %d tokens, want the prompt and 5 generated ones", n)
		}
		patience.Until(t, "both are let go", func() bool { return left.Load() == 2 })
	})
}

// A client that leaves while its prompt is prefilled is not kept by anyone.
func TestClientLeavesDuringPrefill(t *testing.T) {
	w := newWorld(t)
	pre := w.prefiller("worker-1", func(ctx context.Context, _ protocol.PreprocessedRequest, _ func(protocol.EngineOutput) error) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	dec := w.fake("worker-2", say("abc"))
	f := w.routed(routing(), 1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		resp, err := f.tryPost(ctx, "/v1/completions", longPrompt())
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- err
	}()
	patience.Until(t, "the prompt is prefilled", func() bool { return pre.running.Load() == 1 })
	cancel()
	if err := <-done; err == nil {
		t.Error("the request ended well")
	}
	patience.Until(t, "it is cancelled", func() bool { return pre.cancelled.Load() == 1 && f.gate.inFlight() == 0 })
	if n := len(dec.got()); n > 0 {
		t.Errorf("%d requests to the decode worker", n)
	}
}

// A request keeps the strategy that it began with; the next one has the new one.
func TestStrategyChanges(t *testing.T) {
	w := newWorld(t)
	pre := w.prefiller("worker-1", holds("worker-1", nil))
	reached, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	a, b := w.pair(5, func(ctx context.Context, fk *fake) error {
		once.Do(func() { close(reached) })
		<-release
		return engineStops(ctx, fk)
	})
	s := routing()
	s.change(func(k *Settings) { k.Strategy = protocol.StrategyDecodeFirst })
	f := w.routed(s, 1, 2)
	done := make(chan answer, 1)
	long := textBody(body{"prompt": strings.Repeat("x", 40), "max_tokens": 300})
	go func() { done <- wholeAnswer(t, f.post("/v1/completions", long)) }()
	select {
	case <-reached:
	case a := <-done:
		t.Fatalf("ended early: %+v", a)
	}
	s.change(func(k *Settings) { k.Strategy, k.Policy = protocol.StrategyPrefillFirst, "round-robin" })
	close(release)
	if got := <-done; got.Choices[0].Text != saga {
		t.Errorf("%+v", got)
	}
	for _, r := range append(a.got(), b.got()...) {
		if r.Disagg.Strategy != protocol.StrategyDecodeFirst || r.Disagg.Params != nil {
			t.Errorf("hints %+v", r.Disagg)
		}
	}
	if n := len(pre.got()); n > 0 {
		t.Errorf("%d first hops", n)
	}
	if got := wholeAnswer(t, f.post("/v1/completions", long)); got.Choices[0].Text != saga || len(pre.got()) != 1 {
		t.Errorf("%+v, %d first hops", got, len(pre.got()))
	}
	if f.policy().Name() != "round-robin" {
		t.Errorf("policy %s", f.policy().Name())
	}
	s.change(func(k *Settings) { k.Policy = "of tomorrow" })
	if f.policy().Name() != "least-loaded" {
		t.Errorf("policy %s", f.policy().Name())
	}
}
