package cli

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/statedir"
)

var update = flag.Bool("update", false, "write golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got\n%s\nwant\n%s", path, got, want)
	}
}

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// draw shows a screen on a terminal of 100x30, 21 seconds after its beginning.
func draw(s progress.Screen) string {
	var b bytes.Buffer
	now := noon
	d := progress.New(progress.Options{
		Mode: "tty", Now: func() time.Time { return now },
		Streams: term.Streams{Err: &b, Measure: func() (int, int) { return 100, 30 }},
	})
	now = noon.Add(21 * time.Second)
	d.Show(s)
	d.Close()
	return strings.ReplaceAll(b.String(), "\r\x1b[2K", "")
}

func labNodes() []cluster.Node {
	host, _ := os.Hostname()
	return []cluster.Node{
		{ID: "n1", Name: "node-1", Host: host, PID: 11, Devices: []cluster.Device{{ID: "cpu:0", Cores: 8}}, Roles: []cluster.Role{cluster.RoleDecode}, FrontendURL: "http://127.0.0.1:8000"},
		{ID: "n2", Name: "node-2", Host: host, PID: 12, Devices: []cluster.Device{{ID: "gpu:0", Name: "NVIDIA H200"}}, Roles: []cluster.Role{cluster.RolePrefill}},
	}
}

// fixedInvocation is one without configuration files and with a fixed clock.
func fixedInvocation(now *time.Time) *invocation {
	f := newFactory(Env{Now: func() time.Time { return *now }})
	inv := &invocation{factory: f, format: "table"}
	inv.cfg.Cluster = "lab"
	return inv
}

func TestDrainScreens(t *testing.T) {
	now := noon
	drainer := func(s *cluster.DrainStatus, seen ...cluster.DrainStep) *drainer {
		d := &drainer{
			inv: fixedInvocation(&now), name: "worker-7", ordered: noon.Add(-19 * time.Second), deadline: noon.Add(281 * time.Second), nodes: labNodes(), seen: s,
			worker: cluster.Worker{WorkerStatus: cluster.WorkerStatus{Name: "worker-7", Role: cluster.RoleDecode, Node: "n2", Device: "gpu:0", State: cluster.StateDraining}},
			steps:  map[cluster.DrainStep]time.Time{},
		}
		for i, step := range seen {
			d.steps[step] = d.ordered.Add(time.Duration(i) * 300 * time.Millisecond)
		}
		return d
	}
	open := []cluster.OpenSequence{{RequestID: "r-8e77", OutTokens: 1204, AgeMS: 128000}, {RequestID: "r-8f02", OutTokens: 310, AgeMS: 31000}, {RequestID: "r-8f0a", OutTokens: 12, AgeMS: 2000}}
	leaving := drainer(&cluster.DrainStatus{Step: cluster.DrainDiscovery, Sequences: 14, Left: 14, Routers: 2, Acknowledged: 1, Unacknowledged: []string{"n2"}}, cluster.DrainDiscovery)
	finishing := drainer(&cluster.DrainStatus{Step: cluster.DrainSequences, StartedAt: noon.Add(-19 * time.Second), Sequences: 14, Left: 3, Finished: 11, Open: open, Routers: 2, Acknowledged: 2},
		cluster.DrainDiscovery, cluster.DrainAdmission, cluster.DrainIncoming, cluster.DrainSequences)
	golden(t, "drain-begins", draw(drainer(nil).screen(now, false)))
	golden(t, "drain-leaving", draw(leaving.screen(now, false)))
	golden(t, "drain-finishing", draw(finishing.screen(now, false)))
	stale := *finishing
	stale.stale = noon.Add(-7 * time.Second)
	golden(t, "drain-stale", draw(stale.screen(now, false)))
	done := drainer(&cluster.DrainStatus{Step: cluster.DrainLease, StartedAt: noon.Add(-19 * time.Second), EndedAt: noon, Sequences: 14, Finished: 13, Moved: 1, Routers: 14, Acknowledged: 2, Unacknowledged: []string{"n1", "n2"}, Safe: true}, cluster.DrainSteps...)
	golden(t, "drain-done", draw(done.screen(now, true)))
	if got, want := done.sentence(now), "worker-7 drained in 19.0s: 13 finished, 1 moved, 0 cancelled. safe to stop."; got != want {
		t.Errorf("got %q", got)
	}
}

func TestUpScreens(t *testing.T) {
	now := noon.Add(-12 * time.Second)
	inv := fixedInvocation(&now)
	u := newUplift(inv, &upCommand{mode: "quiet"})
	u.fresh = true
	frame := func(v client.View, there map[string]bool) string {
		return draw(u.frame(v, there, goal{topo: u.topo}.judge(v)))
	}
	golden(t, "up-starting", draw(progress.Screen{Title: "lab  starting", Rows: u.storeRows(now)}))
	now = now.Add(400 * time.Millisecond)
	u.endpoints = statedir.Endpoints{Etcd: []string{"127.0.0.1:2379"}, NATS: "nats://127.0.0.1:4222"}
	u.storeRows(now)
	u.pids = map[string]int{"node-1": 11, "node-2": 12}
	golden(t, "up-nodes", frame(client.View{Nodes: labNodes()[:1]}, map[string]bool{"node-1": true}))

	now = now.Add(200 * time.Millisecond)
	u.topo = cluster.Topology{Model: cluster.ModelSpec{Name: "qwen3-0.6b"}, Prefill: 1, Decode: 4}
	v := client.View{Nodes: labNodes(), Assignments: map[string]cluster.Assignment{}, Status: map[string]cluster.WorkerStatus{}}
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
	add(4, cluster.RoleDecode, cluster.WorkerStatus{State: cluster.StateFailed, Reason: "not enough memory: needs 9.4 GiB, 3.1 GiB are free", Restarts: 1, RetryAt: noon.Add(time.Second)})
	add(5, cluster.RoleDecode, cluster.WorkerStatus{})
	frame(v, nil)
	now = noon
	add(1, cluster.RolePrefill, cluster.WorkerStatus{State: cluster.StateReady, Stats: cluster.WorkerStats{KVTotal: 4096}})
	u.screen.front = "for 4 decode workers"
	golden(t, "up-loading", frame(v, nil))
	for n := 2; n <= 5; n++ {
		add(n, cluster.RoleDecode, cluster.WorkerStatus{State: cluster.StateReady, Stats: cluster.WorkerStats{KVTotal: 4096}})
	}
	u.screen.front, u.screen.frontUp, u.screen.url = "", true, "http://127.0.0.1:8000"
	golden(t, "up-ready", frame(v, nil))
}

func TestDownScreens(t *testing.T) {
	now := noon.Add(-2 * time.Second)
	d := &downturn{inv: fixedInvocation(&now), o: &downCommand{}, begin: now, deadline: noon.Add(58 * time.Second)}
	var shown progress.Screen
	d.screen = newDownScreen(d, capture{&shown})
	v := client.View{Nodes: labNodes(), Assignments: map[string]cluster.Assignment{}, Status: map[string]cluster.WorkerStatus{
		"worker-1": {Name: "worker-1", Role: cluster.RolePrefill, Node: "n2", Device: "gpu:0", State: cluster.StateReady},
		"worker-2": {Name: "worker-2", Role: cluster.RoleDecode, Node: "n1", Device: "cpu:0", State: cluster.StateDraining, Drain: &cluster.DrainStatus{Step: cluster.DrainSequences, Sequences: 9, Left: 4}},
	}}
	d.screen.workers(v)
	now = noon
	delete(v.Status, "worker-1")
	d.screen.workers(v)
	golden(t, "down-draining", draw(shown))
	delete(v.Status, "worker-2")
	d.screen.workers(v)
	ending := func(name string, pid int, e launch.Ending) launch.Ending {
		e.Node, e.PID, e.Took = statedir.Node{Name: name}, pid, 700*time.Millisecond
		return e
	}
	d.screen.processes([]launch.Ending{ending("node-2", 12, launch.Ending{Gone: true})})
	d.screen.processes([]launch.Ending{ending("node-1", 11, launch.Ending{Hurried: true})})
	golden(t, "down-stopping", draw(shown))
	d.screen.processes([]launch.Ending{ending("node-1", 11, launch.Ending{Hurried: true, Killed: true, Gone: true})})
	golden(t, "down-killed", draw(shown))
}

// capture keeps the last screen.
type capture struct{ s *progress.Screen }

func (c capture) Show(s progress.Screen) { *c.s = s }
func (c capture) Close()                 {}

func TestTablesFitTheTerminal(t *testing.T) {
	tb := newTable("NAME", "~DEVICE", ">SEQS", "~NODE")
	tb.add("worker-12", "gpu0 H200", "7", "node-with-a-long-name")
	tb.add("worker-2", "cpu0 2c", "12+3", "node-1")
	tb.paint(2, term.Palette{On: true}.Bad)
	var b bytes.Buffer
	for _, width := range []int{80, 36, 10} {
		if err := tb.write(&b, tableStyle{terminal: true, width: width, bold: func(s string) string { return s }}); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n")
	}
	if err := tb.write(&b, tableStyle{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "table", b.String())
}

func TestValuesForPeople(t *testing.T) {
	for got, want := range map[string]string{
		age(45 * time.Second): "45s", age(14 * time.Minute): "14m", age(131 * time.Minute): "2h11m", age(76 * time.Hour): "3d04h", age(-1): "0s",
		duration(200 * time.Millisecond): "0.2s", duration(72 * time.Second): "1:12", duration(2*time.Hour + 5*time.Minute): "2:05:00",
		clockLeft(281 * time.Second): "4:41", commas(1204): "1,204", commas(-1234567): "-1,234,567", commas(12): "12", plural(1, "worker"): "1 worker",
		shape(2, 4): "2 prefill + 4 decode workers", shape(0, 1): "1 decode worker", shape(1, 1): "1 prefill + 1 decode worker", shape(0, 0): "0 decode workers",
		nameList(nil): "none", nameList([]string{"a", "b"}): "a, b", nameList(strings.Split("a b c d e f g h i", " ")): "a … i (9)",
		deviceText(labNodes(), "n2", "gpu:0"): "gpu0 H200", deviceText(labNodes(), "n1", "cpu:0"): "cpu0 8c", deviceText(nil, "x", "gpu:3"): "gpu3", deviceText(nil, "", ""): "",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
