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
	w.ok("set", "planner.mode=off")
	if r := w.ok("explain", "planner"); !strings.Contains(r.stdout, "state\toff\n") {
		t.Errorf("off: %s", r.stdout)
	}
}
