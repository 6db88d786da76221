package served

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/role"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a server without one. Fields that are functions answer the call of that name.
type fake struct {
	external.Engine // nil: what is not here is not called

	mu       sync.Mutex
	facts    external.Facts
	unwell   error
	load     external.Load
	loadErr  error
	asked    int // for its load
	exchange external.Exchange
	prefill  func(ctx context.Context, r *external.Request) (external.Prefilled, error)
	generate func(ctx context.Context, r *external.Request, emit func(protocol.EngineOutput) error) error
}

func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) Probe(context.Context) (external.Facts, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.facts, f.unwell
}

func (f *fake) Health(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unwell
}

func (f *fake) Load(context.Context) (external.Load, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.load, f.loadErr
}

func (f *fake) Exchange() external.Exchange { return f.exchange }

func (f *fake) Prefill(ctx context.Context, r *external.Request) (external.Prefilled, error) {
	return f.prefill(ctx, r)
}

func (f *fake) Generate(ctx context.Context, r *external.Request, emit func(protocol.EngineOutput) error) error {
	return f.generate(ctx, r, emit)
}

func newServer(f *fake, change ...func(*Config)) *Server {
	cfg := Config{Backend: cluster.BackendVLLM, Engine: f, Facts: f.facts, Model: "m", BlockSize: 64, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
	}
	return New(cfg)
}

// What a server does not tell is counted, and never zero.
func TestLoadOfServers(t *testing.T) {
	two, five, half := 2, 5, 0.5
	request := protocol.PreprocessedRequest{RequestID: "a", TokenIDs: make([]uint32, 130)}
	for name, tc := range map[string]struct {
		load                     external.Load
		running, waiting, active int
	}{
		"nothing told":  {external.Load{}, 1, 0, 3},
		"all told":      {external.Load{Running: &five, Waiting: &two, KVUsage: &half}, 5, 2, 50},
		"running alone": {external.Load{Running: &five}, 5, 0, 3},
		"told too late": {external.Load{Running: new(int), Waiting: new(int)}, 1, 0, 3},
	} {
		f := &fake{load: tc.load, facts: external.Facts{BlockSize: 16, KVBlocks: 400, MaxSeqs: 8}}
		s := newServer(f)
		if _, err := s.admit(&request, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := s.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		st := s.Stats()
		if st.Running != tc.running || st.Waiting != tc.waiting || st.KVActive != tc.active || st.KVTotal != 100 || st.MaxSeqs != 8 || st.PrefillTokens != 130 {
			t.Errorf("%s: %+v", name, st)
		}
		f.loadErr = errors.New("404")
		if _, err := s.look(t.Context()); err == nil {
			t.Error("no error")
		}
		if st := s.Stats(); st.Running != 1 || st.Waiting != 0 || st.KVActive != 3 {
			t.Errorf("%s, which was told once: %+v", name, st)
		}
	}
}

// A server is safe to stop when it says itself that it runs nothing; silence proves nothing.
func TestProofThatAServerIsIdle(t *testing.T) {
	one, none := 1, 0
	for name, tc := range map[string]struct {
		load external.Load
		err  error
		open bool
		want int
	}{
		"idle":                   {external.Load{Running: &none, Waiting: &none}, nil, false, 0},
		"others run":             {external.Load{Running: &one}, nil, false, 1},
		"others wait":            {external.Load{Running: &none, Waiting: &one}, nil, false, 1},
		"it tells nothing":       {external.Load{}, nil, false, 0},
		"it tells nothing, busy": {external.Load{}, nil, true, 1},
		"late":                   {external.Load{Running: &none, Waiting: &none}, nil, true, 1},
		"silent":                 {external.Load{}, errors.New("refused"), false, 1},
	} {
		s := newServer(&fake{load: tc.load, loadErr: tc.err})
		if tc.open {
			if _, err := s.admit(&protocol.PreprocessedRequest{Body: json.RawMessage("{}")}, ""); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.AtServer(t.Context()); n != tc.want {
			t.Errorf("%s: %d", name, n)
		}
	}
}

// A drain asks for the proof many times a second; the server is asked now and then, and again after
// each request that ends.
func TestProofIsNotAskedForAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{load: external.Load{Running: new(int)}}
		s := newServer(f)
		r, err := s.admit(&protocol.PreprocessedRequest{Body: json.RawMessage("{}")}, "")
		if err != nil {
			t.Fatal(err)
		}
		look := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				s.AtServer(t.Context())
			}
		}
		look(time.Second)
		if f.asked != 0 {
			t.Errorf("asked %d times while a request of its own ran", f.asked)
		}
		s.release(r, nil)
		look(time.Second)
		if f.asked < 4 || f.asked > 6 {
			t.Errorf("asked %d times in a second", f.asked)
		}
		before := f.asked
		s.AtServer(t.Context())
		if r, err = s.admit(&protocol.PreprocessedRequest{Body: json.RawMessage("{}")}, ""); err != nil {
			t.Fatal(err)
		}
		s.release(r, nil)
		f.load.Running = new(3)
		if n := s.AtServer(t.Context()); n != 3 || f.asked == before {
			t.Errorf("%d by what was told before the last request ended", n)
		}
	})
}

func TestAdmission(t *testing.T) {
	s := newServer(&fake{})
	s.StopAdmission()
	var remote *requestplane.RemoteError
	if _, err := s.admit(&protocol.PreprocessedRequest{}, ""); !errors.As(err, &remote) || remote.Kind != requestplane.KindUnavailable {
		t.Errorf("while it drains: %v", err)
	}
	s.ResumeAdmission()
	var last *request
	for i := range maxOpen {
		r, err := s.admit(&protocol.PreprocessedRequest{}, "")
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		last = r
	}
	if _, err := s.admit(&protocol.PreprocessedRequest{}, ""); !errors.As(err, &remote) || remote.Kind != requestplane.KindOverloaded {
		t.Errorf("one too many: %v", err)
	}
	s.release(last, nil)
	if _, err := s.admit(&protocol.PreprocessedRequest{}, ""); err != nil {
		t.Error(err)
	}
	if all, n := s.Sequences(3); len(all) != 3 || n != maxOpen {
		t.Errorf("%d of %d", len(all), n)
	}
}

func TestServersThatEnd(t *testing.T) {
	gone := errors.New("connection refused")
	for name, tc := range map[string]struct {
		happens func(f *fake, exit chan struct{})
		after   time.Duration
		says    string
	}{
		"silent":    {func(f *fake, _ chan struct{}) { f.unwell = gone }, 3 * time.Second, "the server of vllm does not answer: connection refused"},
		"exited":    {func(_ *fake, exit chan struct{}) { close(exit) }, 0, "out of memory"},
		"restarted": {func(f *fake, _ chan struct{}) { f.facts.Pair = "0.9" }, 30 * time.Second, "restarted with another configuration"},
		"shorter":   {func(f *fake, _ chan struct{}) { f.facts.MaxModelLen = 9 }, 30 * time.Second, "restarted with another configuration"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, exit := &fake{facts: external.Facts{Pair: "0.8"}}, make(chan struct{})
			s := newServer(f, func(c *Config) { c.Exited, c.Exit = exit, func() error { return errors.New("out of memory") } })
			ended := make(chan error, 1)
			go func() { ended <- s.Run(t.Context()) }()
			time.Sleep(time.Minute + time.Millisecond)
			f.set(func(f *fake) { f.unwell = gone }) // for two looks, and then it is well again
			time.Sleep(2*time.Second + 400*time.Millisecond)
			f.set(func(f *fake) { f.unwell = nil })
			time.Sleep(time.Minute - 2*time.Second - 400*time.Millisecond)
			select {
			case err := <-ended:
				t.Fatalf("%s: a healthy server: %v", name, err)
			default:
			}
			begin := time.Now()
			f.set(func(f *fake) { tc.happens(f, exit) })
			err := <-ended
			if took := time.Since(begin); err == nil || !strings.Contains(err.Error(), tc.says) || took > tc.after {
				t.Errorf("%s: %v after %s", name, err, took)
			}
		})
	}
}

// The speed of prompts is measured where nothing else was computed.
func TestPromptSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(&fake{})
		run := func(tokens, cached int, took time.Duration, others ...int) {
			r, err := s.admit(&protocol.PreprocessedRequest{TokenIDs: make([]uint32, tokens)}, "")
			if err != nil {
				t.Fatal(err)
			}
			for range others {
				o, err := s.admit(&protocol.PreprocessedRequest{TokenIDs: make([]uint32, 1)}, "")
				if err != nil {
					t.Fatal(err)
				}
				defer s.release(o, nil)
			}
			time.Sleep(took)
			s.computed(r, cached)
			s.release(r, nil)
		}
		run(100, 0, time.Second)     // a round trip
		run(4000, 0, time.Second, 1) // not alone
		run(4000, -1, time.Second)   // nobody knows what it had cached
		if s.Stats().PrefillRate != 0 {
			t.Errorf("%v", s.Stats().PrefillRate)
		}
		run(3000, 1000, time.Second)
		if s.Stats().PrefillRate != 2000 {
			t.Errorf("%v", s.Stats().PrefillRate)
		}
		run(4000, 0, time.Second)
		if st := s.Stats(); st.PrefillRate != 2500 || st.PromptTokensTotal != 15100 || st.CachedTokensTotal != 1000 || st.ComputedTotal != 14100 {
			t.Errorf("%+v", st)
		}
	})
}

// host is the cluster of a role.
type host struct {
	role.Host
	handlers map[string]requestplane.Handler
	publish  func() error // nil: nothing
}

func (h *host) ID() cluster.InstanceID { return 7 }

func (h *host) PublishCard(context.Context, *cluster.BootstrapEndpoint) error {
	if h.publish == nil {
		return nil
	}
	return h.publish()
}

func (h *host) Serve(_ context.Context, endpoint string, f requestplane.Handler) (cluster.Instance, error) {
	h.handlers[endpoint] = f
	return cluster.Instance{}, nil
}

// serve asks the generate endpoint of a role and returns what it sends until it ends or ctx does.
func serve(ctx context.Context, t *testing.T, s *Server, as cluster.Role, p protocol.PreprocessedRequest, each ...func(protocol.EngineOutput)) (out []protocol.EngineOutput, err error) {
	t.Helper()
	err = call(ctx, t, s, as, p, func(v any) error {
		out = append(out, v.(protocol.EngineOutput))
		for _, f := range each {
			f(v.(protocol.EngineOutput))
		}
		return nil
	})
	return out, err
}

// call asks the generate endpoint of a role, which answers through send. The metrics go to the
// registry of its context, if that has one.
func call(ctx context.Context, t *testing.T, s *Server, as cluster.Role, p protocol.PreprocessedRequest, send func(any) error) error {
	t.Helper()
	h := &host{handlers: map[string]requestplane.Handler{}}
	term := &role.Term{Host: h, Worker: "w", Log: s.Log, Model: role.Model{Digest: "sum"}}
	registry, ok := ctx.Value(registryKey{}).(*metrics.Registry)
	if !ok {
		registry = metrics.NewRegistry()
	}
	term.Meter = metrics.NewWorker(registry, metrics.WorkerLabels{}, time.Now())
	r, err := s.NewRole(as, term)
	if err != nil {
		t.Fatal(err)
	}
	defer r.End()
	if err := r.Register(ctx); err != nil {
		t.Fatal(err)
	}
	body, err := requestplane.Encode(p)
	if err != nil {
		t.Fatal(err)
	}
	return h.handlers[cluster.EndpointGenerate](ctx, &requestplane.Request{Body: body}, send)
}

func emits(outs ...protocol.EngineOutput) func(context.Context, *external.Request, func(protocol.EngineOutput) error) error {
	return func(_ context.Context, _ *external.Request, emit func(protocol.EngineOutput) error) error {
		for _, o := range outs {
			if err := emit(o); err != nil {
				return err
			}
		}
		return nil
	}
}

func tokensOf(outs []protocol.EngineOutput) (ids []uint32) {
	for _, o := range outs {
		ids = append(ids, o.TokenIDs...)
	}
	return ids
}

func TestAnswersOfServers(t *testing.T) {
	probs := &protocol.Logprobs{Tokens: []float32{-1, -2, -3}}
	f := &fake{generate: emits(
		protocol.EngineOutput{TokenIDs: []uint32{5, 6}},
		protocol.EngineOutput{TokenIDs: []uint32{7, 9, 8}, Logprobs: probs},
		protocol.EngineOutput{TokenIDs: []uint32{1}, Finish: protocol.FinishLength, Usage: &protocol.Usage{PromptTokens: 99, CompletionTokens: 99, CachedTokens: 2}},
	)}
	p := protocol.PreprocessedRequest{TokenIDs: []uint32{1, 2, 3}, Generated: 1, Stop: protocol.StopConditions{MaxTokens: 50, StopTokenIDs: []uint32{9}}}
	p.Disagg.Why = "short"
	out, err := serve(t.Context(), t, newServer(f), cluster.RoleDecode, p)
	if err != nil || len(out) != 2 {
		t.Fatalf("%+v, %v", out, err)
	}
	if first := out[0].Timing; first == nil || first.Worker != "w" || first.Prefill != "local" || first.PrefillWhy != "short" || !first.CacheUnknown {
		t.Errorf("%+v", first)
	}
	last := out[1]
	if len(last.TokenIDs) != 1 || len(last.Logprobs.Tokens) != 1 || last.Finish != protocol.FinishStop || last.Usage == nil || *last.Usage != (protocol.Usage{PromptTokens: 2, CompletionTokens: 3}) {
		t.Errorf("%+v, %+v", last, last.Usage)
	}
	// To the server's own end, with what it says of its cache at the end.
	p.Stop.StopTokenIDs = nil
	s := newServer(f)
	out, err = serve(t.Context(), t, s, cluster.RoleDecode, p)
	if err != nil || len(tokensOf(out)) != 6 || out[2].Finish != protocol.FinishLength || out[2].Usage.CachedTokens != 2 {
		t.Errorf("%+v, %v", out, err)
	}
	if st := s.Stats(); st.Running != 0 || st.RequestsTotal != 1 || st.FinishedTotal != 1 || st.GeneratedTotal != 6 {
		t.Errorf("%+v", st)
	}
	// An answer without an end is none.
	f.generate = emits(protocol.EngineOutput{TokenIDs: []uint32{5}})
	var remote *requestplane.RemoteError
	if _, err = serve(t.Context(), t, s, cluster.RoleDecode, p); !errors.As(err, &remote) || remote.Kind != requestplane.KindUnavailable {
		t.Errorf("%v", err)
	}
	f.generate = emits(protocol.EngineOutput{Text: "a", Finish: protocol.FinishStop})
	if _, err = serve(t.Context(), t, s, cluster.RoleDecode, p); !errors.As(err, &remote) || remote.Kind != requestplane.KindInternal {
		t.Errorf("text without a tokenizer: %v", err)
	}
	if st := s.Stats(); st.Running != 0 || st.CancelledTotal != 2 {
		t.Errorf("%+v", st)
	}
}

func TestRequestsThatServersDoNotGet(t *testing.T) {
	ok := protocol.PreprocessedRequest{TokenIDs: []uint32{1}, ModelSum: "sum", Stop: protocol.StopConditions{MaxTokens: 1}}
	alone := func(s *Server) { s.Facts.Mode = "decode" }
	for name, tc := range map[string]struct {
		change func(*protocol.PreprocessedRequest)
		server func(*Server)
		kind   requestplane.Kind
	}{
		"another model":  {func(p *protocol.PreprocessedRequest) { p.ModelSum = "other" }, nil, requestplane.KindUnavailable},
		"an image":       {func(p *protocol.PreprocessedRequest) { p.Media = make([]protocol.MediaPart, 1) }, nil, requestplane.KindInvalidArgument},
		"nothing":        {func(p *protocol.PreprocessedRequest) { p.TokenIDs = nil }, nil, requestplane.KindInvalidArgument},
		"both":           {func(p *protocol.PreprocessedRequest) { p.Body = json.RawMessage("{}") }, nil, requestplane.KindInvalidArgument},
		"enforced":       {func(p *protocol.PreprocessedRequest) { p.Disagg.Enforce = true }, nil, requestplane.KindNotPrefilled},
		"without a pair": {func(*protocol.PreprocessedRequest) {}, alone, requestplane.KindNotPrefilled},
	} {
		p := ok
		tc.change(&p)
		s := newServer(&fake{exchange: external.ExchangeConcurrent})
		if tc.server != nil {
			tc.server(s)
		}
		var remote *requestplane.RemoteError
		if _, err := serve(t.Context(), t, s, cluster.RoleDecode, p); !errors.As(err, &remote) || remote.Kind != tc.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, as := range []cluster.Role{cluster.RolePrefill, cluster.RoleEncode} {
		if _, err := newServer(&fake{}).NewRole(as, &role.Term{}); err == nil {
			t.Errorf("a server without a connector takes the role %s", as)
		}
	}
}

func TestFirstLegs(t *testing.T) {
	const handoff = `{"a": [9007199254740993] }`
	f := &fake{exchange: external.ExchangeSequential, prefill: func(_ context.Context, r *external.Request) (external.Prefilled, error) {
		return external.Prefilled{Handoff: json.RawMessage(handoff), CachedTokens: 64, PromptTokens: 3, Lease: time.Minute}, nil
	}}
	p := protocol.PreprocessedRequest{RequestID: "r", TokenIDs: []uint32{1, 2, 3}}
	p.Disagg.Deadline = time.Now().Add(time.Hour)
	s := newServer(f)
	ctx, leave := context.WithCancel(t.Context())
	var open int
	out, err := serve(ctx, t, s, cluster.RolePrefill, p, func(protocol.EngineOutput) {
		_, open = s.Sequences(0)
		leave() // the frontend lets go
	})
	if err != nil || len(out) != 1 || open != 1 {
		t.Fatalf("%+v, %v, %d open", out, err, open)
	}
	d := out[0].Params
	if string(d.Handoff) != handoff || d.RequestID != "r" || d.Worker != "w" || d.ID != 7 || d.Cached != 64 || d.Deadline.After(time.Now().Add(time.Minute)) || out[0].Timing.CachedTokens != 64 {
		t.Errorf("%+v", d)
	}
	// The second leg tells where the prompt was computed and what was cached there.
	f.generate = func(_ context.Context, r *external.Request, emit func(protocol.EngineOutput) error) error {
		if string(r.Handoff) != handoff || r.Model != "m" || r.RequestID != "r" {
			t.Errorf("%+v", r)
		}
		return emit(protocol.EngineOutput{TokenIDs: []uint32{4}, Finish: protocol.FinishLength, Usage: &protocol.Usage{CachedTokens: 3}})
	}
	second := protocol.PreprocessedRequest{TokenIDs: []uint32{1, 2, 3}, Stop: protocol.StopConditions{MaxTokens: 1}}
	second.Disagg.Params = d
	out, err = serve(t.Context(), t, s, cluster.RoleDecode, second)
	if err != nil || out[0].Timing.Prefill != "w" || out[0].Timing.PrefillWay != protocol.WayPull || out[0].Timing.CachedTokens != 64 || out[0].Usage.CachedTokens != 64 {
		t.Errorf("%+v, %v", out, err)
	}
	// What the prefill server does not tell, or tells the frontend alone, is not the decode
	// server's count.
	second.Disagg.Params.CacheUnknown = true
	for _, hints := range []protocol.DisaggHints{second.Disagg, {Bootstrap: &protocol.BootstrapInfo{Place: &cluster.ServerPlace{Host: "h", Port: 1}}}} {
		f.generate = func(_ context.Context, _ *external.Request, emit func(protocol.EngineOutput) error) error {
			return emit(protocol.EngineOutput{Raw: json.RawMessage("{}"), Finish: protocol.FinishLength, Usage: &protocol.Usage{PromptTokens: 9, CachedTokens: 9}})
		}
		body := protocol.PreprocessedRequest{Body: json.RawMessage("{}"), Disagg: hints}
		out, err = serve(t.Context(), t, s, cluster.RoleDecode, body)
		if err != nil || !out[0].Timing.CacheUnknown || out[0].Usage.CachedTokens != 0 || out[0].Usage.PromptTokens != 9 {
			t.Errorf("%+v, %v", out, err)
		}
	}
	// Without a deadline, or with a place where servers do not meet, nothing is computed.
	p.Disagg.Deadline = time.Time{}
	if _, err := serve(t.Context(), t, s, cluster.RolePrefill, p); err == nil {
		t.Error("no error without a deadline")
	}
}

// What became of first legs is counted: failures with their reason, and prompts that no decode
// server came for.
func TestFirstLegsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{exchange: external.ExchangeSequential}
		s := newServer(f)
		registry := metrics.NewRegistry()
		metered := context.WithValue(t.Context(), registryKey{}, registry)
		run := func(ctx context.Context, prefill func(context.Context, *external.Request) (external.Prefilled, error)) {
			f.prefill = prefill
			p := protocol.PreprocessedRequest{TokenIDs: []uint32{1}}
			p.Disagg.Deadline = time.Now().Add(time.Second)
			_, _ = serve(ctx, t, s, cluster.RolePrefill, p)
		}
		run(metered, func(context.Context, *external.Request) (external.Prefilled, error) {
			time.Sleep(300 * time.Millisecond)
			return external.Prefilled{}, errors.New(strings.Repeat("no kv_transfer_params ", 100))
		})
		run(metered, func(context.Context, *external.Request) (external.Prefilled, error) {
			return external.Prefilled{Handoff: json.RawMessage(`{"remote_host":"localhost","x":[1]}`)}, nil
		})
		run(metered, func(context.Context, *external.Request) (external.Prefilled, error) {
			return external.Prefilled{Answer: []protocol.EngineOutput{{Finish: protocol.FinishStop}}}, nil
		})
		left, leave := context.WithCancel(metered)
		run(left, func(ctx context.Context, _ *external.Request) (external.Prefilled, error) {
			leave()
			<-ctx.Done()
			return external.Prefilled{}, context.Cause(ctx)
		})
		if st := s.Status(); st.FirstLegs != 4 || st.FailedLegs != 1 || st.StrandedLegs != 1 || st.SideChannel != "localhost" || len(st.LegFailure) != maxFailure || !strings.Contains(st.LegFailure, "kv_transfer_params") {
			t.Errorf("%+v", st)
		}
		page := httptest.NewRecorder()
		registry.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		for outcome, sum := range map[string]string{metrics.LegFailed: "0.3", metrics.LegStranded: "0", metrics.LegAnswered: "0", metrics.LegLeft: "0"} {
			for _, line := range []string{`first_legs_total{%s} 1`, `first_leg_duration_seconds_sum{%s} ` + sum} {
				labels := `dynamo_component="",dynamo_endpoint="",dynamo_namespace="",model="",outcome="` + outcome + `",worker=""`
				if want := "dynamo_component_" + fmt.Sprintf(line, labels) + "\n"; !strings.Contains(page.Body.String(), want) {
					t.Errorf("no %s", want)
				}
			}
		}
	})
}

type registryKey struct{}

func TestServersThatMeet(t *testing.T) {
	var got *external.Meeting
	f := &fake{exchange: external.ExchangeConcurrent, prefill: func(ctx context.Context, r *external.Request) (external.Prefilled, error) {
		got = r.Meeting
		<-ctx.Done()
		return external.Prefilled{}, context.Cause(ctx)
	}}
	p := protocol.PreprocessedRequest{TokenIDs: []uint32{1, 2, 3}}
	p.Disagg.Deadline = time.Now().Add(30 * time.Millisecond)
	p.Disagg.Bootstrap = &protocol.BootstrapInfo{Worker: "p", Room: 1<<63 - 1, Place: &cluster.ServerPlace{Host: "h", Port: 1, Params: json.RawMessage(`{"x":1}`)}}
	out, err := serve(t.Context(), t, newServer(f), cluster.RolePrefill, p)
	var remote *requestplane.RemoteError
	if len(out) != 1 || out[0].Timing != nil || !errors.As(err, &remote) || remote.Kind != requestplane.KindUnavailable {
		t.Errorf("%+v, %v", out, err)
	}
	if got == nil || got.Room != 1<<63-1 || got.Host != "h" || string(got.Params) != `{"x":1}` {
		t.Errorf("%+v", got)
	}
	whole := []protocol.EngineOutput{{TokenIDs: []uint32{4}}, {Finish: protocol.FinishStop}}
	f.exchange, f.prefill = external.ExchangeSequential, func(context.Context, *external.Request) (external.Prefilled, error) {
		return external.Prefilled{Answer: whole, CachedTokens: -1}, nil
	}
	p.Disagg.Deadline, p.Disagg.Bootstrap = time.Now().Add(time.Minute), nil
	out, err = serve(t.Context(), t, newServer(f), cluster.RolePrefill, p)
	if err != nil || len(out) != 2 || out[0].Timing == nil || !out[0].Timing.CacheUnknown || out[1].Finish != protocol.FinishStop {
		t.Errorf("%+v, %v", out, err)
	}
}
