package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/store"
)

const ns = "lab"

// lab is a store and an event plane with a cluster of one prefill and one decode worker that somebody sends rate
// requests a second.
type lab struct {
	t     *testing.T
	ctx   context.Context
	store *store.Memory
	bus   *events.Memory
	// metrics are those of the node that leads.
	metrics *metrics.Registry

	mu   sync.Mutex
	cfg  planner.Config
	bad  error
	told []planner.Report
	at   int // seconds
}

func inLab(t *testing.T, f func(l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		l := &lab{t: t, ctx: ctx, store: store.NewMemory(store.SystemClock{}), bus: events.NewMemory(), metrics: metrics.NewRegistry(), cfg: planner.Defaults()}
		l.cfg.Devices = 0
		_, err := l.bus.Subscribe(ctx, events.Subject(ns, "*", cluster.TopicPlanner), func(e events.Event) {
			var r planner.Report
			if err := e.Decode(&r); err != nil {
				t.Error(err)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.told = append(l.told, r)
		})
		if err != nil {
			t.Fatal(err)
		}
		l.put(cluster.NodeKey("n1"), cluster.Node{ID: "n1", Name: "node-1", FrontendURL: "http://x", Devices: make([]cluster.Device, 8)})
		defer func() {
			stop()
			if err := errors.Join(l.bus.Close(), l.store.Close()); err != nil {
				t.Error(err)
			}
		}()
		f(l)
	})
}

func (l *lab) put(key string, v any) {
	l.t.Helper()
	if _, err := store.PutJSON(l.ctx, l.store, key, v); err != nil {
		l.t.Fatal(err)
	}
}

// lead runs the planner of a node until the returned function is called, which awaits it. It observes
// halfway between two seconds of serve: at the same time, either could be first.
func (l *lab) lead(node string) (stop func()) {
	ctx, cancel := context.WithCancel(l.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		Run(ctx, Config{
			Store: l.store, Bus: l.bus, Namespace: ns, Node: node, Metrics: metrics.NewPlanner(l.metrics), Log: slog.New(slog.DiscardHandler),
			Settings: func() (Settings, error) {
				l.mu.Lock()
				defer l.mu.Unlock()
				return Settings{Planner: l.cfg, Connector: ConnectorTopology, MaxLocalPrefill: 64}, l.bad
			},
			Leads: func(context.Context) (bool, error) { return true, nil },
		})
	})
	time.Sleep(time.Second / 2)
	return func() { cancel(); wg.Wait() }
}

var labCosts = profile.Costs{Step: 0.004, Decode: 0.0001, DecodeContext: 1e-8, Token: 2e-5, ChunkContext: 1e-9}

// serve lets seconds pass, with rate requests a second of 1000 tokens and 50 more.
func (l *lab) serve(seconds, rate int) {
	l.t.Helper()
	for range seconds {
		time.Sleep(time.Second)
		l.at++
		publish := func(component, topic string, v any) {
			if err := l.bus.Publish(l.ctx, events.Subject(ns, component, topic), v); err != nil {
				l.t.Fatal(err)
			}
		}
		served := make([]cluster.ServedRequest, min(rate, cluster.MaxServed))
		for i := range served {
			served[i] = cluster.ServedRequest{Prompt: 1000, Output: 50, TTFT: 40 * time.Millisecond, ITL: 5 * time.Millisecond}
		}
		publish(cluster.ComponentFrontend, cluster.TopicFrontendStats, loads("m", rate, served, rate))
		for i, role := range planner.Roles {
			st := cluster.WorkerStatus{Name: fmt.Sprintf("worker-%d", i+1), Role: role, Node: "n1", State: cluster.StateReady, InstanceID: cluster.InstanceID(i + 1), UpdatedAt: time.Now()}
			n := uint64(l.at * rate)
			w := profile.Work{Tokens: 1000, ChunkContext: 500_500 + l.at%7*1000} // of two steps
			st.Stats = cluster.WorkerStats{BlockSize: 16, KVTotal: 10_000, MaxSeqs: 64, MaxBatchTokens: 512, StepsTotal: 2 * n, StepTokensTotal: 1000 * n, StepChunkContextTotal: uint64(w.ChunkContext) * n}
			if role == cluster.RoleDecode {
				w = profile.Work{Decodes: 50, DecodeContext: 50 * 1025}
				st.Stats = cluster.WorkerStats{BlockSize: 16, KVTotal: 10_000, KVActive: 200, MaxSeqs: 64, MaxBatchTokens: 512, StepsTotal: 2 * n, StepDecodesTotal: 50 * n, StepDecodeContextTotal: 50 * 1025 * n}
			}
			st.Stats.StepNanosTotal = uint64(float64(n) * 1e9 * (labCosts.StepSeconds(w) + labCosts.Step))
			if l.at == 1 {
				l.put(cluster.StatusKey(ns, st.Name), st)
				l.put(cluster.AssignmentKey(ns, st.Name), cluster.Assignment{Name: st.Name, Role: role, Node: "n1", Desire: cluster.DesireRun})
			}
			publish(string(role), cluster.TopicWorkerStatus, st)
		}
		synctest.Wait()
	}
}

func (l *lab) kept() (r planner.Report, ok bool) {
	l.t.Helper()
	r, _, err := store.GetJSON[planner.Report](l.ctx, l.store, cluster.PlannerKey(ns, ""))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		l.t.Fatal(err)
	}
	return r, err == nil
}

func (l *lab) heard() []planner.Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told
}

// exported are the metrics of the planner, by name and labels.
func (l *lab) exported() map[string]string {
	l.t.Helper()
	w := httptest.NewRecorder()
	l.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	out := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, metrics.PrefixPlanner) {
			name = strings.NewReplacer(`{pool=""}`, "", `pool="",`, "").Replace(name) // no label, to Prometheus
			out[strings.TrimPrefix(name, metrics.PrefixPlanner)] = value
		}
	}
	return out
}

// The metrics are those of the newest decision, and only of a planner that runs.
func TestMetrics(t *testing.T) {
	inLab(t, func(l *lab) {
		stop := l.lead("node-1")
		l.serve(10, 4)
		if m := l.exported(); m["decisions_total{reason=\"insufficient_data\"}"] != "2" || m["observed_request_rate"] != "4" || m["predicted_request_rate"] != "" {
			t.Errorf("while too little is known: %v", m)
		}
		l.serve(50, 4)
		m := l.exported()
		// Each request took 40 ms and 49 times 5 ms.
		near := func(name string, want float64) {
			if v, err := strconv.ParseFloat(m[name], 64); err != nil || math.Abs(v-want) > 1e-9*max(want, 1) {
				t.Errorf("%s: %q, want %v", name, m[name], want)
			}
		}
		for name, want := range map[string]float64{
			"num_p_workers": 1, "num_d_workers": 1, "observed_ttft": 40, "observed_itl": 5, "observed_request_rate": 4, "observed_request_duration": 0.285, "observed_isl": 1000,
			"observed_osl": 50, "predicted_request_rate": 4, "predicted_isl": 1000, "predicted_osl": 50, "predicted_num_p": 0, "predicted_num_d": 1, "best_effort": 0,
			"gpu_hours": 2 * 55.0 / 3600, // two workers; what was before the first look is not counted
		} {
			near(name, want)
		}
		l.set(func() { l.cfg.Mode = planner.ModeOff })
		l.serve(6, 4)
		if m := l.exported(); len(m) > 0 {
			t.Errorf("off: %v", m)
		}
		l.set(func() { l.cfg.Mode = planner.ModeAdvise })
		l.serve(6, 4)
		if len(l.exported()) == 0 {
			t.Error("on again, without metrics")
		}
		stop()
		if m := l.exported(); len(m) > 0 {
			t.Errorf("another node leads: %v", m)
		}
	})
}

// set changes the settings.
func (l *lab) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// A planner says what it does not know yet, then tells rates and latencies as they were, and the next
// leader goes on.
func TestRun(t *testing.T) {
	inLab(t, func(l *lab) {
		stop := l.lead("node-1")
		l.serve(20, 4)
		if r, ok := l.kept(); ok {
			t.Errorf("after 4 windows the store has %+v", r)
		}
		for _, r := range l.heard() {
			if r.Decision.Refusal != planner.RefusedInsufficientData || !strings.Contains(r.Decision.Detail, "of 5 windows") {
				t.Errorf("after 4 windows: %+v", r.Decision)
			}
		}
		if len(l.heard()) < 3 {
			t.Errorf("%d decisions after 4 windows", len(l.heard()))
		}
		l.serve(20, 4)
		r, ok := l.kept()
		if !ok || len(l.heard()) == 0 {
			t.Fatal("no decision")
		}
		r = l.heard()[len(l.heard())-1]
		o, d := r.Observed, r.Decision
		if r.Node != "node-1" || math.Abs(o.Rate-4) > 1e-9 || o.Arrived != 20 || o.ISL != 1000 || o.OSL != 50 || o.TTFT != 40*time.Millisecond || o.ITL != 5*time.Millisecond || len(o.Prefill) != 1 || len(o.Decode) != 1 {
			t.Errorf("%s observed %+v", r.Node, o)
		}
		if d.Current != (planner.Plan{Prefill: 1, Decode: 1, MaxLocalPrefill: 64}) || d.Mode != planner.ModeAdvise || len(d.Candidates) == 0 || r.Target.Devices != 8 || strings.Join(r.Explanation, "\n") == "" {
			t.Errorf("%+v", r)
		}
		if p, ok := d.Number(planner.ReasonForecastRate); !ok || math.Abs(p-4) > 0.1 {
			t.Errorf("forecast %v", p)
		}
		stop()
		before := len(l.heard())
		l.serve(10, 4)
		if len(l.heard()) != before {
			t.Error("one that does not lead tells decisions")
		}
		defer l.lead("node-2")()
		l.serve(40, 40)
		if r, _ := l.kept(); r.Node != "node-2" || !r.Decision.Changes() || r.Decision.Cause != planner.CauseForecast {
			t.Errorf("the next leader, at ten times the load: %+v", r.Decision)
		}
	})
}

// The store has a decision when it changes, and else one of the last minute; a planner that is off has none.
func TestKeptDecision(t *testing.T) {
	inLab(t, func(l *lab) {
		defer l.lead("node-1")()
		l.serve(60, 4)
		first, ok := l.kept()
		if !ok {
			t.Fatal("no decision")
		}
		writes := 0
		for range 24 {
			l.serve(5, 4)
			if r, _ := l.kept(); !r.Decision.Time.Equal(first.Decision.Time) {
				writes, first = writes+1, r
			}
		}
		if writes < 1 || writes > 4 {
			t.Errorf("%d writes in two minutes without a change", writes)
		}
		l.set(func() { l.bad = errors.New("planner.ttft: no") })
		l.serve(10, 4)
		if r := l.heard()[len(l.heard())-1]; r.Target.TTFT != planner.Defaults().Target.TTFT || time.Since(r.Decision.Time) > 6*time.Second {
			t.Errorf("with settings that do not go together: %+v", r)
		}
		l.set(func() { l.bad, l.cfg.Mode = nil, planner.ModeOff })
		l.serve(10, 4)
		if r, ok := l.kept(); ok {
			t.Errorf("off: %+v", r)
		}
		told := len(l.heard())
		l.serve(10, 4)
		if len(l.heard()) != told {
			t.Error("one that is off tells decisions")
		}
	})
}

// A frontend that falls silent makes the view stale: it is said, and no worker is proposed.
func TestSilence(t *testing.T) {
	inLab(t, func(l *lab) {
		defer l.lead("node-1")()
		l.serve(40, 4)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		r := l.heard()[len(l.heard())-1]
		if r.Decision.Refusal != planner.RefusedStaleData || r.Decision.Changes() || !strings.Contains(r.Decision.Detail, "node-1 has said nothing") {
			t.Errorf("%+v", r.Decision)
		}
	})
}

// The form that programs read stays.
func TestReportIsJSON(t *testing.T) {
	b, err := json.Marshal(planner.NewReport("node-1", planner.Defaults(), planner.Observation{Start: t0, End: at(5), Arrived: 10}, planner.Decision{}))
	if err != nil || !strings.Contains(string(b), `"requests_per_s":2`) || !strings.Contains(string(b), `"ttft_ns":500000000`) {
		t.Errorf("%s %v", b, err)
	}
}
