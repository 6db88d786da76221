package planner

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// A start that takes longer than it may is named, counts as no worker, and none is started for as long
// again; after the next one for twice as long, until one succeeds.
func TestBackOffAfterALateStart(t *testing.T) {
	cfg := config()
	cfg.ActionTimeout = time.Minute
	s := newScene(t, cfg, Plan{Prefill: 1, Decode: 1})
	s.start = 1e9 // nothing ever gets ready
	s.run(20, 40)
	var ordered []float64
	var named bool
	for s.now < 1000 {
		before := s.now
		d := s.tick(150)
		if d.Changes() && slices.ContainsFunc(d.Actions, func(a Action) bool { return a.Kind == ActionStart }) {
			ordered = append(ordered, before)
		}
		if len(d.Late) > 0 { // whoever carries decisions out gives them up
			s.plan, s.pending = d.Current, nil
		}
		if d.Refusal == RefusedBackOff {
			named = named || strings.Contains(strings.Join(d.Lines(), " "), "started for")
		}
		for i := range s.pending {
			s.pending[i].Worker = "worker-9"
		}
	}
	if !named || len(ordered) < 3 || len(ordered) > 5 {
		t.Fatalf("starts at %v, named %v", ordered, named)
	}
	for i := 2; i < len(ordered); i++ {
		if gap, before := ordered[i]-ordered[i-1], ordered[i-1]-ordered[i-2]; gap < before+50 {
			t.Errorf("starts at %v: the pauses do not double", ordered)
		}
	}
}

func TestFailuresForget(t *testing.T) {
	var f failures
	late := Pending{Kind: ActionStart, Role: cluster.RoleDecode, Since: at(0), Worker: "worker-2"}
	f.learn(Observation{End: at(50), Pending: []Pending{late}}, time.Minute)
	if len(f.late)+len(f.roles) != 0 {
		t.Errorf("not late yet: %+v", f)
	}
	for range 3 { // the same one counts once
		f.learn(Observation{End: at(70), Pending: []Pending{late, {Kind: ActionDrain, Since: at(0)}}}, time.Minute)
	}
	if got := f.roles[cluster.RoleDecode]; got != (failure{1, at(130), "worker-2"}) || !slices.Equal(f.late, []string{"worker-2"}) {
		t.Errorf("%+v", f)
	}
	for i := range 9 { // others
		late.Since = at(float64(100 + i))
		f.learn(Observation{End: at(1000), Pending: []Pending{late}}, time.Minute)
	}
	if got := f.roles[cluster.RoleDecode]; got.until != at(1000+16*60) {
		t.Errorf("%+v", got)
	}
	f.learn(Observation{End: at(2000), Finished: []Duration{{Kind: ActionStart, Role: cluster.RolePrefill}, {Kind: ActionDrain, Role: cluster.RoleDecode}}}, time.Minute)
	if len(f.roles) != 1 || len(f.late) != 0 {
		t.Errorf("%+v", f)
	}
	f.learn(Observation{End: at(2000), Finished: []Duration{{Kind: ActionStart, Role: cluster.RoleDecode}}}, time.Minute)
	if len(f.roles) != 0 {
		t.Errorf("%+v", f)
	}
}

// A change that starts workers of a role that backs off, and takes others away, is not made.
func TestBackOffTakesNothingApart(t *testing.T) {
	p := newPlanner(t, config())
	p.failures.roles = map[cluster.Role]failure{cluster.RolePrefill: {1, at(60), ""}}
	for _, tc := range []struct {
		from, to, want Plan
	}{
		{Plan{Prefill: 1, Decode: 1}, Plan{Prefill: 2, Decode: 2}, Plan{Prefill: 1, Decode: 2}},
		{Plan{Prefill: 1, Decode: 1}, Plan{Prefill: 1, Decode: 2}, Plan{Prefill: 1, Decode: 2}},
		{Plan{Prefill: 0, Decode: 2}, Plan{Prefill: 2, Decode: 1}, Plan{Prefill: 0, Decode: 2}},
		{Plan{Prefill: 1, Decode: 2}, Plan{Prefill: 2, Decode: 1}, Plan{Prefill: 2, Decode: 1}}, // a flip is no start
	} {
		d := Decision{Current: tc.from, Proposal: tc.to}
		if p.backOff(at(1), &d); d.Proposal != tc.want || (d.Refusal == RefusedBackOff) != (tc.want != tc.to) {
			t.Errorf("%v -> %v: %v (%s)", tc.from, tc.to, d.Proposal, d.Refusal)
		}
		d = Decision{Current: tc.from, Proposal: tc.to}
		if p.backOff(at(61), &d); d.Proposal != tc.to {
			t.Errorf("%v -> %v afterwards: %v", tc.from, tc.to, d.Proposal)
		}
	}
}
