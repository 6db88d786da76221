package judge

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/host"
)

// indexes are those of two frontends that know worker-3.
func indexes(now time.Time, late time.Duration, predicted, wrong uint64) []cluster.KVIndex {
	w := cluster.KVIndexWorker{Worker: "worker-3", InstanceID: 3, Recent: &cluster.KVAccuracy{Predicted: predicted, False: wrong}}
	all := []cluster.KVIndex{{At: now, Workers: []cluster.KVIndexWorker{w}}}
	if late > 0 {
		w.OutOfDateSince = now.Add(-late)
	}
	return append(all, cluster.KVIndex{At: now, Workers: []cluster.KVIndexWorker{w}})
}

func TestDoctorsJudgement(t *testing.T) {
	ms, now := time.Millisecond, time.Unix(1_000_000, 0)
	worker := func(name string, s cluster.State) client.View {
		return client.View{Topology: &cluster.Topology{Decode: 1}, Status: map[string]cluster.WorkerStatus{name: {Name: name, State: s}}}
	}
	for _, tc := range []struct {
		name   string
		got    Finding
		status string
		found  string
	}{
		{"etcd", Etcd(client.Reply{Err: errors.New("down")}), Fail, "down"},
		{"files", Store(client.Reply{RTT: ms}, client.StoreFiles, "/d"), OK, "files in /d, answer in 1.0 ms"},
		{"broken files", Store(client.Reply{Err: errors.New("damaged")}, client.StoreFiles, "/d"), Fail, "damaged"},
		{"bucket", Store(client.Reply{RTT: ms}, client.StoreNATS, "b"), OK, "NATS, bucket b, answer in 1.0 ms"},
		{"slow bucket", Store(client.Reply{RTT: time.Second}, client.StoreNATS, "b"), Warn, "bucket b, answers in 1000 ms"},
		{"Kubernetes", Store(client.Reply{RTT: ms}, client.StoreKubernetes, ""), OK, "the Kubernetes API, answer in 1.0 ms"},
		{"denied by Kubernetes", Store(client.Reply{Err: errors.New("denied")}, client.StoreKubernetes, ""), Fail, "denied"},
		{"slow etcd", Etcd(client.Reply{RTT: 250 * ms}), Warn, "answers in 250 ms"},
		{"no NATS", NATS(nil), Warn, "no event plane is configured"},
		{"NATS", NATS(&client.Reply{Err: errors.New("down")}), Fail, "down"},
		{"slow NATS", NATS(&client.Reply{RTT: time.Second}), Warn, "answers in 1000 ms"},
		{"no queue", PrefillQueue(nil), Skip, "no event plane"},
		{"queue", PrefillQueue(&client.QueueReply{Err: errors.New("no JetStream")}), Fail, "JetStream: no JetStream"},
		{"dead letters", PrefillQueue(&client.QueueReply{Depth: events.Depth{Pending: 1, InWork: 2, DeadLettered: 3}}), Warn, "1 waiting, 2 in work, 3 dead letters"},
		{"last dead letter", PrefillQueue(&client.QueueReply{Depth: events.Depth{DeadLettered: 1}, LastDead: &events.DeadLetter{ID: "r7", Attempts: 5, Reason: "digest differs"}}), Warn, "1 dead letter, the newest of request r7 after 5 attempts: digest differs"},
		{"no leader", Controller(client.View{Nodes: []cluster.Node{{}}}, "", nil), Fail, "no node leads"},
		{"no nodes", Nodes(client.View{}, "v9", "dynctl up"), Fail, "none is up"},
		{"versions", Nodes(client.View{Nodes: []cluster.Node{{Name: "a", Version: "v1"}, {Name: "b", Version: "v2"}, {Name: "c", Version: "v1"}}}, "v9", "dynctl up"), Warn, "several versions: v1 on a, c; v2 on b"},
		{"same version", Nodes(client.View{Nodes: []cluster.Node{{Name: "a", Version: "v9"}}}, "v9", "dynctl up"), OK, "a: "},
		{"same instructions", Nodes(client.View{Nodes: []cluster.Node{computing("a", "avx512 bf16"), computing("b", "avx512 bf16")}}, "v9", "dynctl up"), OK, "computing with avx512 bf16"},
		{"other instructions", Nodes(client.View{Nodes: []cluster.Node{computing("a", "avx512 bf16"), computing("b", "avx512"), computing("c", "avx512")}}, "v9", "dynctl up"), Warn, "compute differently: avx512 on b, c; avx512 bf16 on a"},
		{"loopback address", Nodes(client.View{Nodes: []cluster.Node{{Name: "a", Host: "x", RequestPlane: "10.0.0.5:7370"}, {Name: "b", Host: "y", RequestPlane: "127.0.0.1:7370"}}}, "", "dynctl up"), Fail, "other nodes are told to reach b at a loopback address"},
		{"one of two on loopback", Nodes(client.View{Nodes: []cluster.Node{{Name: "a", Host: "x", RequestPlane: "10.0.0.5:7370"}, {Name: "b", Host: "x", RequestPlane: "127.0.0.1:7370"}}}, "", "dynctl up"), Fail, "told to reach b at"},
		{"loopback on one host", Nodes(client.View{Nodes: []cluster.Node{{Name: "a", Host: "x", RequestPlane: "127.0.0.1:1"}, {Name: "b", Host: "x", RequestPlane: "127.0.0.1:2"}}}, "", "dynctl up"), OK, "a, b: "},
		{"no alarms", Alarms([]cluster.Node{{Name: "a"}}), OK, "no node has to be seen to"},
		{"alarms", Alarms([]cluster.Node{{Name: "a"}, {Name: "b", Alarms: []string{"the disk is full", "x"}}}), Warn, "b: the disk is full; and 1 more"},
		{"no certificates", Certificates(0, nil), Skip, "no certificates from files"},
		{"certificates", Certificates(2, nil), OK, "those of 2 sections of the settings are valid"},
		{"a certificate that ends", Certificates(2, []string{"it ends"}), Warn, "it ends"},
		{"no clocks", Clocks(nil), Skip, "no worker reports its time"},
		{"same clocks", Clocks(map[string]client.Clock{"a": {Offset: 2 * ms, Uncertainty: 3 * ms}}), OK, "no measurable difference to this machine's, to 3.0 ms"},
		{"other clocks", Clocks(map[string]client.Clock{"a": {Offset: -20 * ms, Uncertainty: 3 * ms}}), OK, "at most 20.0 ms ± 3.0 ms"},
		{"skewed clock", Clocks(map[string]client.Clock{"a": {Offset: -2 * time.Second, Uncertainty: 3 * ms}}), Warn, "a by -2.0s ± 3 ms"},
		{"vague clock", Clocks(map[string]client.Clock{"a": {Offset: 2 * time.Second, Uncertainty: 1900 * ms}}), OK, "at most 2000.0 ms ± 1900.0 ms"},
		{"no worker", RequestPlane(nil, nil), Skip, "no worker can be asked"},
		{"workers answer", RequestPlane(twoPlanes, map[string]client.Reply{"worker-1": {RTT: 2 * ms}, "worker-2": {RTT: 5 * ms}}), OK, "2 workers answer in at most 5.0 ms, over http and tcp"},
		{"workers answer on three planes", RequestPlane(threePlanes, map[string]client.Reply{"worker-1": {RTT: 2 * ms}}), OK, "over http and nats and tcp"},
		{"slow worker", RequestPlane(twoPlanes, map[string]client.Reply{"worker-1": {RTT: time.Second}}), Warn, "the slowest worker answers in 1000 ms"},
		{"silent worker", RequestPlane(twoPlanes, map[string]client.Reply{"worker-10": {Err: errors.New("refused")}, "worker-2": {Err: errors.New("timed out")}}), Fail, "worker-2: timed out; and 1 more"},
		{"little locked", LockedMemory(64<<10, nil, []string{"mlx5_0"}), Warn, "64.0 KiB may be locked; the RDMA device mlx5_0 needs all KV memory locked"},
		{"locked", LockedMemory(64<<10, nil, nil), OK, "64.0 KiB may be locked; no RDMA device needs it"},
		{"much locked", LockedMemory(1<<64-1, nil, []string{"mlx5_0"}), OK, "any amount may be locked; RDMA devices: mlx5_0"},
		{"late lease", Leases(client.View{}, client.Probe{Leases: []cluster.Lease{{Owner: "a", TTL: 9 * time.Second, Left: 2 * time.Second}}}), Warn, "a has 2.0s of 9s left"},
		{"ended lease", Leases(client.View{}, client.Probe{Gone: []string{"worker-2"}}), Fail, "ended: worker-2"},
		{"untold leases", Leases(client.View{}, client.Probe{Unasked: 2}), Fail, "the store does not report"},
		{"no index", KVIndex(nil, client.ErrNoIndex, now), Skip, "no frontend reports its prefix index"},
		{"index refused", KVIndex(nil, errors.New("refused"), now), Fail, "refused"},
		{"empty index", KVIndex([]cluster.KVIndex{{}}, nil, now), Skip, "the frontends know no worker"},
		{"true index", KVIndex(indexes(now, time.Second, 300, 3), nil, now), OK, "1 KV cache followed by 2 frontends; 1% of 600 blocks predicted in the last minute were not there"},
		{"false index", KVIndex(indexes(now, 0, 300, 60), nil, now), Warn, "worker-3: 20% of 600 predicted blocks were not there"},
		{"late index", KVIndex(indexes(now, 5*time.Second, 300, 60), nil, now), Warn, "index of worker-3 is out of date for 5s; and 1 more"},
		{"no topology", Workers(client.View{}, "dynctl up"), Warn, "no topology is declared"},
		{"lost", Workers(worker("worker-1", cluster.StateLost), "dynctl up"), Fail, "0 of 1 worker serve"},
		{"drained", Workers(worker("worker-1", cluster.StateDrained), "dynctl up"), Warn, "worker-1 drained"},
		{"loading", Workers(worker("worker-1", cluster.StateLoading), "dynctl up"), Warn, "worker-1 loading"},
		{"degraded", Workers(worker("worker-1", cluster.StateDegraded), "dynctl up"), Warn, "1 of 1 worker serve"},
		{"missing", Workers(client.View{Topology: &cluster.Topology{Decode: 2}}, "dynctl up"), Warn, "0 of 2 workers"},
		{"missing of all roles", Workers(client.View{Topology: &cluster.Topology{Prefill: 1, Decode: 2, Encode: 3}}, "dynctl up"), Warn, "0 of 6 workers"},
		{"little memory", Memory(host.Memory{Total: 4 << 30, Available: 512 << 20}), Warn, "512.0 MiB of 4.0 GiB available"},
		{"no memory", Memory(host.Memory{Total: 4 << 30, Available: 2 << 30, Limit: 1 << 30, LimitLeft: 1 << 20}), Fail, "allows 1.0 GiB, of which 1.0 MiB are left"},
		{"unknown memory", Memory(host.Memory{}), Skip, "does not report"},
		{"few files", OpenFiles(1024, nil), Warn, "1,024 files"},
		{"too few files", OpenFiles(64, nil), Fail, "64 files"},
		{"any files", OpenFiles(1<<63-1, nil), OK, "any number"},
		{"no state directory", StateDir{}.Judge(), Fail, "HOME is not set"},
	} {
		if tc.got.Status != tc.status || !strings.Contains(tc.got.Found, tc.found) || tc.status == Fail && tc.got.Fix == "" {
			t.Errorf("%s: %+v, want %s: %s", tc.name, tc.got, tc.status, tc.found)
		}
	}
}

// computing is a node of this version with two devices.
func computing(name, isa string) cluster.Node {
	return cluster.Node{Name: name, Version: "v9", Devices: []cluster.Device{{ID: "cpu:0", ISA: isa}, {ID: "cpu:1", ISA: isa}}}
}

func TestDoctorsPaths(t *testing.T) {
	fine := func(p *cluster.Path) { p.Candidates = p.Candidates[2:] }
	gone := func(p *cluster.Path) { p.Failed = "gone" }
	faster := func(p *cluster.Path) {
		fine(p)
		p.To, p.Test.WriteGBps, p.Test.ReadGBps = "worker-3", 7, 8
	}
	for _, c := range []struct {
		name          string
		measured      client.Measured
		status, found string
	}{
		{"none", client.Measured{}, Skip, "no two workers exchange KV blocks"},
		{"fine", client.Measured{Paths: clitest.Paths(fine)["worker-1"], Left: 3}, OK, "1 path: 1 over tcp; 2.5 GB/s to 2.5 GB/s, the slowest worker-1 to worker-2; 3 more not tested"},
		{"two", client.Measured{Paths: slices.Concat(clitest.Paths(fine)["worker-1"], clitest.Paths(faster)["worker-1"])}, OK, "2 paths: 2 over tcp; 2.5 GB/s to 7.0 GB/s, the slowest worker-1 to worker-2"},
		{"second best", client.Measured{Paths: clitest.Paths(nil)["worker-1"]}, Warn, `worker-1 to worker-2 over tcp and not shm: region "kv"`},
		{"broken", client.Measured{Paths: slices.Concat(clitest.Paths(gone)["worker-1"], clitest.Paths(gone)["worker-2"])}, Fail, "worker-1 to worker-2: gone; and 1 more"},
		{"silent", client.Measured{Failed: []error{errors.New("no answer")}}, Fail, "no answer"},
	} {
		if f := Paths(c.measured); f.Status != c.status || !strings.HasPrefix(f.Found, c.found) {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}

// twoPlanes are nodes of a cluster that changes its request plane.
var threePlanes = append([]cluster.Node{{RequestPlane: "nats://dynctl.plane.A"}}, twoPlanes...)

var twoPlanes = []cluster.Node{{RequestPlane: "127.0.0.1:7370"}, {RequestPlane: "http://127.0.0.1:7370/v1/rpc"}}
