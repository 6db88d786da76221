package live

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// What keeps a leader from changing anything: it has not claimed what it would change, or not observed its claim yet.
func TestHold(t *testing.T) {
	declared := func(rev store.Revision) *Declared {
		return &Declared{Topology: cluster.Topology{Model: cluster.ModelSpec{Name: "m"}, Decode: 1}, Revision: rev}
	}
	claimed := func(c Connector) *orders {
		return &orders{actor: &actor{cfg: Config{Namespace: ns}, claimed: c, fence: 7}}
	}
	small := claimed(ConnectorVirtual)
	small.pool = "small"
	act, advise := planner.Defaults(), planner.Defaults()
	act.Mode = planner.ModeAct
	for _, tc := range []struct {
		name string
		a    *orders
		v    View
		cfg  planner.Config
		c    Connector
		want planner.Refusal
		why  string
	}{
		{"claimed", claimed(ConnectorTopology), View{Declared: declared(7)}, act, ConnectorTopology, "", ""},
		{"advice needs no claim", claimed(""), View{Declared: declared(1)}, advise, ConnectorTopology, "", ""},
		{"nothing declared", claimed(ConnectorTopology), View{}, act, ConnectorTopology, planner.RefusedByHand, "dynctl up"},
		{"nothing claimed", claimed(""), View{Declared: declared(9)}, act, ConnectorTopology, planner.RefusedNotLeader, "has not taken over"},
		{"another connector claimed", claimed(ConnectorVirtual), View{Declared: declared(9)}, act, ConnectorTopology, planner.RefusedNotLeader, "has not taken over"},
		{"before its claim", claimed(ConnectorTopology), View{Declared: declared(6)}, act, ConnectorTopology, planner.RefusedNotLeader, "has not seen yet"},
		{"after its claim", claimed(ConnectorTopology), View{Declared: declared(8)}, act, ConnectorTopology, "", ""},
		{"keys that name no pool", small, View{Declared: declared(9)}, act, ConnectorVirtual, planner.RefusedConnector, "name no pool"},
		{"numbers before its claim", claimed(ConnectorVirtual), View{Declared: declared(9), Virtual: Virtual{cluster.VirtualDecision: {1, 6}}}, act, ConnectorVirtual, planner.RefusedNotLeader, "has not seen yet"},
		{"numbers of its claim", claimed(ConnectorVirtual), View{Declared: declared(1), Virtual: Virtual{cluster.VirtualPrefill: {3, 5}, cluster.VirtualDecision: {1, 7}, cluster.VirtualScaled: {1, 2}}}, act, ConnectorVirtual, "", ""},
	} {
		got := tc.a.hold(time.Now(), tc.v, tc.cfg, tc.c)
		if got.Refusal != tc.want || !strings.Contains(got.Why, tc.why) {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}

// A worker that did not get ready is given up down to the workers that there are, never below the least that was declared
// and must be there.
func TestWantedWithoutLateWorkers(t *testing.T) {
	for _, tc := range []struct {
		name       string
		declared   planner.Plan
		current    planner.Plan
		minP, minD int
		d          planner.Decision // without its plans
		want       planner.Plan
		cause      planner.Cause
	}{
		{"both roles", planner.Plan{Prefill: 3, Decode: 4}, planner.Plan{Prefill: 2, Decode: 3}, 0, 1, planner.Decision{}, planner.Plan{Prefill: 2, Decode: 3}, planner.CauseGiveUp},
		{"the last prefill worker", planner.Plan{Prefill: 1, Decode: 2}, planner.Plan{Decode: 2}, 0, 1, planner.Decision{}, planner.Plan{Decode: 2}, planner.CauseGiveUp},
		{"a minimum stays", planner.Plan{Prefill: 3, Decode: 2}, planner.Plan{Prefill: 1, Decode: 2}, 2, 1, planner.Decision{}, planner.Plan{Prefill: 2, Decode: 2}, planner.CauseGiveUp},
		{"the minimum alone is tried for ever", planner.Plan{Prefill: 2, Decode: 2}, planner.Plan{Prefill: 1, Decode: 2}, 2, 1, planner.Decision{}, planner.Plan{Prefill: 1, Decode: 2}, ""},
		{"one decode worker stays", planner.Plan{Prefill: 2, Decode: 2}, planner.Plan{Prefill: 2}, 0, 0, planner.Decision{}, planner.Plan{Prefill: 2, Decode: 1}, planner.CauseGiveUp},
		{"no more than declared", planner.Plan{Prefill: 1, Decode: 3}, planner.Plan{Prefill: 1, Decode: 2}, 3, 1, planner.Decision{}, planner.Plan{Prefill: 1, Decode: 2}, planner.CauseGiveUp},
		{"of a budget that goes first", planner.Plan{Prefill: 2, Decode: 2}, planner.Plan{Prefill: 1, Decode: 2}, 0, 1, planner.Decision{Cause: planner.CauseBudget}, planner.Plan{Prefill: 1, Decode: 2}, planner.CauseBudget},
		{"on stale data", planner.Plan{Prefill: 2, Decode: 2}, planner.Plan{Prefill: 1, Decode: 2}, 0, 1, planner.Decision{Refusal: planner.RefusedStaleData}, planner.Plan{Prefill: 1, Decode: 2}, ""},
	} {
		cfg := planner.Defaults()
		cfg.Prefill.Min, cfg.Decode.Min = tc.minP, tc.minD
		d := tc.d
		d.Current, d.Proposal, d.Late = tc.current, tc.current, []string{"worker-9"}
		v := View{Declared: &Declared{Topology: cluster.Topology{Prefill: tc.declared.Prefill, Decode: tc.declared.Decode}}}
		if plan, cause := wanted(v, d, cfg, planner.Plan{}); plan != tc.want || cause != tc.cause {
			t.Errorf("%s: %v for %q, want %v for %q", tc.name, plan, cause, tc.want, tc.cause)
		}
	}
}

// The fence of a leader is the revision of its own claim.
func TestClaimIsTheFence(t *testing.T) {
	s := store.NewMemory(store.SystemClock{})
	defer s.Close()
	for _, key := range []string{cluster.TopologyKey(ns), cluster.VirtualPlannerKey(ns, cluster.VirtualPrefill), cluster.VirtualPlannerKey(ns, cluster.VirtualDecision)} {
		if _, err := s.Put(t.Context(), key, []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	a := &actor{cfg: Config{Store: s, Namespace: ns, Leads: func(context.Context) (bool, error) { return true, nil }}}
	for c, key := range map[Connector]string{ConnectorTopology: cluster.TopologyKey(ns), ConnectorVirtual: cluster.VirtualPlannerKey(ns, cluster.VirtualDecision)} {
		before, err := s.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		a.claim(t.Context(), c, Targets{})
		after, err := s.Get(t.Context(), key)
		if err != nil || a.claimed != c || a.why != nil || a.fence != after.ModRevision || after.ModRevision <= before.ModRevision {
			t.Errorf("%s: fence %d, the claim is %d after %d, %v", c, a.fence, after.ModRevision, before.ModRevision, err)
		}
	}
}
