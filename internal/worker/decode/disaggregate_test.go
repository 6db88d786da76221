package decode

import (
	"context"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
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
	} {
		depth = tc.depth
		d := &disaggregation{w: w, tenant: tc.tenant, hints: protocol.DisaggHints{Force: tc.force}}
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
	if got := d.timing(&engine.FirstToken{Why: "short", Queued: 1, Prefill: 2, Cached: 3}); *got != (protocol.Timing{
		Worker: "worker-1", Prefill: "local", PrefillWhy: "short", QueueNS: 1, PrefillNS: 2, CachedTokens: 3,
	}) {
		t.Errorf("here: %+v", got)
	}
	if got := d.timing(&engine.FirstToken{Remote: true, Why: "worker-2"}); *got != (protocol.Timing{
		Worker: "worker-1", Prefill: "worker-2", PrefillWay: protocol.WayQueue,
	}) {
		t.Errorf("elsewhere: %+v", got)
	}
}
