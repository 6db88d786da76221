package live

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/profile"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return t0.Add(time.Duration(seconds * float64(time.Second))) }

// status is that of a worker that has run n steps, all alike: each decodes 4 sequences of 100 tokens in 10 ms.
func status(name string, role cluster.Role, seconds float64, id cluster.InstanceID, n uint64) cluster.WorkerStatus {
	return cluster.WorkerStatus{
		Name: name, Role: role, State: cluster.StateReady, InstanceID: id, UpdatedAt: at(seconds),
		Stats: cluster.WorkerStats{
			BlockSize: 16, KVTotal: 1000, KVActive: 25, MaxSeqs: 64, MaxBatchTokens: 512, PrefillTokens: 7,
			StepsTotal: n, StepNanosTotal: n * 10_000_000, StepDecodesTotal: 4 * n, StepDecodeContextTotal: 400 * n,
		},
	}
}

func view(statuses ...cluster.WorkerStatus) View {
	v := View{
		Assignments: map[string]cluster.Assignment{}, Status: map[string]cluster.WorkerStatus{},
		Nodes:           map[string]cluster.Node{"n1": {ID: "n1", Name: "node-1", FrontendURL: "http://x", Devices: make([]cluster.Device, 2)}},
		MaxLocalPrefill: 64,
	}
	for _, st := range statuses {
		v.Status[st.Name] = st
		v.Assignments[st.Name] = cluster.Assignment{Name: st.Name, Role: st.Role, Node: "n1", Desire: cluster.DesireRun}
	}
	return v
}

// loads are the figures of a frontend with the requests of one model.
func loads(model string, started int, served []cluster.ServedRequest, of int) cluster.FrontendStats {
	return cluster.FrontendStats{Frontend: "node-1", PerModel: true, Models: []cluster.ModelLoad{{Model: model, Started: started, Served: served, ServedOf: of}}}
}

// tell sends the frontend's figures of the seconds from and to, with so many requests each.
func tell(g *Gatherer, from, to, started int) {
	for s := from; s <= to; s++ {
		g.Frontend(at(float64(s)), loads("m", started, nil, 0), "m")
	}
}

// Arrivals are counted over whole seconds of the frontends, whenever the window ends.
func TestArrivals(t *testing.T) {
	g := NewGatherer(t0, nil)
	tell(g, 1, 5, 3)
	o := g.Observe(at(5.7), view())
	if o.Stale != "" || o.Arrived != 15 || !o.Start.Equal(t0) || !o.End.Equal(at(5)) || o.MaxLocalPrefill != 64 {
		t.Errorf("%+v", o)
	}
	tell(g, 6, 9, 2)
	if o = g.Observe(at(9.1), view()); o.Arrived != 8 || !o.Start.Equal(at(5)) || !o.End.Equal(at(9)) {
		t.Errorf("the next window: %+v", o)
	}
}

// What finished stands for all that it was drawn from: a request of 10 times the weight is 10 times as likely.
func TestServedWeights(t *testing.T) {
	g := NewGatherer(t0, nil)
	served := func(n, prompt int) (out []cluster.ServedRequest) {
		for range n {
			out = append(out, cluster.ServedRequest{Prompt: prompt, Cached: 2 * prompt, Output: 5, TTFT: time.Second, ITL: time.Millisecond})
		}
		return out
	}
	g.Frontend(at(1), loads("m", 0, served(50, 100), 50), "m")
	g.Frontend(at(2), loads("m", 0, served(50, 900), 450), "m")
	o := g.Observe(at(2), view())
	long := 0
	for _, r := range o.Requests {
		if r.ISL == 900 {
			long++
		}
		if r.Cached != r.ISL || r.OSL != 5 || r.TTFT != time.Second || r.ITL != time.Millisecond {
			t.Fatalf("%+v", r)
		}
	}
	if len(o.Requests) != 100 || long != 90 {
		t.Errorf("%d of %d are of the second kind, want 90 of 100", long, len(o.Requests))
	}
	// Without weights nothing is drawn, and the memory is bounded.
	for s := range 500 {
		g.Frontend(at(3), loads("m", 0, served(cluster.MaxServed, s+1), cluster.MaxServed), "m")
		if len(g.served) > maxServed {
			t.Fatalf("%d are remembered", len(g.served))
		}
	}
	o = g.Observe(at(3), view())
	if len(o.Requests) != sampled {
		t.Errorf("%d requests", len(o.Requests))
	}
	if mean := meanPrompt([]planner.Request{{Length: planner.Length{ISL: 10, Cached: 4}}, {Length: planner.Length{ISL: 2, Cached: 2}}}); mean != 3 {
		t.Errorf("mean of what is computed: %v", mean)
	}
}

// Who says nothing is named, and what is missing is not guessed.
func TestStale(t *testing.T) {
	decode := func(s float64) cluster.WorkerStatus { return status("worker-1", cluster.RoleDecode, s, 1, 10) }
	for _, tc := range []struct {
		name string
		do   func(g *Gatherer, v *View)
		want string
	}{
		{"all speak", func(*Gatherer, *View) {}, ""},
		{"a silent worker", func(_ *Gatherer, v *View) {
			st := status("worker-2", cluster.RolePrefill, 0, 2, 0)
			v.Status["worker-2"], v.Assignments["worker-2"] = st, cluster.Assignment{Name: "worker-2", Role: st.Role, Node: "n1", Desire: cluster.DesireRun}
		}, "worker-2 has said nothing for 5s"},
		{"a silent worker that encodes", func(_ *Gatherer, v *View) {
			v.Status["worker-2"] = status("worker-2", cluster.RoleEncode, 0, 2, 0)
		}, ""},
		{"a silent frontend", func(_ *Gatherer, v *View) { v.Nodes["n2"] = cluster.Node{ID: "n2", Name: "node-2", FrontendURL: "x"} }, "the frontend of node-2 has said nothing for 5s"},
		{"a node without one", func(_ *Gatherer, v *View) { v.Nodes["n2"] = cluster.Node{ID: "n2", Name: "node-2"} }, ""},
		{"the store", func(_ *Gatherer, v *View) { v.Stale = "the store is away" }, "the store is away"},
		{"lost events", func(g *Gatherer, _ *View) { g.Lost(3) }, "3 events of frontends were lost"},
	} {
		g := NewGatherer(t0, nil)
		v := view(decode(0))
		tc.do(NewGatherer(t0, nil), &v) // it is there from the beginning
		g.Observe(t0, v)
		tell(g, 1, 5, 1)
		g.Worker(at(5), decode(5))
		tc.do(g, &v)
		o := g.Observe(at(5), v)
		if o.Stale != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, o.Stale, tc.want)
		}
		for _, w := range o.Prefill.Workers {
			if lost := w.State == planner.WorkerLost; lost != strings.HasPrefix(tc.want, w.Name) {
				t.Errorf("%s: %+v", tc.name, w)
			}
		}
	}
	if o := NewGatherer(t0, nil).Observe(at(5), View{}); o.Stale != "no frontend has told of requests" {
		t.Errorf("nobody: %q", o.Stale)
	}
}

// A worker's window is the difference of its totals, and nothing where they are those of another run.
func TestWorkerWindows(t *testing.T) {
	back := status("worker-1", cluster.RoleDecode, 5, 1, 30)
	back.Stats.StepDecodesTotal = 1
	for _, tc := range []struct {
		name string
		next cluster.WorkerStatus
		step time.Duration
	}{
		{"works", status("worker-1", cluster.RoleDecode, 5, 1, 30), 13 * time.Millisecond},
		{"idle", status("worker-1", cluster.RoleDecode, 5, 1, 10), 0},
		{"another run", status("worker-1", cluster.RoleDecode, 5, 2, 40), 0},
		{"counters reset", status("worker-1", cluster.RoleDecode, 5, 1, 4), 0},
		{"a counter went back", back, 0},
		{"older news", status("worker-1", cluster.RoleDecode, -5, 1, 40), 0},
	} {
		speed := NewSpeed()
		g := NewGatherer(t0, speed)
		first := status("worker-1", cluster.RoleDecode, 0, 1, 10)
		g.Worker(t0, first)
		g.Observe(t0, view(first))
		tell(g, 1, 5, 1)
		if tc.step > 0 {
			tc.next.Stats.StepWaitNanosTotal = 20 * 2_000_000 // waits for a shared device
			tc.next.Stats.StepGapNanosTotal = 20 * 1_000_000  // between the steps
		}
		g.Worker(at(5), tc.next)
		o := g.Observe(at(5), view(first))
		if len(o.Decode.Workers) != 1 {
			t.Fatalf("%s: %+v", tc.name, o)
		}
		w := o.Decode.Workers[0]
		if lost := tc.name == "older news"; lost != (w.State == planner.WorkerLost) {
			t.Errorf("%s: %+v", tc.name, w)
		}
		if w.Step != tc.step || w.KVTokens != 400 || w.QueuedTokens != 7 || w.PromptBusy != 0 {
			t.Errorf("%s: %+v", tc.name, w)
		}
		if (len(speed.rows) == 1) != (tc.step > 0) {
			t.Errorf("%s: %d rows", tc.name, len(speed.rows))
		}
		if tc.step > 0 && speed.rows[0].Seconds != 20*0.011 { // what waits for others is not the worker's
			t.Errorf("%s: %+v", tc.name, speed.rows[0])
		}
	}
	// A window with nothing but prompts tells how long these took.
	g := NewGatherer(t0, nil)
	st := status("worker-1", cluster.RolePrefill, 0, 1, 0)
	g.Worker(t0, st)
	g.Observe(t0, view(st))
	g.Queue(cluster.QueueDepth{Waiting: 3})
	g.Frontend(at(5), loads("m", 0, []cluster.ServedRequest{{Prompt: 30, Cached: 10}}, 1), "m")
	st.UpdatedAt, st.Stats.StepsTotal, st.Stats.StepNanosTotal, st.Stats.StepTokensTotal, st.Stats.Waiting = at(5), 2, 8_000_000, 700, 2
	g.Worker(at(5), st)
	o := g.Observe(at(5), view(st))
	if w := o.Prefill.Workers[0]; w.PromptTokens != 700 || w.PromptBusy != 8*time.Millisecond || w.Step != 0 || w.QueuedTokens != 7+2*20 {
		t.Errorf("prefill: %+v", w)
	}
	if o.Prefill.Queued != 3 || o.Prefill.QueuedTokens != 60 {
		t.Errorf("queue: %+v", o.Prefill)
	}
}

// Actions are assignments that a worker has not followed; when they end, their durations are known, unless
// they began before anybody looked.
func TestActions(t *testing.T) {
	g := NewGatherer(t0, nil)
	one := status("worker-1", cluster.RoleDecode, 0, 1, 0)
	old := status("worker-9", cluster.RoleDecode, 0, 9, 0)
	old.State = cluster.StateLoading
	g.Observe(at(1), view(one, old))
	v := view(one, old)
	v.Assignments["worker-2"] = cluster.Assignment{Name: "worker-2", Role: cluster.RolePrefill, Node: "n1", Desire: cluster.DesireRun} // no status yet
	a := v.Assignments["worker-1"]
	a.Role = cluster.RolePrefill
	v.Assignments["worker-1"] = a
	v.Assignments["worker-3"] = cluster.Assignment{Name: "worker-3", Role: cluster.RoleDecode, Desire: cluster.DesireRun} // no node has room
	delete(v.Nodes, "n1")
	g.Worker(at(6), one)
	o := g.Observe(at(6), v)
	want := []planner.Pending{
		{Kind: planner.ActionFlip, Role: cluster.RolePrefill, Since: at(6), Worker: "worker-1"}, {Kind: planner.ActionStart, Role: cluster.RolePrefill, Since: at(6), Worker: "worker-2"},
		{Kind: planner.ActionStart, Role: cluster.RoleDecode, Since: at(6), Worker: "worker-3"}, {Kind: planner.ActionStart, Role: cluster.RoleDecode, Since: t0, Worker: "worker-9"},
	}
	if fmt.Sprint(o.Pending) != fmt.Sprint(want) || o.NodesLost != 1 || o.Prefill.In(planner.WorkerStarting) != 1 || o.Decode.In(planner.WorkerReady) != 1 || o.Decode.In(planner.WorkerStarting) != 2 {
		t.Errorf("%+v", o)
	}
	one.Role, one.UpdatedAt = cluster.RolePrefill, at(7)
	two := status("worker-2", cluster.RolePrefill, 7, 2, 0)
	old.State, old.UpdatedAt = cluster.StateReady, at(7)
	v = view(one, two, old)
	g.Look(at(8), v) // what ends between two windows is seen when it does
	o = g.Observe(at(11), v)
	if fmt.Sprint(o.Finished) != fmt.Sprint([]planner.Duration{{Kind: planner.ActionFlip, Took: 2 * time.Second, Role: cluster.RolePrefill}, {Kind: planner.ActionStart, Took: 2 * time.Second, Role: cluster.RolePrefill}}) || len(o.Pending) != 0 {
		t.Errorf("finished: %+v, pending %+v", o.Finished, o.Pending)
	}
	a = v.Assignments["worker-2"]
	a.Desire = cluster.DesireRemove
	v.Assignments["worker-2"] = a
	if o = g.Observe(at(16), v); len(o.Pending) != 1 || o.Pending[0].Kind != planner.ActionDrain || o.Prefill.In(planner.WorkerDraining) != 1 {
		t.Errorf("drain: %+v", o)
	}
	if o = g.Observe(at(19), view(one, old)); len(o.Finished) != 1 || o.Finished[0] != (planner.Duration{Kind: planner.ActionDrain, Took: 3 * time.Second, Role: cluster.RolePrefill}) {
		t.Errorf("drained: %+v", o.Finished)
	}
	// A start that is taken back is none that ended. What the controller has not followed is under way.
	v = view(one, old)
	v.Assignments["worker-4"] = cluster.Assignment{Name: "worker-4", Role: cluster.RoleDecode, Node: "n1", Desire: cluster.DesireRun}
	v.Declared = &Declared{Topology: cluster.Topology{Prefill: 2, Decode: 1}}
	o = g.Observe(at(20), v)
	want = []planner.Pending{
		{Kind: planner.ActionStart, Role: cluster.RoleDecode, Since: at(20), Worker: "worker-4"},
		{Kind: planner.ActionStart, Role: cluster.RolePrefill, Since: at(20)}, {Kind: planner.ActionDrain, Role: cluster.RoleDecode, Since: at(20)},
	}
	if fmt.Sprint(o.Pending) != fmt.Sprint(want) {
		t.Errorf("%+v", o.Pending)
	}
	a = v.Assignments["worker-4"]
	a.Desire = cluster.DesireRemove
	v.Assignments["worker-4"] = a
	v.Declared.Prefill = 1
	if o = g.Observe(at(21), v); len(o.Pending) != 1 || o.Pending[0].Kind != planner.ActionDrain || len(o.Finished) != 0 {
		t.Errorf("%+v", o)
	}
}

// A flip in which the worker fails is none that ended.
func TestFailedFlip(t *testing.T) {
	g := NewGatherer(t0, nil)
	one := status("worker-1", cluster.RoleDecode, 0, 1, 0)
	v := view(one)
	g.Observe(at(1), v)
	a := v.Assignments["worker-1"]
	a.Role = cluster.RolePrefill
	v.Assignments["worker-1"] = a
	g.Look(at(2), v)
	one.State = cluster.StateFailed
	v.Status["worker-1"] = one
	if g.Look(at(3), v); len(g.finished) != 0 || len(g.pending) != 1 {
		t.Errorf("%+v, pending %+v", g.finished, g.pending)
	}
}

// The speed of a worker is that of the costs that its counters were made with, once enough was seen.
func TestSpeed(t *testing.T) {
	costs := profile.Costs{Step: 0.004, Decode: 0.0001, DecodeContext: 1e-7, Token: 2e-5, ChunkContext: 1e-9}
	s := NewSpeed()
	for i := range 600 {
		w := profile.Work{Decodes: 40 + i*7%90, DecodeContext: 9000 + i*i%5000, Tokens: 100 * (i*5%11 + 1), ChunkContext: 30_000 * (i*3%17 + 1)}
		if i < neededWindows == (s.Missing() == "") && i != neededWindows {
			t.Fatalf("after %d windows: %q", i, s.Missing())
		}
		s.limits(cluster.WorkerStats{KVTotal: 100, BlockSize: 16, MaxSeqs: 8, MaxBatchTokens: 512})
		s.learn([]profile.Sample{{Work: w, Steps: 5, Seconds: costs.StepSeconds(w) + 4*costs.Step}})
	}
	if len(s.rows) != rememberedRows || s.Missing() != "" || s.KVCapacity() != 1600 {
		t.Errorf("%d rows, %q, %v tokens", len(s.rows), s.Missing(), s.KVCapacity())
	}
	near := func(what string, got, want float64) {
		if math.Abs(got/want-1) > 1e-3 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	ttft := 2*costs.Step + 1000*costs.Token + 500_500*costs.ChunkContext
	near("TTFT", s.TTFT(1000), ttft)
	near("throughput", s.PrefillThroughput(1000), 1000/ttft)
	near("ITL", s.ITL(8000, 400), costs.Step+20*costs.Decode+8000*costs.DecodeContext)
	// What was never seen is not known, however much else was.
	for want, w := range map[string]profile.Work{"computed a prompt": {Decodes: 3, DecodeContext: 50}, "decoded": {Tokens: 300, ChunkContext: 900}} {
		s := NewSpeed()
		for range neededWindows {
			s.learn([]profile.Sample{{Work: w, Seconds: 0.01, Steps: 1}})
		}
		if !strings.Contains(s.Missing(), want) {
			t.Errorf("%+v: %q", w, s.Missing())
		}
	}
	// Prompts and tokens of answers that always come in the same proportion: all the time is in the latter, which is
	// known, and a plan can be evaluated.
	s = NewSpeed()
	s.limits(cluster.WorkerStats{KVTotal: 100, BlockSize: 16, MaxSeqs: 8, MaxBatchTokens: 512})
	for i := range neededWindows {
		w := profile.Work{Decodes: 100, DecodeContext: 10_000 + 1000*i, Tokens: 300 - 50*i, ChunkContext: 9000 - 1500*i}
		s.learn([]profile.Sample{{Work: w, Steps: 50, Seconds: 1e-5 * float64(w.DecodeContext)}})
	}
	if s.Missing() != "" || s.profile.Step.Token != 0 || s.profile.Step.Step != 0 {
		t.Errorf("%+v: %q", s.profile.Step, s.Missing())
	}
	e := evaluator{speed: s, target: planner.Target{Goal: planner.GoalSLA, TTFT: time.Second, ITL: time.Second, Percentile: 0.95}}
	for _, plan := range []planner.Plan{{Decode: 1}, {Prefill: 1, Decode: 1}} {
		out, err := e.Evaluate(plan, planner.Forecast{Rate: 2, Horizon: time.Minute, Lengths: []planner.Length{{ISL: 30, OSL: 10}}})
		if text, wrong := json.Marshal(out); err != nil || wrong != nil || !(out.DecodeLoad > 0 && out.DecodeLoad < 1) || out.PrefillLoad != 0 || out.Miss > 0.01 {
			t.Errorf("%+v: %s, %v, %v", plan, text, err, wrong)
		}
	}
}
