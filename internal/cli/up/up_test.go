package up

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/settle"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/inspect"
	"github.com/dynctl/dynctl/internal/statedir"
)

func TestUpScreens(t *testing.T) {
	now := clitest.Noon.Add(-12 * time.Second)
	u := newUplift(&session.Session{Out: &output.Printer{Format: "table", Now: func() time.Time { return now }}, Config: config.Dynctl{Cluster: "lab"}}, &Options{Waiting: command.Waiting{Progress: "quiet"}})
	u.fresh = true
	frame := func(v client.View, there map[string]bool) string {
		return clitest.Draw(u.frame(v, there, settle.Goal{Topo: u.topo}.Judge(v)))
	}
	clitest.Golden(t, "up-starting", clitest.Draw(progress.Screen{Title: "lab  starting", Rows: u.storeRows(now)}))
	now = now.Add(400 * time.Millisecond)
	u.endpoints = statedir.Endpoints{Etcd: []string{"127.0.0.1:2379"}, NATS: "nats://127.0.0.1:4222"}
	u.storeRows(now)
	u.pids = map[string]int{"node-1": 11, "node-2": 12}
	clitest.Golden(t, "up-nodes", frame(client.View{Nodes: clitest.Nodes()[:1]}, map[string]bool{"node-1": true}))

	now = now.Add(200 * time.Millisecond)
	u.topo = cluster.Topology{Model: cluster.ModelSpec{Name: "qwen3-0.6b"}, Prefill: 1, Decode: 4}
	v := client.View{Nodes: clitest.Nodes(), Assignments: map[string]cluster.Assignment{}, Status: map[string]cluster.WorkerStatus{}}
	add := func(n int, role cluster.Role, st cluster.WorkerStatus) {
		name := cluster.WorkerName(n)
		node, device := "n1", "cpu:0"
		if role == cluster.RolePrefill {
			node, device = "n2", "gpu:0"
		}
		v.Assignments[name] = cluster.Assignment{Name: name, Role: role, Model: u.topo.Model, Node: node, Device: device, Desire: cluster.DesireRun, Generation: 1}
		if st.State != "" {
			st.Name, st.Role, st.Node, st.Device, st.Generation, st.InstanceID = name, role, node, device, 1, 7
			v.Status[name] = st
		}
	}
	add(1, cluster.RolePrefill, cluster.WorkerStatus{State: cluster.StateLoading, Progress: 0.1})
	add(2, cluster.RoleDecode, cluster.WorkerStatus{State: cluster.StateLoading, Progress: 0.63})
	add(3, cluster.RoleDecode, cluster.WorkerStatus{State: cluster.StateWarming})
	add(4, cluster.RoleDecode, cluster.WorkerStatus{State: cluster.StateFailed, Reason: "not enough memory: needs 9.4 GiB, 3.1 GiB are free", Restarts: 1, RetryAt: clitest.Noon.Add(time.Second)})
	add(5, cluster.RoleDecode, cluster.WorkerStatus{})
	frame(v, nil)
	now = clitest.Noon
	add(1, cluster.RolePrefill, cluster.WorkerStatus{State: cluster.StateReady, Stats: cluster.WorkerStats{KVTotal: 4096}})
	u.screen.front = "for 4 decode workers"
	clitest.Golden(t, "up-loading", frame(v, nil))
	for n := 2; n <= 5; n++ {
		add(n, cluster.RoleDecode, cluster.WorkerStatus{State: cluster.StateReady, Stats: cluster.WorkerStats{KVTotal: 4096}})
	}
	u.screen.front, u.screen.frontUp, u.screen.url = "", true, "http://127.0.0.1:8000"
	clitest.Golden(t, "up-ready", frame(v, nil))
}

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
	flags := func(given ...string) *Options {
		return &Options{Prefill: 1, Decode: 1, given: func(f string) bool { return slices.Contains(given, f) }}
	}
	tiny := cluster.ModelSpec{Name: cluster.BuiltinModelName}
	serving := cluster.Topology{Model: cluster.ModelSpec{Name: "qwen", Path: "/m/qwen"}, Prefill: 2, Decode: 4, Engine: cluster.EngineSpec{KVBlocks: 100}, Generation: 7}
	formatted := serving
	formatted.Model.ToolParser, formatted.Model.ReasoningParser, formatted.Model.Quantize = "hermes", "none", "q8_0"
	for _, tc := range []struct {
		name string
		o    *Options
		now  cluster.Topology
		want cluster.Topology
	}{
		{"nothing yet", flags(), cluster.Topology{}, cluster.Topology{Model: tiny, Prefill: 1, Decode: 1}},
		{"nothing yet, and what encodes", func() *Options { o := flags("encode"); o.Encode = 2; return o }(), cluster.Topology{}, cluster.Topology{
			Model: cluster.ModelSpec{Name: cluster.BuiltinVisionName, Path: cluster.BuiltinVisionName}, Prefill: 1, Decode: 1, Encode: 2,
		}},
		{"the model that sees under another name", func() *Options { o := flags("encode", "served-model-name"); o.Encode, o.Served = 1, "eye"; return o }(), cluster.Topology{}, cluster.Topology{
			Model: cluster.ModelSpec{Name: "eye", Path: cluster.BuiltinVisionName}, Prefill: 1, Decode: 1, Encode: 1,
		}},
		{"a model of text by its name", func() *Options { o := flags("model"); return o }(), serving, func() cluster.Topology { s := serving; s.Model = tiny; return s }()},
		{"left by a killed cluster", flags(), serving, serving},
		{"left by a killed cluster, and a count", func() *Options { o := flags("decode"); o.Decode = 6; return o }(), serving, func() cluster.Topology { s := serving; s.Decode = 6; return s }()},
		{"left by a killed cluster, and another model", func() *Options { o := flags("model"); o.Model = "/m/llama"; return o }(), serving, func() cluster.Topology {
			s := serving
			s.Model = cluster.ModelSpec{Name: "llama", Path: "/m/llama"}
			return s
		}()},
		{"after down", flags(), cluster.Topology{Model: serving.Model, Generation: 8}, cluster.Topology{Model: tiny, Prefill: 1, Decode: 1, Generation: 8}},
		{"nothing given", flags(), serving, serving},
		{"one count", func() *Options { o := flags("decode"); o.Decode = 6; return o }(), serving, func() cluster.Topology { s := serving; s.Decode = 6; return s }()},
		{"engine", func() *Options { o := flags("kv-blocks"); o.Engine.KVBlocks = 50; return o }(), serving, func() cluster.Topology { s := serving; s.Engine.KVBlocks = 50; return s }()},
		{"ranks", func() *Options { o := flags("tensor-parallel"); o.Engine.TensorParallel = 2; return o }(), serving, func() cluster.Topology { s := serving; s.Engine.TensorParallel = 2; return s }()},
		{"target and speculation", func() *Options {
			o := flags("itl-target", "speculative")
			o.Engine.ITLTargetMS, o.Engine.Speculative.Method = 80, cluster.SpeculativeNgram
			return o
		}(), serving, func() cluster.Topology {
			s := serving
			s.Engine.ITLTargetMS, s.Engine.Speculative.Method = 80, cluster.SpeculativeNgram
			return s
		}()},
		{"the same model", func() *Options { o := flags("model"); o.Model = "/m/qwen"; return o }(), serving, serving},
		{"another model, without what belonged to the former", func() *Options {
			o := flags("model", "tool-parser")
			o.Model, o.ToolParser = "/m/llama", "pythonic"
			return o
		}(), formatted, func() cluster.Topology {
			s := serving
			s.Model = cluster.ModelSpec{Name: "llama", Path: "/m/llama", ToolParser: "pythonic"}
			return s
		}()},
		{"the same model again, with what belongs to it", func() *Options { o := flags("model"); o.Model = "/m/qwen"; return o }(), formatted, formatted},
		{"another name", func() *Options { o := flags("served-model-name"); o.Served = "q"; return o }(), serving, func() cluster.Topology { s := serving; s.Model.Name = "q"; return s }()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := tc.o.desired(cluster.Revision{Topology: tc.now})
			if got := r.Topology; err != nil || !got.Equal(tc.want) {
				t.Errorf("got %+v %v\nwant %+v", got, err, tc.want)
			}
		})
	}
}

func TestFlagText(t *testing.T) {
	for in, want := range map[string]string{"block_size: 7 is odd": "--block-size: 7 is odd", "no colon": "no colon", "a b: c": "a b: c"} {
		if got := flagText(fmt.Errorf("%s", in)); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

// A model without a vision tower cannot have encode workers, and their engine has no limits
// to compare with the model's.
func TestUnservable(t *testing.T) {
	topo := cluster.Topology{Model: cluster.ModelSpec{Name: "m"}, Decode: 1, Encode: 1, Engine: cluster.EngineSpec{MaxModelLen: 200}}
	for _, tc := range []struct {
		report inspect.Report
		want   []string
	}{
		{inspect.Report{Context: 300}, []string{"encode workers: the model sees no images: it has no vision tower"}},
		{inspect.Report{Context: 300, SeesImages: true}, nil},
		{inspect.Report{Context: 100, SeesImages: true}, []string{"decode workers: max_model_len: 200 is not between 1 and the model's 100"}},
		{inspect.Report{Problems: []string{"no weights"}}, []string{"model: no weights"}},
	} {
		if got := unservable(tc.report, topo); !slices.Equal(got, tc.want) {
			t.Errorf("%+v: %q, want %q", tc.report, got, tc.want)
		}
	}
}
