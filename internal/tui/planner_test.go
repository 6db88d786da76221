package tui

import (
	"math"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/cluster"
)

// labPlanner advises to add workers to the cluster of the pictures.
func labPlanner() *cluster.PlannerView {
	p := &cluster.PlannerView{
		Mode: "advise", Node: "n1", Time: noon().Add(-2 * time.Second), HeardAt: noon().Add(-1900 * time.Millisecond), NextCheck: noon().Add(3100 * time.Millisecond), Every: 5 * time.Second,
		Target:    cluster.PlannerTarget{Goal: "sla", TTFT: ptr(500.0), ITL: ptr(50.0), Percentile: 0.95, Devices: 8},
		Observed:  cluster.PlannerFigures{Rate: ptr(18.4), TTFT: ptr(142.0), ITL: ptr(11.2), ISL: ptr(576.0), OSL: ptr(310.0)},
		Predicted: cluster.PlannerFigures{Rate: ptr(21.2), TTFT: ptr(388.0), ITL: ptr(19.8), ISL: ptr(412.0), OSL: ptr(305.0), Miss: ptr(0.012)},
		Queued:    ptr(5), Current: cluster.PlannerPlan{Prefill: 2, Decode: 5, MaxLocalPrefill: 64}, Proposal: cluster.PlannerPlan{Prefill: 3, Decode: 5, MaxLocalPrefill: 64}, Cause: "forecast",
		Explanation: []string{
			"2P5D -> 3P5D: start 1 prefill, because the load needs it.",
			"forecast: 21.2 requests/s at the most in 65 s (trend)",
			"proven: (370 - 2 sqrt(370)) / 20 s = 16.6 requests/s",
			"must carry: max(21.2, 16.6) = 21.2 requests/s",
			"2P5D, 7 devices: prefill load 0.98, decode load 0.41, TTFT 1.2s, ITL 19.8ms, 31.0 % miss: now; misses the target",
			"3P5D, 8 devices: prefill load 0.65, decode load 0.41, TTFT 388ms, ITL 19.8ms, 1.2 % miss: chosen",
		},
	}
	for i := range 90 {
		rate, forecast := ptr(10+8.4*math.Sin(float64(i)/17)), ptr(12+9.2*math.Sin(float64(i+4)/17))
		if i == 30 || i == 31 {
			rate, forecast = nil, nil
		}
		p.Rates, p.Forecasts = append(p.Rates, rate), append(p.Forecasts, forecast)
	}
	change := func(ago time.Duration, why, text string) {
		p.Changes = append(p.Changes, cluster.PlannerChange{Time: noon().Add(-ago), Why: why, Text: text})
	}
	change(2*time.Second, "forecast", "2P5D -> 3P5D: start 1 prefill, because the load needs it.")
	change(4*time.Minute, "no_change", "2P5D stays. The workers are right for the load.")
	change(5*time.Minute, "stale_data", "2P5D stays. The observation says nothing of now. worker-6 has said nothing for 5s.")
	change(7*time.Minute, "cool_down", "2P5D stays. Fewer workers would do, but the role grew a moment ago.")
	return p
}

// The pane says who plans, and what is only remembered.
func TestPlannerStates(t *testing.T) {
	for _, tc := range []struct {
		name  string
		do    func(s *cluster.Snapshot)
		want  []string
		lacks []string
	}{
		{"a recording of an earlier release", func(s *cluster.Snapshot) { s.Planner = nil }, []string{"? unknown"}, []string{"REQ/S", "checks"}},
		{"off", func(s *cluster.Snapshot) { s.Planner.Mode = "off" }, []string{"◇ off", "dynctl set planner.mode=advise"}, []string{"REQ/S", "checks", "cool_down", "nothing has changed"}},
		{"no leader", func(s *cluster.Snapshot) { s.Leader = "" }, []string{"✕ no leader", "no node leads", "REQ/S", "cool_down"}, []string{"checks"}},
		{"not heard", func(s *cluster.Snapshot) { s.Planner = &cluster.PlannerView{Mode: "advise"} }, []string{"○ no decision yet", "the planner of n1 has not been heard yet"}, []string{"REQ/S", "checks"}},
		{"silent", func(s *cluster.Snapshot) { s.Planner.HeardAt = noon().Add(-42 * time.Second) }, []string{"▲ silent 42s", "2P5D -> 3P5D"}, []string{"checks", "advises"}},
		{"late", func(s *cluster.Snapshot) { s.Planner.NextCheck = noon().Add(-time.Second) }, []string{"advises a change", "checks now"}, nil},
		{"stored half a minute ago", func(s *cluster.Snapshot) {
			s.Planner.HeardAt, s.Planner.NextCheck, s.Planner.Every = noon().Add(-30*time.Second), noon().Add(-25*time.Second), time.Minute
		}, []string{"advises a change", "by n1, 30s ago"}, []string{"checks"}},
		{"insufficient data", func(s *cluster.Snapshot) {
			s.Planner.Proposal, s.Planner.Cause, s.Planner.Refusal = s.Planner.Current, "", "insufficient_data"
			s.Planner.Explanation, s.Planner.Detail = []string{"2P5D stays. Too little was seen to decide."}, "2 of 5 windows with work were seen"
		}, []string{"○ insufficient data", "2P5D stays", "2 of 5 windows with work were seen.", "checks in 4s"}, nil},
		{"advises", func(*cluster.Snapshot) {}, []string{"● advises a change", "2P5D -> 3P5D", "mode advise", "by n1, 1s ago", "checks in 4s"}, nil},
		{"pools", func(s *cluster.Snapshot) {
			small := *labPlanner()
			small.Pool, small.Mode, small.Proposal, small.Cause, small.Refusal = "small", "act", small.Current, "", "attached_only"
			off := small
			off.Pool, off.Mode, off.Refusal = "still", "off", "off"
			s.PlannerPools = []cluster.PlannerView{small, off}
		}, []string{"2P5D -> 3P5D", "pool small", "2P5D stays", "attached_only", "◇ pool still"}, nil},
		{"pools alone", func(s *cluster.Snapshot) {
			small := *labPlanner()
			small.Pool = "small"
			s.Planner, s.PlannerPools = &cluster.PlannerView{Mode: "advise"}, []cluster.PlannerView{small}
		}, []string{"pool small", "2P5D -> 3P5D"}, []string{"not been heard"}},
		{"acts", func(s *cluster.Snapshot) { s.Planner.Mode = "act" }, []string{"◐ changes workers", "mode act"}, nil},
		{"a threshold", func(s *cluster.Snapshot) {
			s.Planner.Proposal = s.Planner.Current
			s.Planner.Proposal.MaxLocalPrefill = 512
		}, []string{"2P5D, local prompts to 64 -> 512"}, nil},
		{"nothing to do", func(s *cluster.Snapshot) {
			s.Planner.Proposal, s.Planner.Cause, s.Planner.Refusal = s.Planner.Current, "", "no_change"
		}, []string{"● no change", "2P5D stays", "no_change"}, nil},
		{"refuses", func(s *cluster.Snapshot) {
			s.Planner.Proposal, s.Planner.Cause, s.Planner.Refusal = s.Planner.Current, "", "cool_down"
		}, []string{"● refuses", "2P5D stays", "cool_down"}, nil},
		{"cannot", func(s *cluster.Snapshot) {
			s.Planner.Proposal, s.Planner.Cause, s.Planner.Refusal, s.Planner.BestEffort = s.Planner.Current, "", "budget", true
		}, []string{"▲ refuses", "budget", "no plan holds the target"}, nil},
		{"throughput", func(s *cluster.Snapshot) {
			s.Planner.Target = cluster.PlannerTarget{Goal: "throughput", Devices: 8}
		}, []string{"goal throughput", "│ target                   - "}, []string{"p95"}},
	} {
		s := labSnapshot()
		tc.do(&s)
		for _, size := range sizes() {
			sc := newScreen(t, s, size[0], size[1], Options{View: "planner"})
			checkShape(t, sc.m.View(), size[0], size[1])
			if size[0] == 100 {
				t.Run(tc.name, func(t *testing.T) {
					sc.t = t
					sc.has(tc.want...)
					sc.lacks(tc.lacks...)
				})
			}
			sc.press("enter")
			checkShape(t, sc.m.View(), size[0], size[1])
		}
	}
}

// The planner falls silent on the screen by itself, and its changes are filtered like other rows.
func TestPlannerOnTheScreen(t *testing.T) {
	first := labSnapshot()
	first.Planner.Orders = []cluster.PlannerOrder{{Time: noon().Add(-time.Minute), Node: "n2", Text: "2P4D -> 2P5D: start 1 decode, because the load needs it", Result: "done after 31s"}}
	sc := newScreen(t, first, 100, 30, Options{})
	sc.press("P")
	sc.has("›P planner decisions", "12:04:29 forecast", "11:57:31 cool_down", "observed mean", "max 21.2/s", "last 5m")
	sc.press("/", "type:stale", "enter")
	sc.has("worker-6 has said nothing")
	sc.lacks("11:57:31")
	sc.press("esc", "s")
	sc.has("planner decisions stay newest first")
	sc.press("y")
	sc.has("devices: 8")
	sc.press("esc", "enter")
	sc.has("planner advises a change", "2P5D, 7 devices: prefill load 0.98", "carried out, newest first", "12:03:31  2P4D -> 2P5D: start 1 decode, because the load needs it, by n2: done after 31s")
	sc.press("end")
	sc.has("changes, newest first")
	sc.send(tea.WindowSizeMsg{Width: 100, Height: 100})
	sc.press("esc", "?")
	sc.has("how many workers the planner wants", "requests that miss TTFT or ITL")
	sc.press("esc")
	// Snapshots go on, the planner does not.
	s := labSnapshot()
	s.Time = noon().Add(15 * time.Second)
	sc.m.opts.Now = func() time.Time { return s.Time }
	sc.send(snapshotMsg{s, s.Time})
	if view := sc.m.View(); !strings.Contains(view, "▲ silent 16s") {
		t.Errorf("a silent planner is not shown as such:\n%s", view)
	}
}
