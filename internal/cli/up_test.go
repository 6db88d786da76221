package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

func TestNodeRoles(t *testing.T) {
	p, d := string(cluster.RolePrefill), string(cluster.RoleDecode)
	for _, tc := range []struct {
		n, prefill, decode int
		want               []string
	}{
		{1, 1, 1, []string{""}},
		{2, 0, 4, []string{"", ""}},
		{2, 1, 1, []string{d, p}},
		{2, 1, 7, []string{d, p}},
		{2, 7, 1, []string{d, p}},
		{3, 1, 2, []string{d, d, p}},
		{3, 2, 4, []string{d, d, p}},
		{4, 2, 2, []string{d, d, p, p}},
		{4, 9, 1, []string{d, p, p, p}},
	} {
		var got []string
		for _, r := range nodeRoles(tc.n, tc.prefill, tc.decode) {
			got = append(got, string(r))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%d agents for %dP%dD: %q, want %q", tc.n, tc.prefill, tc.decode, got, tc.want)
		}
	}
}

func TestDesired(t *testing.T) {
	flags := func(given ...string) *upCommand {
		return &upCommand{prefill: 1, decode: 1, given: func(f string) bool { return slices.Contains(given, f) }}
	}
	tiny := cluster.ModelSpec{Name: cluster.BuiltinModelName}
	serving := cluster.Topology{Model: cluster.ModelSpec{Name: "qwen", Path: "/m/qwen"}, Prefill: 2, Decode: 4, Engine: cluster.EngineSpec{KVBlocks: 100}, Generation: 7}
	for _, tc := range []struct {
		name  string
		o     *upCommand
		now   cluster.Topology
		fresh bool
		want  cluster.Topology
		err   error
	}{
		{"nothing yet", flags(), cluster.Topology{}, true, cluster.Topology{Model: tiny, Prefill: 1, Decode: 1}, nil},
		{"left by a killed cluster", flags(), serving, true, serving, nil},
		{"left by a killed cluster, and a count", func() *upCommand { o := flags("decode"); o.decode = 6; return o }(), serving, true, func() cluster.Topology { s := serving; s.Decode = 6; return s }(), nil},
		{"left by a killed cluster, and another model", func() *upCommand { o := flags("model"); o.model = "/m/llama"; return o }(), serving, true, func() cluster.Topology {
			s := serving
			s.Model = cluster.ModelSpec{Name: "llama", Path: "/m/llama"}
			return s
		}(), nil},
		{"after down", flags(), cluster.Topology{Model: serving.Model, Generation: 8}, false, cluster.Topology{Model: tiny, Prefill: 1, Decode: 1, Generation: 8}, nil},
		{"nothing given", flags(), serving, false, serving, nil},
		{"one count", func() *upCommand { o := flags("decode"); o.decode = 6; return o }(), serving, false, func() cluster.Topology { s := serving; s.Decode = 6; return s }(), nil},
		{"engine", func() *upCommand { o := flags("kv-blocks"); o.engine.KVBlocks = 50; return o }(), serving, false, func() cluster.Topology { s := serving; s.Engine.KVBlocks = 50; return s }(), nil},
		{"ranks", func() *upCommand { o := flags("tensor-parallel"); o.engine.TensorParallel = 2; return o }(), serving, false, func() cluster.Topology { s := serving; s.Engine.TensorParallel = 2; return s }(), nil},
		{"target and speculation", func() *upCommand {
			o := flags("itl-target", "speculative")
			o.engine.ITLTargetMS, o.engine.Speculative.Method = 80, cluster.SpeculativeNgram
			return o
		}(), serving, false, func() cluster.Topology {
			s := serving
			s.Engine.ITLTargetMS, s.Engine.Speculative.Method = 80, cluster.SpeculativeNgram
			return s
		}(), nil},
		{"the same model", func() *upCommand { o := flags("model"); o.model = "/m/qwen"; return o }(), serving, false, serving, nil},
		{"another model", func() *upCommand { o := flags("model"); o.model = "/m/llama"; return o }(), serving, false, cluster.Topology{}, errOtherModel},
		{"another name", func() *upCommand { o := flags("served-model-name"); o.served = "q"; return o }(), serving, false, cluster.Topology{}, errOtherModel},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := tc.o.desired(cluster.Revision{Topology: tc.now}, tc.fresh)
			if got := r.Topology; !errors.Is(err, tc.err) || err == nil && got != tc.want {
				t.Errorf("got %+v %v\nwant %+v", got, err, tc.want)
			}
		})
	}
}

// judge must not take old or foreign news for what is wanted.
func TestJudge(t *testing.T) {
	topo := cluster.Topology{Model: cluster.ModelSpec{Name: "m"}, Prefill: 1, Decode: 2, Generation: 3}
	assign := func(n int, role cluster.Role, desire cluster.Desire) cluster.Assignment {
		return cluster.Assignment{Name: cluster.WorkerName(n), Role: role, Model: topo.Model, Node: "n1", Device: "cpu:0", Desire: desire, Generation: 2}
	}
	status := func(n int, role cluster.Role, s cluster.State) cluster.WorkerStatus {
		return cluster.WorkerStatus{Name: cluster.WorkerName(n), Role: role, Node: "n1", State: s, InstanceID: 7, Generation: 2}
	}
	view := func() client.View {
		v := client.View{Topology: &topo, Nodes: []cluster.Node{{ID: "n1"}}, Assignments: map[string]cluster.Assignment{}, Status: map[string]cluster.WorkerStatus{}}
		for n, role := range []cluster.Role{cluster.RolePrefill, cluster.RoleDecode, cluster.RoleDecode} {
			v.Assignments[cluster.WorkerName(n+1)] = assign(n+1, role, cluster.DesireRun)
			v.Status[cluster.WorkerName(n+1)] = status(n+1, role, cluster.StateReady)
		}
		return v
	}
	for _, tc := range []struct {
		name             string
		change           func(v *client.View)
		trust            func(string) bool
		ready, want      int
		serving, settled bool
	}{
		{"all ready", func(*client.View) {}, nil, 3, 3, true, true},
		{"one loads", func(v *client.View) {
			v.Status["worker-2"] = status(2, cluster.RoleDecode, cluster.StateLoading)
		}, nil, 2, 3, false, false},
		{"one is degraded", func(v *client.View) {
			v.Status["worker-2"] = status(2, cluster.RoleDecode, cluster.StateDegraded)
		}, nil, 3, 3, true, true},
		{"one is of an older generation", func(v *client.View) {
			a := v.Assignments["worker-2"]
			a.Generation = 3
			v.Assignments["worker-2"] = a
		}, nil, 2, 3, false, false},
		{"one has the old engine", func(v *client.View) {
			a := v.Assignments["worker-1"]
			a.Engine.KVBlocks = 5
			v.Assignments["worker-1"] = a
		}, nil, 2, 3, false, false},
		{"none was assigned", func(v *client.View) { clear(v.Assignments) }, nil, 0, 3, false, false},
		{"the node is dead", func(*client.View) {}, func(string) bool { return false }, 0, 3, false, false},
		{"one too many", func(v *client.View) {
			v.Assignments["worker-4"] = assign(4, cluster.RoleDecode, cluster.DesireRun)
		}, nil, 3, 3, true, false},
		{"one leaves", func(v *client.View) {
			v.Assignments["worker-4"] = assign(4, cluster.RoleDecode, cluster.DesireRemove)
		}, nil, 3, 3, true, false},
		{"one was drained on purpose", func(v *client.View) {
			v.Assignments["worker-3"] = assign(3, cluster.RoleDecode, cluster.DesireDrain)
			v.Status["worker-3"] = status(3, cluster.RoleDecode, cluster.StateDrained)
		}, nil, 2, 2, true, true},
		{"a status without an assignment", func(v *client.View) {
			v.Status["worker-9"] = status(9, cluster.RoleDecode, cluster.StateReady)
		}, nil, 3, 3, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := view()
			tc.change(&v)
			s := goal{topo: topo, trust: tc.trust}.judge(v)
			if s.ready != tc.ready || s.want != tc.want || s.serving() != tc.serving || s.settled() != tc.settled {
				t.Errorf("%d of %d, serving %t, settled %t; want %d of %d, %t, %t", s.ready, s.want, s.serving(), s.settled(), tc.ready, tc.want, tc.serving, tc.settled)
			}
		})
	}
}

// With stores of its own the agents of a cluster run elsewhere.
func TestUpOnExternalStores(t *testing.T) {
	w := newWorld(t)
	r := w.run("up")
	if r.code != exitFailed || !strings.Contains(r.stderr, "dynctl: cannot start the cluster: no node is up\n  etcd: 127.0.0.1:") {
		t.Errorf("no nodes: %+v", r)
	}
	w.agent(fakeConfig{})
	r = w.ok("up", "--decode", "2", "-o", "json")
	var got upResult
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
		t.Fatal(err)
	}
	if !got.Ready || got.Prefill != 1 || got.Decode != 2 || got.Model != "dynctl-tiny" || !strings.HasPrefix(got.URL, "http://127.0.0.1:") || len(got.Workers) != 3 {
		t.Errorf("got %s", r.stdout)
	}
	if r := w.ok("up", "-q"); r.stdout != "worker-1\nworker-2\nworker-3\n" || r.stderr != "" {
		t.Errorf("-q: %+v", r)
	}
	has(t, "dry run", w.ok("up", "--dry-run", "--decode", "1").stdout, "would change 1 prefill + 2 decode workers to 1 prefill + 1 decode worker, model dynctl-tiny (built-in)\n")
	has(t, "dry run of nothing", w.ok("up", "--dry-run").stdout, "would change nothing: 1 prefill + 2 decode workers")
	r = w.run("up", "--served-model-name", "it's")
	if r.code != exitFailed {
		t.Errorf("exit %d", r.code)
	}
	has(t, "another model", r.stderr, "dynctl: cannot serve it's in cluster lab: it serves another model\n  serving: dynctl-tiny (built-in) on 1 prefill + 2 decode workers\n",
		`  try: dynctl down -c lab && dynctl up -c lab --served-model-name 'it'\''s'`)
	// The formats of the model can change while it is served.
	w.ok("up", "--tool-parser", "hermes", "--reasoning-parser", "none", "-o", "json")
	w.ok("up", "--tool-parser", "pythonic", "-o", "json")
	if topo := w.topology(); topo.Model.ToolParser != "pythonic" || topo.Model.ReasoningParser != "none" || topo.Decode != 2 {
		t.Errorf("topology %+v", topo)
	}
	// So can the type of its weights.
	r = w.ok("up", "--quantize", "q8_0")
	has(t, "quantized", r.stderr, "model dynctl-tiny as q8_0\n")
	if topo := w.topology(); topo.Model.Quantize != "q8_0" || topo.Model.ToolParser != "pythonic" {
		t.Errorf("topology %+v", topo)
	}
	has(t, "ps", w.ok("ps", "-o", "wide").stdout, "\tWEIGHTS\t", "\tdynctl-tiny\tq8_0\t", "\tTP\n", "\t1\n")
	has(t, "JSON", w.ok("ps", "-o", "json").stdout, `"weights": "q8_0"`)
	has(t, "dry run", w.ok("up", "--dry-run").stdout, "would change nothing", "(built-in) as q8_0\n")
	w.ok("up", "--quantize", "none", "-o", "json")
	if topo := w.topology(); topo.Model.Quantize != "" {
		t.Errorf("topology %+v", topo)
	}
	eventually(t, "the workers of before have left", func() bool { return strings.Count(w.ok("ps", "-q").stdout, "\n") == 3 })
	// Down takes the workers away; the agent was not started here and stays.
	r = w.ok("down")
	has(t, "down", r.stdout, "cluster lab has no workers: stopped 3 workers in ")
	has(t, "down", r.stderr, "agents that were not started here go on without workers: node-1 on ")
	if r := w.ok("down"); !strings.Contains(r.stdout, "nothing of cluster lab runs on this machine") {
		t.Errorf("again: %+v", r)
	}
}

func TestUpTimesOut(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Fail: map[string]string{"worker-1": "no"}, Backoff: 1 << 40})
	r := w.run("up", "--prefill", "0", "--timeout", "2s")
	if r.code != exitDeadline {
		t.Errorf("exit %d", r.code)
	}
	has(t, "stderr", r.stderr, "dynctl: cluster lab is not ready after 2.0s: it waits for 1 decode worker\n  cluster lab goes on starting\n  try: dynctl ps\n")
}

func TestUpWithoutAFrontend(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Port: -1})
	r := w.ok("up")
	if r.stdout != "" {
		t.Errorf("stdout %q", r.stdout)
	}
	has(t, "stderr", r.stderr, "no node of this cluster has a frontend")
}

func TestShellQuote(t *testing.T) {
	for in, want := range map[string]string{"plain-1.0": "plain-1.0", "a b": "'a b'", "it's": `'it'\''s'`, "": "''", `{"a":1}`: `'{"a":1}'`} {
		if got := shellQuote(in); got != want {
			t.Errorf("shellQuote(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestFlagText(t *testing.T) {
	for in, want := range map[string]string{"block_size: 7 is odd": "--block-size: 7 is odd", "no colon": "no colon", "a b: c": "a b: c"} {
		if got := flagText(fmt.Errorf("%s", in)); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}
