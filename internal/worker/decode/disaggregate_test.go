package decode

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/worker/role"
	"github.com/dynctl/dynctl/internal/worker/role/roletest"
)

// A client with few prompts does not wait behind the many of another one.
func TestCrowdedQueueIsLeftToWhoFillsIt(t *testing.T) {
	world := roletest.New(t)
	w := start(t, world, "worker-2")
	if _, err := world.Runtime(t, "worker-1").Serve(t.Context(), "prefill", cluster.EndpointPrefill, nobody); err != nil {
		t.Fatal(err)
	}
	if err := w.prefills.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	depth := 0
	w.QueueDepth = func() int { return depth }
	w.asked.add("many", 7)
	for _, tc := range []struct {
		tenant, force string
		depth         int
		remote        bool
	}{
		{"few", "", crowded - 1, true},
		{"few", "", crowded, false},
		{"few", "remote", crowded, true},
		{"many", "", 100, true},
		{"enforced", "", 100, true},
	} {
		depth = tc.depth
		d := &disaggregation{w: w, tenant: tc.tenant, hints: protocol.DisaggHints{Force: tc.force, Enforce: tc.tenant == "enforced"}}
		if got := d.decide(100, 0); got.Remote != tc.remote || !tc.remote && got.Why != whyOthersWait {
			t.Errorf("%+v: %+v", tc, got)
		}
	}
	if w.Idle() == nil {
		t.Error("seven prompts in the queue are nothing in hand")
	}
	w.asked.add("many", -7)
	if err := w.Idle(); err != nil || len(w.asked.by) > 0 {
		t.Errorf("%v, %v are outstanding", err, w.asked.by)
	}
}

// nobody refuses all that it is asked.
func nobody(context.Context, *requestplane.Request, func(any) error) error {
	return &requestplane.RemoteError{Kind: requestplane.KindUnavailable}
}

// Answers tell where the prompt was computed: here and why, or elsewhere and how.
func TestTimingTellsThePrefill(t *testing.T) {
	d := &disaggregation{w: &Role{Term: &role.Term{Worker: "worker-1"}}, way: protocol.WayQueue}
	if got := d.timing(&engine.FirstToken{Why: "short", Queued: 1, Prefill: 2, Cached: 3}); !reflect.DeepEqual(*got, protocol.Timing{
		Worker: "worker-1", Prefill: "local", PrefillWhy: "short", QueueNS: 1, PrefillNS: 2, CachedTokens: 3,
	}) {
		t.Errorf("here: %+v", got)
	}
	d.notice = protocol.PrefillNotice{ComputeNS: 9, WriteNS: 7, ExposedNS: 5, Bytes: 3, Transport: "shm", Encoded: protocol.Encoded{Parts: 2}}
	if got := d.timing(&engine.FirstToken{Remote: true, Why: "worker-2"}); !reflect.DeepEqual(*got, protocol.Timing{
		Worker: "worker-1", Prefill: "worker-2", PrefillWay: protocol.WayQueue, ComputeNS: 9, KV: protocol.KVMoved{NS: 7, ExposedNS: 5, Bytes: 3, Transport: "shm"}, Encoded: protocol.Encoded{Parts: 2},
	}) {
		t.Errorf("elsewhere: %+v", got)
	}
	if got := d.timing(&engine.FirstToken{Why: "fallback"}); got.KV != (protocol.KVMoved{}) || got.ComputeNS != 0 || got.Encoded.Parts != 0 {
		t.Errorf("here in the end: %+v", got)
	}
}

// The rules that need more than the prompt's length use what the worker knows of itself
// and what the frontend has told of prefill workers.
func TestDecodeWorkerFollowsTheRule(t *testing.T) {
	world := roletest.New(t)
	w := start(t, world, "worker-2")
	if _, err := world.Runtime(t, "worker-1").Serve(t.Context(), "prefill", cluster.EndpointPrefill, nobody); err != nil {
		t.Fatal(err)
	}
	if err := w.prefills.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	settings := w.Settings()
	settings.Prefill.MaxLocalTokens = 64
	w.Settings = func() role.Settings { return settings }
	depth := 0
	w.QueueDepth = func() int { return depth }
	stream, err := w.Engine.Submit(t.Context(), engine.Request{ID: "warm", Tokens: make([]uint32, 40), Stop: protocol.StopConditions{MaxTokens: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Next(t.Context())
	}
	rate := w.Engine.Stats().PrefillRate
	if rate <= 0 {
		t.Fatal("the worker does not know its speed")
	}
	for _, tc := range []struct {
		rule   string
		hints  protocol.DisaggHints
		cached int
		depth  int
		remote bool
		why    string
	}{
		{"isl-bounding", protocol.DisaggHints{}, 500, 0, false, "cached"},
		{"isl-bounding", protocol.DisaggHints{}, 0, 0, true, "long prompt"},
		{`{"decode_busy_threshold":0.5}`, protocol.DisaggHints{}, 500, 0, false, "cached"}, // its pool is idle
		{"slo", protocol.DisaggHints{}, 0, 0, true, "long prompt"},
		{"slo", protocol.DisaggHints{Prefills: protocol.PrefillHints{Rate: 2 * rate}}, 0, 0, true, "sooner remotely"},
		{"slo", protocol.DisaggHints{Prefills: protocol.PrefillHints{Rate: 2 * rate}}, 501, 0, false, "sooner locally"},
		{"slo", protocol.DisaggHints{Prefills: protocol.PrefillHints{Rate: 2 * rate}}, 0, 2, false, "sooner locally"},
		{"slo", protocol.DisaggHints{Prefills: protocol.PrefillHints{Rate: 2 * rate, TransferRate: rate / 2}}, 0, 0, false, "sooner locally"},
		// The queue counts, the mean prefill worker's own prompts do, and so does its cache.
		{"least-delay", protocol.DisaggHints{}, 0, 0, true, "long prompt"},
		{"least-delay", protocol.DisaggHints{Prefills: protocol.PrefillHints{Rate: rate}}, 0, 0, true, "less delay remotely"},
		{"least-delay", protocol.DisaggHints{Prefills: protocol.PrefillHints{Rate: rate}}, 0, 1, false, "less delay locally"},
		{"least-delay", protocol.DisaggHints{Prefills: protocol.PrefillHints{Rate: rate, Prompts: 9}}, 0, 0, false, "less delay locally"},
		{"least-delay", protocol.DisaggHints{Prefills: protocol.PrefillHints{Rate: rate, Waiting: 9000}}, 0, 0, false, "less delay locally"},
		{"least-delay", protocol.DisaggHints{Prefills: protocol.PrefillHints{Rate: rate}}, 500, 0, false, "less delay locally"},
		{"least-delay", protocol.DisaggHints{Prefills: protocol.PrefillHints{Rate: rate, Cached: 500}}, 500, 0, true, "less delay remotely"},
		{"least-delay", protocol.DisaggHints{Prefills: protocol.PrefillHints{Rate: rate, Cached: 500, TransferRate: rate / 9}}, 500, 0, false, "less delay locally"},
		{"least-delay", protocol.DisaggHints{Strategy: protocol.StrategyPrefillFirst, Params: &protocol.DisaggregatedParams{}}, 980, 0, true, "long prompt"},
		// The frontend's worker has computed the prompt: only what is cached here is not fetched.
		{"slo", protocol.DisaggHints{Strategy: protocol.StrategyPrefillFirst, Params: &protocol.DisaggregatedParams{}}, 0, 0, true, "long prompt"},
		{"slo", protocol.DisaggHints{Strategy: protocol.StrategyPrefillFirst, Params: &protocol.DisaggregatedParams{}}, 1000, 0, false, "cached"},
		{"slo", protocol.DisaggHints{Strategy: protocol.StrategyPrefillFirst, Params: &protocol.DisaggregatedParams{}}, 980, 0, true, "long prompt"},
		{"threshold", protocol.DisaggHints{Strategy: protocol.StrategyPrefillFirst, Params: &protocol.DisaggregatedParams{}}, 980, 0, false, "cached"},
	} {
		if settings.Prefill.Conditional, err = cluster.ParseConditional(tc.rule); err != nil {
			t.Fatal(err)
		}
		depth = tc.depth
		d := &disaggregation{w: w, hints: tc.hints}
		if got := d.decide(1000, tc.cached); got.Remote != tc.remote || got.Why != tc.why {
			t.Errorf("%+v: %+v", tc, got)
		}
	}
}

func TestDecodeWorkerKnowsItself(t *testing.T) {
	p := here(cluster.WorkerStats{BlockSize: 16, KVTotal: 100, KVActive: 10, KVIncoming: 15, KVCached: 50, Prefilling: 2, PrefillTokens: 300, PrefillRate: 7}, 40)
	share := p.KVShare
	p.KVShare = nil
	if want := (router.PrefillPlace{Uncached: 40, Waiting: 300, Prompts: 2, Rate: 7, KVTokens: 1600}); p != want || share == nil || *share != 0.25 {
		t.Errorf("%+v, %v of the pool in use; want %+v and 0.25", p, share, want)
	}
	if p = here(cluster.WorkerStats{}, 40); p != (router.PrefillPlace{Uncached: 40}) {
		t.Errorf("before the first statistics: %+v", p)
	}
}

// A request that must not be prefilled here is refused where it would be in place of a
// prefill worker, and only there.
func TestDecodeWorkerRefuses(t *testing.T) {
	world := roletest.New(t)
	w := start(t, world, "worker-2")
	settings := w.Settings()
	settings.Prefill.MaxLocalTokens = 20
	w.Settings = func() role.Settings { return settings }
	for i, tc := range []struct {
		tokens int
		hints  protocol.DisaggHints
		fails  string
	}{
		{100, protocol.DisaggHints{}, ""},
		{10, protocol.DisaggHints{Enforce: true}, ""},
		{100, protocol.DisaggHints{Enforce: true}, "no prefill worker"},
		{100, protocol.DisaggHints{Enforce: true, Strategy: protocol.StrategyPrefillFirst, Params: &protocol.DisaggregatedParams{Deadline: time.Now().Add(time.Minute)}}, "KV blocks do not match"},
	} {
		p := protocol.PreprocessedRequest{RequestID: fmt.Sprint(tc), TokenIDs: make([]uint32, tc.tokens), Stop: protocol.StopConditions{MaxTokens: 1}}
		p.TokenIDs[0] = uint32(i) // of which nothing is cached
		d := &disaggregation{w: w, hints: tc.hints}
		_, stream, err := w.begin(t.Context(), &p, d)
		if err != nil {
			t.Fatal(err)
		}
		o, err := stream.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var remote *requestplane.RemoteError
		if refused := o.Err != nil && errors.As(role.RemoteError(o.Err), &remote) && remote.Kind == requestplane.KindNotPrefilled; o.Err != nil && !refused || refused != (tc.fails != "") {
			t.Errorf("%+v: %+v", tc, o)
		} else if refused && remote.Message != tc.fails {
			t.Errorf("%+v: %s", tc, remote.Message)
		}
		stream.Cancel()
	}
}
