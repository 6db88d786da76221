package frontend

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/requestplane"
)

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	fk := w.fake("worker-1", say("abcdef", hold(2, release)))
	f := w.frontend().waitModel(1)
	want := func(when string, series map[string]float64) {
		t.Helper()
		for name, v := range series {
			if got := f.metric(name); got != v && (v != 0 || got != -1) {
				t.Errorf("%s: %s is %v, want %v", when, name, got, v)
			}
		}
	}
	done := make(chan *streamed, 1)
	go func() { done <- readStream(t, f.post("/v1/chat/completions", chatBody(body{"stream": true}))) }()
	patience.Until(t, "two tokens came", func() bool { return f.metric(`dynamo_frontend_output_tokens_total{model="tiny"}`) == 2 })
	want("running", map[string]float64{
		`dynamo_frontend_requests_started_total{model="tiny"}`:                                                                          1,
		`dynamo_frontend_inflight_requests{model="tiny"}`:                                                                               1,
		`dynamo_frontend_active_requests{model="tiny"}`:                                                                                 1,
		`dynamo_frontend_queued_requests{model="tiny"}`:                                                                                 0,
		`dynamo_frontend_time_to_first_token_seconds_count{model="tiny"}`:                                                               1,
		`dynamo_frontend_inter_token_latency_seconds_count{model="tiny"}`:                                                               1,
		`dynamo_frontend_requests_total{endpoint="chat_completions",error_type="",model="tiny",request_type="stream",status="success"}`: 0,
		`dynamo_frontend_model_kv_cache_block_size{model="tiny"}`:                                                                       testBlock,
		`dynamo_frontend_model_total_kv_blocks{model="tiny"}`:                                                                           100,
		`dynamo_frontend_model_max_num_seqs{model="tiny"}`:                                                                              8,
		`dynamo_frontend_model_migration_limit{model="tiny"}`:                                                                           3,
	})
	close(release)
	<-done
	success := `dynamo_frontend_requests_total{endpoint="chat_completions",error_type="",model="tiny",request_type="stream",status="success"}`
	patience.Until(t, "the success is counted", func() bool { return f.metric(success) == 1 })
	prompt := float64(len(fk.got()[0].TokenIDs))
	want("finished", map[string]float64{
		`dynamo_frontend_inflight_requests{model="tiny"}`:                  0,
		`dynamo_frontend_active_requests{model="tiny"}`:                    0,
		`dynamo_frontend_output_tokens_total{model="tiny"}`:                6,
		`dynamo_frontend_time_to_first_token_seconds_count{model="tiny"}`:  1,
		`dynamo_frontend_inter_token_latency_seconds_count{model="tiny"}`:  5,
		`dynamo_frontend_input_sequence_tokens_sum{model="tiny"}`:          prompt,
		`dynamo_frontend_output_sequence_tokens_sum{model="tiny"}`:         6,
		`dynamo_frontend_cached_tokens_sum{model="tiny"}`:                  float64(int(prompt) / 2),
		`dynamo_frontend_request_duration_seconds_count{model="tiny"}`:     1,
		`dynamo_frontend_stage_duration_seconds_count{stage="route"}`:      1,
		`dynamo_frontend_stage_duration_seconds_count{stage="dispatch"}`:   1,
		`dynamo_frontend_stage_requests{stage="route"}`:                    0,
		`dynamo_frontend_tokenizer_latency_ms_count{operation="tokenize"}`: 1,
		`dynamo_frontend_stage_requests{stage="preprocess"}`:               0,
		`dynamo_frontend_stage_duration_seconds_count{stage="preprocess"}`: 1,
	})

	// What fails before a token shows neither in TTFT nor in the lengths.
	failureOf(t, f.post("/v1/completions", textBody(body{"temperature": 9})))
	failureOf(t, f.post("/v1/completions", textBody(body{"model": "one-of-many"})))
	failureOf(t, f.post("/v1/completions", textBody(body{"model": "another"})))
	failureOf(t, f.post("/v1/completions", textBody(body{"prompt": strings.Repeat("x", 600)})))
	want("failed", map[string]float64{
		`dynamo_frontend_requests_total{endpoint="completions",error_type="validation",model="tiny",request_type="unary",status="error"}`:         2,
		`dynamo_frontend_requests_total{endpoint="completions",error_type="not_found",model="unknown_model",request_type="unary",status="error"}`: 2,
		`dynamo_frontend_time_to_first_token_seconds_count{model="tiny"}`:                                                                         1,
		`dynamo_frontend_time_to_first_token_seconds_count{model="unknown_model"}`:                                                                0,
		`dynamo_frontend_input_sequence_tokens_count{model="tiny"}`:                                                                               1,
		`dynamo_frontend_inflight_requests{model="tiny"}`:                                                                                         0,
		`dynamo_frontend_inflight_requests{model="unknown_model"}`:                                                                                0,
		`dynamo_frontend_queued_requests{model="tiny"}`:                                                                                           0,
	})
	if _, all := f.get("/metrics"); strings.Contains(all, "one-of-many") {
		t.Error("a client's model name became a label")
	}
}

func TestEngineFailureObservesNoTokens(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", refuse(requestplane.KindInternal))
	f := w.frontend().waitModel(1)
	failureOf(t, f.post("/v1/completions", textBody(nil)))
	for _, name := range []string{"time_to_first_token_seconds", "inter_token_latency_seconds", "input_sequence_tokens", "output_sequence_tokens"} {
		if got := f.metric("dynamo_frontend_" + name + `_count{model="tiny"}`); got > 0 {
			t.Errorf("%s observed %v times", name, got)
		}
	}
	if got := f.metric(`dynamo_frontend_queued_requests{model="tiny"}`); got != 0 {
		t.Errorf("%v requests queued", got)
	}
}

// listen collects what is published on a topic of the frontends.
func listen[T any](w *world, topic string) func() []T {
	w.t.Helper()
	var mu sync.Mutex
	var all []T
	bus := w.c.Bus.Join()
	_, err := bus.Subscribe(w.t.Context(), events.Subject(cluster.DefaultNamespace, cluster.ComponentFrontend, topic), func(e events.Event) {
		var v T
		if err := e.Decode(&v); err != nil {
			w.t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, v)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = bus.Close() })
	return func() []T {
		mu.Lock()
		defer mu.Unlock()
		return append([]T(nil), all...)
	}
}

func TestRouterDecisionsArePublished(t *testing.T) {
	w := newWorld(t)
	decisions := listen[cluster.RouterDecision](w, cluster.TopicRouterDecisions)
	busy := w.fake("worker-1", refuse(requestplane.KindOverloaded))
	good := w.fake("worker-2", say("abc"))
	f := w.configured(func(c *Config) { c.Settings = settings("round-robin") }).waitModel(2)
	prompt := strings.Repeat("x", 40)
	for len(busy.got()) == 0 { // round robin starts anywhere
		wholeAnswer(t, f.post("/v1/completions", textBody(body{"prompt": prompt})))
	}
	last := good.got()[len(good.got())-1].RequestID
	var mine []cluster.RouterDecision
	patience.Until(t, "the decisions came", func() bool {
		mine = nil
		id, _, _ := strings.Cut(last, "~")
		for _, d := range decisions() {
			if strings.HasPrefix(d.RequestID, id) {
				mine = append(mine, d)
			}
		}
		return len(mine) == 3
	})
	first, second, located := mine[0], mine[1], mine[2]
	if first.Chosen != "worker-1" || second.Chosen != "worker-2" || located.Chosen != "worker-2" || first.RequestID == second.RequestID || second.RequestID != located.RequestID {
		t.Errorf("decisions %+v", mine)
	}
	if second.Model != testModel || second.Phase != cluster.RoleDecode || second.Policy != "round-robin" || second.PromptToks != 40 || second.Blocks != 2 ||
		second.DecidedNS <= 0 || time.Since(second.Time) > time.Minute {
		t.Errorf("decision %+v", second)
	}
	if len(second.Candidates) != 2 || second.Candidates[0].ID != good.drt.ID() || second.Candidates[1].Excluded != whyOverloaded {
		t.Errorf("candidates %+v", second.Candidates)
	}
	if second.Prefill != "" || located.Prefill != "local" || located.PrefillWhy != "short" || located.Overlap != 20/testBlock || second.Reusable == nil || *second.Reusable > located.Overlap || *located.Reusable != located.Overlap {
		t.Errorf("where the prompt was computed: %+v", located)
	}
}

func TestStatsArePublished(t *testing.T) {
	w := newWorld(t)
	stats := listen[cluster.FrontendStats](w, cluster.TopicFrontendStats)
	release := make(chan struct{})
	fk := w.fake("worker-1", say("abcdef", hold(3, release)))
	f := w.frontend().waitModel(1)
	failureOf(t, f.post("/v1/completions", textBody(body{"n": 0})))
	done := make(chan answer, 1)
	go func() { done <- wholeAnswer(t, f.post("/v1/completions", textBody(nil))) }()
	patience.Until(t, "the request runs", func() bool { return fk.running.Load() == 1 })
	sum := func() (all cluster.FrontendStats) {
		for _, s := range stats() {
			if s.Frontend != "node-1" || s.InstanceID != f.cfg.Runtime.ID() || time.Since(s.Time) > time.Minute {
				t.Errorf("stats %+v", s)
			}
			all.InFlight = s.InFlight
			all.Started += s.Started
			all.Finished += s.Finished
			all.Failed += s.Failed
			all.OutTokens += s.OutTokens
			all.TTFT.Add(s.TTFT)
			all.ITL.Add(s.ITL)
			all.Queue.Add(s.Queue)
			if !s.PerModel {
				t.Error("nobody counts the models")
			}
			all.Models = append(all.Models, s.Models...)
		}
		return all
	}
	patience.Until(t, "a request in flight is published", func() bool { s := sum(); return s.InFlight == 1 && s.OutTokens == 3 })
	if s := sum(); s.Started != 2 || s.Failed != 1 || s.Finished != 0 || s.TTFT.Count() != 1 || s.ITL.Count() != 2 || s.Queue.Count() != 1 {
		t.Errorf("running: %+v", s)
	}
	close(release)
	<-done
	patience.Until(t, "the end is published", func() bool { s := sum(); return s.InFlight == 0 && s.Finished == 1 })
	s := sum()
	if s.Started != 2 || s.OutTokens != 6 || s.ITL.Count() != 5 {
		t.Errorf("finished: %+v", s)
	}
	load := s.Of("tiny")
	if load.ServedOf != 1 || len(load.Served) != 1 || load.Started < 1 {
		t.Fatalf("a refused request and one answer: %+v", s.Models)
	}
	r := load.Served[0]
	ttft, _ := s.TTFT.Quantile(1)
	if r.Prompt != 4 || r.Cached != 2 || r.Output != 6 || r.TTFT <= 0 || r.TTFT > 2*ttft || r.ITL <= 0 {
		t.Errorf("served %+v, TTFT %s", r, ttft)
	}
}

// What ended within a second is sampled evenly, however much it is, for each model alone.
func TestServedIsSampled(t *testing.T) {
	const ended, seconds = 10 * cluster.MaxServed, 200
	s := newStats()
	var late int
	for range seconds {
		for i := range ended {
			s.served("busy", cluster.ServedRequest{Prompt: i})
		}
		s.asked("rare")
		s.asked(metrics.UnknownModel)
		s.served("rare", cluster.ServedRequest{Prompt: 7})
		x := s.take()
		if len(x.Models) != 2 || x.Of("").Started != 1 || x.Of("").ServedOf != ended+1 {
			t.Fatalf("models %+v", x.Models)
		}
		if rare := x.Of("rare"); rare.Started != 1 || rare.ServedOf != 1 || len(rare.Served) != 1 || rare.Served[0].Prompt != 7 {
			t.Fatalf("rare: %+v", rare)
		}
		busy := x.Of("busy")
		if busy.Started != 0 || busy.ServedOf != ended || len(busy.Served) != cluster.MaxServed {
			t.Fatalf("%d of %d", len(busy.Served), busy.ServedOf)
		}
		for _, r := range busy.Served {
			if r.Prompt >= ended/2 {
				late++
			}
		}
	}
	// Binomial: the standard deviation is below 57.
	if want := seconds * cluster.MaxServed / 2; late < want-285 || late > want+285 {
		t.Errorf("%d of %d are from the second half", late, seconds*cluster.MaxServed)
	}
	if x := s.take(); len(x.Models) != 0 || !x.PerModel {
		t.Errorf("left over: %+v", x)
	}
}

// With many models, the samples of all together are bounded, and each model has one.
func TestServedOfManyModels(t *testing.T) {
	s := newStats()
	const models = 100
	for m := range models {
		for range cluster.MaxServed {
			s.served(strconv.Itoa(m), cluster.ServedRequest{Prompt: m})
		}
	}
	all := s.take()
	n := 0
	for _, m := range all.Models {
		n += len(m.Served)
		if len(m.Served) == 0 || m.ServedOf != cluster.MaxServed {
			t.Errorf("%s: %d of %d", m.Model, len(m.Served), m.ServedOf)
		}
	}
	if len(all.Models) != models || n > cluster.MaxServedAll {
		t.Errorf("%d models with %d samples", len(all.Models), n)
	}
}

// Every request leaves one line behind that says how it went.
func TestRequestLog(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("abc"))
	f := w.frontend().waitModel(1)
	resp := f.do("POST", "/v1/completions", strings.NewReader(`{"model":"tiny","prompt":["x","yz"]}`), "X-Request-Id", "mine")
	wholeAnswer(t, resp)
	failureOf(t, f.post("/v1/completions", textBody(body{"model": "other"})))
	var lines []map[string]any
	patience.Until(t, "both lines are there", func() bool {
		lines = nil
		for line := range strings.Lines(w.log.String()) {
			var l map[string]any
			if json.Unmarshal([]byte(line), &l) == nil && l["msg"] == "request ended" {
				lines = append(lines, l)
			}
		}
		return len(lines) == 2
	})
	ok, bad := lines[0], lines[1]
	if id, _ := ok["request"].(string); ok["level"] != "DEBUG" || !strings.HasPrefix(id, "mine-") || ok["endpoint"] != "completions" || ok["model"] != testModel ||
		ok["status"] != 200.0 || ok["prompts"] != 2.0 || ok["prompt_tokens"] != 3.0 || ok["output_tokens"] != 6.0 || ok["ttft"] == 0.0 || ok["took"] == 0.0 {
		t.Errorf("success: %v", ok)
	}
	if msg, _ := bad["error"].(string); bad["status"] != 404.0 || bad["model"] != "unknown_model" || !strings.Contains(msg, "does not exist") {
		t.Errorf("failure: %v", bad)
	}
}
