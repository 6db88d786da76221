package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
)

// What is known of the planner is told as it is: off, nobody, nothing yet, old, or the newest decision.
func TestExplainPlanner(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	report := func(change func(*planner.Report)) *planner.Report {
		plan := planner.Plan{Prefill: 1, Decode: 2}
		r := planner.NewReport("node-1", planner.Defaults(), planner.Observation{
			Start: now.Add(-6 * time.Second), End: now.Add(-time.Second), Arrived: 20, Requests: []planner.Request{{Length: planner.Length{ISL: 1000, Cached: 100, OSL: 50}, TTFT: 40 * time.Millisecond, ITL: 5 * time.Millisecond}},
			Prefill: planner.RoleState{Queued: 3},
		}, planner.Decision{
			Time: now, Mode: planner.ModeAdvise, Current: planner.Plan{Prefill: 1, Decode: 1}, Proposal: plan, Cause: planner.CauseForecast, NextCheck: now.Add(5 * time.Second),
			Actions: []planner.Action{{Kind: planner.ActionStart, Role: cluster.RoleDecode, Workers: 1}}, Candidates: []planner.Candidate{{Plan: plan, Devices: 3, Holds: true}},
		})
		if change != nil {
			change(&r)
		}
		return &r
	}
	for _, tc := range []struct {
		name         string
		report       *planner.Report
		leader, mode string
		want         []string
	}{
		{"off", nil, "node-1", "off", []string{"state off", "why planner.mode is off", "try dynctl set planner.mode=advise"}},
		{"nobody leads", nil, "", "advise", []string{"state no leader", "planner -"}},
		{"nothing seen", nil, "node-1", "", []string{"state no data", "why too little was seen"}},
		{"advises", report(nil), "node-1", "advise", []string{
			"planner node-1", "state advises a change", "why 1P1D -> 1P2D: start 1 decode, because the load needs it.", "next it looks again at 12:00:05 UTC",
			"target TTFT 500ms and ITL 50ms for 95 % of the requests, with at most 8 devices", "observed 20 requests in 5.0 s: 4.00 requests/s; 3 wait for a prefill worker",
			"observed 1 finished, on average: 1000 prompt tokens (100 cached), 50 generated, TTFT 40ms, ITL 5ms", "predicted 1P2D: ", "reason 1P2D, 3 devices: ", "try dynctl scale --prefill 1 --decode 2",
		}},
		{"another threshold", report(func(r *planner.Report) {
			r.Decision.Proposal = r.Decision.Current
			r.Decision.Proposal.MaxLocalPrefill, r.Decision.Actions = 512, nil
		}), "node-1", "advise", []string{"state advises a change", "try dynctl set disagg.max_local_prefill_tokens=512"}},
		{"of another", report(func(r *planner.Report) { r.Node = "node-2" }), "node-1", "advise", []string{"by node-2, which led then"}},
		{"measured", report(func(r *planner.Report) { r.Measured = now.Add(-2 * time.Hour) }), "node-1", "advise", []string{"speed as it was measured 2h00m ago, with dynctl profile --teach"}},
		{"old", report(func(r *planner.Report) { r.Decision.Time = now.Add(-2 * time.Minute) }), "node-1", "advise", []string{"old the decision is 2m"}},
		{"acts", report(func(r *planner.Report) {
			r.Decision.Mode, r.Decision.Proposal, r.Decision.Refusal = planner.ModeAct, r.Decision.Current, planner.RefusedUnfinished
			one, two := planner.Plan{Prefill: 1, Decode: 1}, planner.Plan{Prefill: 2, Decode: 1}
			start := []planner.Action{{Kind: planner.ActionStart, Role: cluster.RolePrefill, Workers: 1}}
			r.Changes = []planner.Change{
				{Time: now.Add(-time.Hour), Node: "node-2", To: one, Result: planner.ResultOvertaken, Ended: now.Add(-50 * time.Minute), Detail: "planner: what its topology says"},
				{Time: now.Add(-5 * time.Minute), Node: "node-1", From: two, To: one, Actions: start, Cause: planner.CauseGiveUp, Result: planner.ResultDone, Ended: now.Add(-4 * time.Minute), Detail: "worker-3 did not get ready in time"},
				{Time: now.Add(-time.Minute), Node: "node-1", From: one, To: two, Actions: start, Cause: planner.CauseForecast, Result: planner.ResultUnderWay},
			}
		}), "node-1", "act", []string{
			"state acts, a change is under way", "refusal change_unfinished",
			"change 11:59:00 UTC by node-1: 1P1D -> 2P1D: start 1 prefill, because the load needs it: under way\nchange 11:55:00 UTC by node-1: 2P1D -> 1P1D: ",
			"change 11:00:00 UTC by node-2: what its topology says: overtaken after 10m0s\n",
		}},
		{"another goal", report(func(r *planner.Report) { r.Target.Goal = planner.GoalCost }), "node-1", "advise", []string{"target goal cost, with at most 8 devices"}},
	} {
		var b strings.Builder
		for _, f := range explainPlanner("", tc.report, tc.leader, tc.mode, now).lines(now, false) {
			b.WriteString(f.name + " " + f.text + "\n")
		}
		for _, want := range tc.want {
			if !strings.Contains("\n"+b.String(), "\n"+want) {
				t.Errorf("%s: no %q in\n%s", tc.name, want, b.String())
			}
		}
		if tc.name != "old" && strings.Contains(b.String(), "\nold ") {
			t.Errorf("%s: called old", tc.name)
		}
	}
}
