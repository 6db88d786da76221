package tui

import (
	"reflect"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

func TestOrdersToTheCluster(t *testing.T) {
	tests := []struct {
		line  string
		asked string // in the question
		order client.Action
	}{
		{"scale decode=6", "From 2 prefill + 5 decode to 2 prefill + 6", client.Action{Kind: client.ActScale, Workers: cluster.Counts{cluster.RoleDecode: 6}}},
		{"scale prefill=1 decode=4", "[ Cancel ]    Scale prefill=1 decode=4", client.Action{Kind: client.ActScale, Workers: cluster.Counts{cluster.RolePrefill: 1, cluster.RoleDecode: 4}}},
		{"scale encode=2", "2 encode. Surplus workers drain", client.Action{Kind: client.ActScale, Workers: cluster.Counts{cluster.RoleEncode: 2}}},
		{"set disagg.strategy=prefill-first", "Set disagg.strategy=prefill-first?", client.Action{Kind: client.ActSet, Setting: "disagg.strategy", Value: "prefill-first"}},
		{"restart worker-2", "starts again under its name", client.Action{Kind: client.ActRestart, Worker: "worker-2"}},
		{"restart --rolling", "Restart --rolling?", client.Action{Kind: client.ActRestartAll}},
	}
	for _, tt := range tests {
		sc := lab(t)
		sc.press(":", "type:"+tt.line, "enter")
		sc.has(tt.asked)
		sc.press("enter")
		sc.has("cancelled: " + tt.line)
		sc.run(sc.press(":", "type:"+tt.line, "enter", "tab", "enter"))
		if got := sc.src.actions(); !reflect.DeepEqual(got, []client.Action{tt.order}) {
			t.Errorf("%s: %+v", tt.line, got)
		}
		sc.has(tt.line + ": accepted")

		sc = newScreen(t, labSnapshot(), 100, 30, Options{ReadOnly: true})
		sc.press(":", "type:"+tt.line, "enter")
		sc.has("read-only: started with --read-only")
	}
}

func TestWrongOrdersToTheCluster(t *testing.T) {
	for line, want := range map[string]string{
		"scale": "wrong arguments: :scale", "scale 5": "wrong arguments", "scale decode=1 decode=2": "wrong arguments", "scale encode=1 encode=1": "wrong arguments", "scale echo=1": "wrong arguments",
		"scale decode=x": `decode: "x" is not a number of workers`, "scale decode=-1": "decode", "scale encode=-1": "encode: -1 is not between 0 and", "scale decode=0": "prefill workers need at least one decode worker",
		"set": "wrong arguments", "set disagg.strategy": "wrong arguments", "set disagg.strateg=x": "disagg.strategy", "set disagg.strategy=x": "disagg.strategy",
		"restart": "wrong arguments", "restart worker-99": `no worker "worker-99"`, "restart worker-7": "worker-7 is drained: it starts when it is resumed", "restart worker-1 5m": "wrong arguments",
	} {
		sc := lab(t)
		sc.press(":", "type:"+line, "enter")
		sc.has(want)
		if sc.m.over.top() != nil {
			t.Errorf("%s: a question stands", line)
		}
	}
	s := labSnapshot()
	s.Topology = nil
	sc := newScreen(t, s, 100, 30, Options{})
	sc.press(":", "type:scale decode=5", "enter")
	sc.has("nothing was ever declared")
}

func TestOrdersToTheClusterComplete(t *testing.T) {
	for in, want := range map[string]string{"sc": "scale ", "scale d": "scale decode=", "set disagg.str": "set disagg.strategy=", "restart --": "restart --rolling"} {
		sc := lab(t)
		sc.press(":", "type:"+in, "tab")
		if got := sc.m.over.top().(*prompt).text; got != want {
			t.Errorf("%q completes to %q, want %q", in, got, want)
		}
	}
}

func TestOrdersToTheClusterAreFollowed(t *testing.T) {
	ready := func(w []cluster.Worker, generation int64) {
		for i := range w {
			w[i].State, w[i].Desire, w[i].Generation = cluster.StateReady, cluster.DesireRun, generation
		}
	}
	type step struct {
		change func(s *cluster.Snapshot)
		want   string
	}
	tests := []struct {
		line  string
		steps []step
	}{
		{"restart worker-1", []step{
			{func(s *cluster.Snapshot) { s.Workers[0].State = cluster.StateReady }, "accepted"},
			{func(s *cluster.Snapshot) { s.Workers[0].State, s.Workers[0].Generation = cluster.StateLoading, 2 }, "accepted"},
			{func(s *cluster.Snapshot) { s.Workers[0].Generation = 2 }, "worker-1 restarted"},
		}},
		{"restart worker-1", []step{{func(s *cluster.Snapshot) { s.Workers[0].Declined = cluster.Declined{Generation: 2, Why: "no room"} }, "worker-1 did not restart: no room. it still serves"}}},
		{"restart worker-1", []step{{func(s *cluster.Snapshot) {}, "accepted"}, {func(s *cluster.Snapshot) { s.Workers[0].Desire = cluster.DesireDrain }, "it was drained meanwhile"}}},
		{"restart --rolling", []step{
			{func(s *cluster.Snapshot) { ready(s.Workers[:5], 2) }, "accepted"},
			{func(s *cluster.Snapshot) { ready(s.Workers, 2); s.Workers[1].State = cluster.StateWarming }, "accepted"},
			{func(s *cluster.Snapshot) { ready(s.Workers, 2) }, "all workers restarted (6)"},
		}},
		{"restart --rolling", []step{{func(s *cluster.Snapshot) { s.Workers[2].State, s.Workers[2].Reason = cluster.StateFailed, "no memory" }, "worker-3 does not start: no memory"}}},
		{"scale decode=4", []step{
			{func(s *cluster.Snapshot) { ready(s.Workers, 1) }, "accepted"},
			{func(s *cluster.Snapshot) { ready(s.Workers, 1); s.Topology.Decode = 4 }, "accepted"},
			{func(s *cluster.Snapshot) {
				ready(s.Workers, 1)
				s.Topology.Decode, s.Workers = 4, s.Workers[:6]
				s.Workers[5].State = cluster.StateLoading
			}, "accepted"},
			{func(s *cluster.Snapshot) { ready(s.Workers, 1); s.Topology.Decode, s.Workers = 4, s.Workers[:6] }, "the cluster has 2 prefill + 4 decode workers"},
		}},
		{"scale decode=4", []step{
			{func(s *cluster.Snapshot) { s.Topology.Decode = 4 }, "accepted"}, {func(s *cluster.Snapshot) { s.Topology.Decode = 3 }, "other numbers were declared meanwhile: 2 prefill + 3 decode"},
		}},
		{"scale decode=4", []step{{func(s *cluster.Snapshot) { s.Time = s.Time.Add(obeyWithin) }, "the cluster does not show the order"}}},
	}
	for _, tt := range tests {
		sc := lab(t)
		sc.run(sc.press(":", "type:"+tt.line, "enter", "tab", "enter"))
		for i, st := range tt.steps {
			s := labSnapshot()
			s.Time = s.Time.Add(time.Duration(i+1) * time.Second)
			st.change(&s)
			sc.at(s)
			sc.has(st.want)
		}
	}
}
