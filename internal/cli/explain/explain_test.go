package explain

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

func TestGPUsOfANodeAreExplained(t *testing.T) {
	facts := func(r *cluster.GPUReport) string {
		n := cluster.Node{ID: "n1", Name: "node-1", GPU: r}
		x, ok := explainNode(client.View{Nodes: []cluster.Node{n}}, []cluster.Node{n}, "node-1", "")
		if !ok {
			t.Fatal("no such node")
		}
		var out []string
		for _, f := range x.facts {
			if strings.HasPrefix(f.name, "gpu") {
				out = append(out, f.name+": "+f.text)
			}
		}
		return strings.Join(out, "\n")
	}
	if got := facts(nil); got != "" {
		t.Errorf("of a node that does not report them: %s", got)
	}
	if got := facts(&cluster.GPUReport{Missing: "NVIDIA's driver is not installed"}); got != "gpus: none: NVIDIA's driver is not installed" {
		t.Errorf("of a node without: %s", got)
	}
	bare := cluster.GPU{Index: 1, Name: "NVIDIA H200", MemoryBytes: new(int64(141 << 30)), Processes: []cluster.GPUProcess{}, Failed: "the GPU must be reset"}
	want := `gpu 0: NVIDIA H200, 21.0 GiB of 141.0 GiB used, kernels ran in 50% of the time, 412 W, 61 °C, 1,305 MHz, slowed down: power cap, used by process 4711, 12
gpu 1: NVIDIA H200, 141.0 GiB, no process, the GPU must be reset`
	if got := facts(&cluster.GPUReport{GPUs: []cluster.GPU{clitest.GPU(0), bare}}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// text is an explanation as lines, without a terminal.
func (x *Explanation) text(now time.Time) string {
	var b strings.Builder
	for _, l := range x.lines(now, false) {
		b.WriteString(l.name + ": " + l.text + "\n")
	}
	return b.String()
}

func TestExplainWorkerInEveryState(t *testing.T) {
	asked := func(desire cluster.Desire, node string) cluster.Assignment {
		return cluster.Assignment{Name: "worker-7", Role: cluster.RoleDecode, Desire: desire, Node: node, Generation: 2}
	}
	begin := clitest.Noon.Add(-time.Minute)
	for _, tc := range []struct {
		name  string
		asked cluster.Assignment
		st    cluster.WorkerStatus
		want  []string
	}{
		{"unplaced", cluster.Assignment{Name: "worker-7", Desire: cluster.DesireRun, Unplaced: "no node has a device gpu"}, cluster.WorkerStatus{State: cluster.StatePending},
			[]string{"why: no node has a device gpu", "since: -", "next: it is placed when a node has room", "try: dynctl get nodes -o wide"}},
		{"unseen", cluster.Assignment{Name: "worker-7", Desire: cluster.DesireRun}, cluster.WorkerStatus{State: cluster.StatePending}, []string{"why: no node was chosen for it yet"}},
		{"not begun", asked(cluster.DesireRun, "n2"), cluster.WorkerStatus{State: cluster.StatePending}, []string{"why: node-2 is to run it and has not begun", "try: dynctl explain node node-2"}},
		{"loading", asked(cluster.DesireRun, "n2"), cluster.WorkerStatus{State: cluster.StateLoading, Progress: 0.63, StartedAt: begin}, []string{"its agent loads the model, 63% so far", "since: 2026-07-01T11:59:00Z"}},
		{"warming", asked(cluster.DesireRun, "n2"), cluster.WorkerStatus{State: cluster.StateWarming}, []string{"next: it serves"}},
		{"ready", asked(cluster.DesireRun, "n2"), cluster.WorkerStatus{State: cluster.StateReady, StartedAt: begin, Generation: 1, InstanceID: 9, Stats: cluster.WorkerStats{KVTotal: 8, KVActive: 2, Running: 1}},
			[]string{"frontends send it requests", "asked: it still runs generation 1", "load: 1 sequence, 0 waiting, 2 of 8 KV blocks"}},
		{"encodes", asked(cluster.DesireRun, "n2"), cluster.WorkerStatus{State: cluster.StateReady, Role: cluster.RoleEncode, Generation: 2, InstanceID: 9, Stats: cluster.WorkerStats{
			Running: 1, Waiting: 3, RequestsTotal: 1802, EncodedTotal: 700, ImagesCachedTotal: 1100, Embeddings: 30, EmbeddingsBytes: 20 << 20, EmbeddingsLimit: 256 << 20, TransfersTotal: 1798, TransferBytesTotal: 3 << 30,
		}},
			[]string{
				"why: the vision tower is loaded and it turns images of requests into embeddings", "role: encode, on -", "load: 1 image in work, 3 waiting\n",
				"images: 1,802 asked for, 700 encoded, 1,100 in the cache or in work already\n", "cache: embeddings of 30 images, 20.0 MiB of 256.0 MiB\n", "moved: 3.0 GiB of embeddings in 1,798 transfers\n",
			}},
		{"encodes no more", asked(cluster.DesireDrain, "n2"),
			cluster.WorkerStatus{State: cluster.StateDraining, Role: cluster.RoleEncode, InstanceID: 9, Drain: &cluster.DrainStatus{Step: cluster.DrainSequences, StartedAt: begin, Sequences: 2, Left: 1, Outgoing: 1, Open: []cluster.OpenSequence{{RequestID: "r-1", AgeMS: 2000}}}},
			[]string{"step: finish-images: 1 of 2 images left, 1 transfer from it\n", "open: r-1, for 2.0s\n"}},
		{"full", asked(cluster.DesireRun, "n2"), cluster.WorkerStatus{State: cluster.StateDegraded, Reason: "kv-high", Stats: cluster.WorkerStats{KVTotal: 100, KVActive: 97}},
			[]string{"why: kv-high: 97 of 100 KV blocks are in use", "some may be preempted"}},
		{"unhealthy", asked(cluster.DesireRun, "n2"), cluster.WorkerStatus{State: cluster.StateDegraded, Reason: "unhealthy: no answer", Unhealthy: "no answer"},
			[]string{"why: its engine does not answer: no answer", "next: frontends send requests to other workers", "try: dynctl logs worker-7"}},
		{"draining", asked(cluster.DesireDrain, "n2"),
			cluster.WorkerStatus{State: cluster.StateDraining, Drain: &cluster.DrainStatus{Step: cluster.DrainSequences, StartedAt: begin, Deadline: clitest.Noon.Add(281 * time.Second), Sequences: 14, Left: 3, Open: []cluster.OpenSequence{{RequestID: "r-1", OutTokens: 12, AgeMS: 2000, Why: "no room elsewhere"}}}},
			[]string{"why: it was told to drain", "since: 2026-07-01T11:59:00Z", "step: finish-sequences: 3 of 14 sequences left", "open: r-1, 12 tokens out, for 2.0s: no room elsewhere", "deadline: in 4:41", "try: dynctl resume worker-7"}},
		{"overdue", asked(cluster.DesireDrain, "n2"), cluster.WorkerStatus{State: cluster.StateDraining, Drain: &cluster.DrainStatus{Step: cluster.DrainSequences, Overdue: true}},
			[]string{"its deadline has passed", "--deadline 0 --yes"}},
		{"removed", asked(cluster.DesireRemove, "n2"), cluster.WorkerStatus{State: cluster.StateDraining}, []string{"why: it is more than the topology asks for"}},
		{"drained", asked(cluster.DesireDrain, "n2"), cluster.WorkerStatus{State: cluster.StateDrained, Drain: &cluster.DrainStatus{EndedAt: begin, Safe: true}},
			[]string{"safe to stop", "since: 2026-07-01T11:59:00Z", "try: dynctl resume worker-7"}},
		{"resumed", asked(cluster.DesireRun, "n2"), cluster.WorkerStatus{State: cluster.StateDrained}, []string{"next: it was resumed: its agent starts it"}},
		{"failed", asked(cluster.DesireRun, "n2"), cluster.WorkerStatus{State: cluster.StateFailed, Reason: "not enough memory", Restarts: 3, RetryAt: clitest.Noon.Add(8 * time.Second), UpdatedAt: begin},
			[]string{"why: not enough memory", "next: its agent starts it again in 8s", "restarts: 3 after failures", "try: dynctl logs worker-7"}},
		{"lost", asked(cluster.DesireRun, "gone"), cluster.WorkerStatus{State: cluster.StateLost, Reason: "its node is gone"}, []string{"why: its node is gone", "next: the controller gives it to another node"}},
		{"stopped", cluster.Assignment{}, cluster.WorkerStatus{State: cluster.StateStopped}, []string{"asked: nothing: no assignment is left"}},
	} {
		v := client.View{Nodes: clitest.Nodes(), Assignments: map[string]cluster.Assignment{}}
		if tc.asked.Name != "" {
			v.Assignments["worker-7"] = tc.asked
		}
		tc.st.Name, tc.st.Role = "worker-7", cmp.Or(tc.st.Role, cluster.RoleDecode)
		x := explainWorker(v, cluster.Worker{WorkerStatus: tc.st}, clitest.Noon)
		clitest.Has(t, tc.name, x.text(clitest.Noon), append(tc.want, "worker: worker-7\nstate: "+string(tc.st.State)+"\nwhy: ")...)
		if x.Why == "" || x.Next == "" {
			t.Errorf("%s: says not why or what next:\n%s", tc.name, x.text(clitest.Noon))
		}
	}
}

func TestExplainLease(t *testing.T) {
	plain := func(s string) string { return s }
	v := client.View{Instances: []cluster.Instance{{InstanceID: 7, Component: "decode", Endpoint: "stats"}, {InstanceID: 7, Component: "decode", Endpoint: "generate"}, {InstanceID: 8, Component: "agent", Endpoint: "logs"}}}
	lease := func(left time.Duration) *cluster.Lease {
		return &cluster.Lease{ID: 7, Owner: "worker-1", TTL: 9 * time.Second, Left: left, Renewed: 9*time.Second - left}
	}
	for _, tc := range []struct {
		name string
		o    owner
		l    *cluster.Lease
		want []string
	}{
		{"kept", owner{name: "worker-1", id: 7, started: clitest.Noon}, lease(8 * time.Second), []string{"state: kept", "the last time was 1.0s ago", "owns: decode/generate, decode/stats", "since: 2026-07-01T12:00:00Z"}},
		{"late", owner{name: "worker-1", id: 7}, lease(2 * time.Second), []string{"state: late", "frozen", "it ends in 2.0s", "frontends use other workers"}},
		{"late node", owner{name: "node-1", node: true, id: 7}, lease(time.Second), []string{"its workers are placed on other nodes"}},
		{"ended", owner{name: "worker-1", id: 7}, nil, []string{"state: ended", "try: dynctl doctor"}},
		{"none", owner{name: "worker-1", state: cluster.StateDrained}, nil, []string{"state: none", "worker-1 is drained"}},
	} {
		clitest.Has(t, tc.name, explainLease(v, tc.o, tc.l, plain, plain).text(clitest.Noon), tc.want...)
	}
}

func TestExplainNode(t *testing.T) {
	v := client.View{Nodes: clitest.Nodes(), Assignments: map[string]cluster.Assignment{
		"worker-2": {Name: "worker-2", Role: cluster.RoleDecode, Node: "n1", Device: "cpu:0", Desire: cluster.DesireRun},
		"worker-9": {Name: "worker-9", Node: "node-3-ab12", Desire: cluster.DesireRun},
	}}
	x, ok := explainNode(v, v.Nodes, "node-1", "node-1")
	if !ok {
		t.Fatal("node-1 is not known")
	}
	clitest.Has(t, "up", x.text(clitest.Noon), "state: up", "device: cpu0 8c", "worker: worker-2 decode on cpu0 8c, pending", "prefers: decode workers", "leads: ")
	v.Nodes[0].Alarms = []string{"the disk of /var/lib/dynctl is full"}
	if x, ok = explainNode(v, v.Nodes, v.Nodes[0].Name, ""); !ok {
		t.Fatal("a node with an alarm is not known")
	}
	clitest.Has(t, "with an alarm", x.text(clitest.Noon), "alarm: the disk of /var/lib/dynctl is full")
	for _, row := range fleet.NodeRows(v, v.Nodes) {
		if want := len(row.Alarms) > 0; want != (row.State == cluster.StateDegraded) {
			t.Errorf("%s with alarms %v is %s", row.Name, row.Alarms, row.State)
		}
	}
	x, ok = explainNode(v, v.Nodes, "node-3", "node-1")
	if !ok || x.Node != nil {
		t.Fatalf("%+v", x)
	}
	clitest.Has(t, "gone", x.text(clitest.Noon), "state: gone", "workers: worker-9", "try: dynctl logs")
	if !x.needsNode {
		t.Error("another node would not help")
	}
	if _, ok := explainNode(v, v.Nodes, "node-4", ""); ok {
		t.Error("a node that never was is known")
	}
}

// A decision about a prompt with images says who encoded them and why, and how long each step
// took, one after the other.
func TestRouteWithImages(t *testing.T) {
	d := cluster.RouterDecision{Chosen: "worker-3", Prefill: "worker-2", PrefillWay: "queue", QueueNS: 1e6, PrefillNS: 400e6, ComputeNS: 330e6, Images: &cluster.RoutedImages{
		Count: 3, Cached: 1, EncodeNS: 250e6, MoveNS: 4e6, Bytes: 2 << 20, By: []string{"worker-1", "worker-4"}, Chosen: []string{"first by content", "worker-1 failed: gone"},
	}}
	want := []string{"images: 3, 1 of them computed before", "embeddings from worker-1 (first by content)", "embeddings from worker-4 (worker-1 failed: gone)", "embeddings of 1 image were at the worker with the prompt"}
	if got := imageTexts(&d); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	const remote = "queue 1.0 ms > encode 246.0 ms at worker-1 and worker-4 > embeddings 4.0 ms, 2.0 MiB > prefill 80.0 ms at worker-2 > "
	if got := timelineText(&d); got != remote+"KV to worker-3 > decode at worker-3" {
		t.Errorf("of a worker of the release before: %q", got)
	}
	d.KV, d.DecodeNS = &cluster.RoutedKV{NS: 2e6, ExposedNS: 1e6, Bytes: 3 << 20, Transport: "shm"}, 50e6
	if got := timelineText(&d); got != remote+"KV 2.0 ms, 3.0 MiB to worker-3 > decode 50.0 ms at worker-3" {
		t.Errorf("%q", got)
	}
	moved := cluster.RouterDecision{Chosen: "worker-5", Prefill: "worker-3", QueueNS: 1, PrefillNS: 9, KV: d.KV, DecodeNS: 7e6}
	if got := timelineText(&moved); got != "KV 2.0 ms, 3.0 MiB to worker-5 from worker-3 > decode 7.0 ms at worker-5" {
		t.Errorf("after a hand-over: %q", got)
	}
	d.KV, d.DecodeNS, d.PrefillNS, d.ComputeNS, d.PrefillWay = nil, 0, 330e6, 0, ""
	d.Prefill, d.Images.Bytes, d.Images.By, d.Images.MoveNS = "local", 0, nil, 0
	if got, want := timelineText(&d), "queue 1.0 ms > encode 250.0 ms > prefill 80.0 ms at worker-3 > decode at worker-3"; got != want {
		t.Errorf("%q", got)
	}
	d.Images, d.PrefillNS, d.DecodeNS = nil, 80e6, 2e6
	if got, want := timelineText(&d), "queue 1.0 ms > prefill 80.0 ms at worker-3 > decode 2.0 ms at worker-3"; got != want || imageTexts(&d) != nil {
		t.Errorf("%q", got)
	}
	d.Prefill = ""
	if got := timelineText(&d); got != "" {
		t.Errorf("before it is known: %q", got)
	}
}
