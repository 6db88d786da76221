package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/host"
)

// find returns the finding of a name.
func find(t *testing.T, all []finding, name string) finding {
	t.Helper()
	for _, f := range all {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no check %s", name)
	return finding{}
}

func TestDoctorOfACluster(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Fail: map[string]string{"worker-3": "no memory"}, Backoff: time.Minute})
	if r := w.run("up", "--prefill", "1", "--decode", "2", "--no-wait"); r.code != exitAccepted {
		t.Fatalf("%+v", r)
	}
	var d diagnosis
	// A store that answers late once, on a busy machine, is no fault of the doctor's.
	eventually(t, "the stores answer, two workers serve and one has failed", func() bool {
		r := w.run("doctor", "-o", "json")
		d = diagnosis{}
		if err := json.Unmarshal([]byte(r.stdout), &d); err != nil || r.code != exitFailed {
			t.Fatalf("%v, %+v", err, r)
		}
		f := find(t, d.Checks, "workers")
		prompt := find(t, d.Checks, "etcd").Status == checkOK && find(t, d.Checks, "nats").Status == checkOK
		return prompt && f.Found == "2 of 3 workers serve dynctl-tiny; worker-3 failed: no memory"
	})
	for name, want := range map[string]finding{
		"etcd":          {Status: checkOK, Found: "answers in "},
		"nats":          {Status: checkOK, Found: "answers in "},
		"prefill-queue": {Status: checkOK, Found: "JetStream works; 0 waiting, 0 in work, 0 dead letters"},
		"controller":    {Status: checkOK, Found: "node-1 leads"},
		"nodes":         {Status: checkWarn, Found: "v0.0.0-test on node-1; dynctl is "},
		"clocks":        {Status: checkOK, Found: ""},
		"leases":        {Status: checkOK, Found: "3 leases, all renewed; the soonest to end, "},
		"workers":       {Status: checkFail, Found: "", Fix: "dynctl logs worker-3"},
		"paths":         {Status: checkSkip, Found: "no two workers exchange KV blocks"},
		"models":        {Status: checkOK, Found: "http://127.0.0.1:"},
		"answer":        {Status: checkFail, Found: "http://127.0.0.1:"},
		"port":          {Status: checkSkip, Found: "the cluster's nodes are started elsewhere"},
	} {
		f := find(t, d.Checks, name)
		if f.Status != want.Status || !strings.HasPrefix(f.Found, want.Found) || want.Fix != "" && f.Fix != want.Fix || f.Status == checkFail && f.Fix == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if d.OK+d.Warned+d.Failed+d.Skipped != len(d.Checks) || d.Failed != 2 {
		t.Errorf("counts %+v", d)
	}
	if r := w.run("doctor", "-q"); r.stdout != "workers\nanswer\n" {
		t.Errorf("-q: %+v", r)
	}
}

func TestDoctorOfFrontends(t *testing.T) {
	inv := &invocation{factory: newFactory(Env{})}
	o := &doctorCommand{timeout: time.Minute}
	topo := &cluster.Topology{Model: cluster.ModelSpec{Name: "tiny"}, Decode: 1}
	look := func(topo *cluster.Topology, urls ...string) []finding {
		v := client.View{Topology: topo}
		for i, u := range urls {
			v.Nodes = append(v.Nodes, cluster.Node{Name: nodeName(i), FrontendURL: u})
		}
		return o.frontendFindings(t.Context(), inv, v)
	}
	status := func(fs []finding) string {
		var out []string
		for _, f := range fs {
			out = append(out, f.Name+" "+f.Status)
		}
		return strings.Join(out, ", ")
	}
	gone := newFrontend(t)
	gone.Close()
	impatient := func(frontend string) []finding {
		defer func(was time.Duration) { o.timeout = was }(o.timeout)
		o.timeout = 2 * time.Second // of each check; only the last one takes so long
		return look(topo, frontend)
	}
	for _, tc := range []struct {
		name  string
		found []finding
		want  string
		text  string // of the last
	}{
		{"well", look(topo, newFrontend(t, says("", "Hi there.")).URL), "health ok, models ok, answer ok", "answers, ttft "},
		{"none", look(topo), "health skip, models skip, answer skip", "no node has an HTTP frontend"},
		{"not declared", look(nil, newFrontend(t).URL), "health ok, models ok, answer skip", "no model is declared"},
		{"silent", impatient(newFrontend(t, hangs("Hi")).URL), "health ok, models ok, answer fail", "no answer in time"},
		{"busy", look(topo, newFrontend(t, refuses(503, "1", "", "No worker.")).URL), "health ok, models ok, answer fail", "No worker (status 503)"},
		{"locked", look(topo, newFrontend(t, refuses(401, "", "", "Key?")).URL), "health ok, models ok, answer warn", "asks for an API key: Key? (status 401)"},
		{"broken", look(topo, newFrontend(t, streams("data: {}\n\n")).URL), "health ok, models ok, answer fail", "the answer broke off"},
		{"other model", look(&cluster.Topology{Model: cluster.ModelSpec{Name: "big"}, Decode: 1}, newFrontend(t, refuses(404, "", "", "No.")).URL), "health ok, models fail, answer fail", "No (status 404)"},
		{"gone, and one that is well", look(topo, gone.URL, newFrontend(t, says("", "Hi.")).URL), "health fail, models fail, answer fail, health ok, models ok, answer ok", "answers"},
	} {
		last := tc.found[len(tc.found)-1]
		if got := status(tc.found); got != tc.want || !strings.Contains(last.Found, tc.text) {
			t.Errorf("%s: %s, %+v", tc.name, got, last)
		}
	}
}

func TestDoctorsJudgement(t *testing.T) {
	ms := time.Millisecond
	worker := func(name string, s cluster.State) client.View {
		return client.View{Topology: &cluster.Topology{Decode: 1}, Status: map[string]cluster.WorkerStatus{name: {Name: name, State: s}}}
	}
	inv := &invocation{factory: newFactory(Env{})}
	for _, tc := range []struct {
		name   string
		got    finding
		status string
		found  string
	}{
		{"etcd", etcdFinding(client.Reply{Err: errors.New("down")}), checkFail, "down"},
		{"slow etcd", etcdFinding(client.Reply{RTT: 250 * ms}), checkWarn, "answers in 250 ms"},
		{"no NATS", natsFinding(nil), checkWarn, "no event plane is configured"},
		{"NATS", natsFinding(&client.Reply{Err: errors.New("down")}), checkFail, "down"},
		{"slow NATS", natsFinding(&client.Reply{RTT: time.Second}), checkWarn, "answers in 1000 ms"},
		{"no queue", queueFinding(nil), checkSkip, "no event plane"},
		{"queue", queueFinding(&client.QueueReply{Err: errors.New("no JetStream")}), checkFail, "JetStream: no JetStream"},
		{"dead letters", queueFinding(&client.QueueReply{Depth: events.Depth{Pending: 1, InWork: 2, DeadLettered: 3}}), checkWarn, "1 waiting, 2 in work, 3 dead letters"},
		{"no leader", controllerFinding(client.View{Nodes: []cluster.Node{{}}}, "", nil), checkFail, "no node leads"},
		{"no nodes", nodesFinding(client.View{}), checkFail, "none is up"},
		{"versions", nodesFinding(client.View{Nodes: []cluster.Node{{Name: "a", Version: "v1"}, {Name: "b", Version: "v2"}, {Name: "c", Version: "v1"}}}), checkWarn, "several versions: v1 on a, c; v2 on b"},
		{"same version", nodesFinding(client.View{Nodes: []cluster.Node{{Name: "a", Version: buildVersion().Version}}}), checkOK, "a: "},
		{"same instructions", nodesFinding(client.View{Nodes: []cluster.Node{computing("a", "avx512 bf16"), computing("b", "avx512 bf16")}}), checkOK, "computing with avx512 bf16"},
		{"other instructions", nodesFinding(client.View{Nodes: []cluster.Node{computing("a", "avx512 bf16"), computing("b", "avx512"), computing("c", "avx512")}}), checkWarn, "compute differently: avx512 on b, c; avx512 bf16 on a"},
		{"no clocks", clocksFinding(nil), checkSkip, "no worker tells its time"},
		{"same clocks", clocksFinding(map[string]client.Clock{"a": {Offset: 2 * ms, Uncertainty: 3 * ms}}), checkOK, "no difference to this machine's that could be told, to 3.0 ms"},
		{"other clocks", clocksFinding(map[string]client.Clock{"a": {Offset: -20 * ms, Uncertainty: 3 * ms}}), checkOK, "at most 20.0 ms ± 3.0 ms"},
		{"skewed clock", clocksFinding(map[string]client.Clock{"a": {Offset: -2 * time.Second, Uncertainty: 3 * ms}}), checkWarn, "a by -2.0s ± 3 ms"},
		{"vague clock", clocksFinding(map[string]client.Clock{"a": {Offset: 2 * time.Second, Uncertainty: 1900 * ms}}), checkOK, "at most 2000.0 ms ± 1900.0 ms"},
		{"no worker", planeFinding(nil), checkSkip, "no worker can be asked"},
		{"workers answer", planeFinding(map[string]client.Reply{"worker-1": {RTT: 2 * ms}, "worker-2": {RTT: 5 * ms}}), checkOK, "2 workers answer in at most 5.0 ms"},
		{"slow worker", planeFinding(map[string]client.Reply{"worker-1": {RTT: time.Second}}), checkWarn, "the slowest worker answers in 1000 ms"},
		{"silent worker", planeFinding(map[string]client.Reply{"worker-10": {Err: errors.New("refused")}, "worker-2": {Err: errors.New("timed out")}}), checkFail, "worker-2: timed out; and 1 more"},
		{"little locked", checkLocked(64<<10, nil, []string{"mlx5_0"}), checkWarn, "64.0 KiB may be locked; the RDMA device mlx5_0 needs all KV memory locked"},
		{"locked", checkLocked(64<<10, nil, nil), checkOK, "64.0 KiB may be locked; no RDMA device needs it"},
		{"much locked", checkLocked(1<<64-1, nil, []string{"mlx5_0"}), checkOK, "any amount may be locked; RDMA devices: mlx5_0"},
		{"late lease", leasesFinding(client.View{}, client.Probe{Leases: []cluster.Lease{{Owner: "a", TTL: 9 * time.Second, Left: 2 * time.Second}}}), checkWarn, "a has 2.0s of 9s left"},
		{"ended lease", leasesFinding(client.View{}, client.Probe{Gone: []string{"worker-2"}}), checkFail, "ended: worker-2"},
		{"untold leases", leasesFinding(client.View{}, client.Probe{Unasked: 2}), checkFail, "etcd does not tell"},
		{"no topology", workersFinding(inv, client.View{}), checkWarn, "no topology is declared"},
		{"lost", workersFinding(inv, worker("worker-1", cluster.StateLost)), checkFail, "0 of 1 worker serve"},
		{"drained", workersFinding(inv, worker("worker-1", cluster.StateDrained)), checkWarn, "worker-1 drained"},
		{"loading", workersFinding(inv, worker("worker-1", cluster.StateLoading)), checkWarn, "worker-1 loading"},
		{"degraded", workersFinding(inv, worker("worker-1", cluster.StateDegraded)), checkWarn, "1 of 1 worker serve"},
		{"missing", workersFinding(inv, client.View{Topology: &cluster.Topology{Decode: 2}}), checkWarn, "0 of 2 workers"},
		{"little memory", checkMemory(host.Memory{Total: 4 << 30, Available: 512 << 20}), checkWarn, "512.0 MiB of 4.0 GiB available"},
		{"no memory", checkMemory(host.Memory{Total: 4 << 30, Available: 2 << 30, Limit: 1 << 30, LimitLeft: 1 << 20}), checkFail, "allows 1.0 GiB, of which 1.0 MiB are left"},
		{"unknown memory", checkMemory(host.Memory{}), checkSkip, "does not tell"},
		{"few files", checkFiles(1024, nil), checkWarn, "1,024 files"},
		{"too few files", checkFiles(64, nil), checkFail, "64 files"},
		{"any files", checkFiles(1<<63-1, nil), checkOK, "any number"},
		{"no state directory", checkStateDir(""), checkFail, "HOME is not set"},
	} {
		if tc.got.Status != tc.status || !strings.Contains(tc.got.Found, tc.found) || tc.status == checkFail && tc.got.Fix == "" {
			t.Errorf("%s: %+v, want %s: %s", tc.name, tc.got, tc.status, tc.found)
		}
	}
}

func TestDoctorSeesWhoHasThePort(t *testing.T) {
	f := newFrontend(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(f.URL, "http://"), ":")
	n, _ := strconv.Atoi(port)
	want := "this machine\tport\twarn\tlisten tcp 127.0.0.1:" + port + ": bind: address already in use; a frontend that serves tiny listens there\t" +
		fmt.Sprintf("dynctl up --port %d, or 0 for a free one\n", n%65535+1)
	eventually(t, want, func() bool { // it is asked, and not for long
		r := runMain(t.Context(), options{env: []string{"HOME=/nowhere", "DYNCTL_STATE_DIR=" + t.TempDir()}}, "doctor", "--port", port)
		return strings.Contains(r.stdout, want)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if who := whoListens(ctx, l.Addr().String()); who != "" || ctx.Err() != nil {
		t.Errorf("%q, %v", who, ctx.Err())
	}
}

// computing is a node of this version with two devices.
func computing(name, isa string) cluster.Node {
	return cluster.Node{Name: name, Version: buildVersion().Version, Devices: []cluster.Device{{ID: "cpu:0", ISA: isa}, {ID: "cpu:1", ISA: isa}}}
}
