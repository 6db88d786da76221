package route

import (
	"reflect"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Whatever the ratio of prefill and decode workers is, first tokens come within 1.7 times
// the time of the best rule, which differs, by the default one. Each other rule is far behind
// for some ratio.
func TestLeastDelayFollowsTheLoad(t *testing.T) {
	p90 := map[string][]time.Duration{} // by rule, relative to nothing
	var best []time.Duration
	for _, tc := range []struct {
		workload        string
		prefill, decode int
		most            int // requests
	}{{"agents", 6, 2, 5000}, {"unique", 2, 6, 1500}, {"unique", 4, 4, 1500}} {
		w, err := Generate(tc.workload, 1)
		if err != nil {
			t.Fatal(err)
		}
		requests := w.Requests[:min(len(w.Requests), tc.most)]
		least := time.Duration(0)
		for _, rule := range FleetRules() {
			c := Fleet{Config: Config{Requests: requests, Policy: Own().Settings[0], Workers: tc.decode, Blocks: 1000, Speed: 4, Timing: H100}, Prefill: tc.prefill, Limits: rule.Limits}
			r, err := PlayFleet(c)
			if err != nil {
				t.Fatal(err)
			}
			if len(p90) == 0 { // a run is a function of its configuration
				if again, _ := PlayFleet(c); !same(again, r) {
					t.Errorf("%+v, then %+v", r, again)
				}
			}
			if r.Requests != len(requests) || r.Remote > r.Requests || rule.Name == "off" && r.Remote != r.Requests {
				t.Errorf("%s, %s: %+v", tc.workload, rule.Name, r)
			}
			if rule.Name != cluster.ConditionalLeastDelay && (least == 0 || r.P90 < least) {
				least = r.P90
			}
			p90[rule.Name] = append(p90[rule.Name], r.P90)
			t.Logf("%s %dP%dD %-14s p90 %s, remote %d, gap %s", tc.workload, tc.prefill, tc.decode, rule.Name, r.P90, r.Remote, r.Gap99)
		}
		best = append(best, least)
	}
	for rule, times := range p90 {
		worst := 0.0
		for i, d := range times {
			worst = max(worst, d.Seconds()/best[i].Seconds())
		}
		switch {
		case rule == cluster.ConditionalLeastDelay && worst > 1.7:
			t.Errorf("%s takes up to %.2f times as long as the best other rule", rule, worst)
		case rule != cluster.ConditionalLeastDelay && worst < 1.5:
			t.Errorf("%s takes at most %.2f times as long as the best: the workloads do not tell rules apart", rule, worst)
		}
	}
}

// same compares results without what was measured in real time.
func same(a, b FleetResult) bool {
	a.Decision, b.Decision = 0, 0
	return reflect.DeepEqual(a, b)
}
