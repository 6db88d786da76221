package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// The command tells what the store has of the planner, and nothing of a planner that is off.
func TestExplainPlanner(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	if r := w.ok("explain", "planner"); !strings.Contains(r.stdout, "state\tno ") {
		t.Errorf("without a decision: %s", r.stdout)
	}
	now := time.Now()
	report := planner.NewReport("node-1", planner.Defaults(), planner.Observation{Start: now.Add(-5 * time.Second), End: now, Arrived: 10},
		planner.Decision{Time: now, Refusal: planner.RefusedNoChange, Current: planner.Plan{Prefill: 1, Decode: 2}, Proposal: planner.Plan{Prefill: 1, Decode: 2}})
	if _, err := store.PutJSON(t.Context(), w.store, cluster.PlannerKey(w.ns, ""), report); err != nil {
		t.Fatal(err)
	}
	if r := w.ok("explain", "planner"); !strings.Contains(r.stdout, "\t1P2D stays. The workers are right for the load.\n") && !strings.Contains(r.stdout, "no leader") || !strings.Contains(r.stdout, "2.00 requests/s") {
		t.Errorf("%s", r.stdout)
	}
	var x struct{ Planner planner.Report }
	if err := json.Unmarshal([]byte(w.ok("explain", "planner", "-o", "json").stdout), &x); err != nil || x.Planner.Observed.Rate != 2 || x.Planner.Decision.Current.Decode != 2 {
		t.Errorf("%+v %v", x, err)
	}
	for pool, refused := range map[string]planner.Refusal{"small": planner.RefusedBudget, "http://gpu-3:8001": planner.RefusedAttached} {
		r := report
		r.Pool, r.Decision.Refusal, r.Model = pool, refused, "s"
		r.Explanation, r.Beside = r.Decision.Lines(), planner.Plan{Decode: 1}
		if _, err := store.PutJSON(t.Context(), w.store, cluster.PlannerKey(w.ns, pool), r); err != nil {
			t.Fatal(err)
		}
	}
	all := w.ok("explain", "planner").stdout
	for _, want := range []string{"pool\tsmall\n", "refusal\tbudget\n", "pool\thttp://gpu-3:8001\n", "refusal\tattached_only\n", "only attached servers: nothing to start.", "0 prefill and 1 decode workers of other pools, which serve s, too"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in %s", want, all)
		}
	}
	if one := w.ok("explain", "planner", "--pool", "small").stdout; !strings.Contains(one, "refusal\tbudget\n") || strings.Count(one, "state\t") != 1 {
		t.Errorf("one pool: %s", one)
	}
	var several struct {
		Planner planner.Report
		Pools   []struct{ Planner planner.Report }
	}
	if err := json.Unmarshal([]byte(w.ok("explain", "planner", "-o", "json").stdout), &several); err != nil || several.Planner.Pool != "" || len(several.Pools) != 2 || several.Pools[1].Planner.Pool != "small" {
		t.Errorf("%+v %v", several, err)
	}
	w.ok("set", "planner.mode=off")
	if r := w.ok("explain", "planner"); !strings.Contains(r.stdout, "state\toff\n") {
		t.Errorf("off: %s", r.stdout)
	}
}
