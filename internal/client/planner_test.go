package client

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
)

// plannerReport is a decision of a node that has so many decode workers and proposes others; one that
// proposes the same refuses for the reason why.
func plannerReport[W planner.Cause | planner.Refusal](node string, at time.Time, why W, from, to int) planner.Report {
	d := planner.Decision{Time: at, NextCheck: at.Add(5 * time.Second), Mode: planner.ModeAdvise, Current: planner.Plan{Decode: from}, Proposal: planner.Plan{Decode: to}}
	d.Reasons = []planner.Reason{{Name: planner.ReasonForecastRate, Value: 7}}
	switch w := any(why).(type) {
	case planner.Cause:
		d.Cause = w
	case planner.Refusal:
		if d.Refusal = w; w == planner.RefusedStaleData {
			d.Detail, d.Reasons = "worker-1 has said nothing for 5s", nil
		}
	}
	d.Candidates = []planner.Candidate{{Plan: d.Proposal, Outcome: planner.Outcome{TTFT: 90 * time.Millisecond, ITL: 8 * time.Millisecond, Miss: 0.25}}}
	o := planner.Observation{Start: at.Add(-5 * time.Second), End: at, Arrived: 20}
	o.Requests = []planner.Request{{Length: planner.Length{ISL: 100, OSL: 30}, TTFT: 40 * time.Millisecond, ITL: 6 * time.Millisecond}}
	return planner.NewReport(node, planner.Defaults(), o, d)
}

// What a snapshot says of the planner: the newest decision, a sample of each, and what was new.
func TestPlannerWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p plannerWatch
		if v, _ := p.newest(); v.Node != "" || v.Silent(time.Now()) {
			t.Errorf("before any decision: %+v", v)
		}
		tell := func(r planner.Report) { p.heard(event(t, r)) }
		tell(plannerReport("node-1", time.Now(), planner.RefusedNoChange, 1, 1))
		time.Sleep(5 * time.Second)
		r := plannerReport("node-1", time.Now(), planner.CauseForecast, 1, 2)
		for i, result := range []planner.Result{planner.ResultDone, planner.ResultUnderWay} {
			c := planner.Change{Time: time.Now().Add(-time.Minute), Node: "node-2", From: planner.Plan{Decode: i + 1}, To: planner.Plan{Decode: i + 2}, Cause: planner.CauseForecast, Result: result}
			if result == planner.ResultDone {
				c.Ended = time.Now()
			}
			r.Changes = append(r.Changes, c)
		}
		tell(r)
		v, _ := p.newest()
		if o := v.Orders; len(o) != 2 || o[0].Result != "under way" || o[1].Result != "done after 1m0s" || o[1].Node != "node-2" || !strings.HasPrefix(o[1].Text, "1 aggregated -> 2 aggregated: ") {
			t.Errorf("orders %+v", o)
		}
		if !v.Proposes() || v.Why() != "forecast" || v.Mode != "advise" || v.Node != "node-1" || v.Every != 5*time.Second || !v.NextCheck.Equal(v.HeardAt.Add(5*time.Second)) || v.Current.String() != "1 aggregated" || v.Proposal.Decode != 2 || *v.Queued != 0 {
			t.Errorf("%+v", v)
		}
		if o := v.Observed; !is(o.Rate, 4) || !is(o.TTFT, 40) || !is(o.ITL, 6) || !is(o.ISL, 100) || !is(o.OSL, 30) || o.Miss != nil {
			t.Errorf("observed %+v", o)
		}
		if f := v.Predicted; !is(f.Rate, 7) || !is(f.TTFT, 90) || !is(f.ITL, 8) || f.ISL != nil || !is(f.Miss, 0.25) {
			t.Errorf("predicted %+v", f)
		}
		if g := v.Target; g.Goal != "sla" || !is(g.TTFT, 500) || !is(g.ITL, 50) || g.Percentile != 0.95 || g.Devices != 8 {
			t.Errorf("target %+v", g)
		}
		if len(v.Changes) != 1 || v.Changes[0].Why != "forecast" || !strings.Contains(v.Changes[0].Text, "1 aggregated -> 2 aggregated") {
			t.Errorf("changes %+v", v.Changes)
		}

		// Three decisions are missing, and the next one knows nothing of now. A stored one that is as old as
		// the last is no news, and an older one of another node neither.
		time.Sleep(14 * time.Second)
		if v, _ := p.newest(); v.Silent(time.Now()) || !v.Silent(time.Now().Add(time.Second)) {
			t.Errorf("silent after 14 s, or not after 15 s: %+v", v)
		}
		time.Sleep(6 * time.Second)
		tell(plannerReport("node-1", time.Now(), planner.RefusedStaleData, 1, 1))
		tell(plannerReport("node-1", time.Now().Add(-time.Second), planner.CauseDown, 3, 2))
		for _, node := range []string{"node-1", "node-2"} {
			p.take(plannerReport(node, time.Now().Add(-time.Second), planner.CauseDown, 3, 2), time.Now(), storedEvery, false)
		}
		v, _ = p.newest()
		if len(v.Rates) != 6 || v.Rates[1] == nil || v.Rates[2] != nil || v.Rates[5] != nil || v.Forecasts[5] != nil || !is(v.Forecasts[0], 7) || len(v.Forecasts) != 6 {
			t.Errorf("%d samples: %v", len(v.Rates), v.Rates)
		}
		if len(v.Changes) != 2 || v.Changes[0].Why != "stale_data" || !strings.Contains(v.Changes[0].Text, "worker-1 has said nothing for 5s.") {
			t.Errorf("changes %+v", v.Changes)
		}
		// A node whose clock is behind leads now.
		tell(plannerReport("node-2", time.Now().Add(-time.Minute), planner.RefusedNoChange, 1, 1))
		if v, _ := p.newest(); v.Node != "node-2" || v.Silent(time.Now()) || v.Changes[0].Why != "no_change" {
			t.Errorf("the next leader: %+v", v)
		}
		for i := range 3 * keepPlanned {
			time.Sleep(5 * time.Second)
			tell(plannerReport("node-2", time.Now(), planner.CauseForecast, 1, 2+i%2))
		}
		if v, _ := p.newest(); len(v.Rates) != keepPlanned || len(v.Changes) != keepPlanned || v.Rates[0] == nil {
			t.Errorf("%d samples and %d changes are kept", len(v.Rates), len(v.Changes))
		}
	})
}

// The stream has a line for what is new, and none for each look of the planner.
func TestPlannerEvents(t *testing.T) {
	s := &Stream{out: make(chan Event, 20), workers: map[string]cluster.WorkerStatus{}}
	now := time.Now()
	for i, r := range []planner.Report{
		plannerReport("n", now, planner.RefusedNoChange, 1, 1),
		plannerReport("n", now, planner.RefusedCoolDown, 1, 1), // refused
		plannerReport("n", now, planner.RefusedCoolDown, 1, 1),
		plannerReport("n", now, planner.RefusedNoChange, 1, 1), // the refusal is over
		plannerReport("n", now, planner.CauseForecast, 1, 3),   // a change
		plannerReport("n", now, planner.CauseForecast, 1, 3),
		plannerReport("n", now, planner.CauseForecast, 1, 2),   // another one
		plannerReport("n", now, planner.CauseForecast, 3, 2),   // from elsewhere
		plannerReport("n", now, planner.RefusedNoChange, 2, 2), // it is over
		plannerReport("n", now, planner.RefusedNoChange, 3, 3),
	} {
		r.Decision.Time = now.Add(time.Duration(i) * time.Second)
		s.planner(event(t, r))
	}
	got := ""
	for len(s.out) > 0 {
		e := <-s.out
		if e.Kind != EventPlanner || e.Planner == nil || e.Worker != "" {
			t.Errorf("%+v", e)
		}
		got += e.Planner.Decision.Why() + string(rune('0'+e.Time.Sub(now)/time.Second)) + " "
	}
	if want := "cool_down1 no_change3 forecast4 forecast6 forecast7 no_change8 "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Pools have views of their own, which go with the pool; each has its own news.
func TestPlannerOfPools(t *testing.T) {
	var p plannerWatch
	s := &Stream{out: make(chan Event, 20), workers: map[string]cluster.WorkerStatus{}}
	now := time.Now()
	for i, pool := range []string{"small", "", "big", "small"} {
		r := plannerReport("n", now.Add(time.Duration(i)*time.Second), planner.CauseForecast, 1, 2+i%3)
		r.Pool = pool
		p.heard(event(t, r))
		s.planner(event(t, r))
	}
	main, others := p.newest()
	if main.Proposal.Decode != 3 || len(others) != 2 || others[0].Pool != "big" || others[1].Pool != "small" || others[0].Proposal.Decode != 4 || len(others[1].Rates) != 2 {
		t.Errorf("%+v %+v", main, others)
	}
	var told []string
	for len(s.out) > 0 {
		told = append(told, (<-s.out).Planner.Pool)
	}
	if got := strings.Join(told, ","); got != "small,,big" {
		t.Errorf("news of %q", got)
	}
}
