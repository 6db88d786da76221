package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/metrics"
)

// scrape returns the lines that the handler serves, without comments.
func scrape(t *testing.T, r *metrics.Registry) []string {
	t.Helper()
	rec := httptest.NewRecorder()
	r.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	var lines []string
	for line := range strings.Lines(rec.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// wantLines checks that every line is served as it is.
func wantLines(t *testing.T, lines []string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !slices.Contains(lines, w) {
			name, _, _ := strings.Cut(w, "{")
			same := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.HasPrefix(l, name) })
			t.Errorf("no line\n%s\nin\n%s", w, strings.Join(same, "\n"))
		}
	}
}

func TestLogBuckets(t *testing.T) {
	for _, tc := range []struct {
		name   string
		lo, hi float64
		count  int
		want   []float64
	}{
		{"request duration", 1, 512, 10, []float64{0, 2, 4, 8, 16, 32, 64, 130, 260, 510}},
		{"input tokens", 50, 128000, 12, []float64{0, 100, 210, 430, 870, 1800, 3600, 7400, 15000, 31000, 63000, 130000}},
		{"output tokens", 50, 32000, 10, []float64{0, 100, 210, 430, 880, 1800, 3700, 7600, 16000, 32000}},
		{"equal bounds merge", 10, 11, 6, []float64{0, 10, 11}},
		{"one", 1, 2, 1, []float64{0}},
		{"none", 1, 2, 0, nil},
		{"from zero", 0, 2, 4, nil},
		{"downwards", 2, 1, 4, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := metrics.LogBuckets(tc.lo, tc.hi, tc.count); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
	ttft := metrics.LogBuckets(0.001, 480, 18)
	if len(ttft) != 18 || ttft[0] != 0 || ttft[1] != 0.0022 || ttft[17] != 480 || !slices.IsSorted(ttft) {
		t.Errorf("ttft %v", ttft)
	}
}

func TestFrontendRequest(t *testing.T) {
	r := metrics.NewRegistry()
	f := metrics.NewFrontend(r)
	req := f.Begin("m", metrics.EndpointChatCompletions, true)
	lines := scrape(t, r)
	wantLines(t, lines,
		`dynamo_frontend_requests_started_total{model="m"} 1`,
		`dynamo_frontend_inflight_requests{model="m"} 1`,
		`dynamo_frontend_active_requests{model="m"} 1`,
		`dynamo_frontend_queued_requests{model="m"} 1`)

	req.Prompt(120, 64)
	req.FirstToken(3 * time.Millisecond)
	req.FirstToken(time.Hour) // only the first counts
	req.Tokens(1, 0)
	req.Tokens(2, 20*time.Millisecond)
	req.Migrated(metrics.MigrationOngoingRequest)
	wantLines(t, scrape(t, r), `dynamo_frontend_queued_requests{model="m"} 0`)
	req.End(metrics.Result{Duration: 3 * time.Second, OutputTokens: 3})
	req.End(metrics.Result{ErrorType: metrics.ErrorInternal})
	wantLines(t, scrape(t, r),
		`dynamo_frontend_inflight_requests{model="m"} 0`,
		`dynamo_frontend_active_requests{model="m"} 0`,
		`dynamo_frontend_queued_requests{model="m"} 0`,
		`dynamo_frontend_requests_total{endpoint="chat_completions",error_type="",model="m",request_type="stream",status="success"} 1`,
		`dynamo_frontend_request_duration_seconds_bucket{model="m",le="4"} 1`,
		`dynamo_frontend_request_duration_seconds_bucket{model="m",le="2"} 0`,
		`dynamo_frontend_time_to_first_token_seconds_count{model="m"} 1`,
		`dynamo_frontend_inter_token_latency_seconds_count{model="m"} 2`,
		`dynamo_frontend_inter_token_latency_seconds_sum{model="m"} 0.02`,
		`dynamo_frontend_output_tokens_total{model="m"} 3`,
		`dynamo_frontend_input_sequence_tokens_sum{model="m"} 120`,
		`dynamo_frontend_output_sequence_tokens_sum{model="m"} 3`,
		`dynamo_frontend_cached_tokens_sum{model="m"} 64`,
		`dynamo_frontend_model_migration_total{migration_type="ongoing_request",model="m"} 1`)
}

func TestFrontendFailures(t *testing.T) {
	r := metrics.NewRegistry()
	f := metrics.NewFrontend(r)
	for _, errorType := range []string{metrics.ErrorCancelled, metrics.ErrorOverload, metrics.ErrorInternal} {
		f.Begin("m", metrics.EndpointCompletions, false).End(metrics.Result{ErrorType: errorType})
	}
	lines := scrape(t, r)
	wantLines(t, lines,
		`dynamo_frontend_requests_total{endpoint="completions",error_type="cancelled",model="m",request_type="unary",status="error"} 1`,
		`dynamo_frontend_requests_total{endpoint="completions",error_type="overload",model="m",request_type="unary",status="error"} 1`,
		`dynamo_frontend_requests_total{endpoint="completions",error_type="internal",model="m",request_type="unary",status="error"} 1`,
		`dynamo_frontend_model_cancellation_total{endpoint="completions",model="m",request_type="unary"} 1`,
		`dynamo_frontend_model_rejection_total{endpoint="completions",model="m"} 1`,
		`dynamo_frontend_queued_requests{model="m"} 0`,
		`dynamo_frontend_inflight_requests{model="m"} 0`)
	for _, l := range lines {
		if strings.HasPrefix(l, metrics.FrontendOSL+"_count") && !strings.HasSuffix(l, " 0") {
			t.Errorf("a failed request has an output length: %s", l)
		}
	}
}

func TestFrontendRest(t *testing.T) {
	r := metrics.NewRegistry()
	f := metrics.NewFrontend(r)
	f.Tokenizer(metrics.OperationTokenize, 1500*time.Microsecond)
	leave := f.EnterStage(metrics.StageRoute)
	wantLines(t, scrape(t, r), `dynamo_frontend_stage_requests{stage="route"} 1`)
	leave(time.Millisecond)
	f.Disconnected.Inc()
	f.SetModel("m", metrics.ModelLimits{KVBlocks: 100, BlockSize: 64, ContextLength: 4096, MigrationLimit: 3})
	wantLines(t, scrape(t, r),
		`dynamo_frontend_tokenizer_latency_ms_bucket{operation="tokenize",le="2"} 1`,
		`dynamo_frontend_stage_requests{stage="route"} 0`,
		`dynamo_frontend_stage_duration_seconds_count{stage="route"} 1`,
		`dynamo_frontend_disconnected_clients 1`,
		`dynamo_frontend_model_total_kv_blocks{model="m"} 100`,
		`dynamo_frontend_model_kv_cache_block_size{model="m"} 64`,
		`dynamo_frontend_model_context_length{model="m"} 4096`,
		`dynamo_frontend_model_migration_limit{model="m"} 3`)
	f.ForgetModel("m")
	for _, l := range scrape(t, r) {
		if strings.HasPrefix(l, "dynamo_frontend_model_") {
			t.Errorf("left over: %s", l)
		}
	}
}

func TestModelLabel(t *testing.T) {
	known := func(name string) bool { return name != "made-up" }
	for name, want := range map[string]string{
		"qwen3-0.6b": "qwen3-0.6b", "made-up": metrics.UnknownModel, "": metrics.UnknownModel, "\xff": metrics.UnknownModel,
	} {
		if got := metrics.ModelLabel(name, known); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

func TestWorkers(t *testing.T) {
	r := metrics.NewRegistry()
	one := metrics.WorkerLabels{Namespace: "dynamo", Component: "decode", Endpoint: "generate", Model: "m", Worker: "worker-1"}
	two := one
	two.Worker = "worker-2"
	a := metrics.NewWorker(r, one, time.Now())
	b := metrics.NewWorker(r, two, time.Now())
	for _, w := range []*metrics.Worker{a, b} {
		w.Requests.Inc()
		w.Error(metrics.WorkerErrorGenerate)
		w.Prefill(metrics.PrefillLocal, "", "short")
		w.RemotePrefill("pull", 500*time.Millisecond)
		w.Blocks("free", 12)
		w.Sequences("running", 3)
		w.Transferred(metrics.DirectionIn, "tcp", 1<<20, 5*time.Millisecond)
		w.TransferExposed("pull", 250*time.Millisecond)
		w.Hold(metrics.HoldExpired, 2*time.Second)
		w.Room(metrics.RoomUnmet)
		w.HandoverStarted(metrics.DirectionOut)
		w.HandoverEnded(metrics.DirectionOut, metrics.HandoverRefused, "no room")
		w.HandoverPaused(metrics.HandoverFailed, 4*time.Millisecond)
		w.HandedOver(metrics.DirectionOut, 4096, 3*time.Second)
		w.HandedOver(metrics.DirectionIn, 8192, 5*time.Second)
		w.Step(30*time.Millisecond, 0, 0, true)
		w.Step(190*time.Millisecond, 200*time.Millisecond, 60, true)
		w.Step(900*time.Millisecond, 600*time.Millisecond, 512, false)
	}
	const base = `dynamo_component="decode",dynamo_endpoint="generate",dynamo_namespace="dynamo",`
	lines := scrape(t, r)
	wantLines(t, lines,
		`dynamo_component_requests_total{`+base+`model="m",worker="worker-1"} 1`,
		`dynamo_component_requests_total{`+base+`model="m",worker="worker-2"} 1`,
		`dynamo_component_errors_total{`+base+`error_type="generate",model="m",worker="worker-1"} 1`,
		`dynamo_component_kv_blocks{`+base+`model="m",state="free",worker="worker-1"} 12`,
		`dynamo_component_step_duration_seconds_sum{`+base+`model="m",phase="decode",worker="worker-1"} 0.03`,
		`dynamo_component_step_duration_seconds_count{`+base+`model="m",phase="mixed",worker="worker-1"} 1`,
		`dynamo_component_prefill_total{`+base+`model="m",reason="short",way="",where="local",worker="worker-1"} 1`,
		`dynamo_component_kv_transfer_exposed_seconds_sum{`+base+`model="m",way="pull",worker="worker-1"} 0.25`,
		`dynamo_component_kv_holds_total{`+base+`model="m",outcome="expired",worker="worker-1"} 1`,
		`dynamo_component_kv_hold_seconds_sum{`+base+`model="m",outcome="expired",worker="worker-1"} 2`,
		`dynamo_component_bootstrap_rooms_total{`+base+`model="m",outcome="unmet",worker="worker-1"} 1`,
		`dynamo_component_handovers_started_total{direction="out",`+base+`model="m",worker="worker-1"} 1`,
		`dynamo_component_handovers_total{direction="out",`+base+`model="m",outcome="refused",reason="no room",worker="worker-1"} 1`,
		`dynamo_component_handover_pause_seconds_sum{`+base+`model="m",outcome="failed",worker="worker-1"} 0.004`,
		`dynamo_component_handover_bytes_total{direction="out",`+base+`model="m",worker="worker-1"} 4096`,
		`dynamo_component_handover_bytes_total{direction="in",`+base+`model="m",worker="worker-1"} 8192`,
		`dynamo_component_handover_duration_seconds_sum{`+base+`model="m",worker="worker-1"} 3`,
		`dynamo_component_remote_prefill_duration_seconds_sum{`+base+`model="m",way="pull",worker="worker-1"} 0.5`,
		`dynamo_component_step_prediction_ratio_count{`+base+`model="m",phase="decode",worker="worker-1"} 0`,
		`dynamo_component_step_prediction_ratio_sum{`+base+`model="m",phase="mixed",worker="worker-1"} 0.95`,
		`dynamo_component_step_prediction_ratio_sum{`+base+`model="m",phase="prefill",worker="worker-1"} 1.5`,
		`dynamo_component_prefill_chunk_tokens_sum{`+base+`model="m",phase="mixed",worker="worker-1"} 60`,
		`dynamo_component_prefill_chunk_tokens_count{`+base+`model="m",phase="decode",worker="worker-1"} 0`,
		`dynamo_component_kv_transfer_bytes_total{direction="in",dynamo_component="decode",dynamo_endpoint="generate",dynamo_namespace="dynamo",model="m",transport="tcp",worker="worker-1"} 1.048576e+06`)
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "dynamo_component_uptime_seconds{"+base) }) {
		t.Error("no uptime")
	}
	a.Close()
	a.Close()
	a.Requests.Inc() // counts nowhere
	for _, l := range scrape(t, r) {
		if strings.Contains(l, "worker-1") {
			t.Errorf("left over: %s", l)
		}
	}
	wantLines(t, scrape(t, r), `dynamo_component_requests_total{`+base+`model="m",worker="worker-2"} 1`)
	metrics.NewWorker(r, one, time.Now()) // the same worker starts again
	wantLines(t, scrape(t, r), `dynamo_component_requests_total{`+base+`model="m",worker="worker-1"} 0`)
}

func TestNIXL(t *testing.T) {
	r := metrics.NewRegistry()
	bounds := []time.Duration{time.Millisecond, time.Second}
	n := metrics.NewNIXL(r, "worker-1", bounds)
	other := metrics.NewNIXL(r, "worker-2", bounds)
	n.Update(metrics.NIXLFigures{
		TxBytes: 60, Errors: map[string]uint64{"remote_disconnect": 1}, Transports: map[string]metrics.NIXLTraffic{"tcp": {TxBytes: 5}},
	})
	n.Update(metrics.NIXLFigures{
		TxBytes: 100, InBytes: 50, TxRequests: 2, XferTime: time.Second, Sent: 3, OpenTickets: 1, RegisteredBytes: 4096,
		Errors: map[string]uint64{"remote_disconnect": 2}, Refused: map[string]uint64{"no_ticket": 1}, Peers: map[string]int{"tcp": 2},
		Transports: map[string]metrics.NIXLTraffic{"tcp": {
			TxBytes: 9, RxBytes: 3, XferTime: metrics.NIXLTimes{Counts: []uint64{2, 1, 1}, Sum: 3 * time.Second},
			PostTime: metrics.NIXLTimes{Counts: []uint64{1}}, // does not fit
		}},
		Fallbacks: map[metrics.NIXLFallback]uint64{{Wanted: "shm", Used: "tcp", Reason: "mismatch"}: 1},
	})
	other.Update(metrics.NIXLFigures{OpenTickets: 7})
	wantLines(t, scrape(t, r),
		`dynamo_nixl_agent_bytes_total{agent="worker-1",direction="tx"} 100`,
		`dynamo_nixl_agent_bytes_total{agent="worker-1",direction="in"} 50`,
		`dynamo_nixl_agent_errors_total{agent="worker-1",status="remote_disconnect"} 2`,
		`dynamo_nixl_agent_refused_total{agent="worker-1",reason="no_ticket"} 1`,
		`dynamo_nixl_agent_xfer_seconds_total{agent="worker-1"} 1`,
		`dynamo_nixl_agent_tx_bytes_total{agent="worker-1",transport="tcp"} 9`,
		`dynamo_nixl_agent_rx_bytes_total{agent="worker-1",transport="tcp"} 3`,
		`dynamo_nixl_agent_xfer_time_seconds_bucket{agent="worker-1",transport="tcp",le="0.001"} 2`,
		`dynamo_nixl_agent_xfer_time_seconds_bucket{agent="worker-1",transport="tcp",le="1"} 3`,
		`dynamo_nixl_agent_xfer_time_seconds_bucket{agent="worker-1",transport="tcp",le="+Inf"} 4`,
		`dynamo_nixl_agent_xfer_time_seconds_sum{agent="worker-1",transport="tcp"} 3`,
		`dynamo_nixl_agent_xfer_time_seconds_count{agent="worker-1",transport="tcp"} 4`,
		`dynamo_nixl_agent_fallbacks_total{agent="worker-1",reason="mismatch",transport="tcp",wanted="shm"} 1`,
		`dynamo_nixl_agent_peers{agent="worker-1",transport="tcp"} 2`)
	n.Close()
	for _, l := range scrape(t, r) {
		if strings.Contains(l, "worker-1") {
			t.Errorf("left over: %s", l)
		}
	}
	wantLines(t, scrape(t, r), `dynamo_nixl_agent_open_tickets{agent="worker-2"} 7`)
}

func gpuFigures() metrics.GPUFigures {
	return metrics.GPUFigures{
		Index: "1", UUID: "GPU-5a1d", Name: "H200", MemoryBytes: new(int64(1 << 37)), MemoryUsed: new(int64(1 << 30)), Utilization: new(0.5), MemoryBusy: new(0.25),
		PowerWatts: new(350.5), PowerLimit: new(700.0), Temperature: new(61), SMClockMHz: new(1785), Throttled: []string{"power cap"},
	}
}

func TestGPUs(t *testing.T) {
	r := metrics.NewRegistry()
	g, f := metrics.NewGPUs(r), gpuFigures()
	g.Update(f)
	const of = `{gpu="1",name="H200",uuid="GPU-5a1d"} `
	wantLines(t, scrape(t, r),
		"dynamo_gpu_utilization_ratio"+of+"0.5", "dynamo_gpu_memory_busy_ratio"+of+"0.25", "dynamo_gpu_memory_bytes"+of+"1.37438953472e+11",
		"dynamo_gpu_memory_used_bytes"+of+"1.073741824e+09", "dynamo_gpu_power_watts"+of+"350.5", "dynamo_gpu_power_limit_watts"+of+"700",
		"dynamo_gpu_temperature_celsius"+of+"61", "dynamo_gpu_sm_clock_hertz"+of+"1.785e+09",
		`dynamo_gpu_throttled{gpu="1",name="H200",reason="power cap",uuid="GPU-5a1d"} 1`)
	f.Utilization, f.Throttled = nil, nil
	g.Update(f)
	for _, l := range scrape(t, r) {
		if strings.HasPrefix(l, "dynamo_gpu_utilization_ratio{") || strings.HasPrefix(l, "dynamo_gpu_throttled{") {
			t.Errorf("not known any more: %s", l)
		}
	}
}

// Only what is known has a series, and a planner that has ended has none.
func TestPlanner(t *testing.T) {
	r := metrics.NewRegistry()
	p := metrics.NewPlanner(r)
	f := metrics.PlannerFigures{Reason: "forecast"}
	values := []**float64{&f.PrefillWorkers, &f.DecodeWorkers, &f.Rate, &f.TTFT, &f.ITL, &f.Duration, &f.ISL, &f.OSL, &f.PredictedRate, &f.PredictedISL, &f.PredictedOSL,
		&f.PredictedPrefill, &f.PredictedDecode, &f.PredictedMisses, &f.BestEffort, &f.DeviceHours}
	for i, v := range values {
		*v = new(float64(i))
	}
	p.Update("small", f)
	p.Update("", f)
	f.TTFT = nil
	p.Update("", f)
	wantLines(t, scrape(t, r),
		`dynamo_planner_num_p_workers{pool=""} 0`, `dynamo_planner_num_d_workers{pool=""} 1`, `dynamo_planner_observed_request_rate{pool=""} 2`, `dynamo_planner_observed_itl{pool=""} 4`,
		`dynamo_planner_observed_request_duration{pool=""} 5`, `dynamo_planner_observed_isl{pool=""} 6`, `dynamo_planner_observed_osl{pool=""} 7`, `dynamo_planner_predicted_request_rate{pool=""} 8`,
		`dynamo_planner_predicted_isl{pool=""} 9`, `dynamo_planner_predicted_osl{pool=""} 10`, `dynamo_planner_predicted_num_p{pool=""} 11`, `dynamo_planner_predicted_num_d{pool=""} 12`,
		`dynamo_planner_predicted_miss_ratio{pool=""} 13`, `dynamo_planner_best_effort{pool=""} 14`, `dynamo_planner_gpu_hours{pool=""} 15`, `dynamo_planner_decisions_total{pool="",reason="forecast"} 2`, `dynamo_planner_observed_ttft{pool="small"} 3`)
	for _, l := range scrape(t, r) {
		if strings.HasPrefix(l, `dynamo_planner_observed_ttft{pool=""`) {
			t.Errorf("not known any more: %s", l)
		}
	}
	p.Forget("small")
	for _, l := range scrape(t, r) {
		if strings.Contains(l, `pool="small"`) {
			t.Errorf("of a pool that is no more: %s", l)
		}
	}
	if len(scrape(t, r)) == 0 {
		t.Error("the main pool is forgotten, too")
	}
	p.Clear()
	for _, l := range scrape(t, r) {
		if strings.HasPrefix(l, "dynamo_planner_") {
			t.Errorf("left over: %s", l)
		}
	}
}

// A NATS server that was started again counts from zero, in place of the one before.
func TestNATS(t *testing.T) {
	r := metrics.NewRegistry()
	metrics.SetNATS(r, func() (in, out int64) { return 7, 9 })
	metrics.SetNATS(r, func() (in, out int64) { return 1, 3 })
	wantLines(t, scrape(t, r),
		`dynamo_node_nats_messages_total{direction="in"} 1`, `dynamo_node_nats_messages_total{direction="out"} 3`)
}

func TestConcurrentUse(t *testing.T) {
	r := metrics.NewRegistry()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			f := metrics.NewFrontend(r)
			for range 50 {
				req := f.Begin("m", "e", true)
				req.FirstToken(time.Millisecond)
				req.Tokens(1, time.Millisecond)
				req.End(metrics.Result{})
				w := metrics.NewWorker(r, metrics.WorkerLabels{Worker: "w"}, time.Now())
				w.Blocks("free", 1)
				w.Close()
			}
		})
	}
	for range 20 {
		scrape(t, r)
	}
	wg.Wait()
	wantLines(t, scrape(t, r), `dynamo_frontend_requests_started_total{model="m"} 200`, `dynamo_frontend_inflight_requests{model="m"} 0`)
}

func BenchmarkToken(b *testing.B) {
	req := metrics.NewFrontend(metrics.NewRegistry()).Begin("m", "e", true)
	b.ReportAllocs()
	for b.Loop() {
		req.Tokens(1, time.Millisecond)
	}
}
