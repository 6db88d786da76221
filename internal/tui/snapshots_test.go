package tui

import (
	"fmt"
	"math"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// noon is the fixed clock of all tests.
func noon() time.Time { return time.Date(2026, 3, 14, 12, 4, 31, 250e6, time.UTC) }

func ptr[T any](v T) *T { return &v }

// labGPUs are six GPUs, of which one is slowed down and the last has fallen off the bus.
func labGPUs() *cluster.GPUReport {
	r := &cluster.GPUReport{At: noon(), Driver: "580.65.06", CUDA: "13.0"}
	for i := range 6 {
		r.GPUs = append(r.GPUs, cluster.GPU{
			Index: i, Name: "NVIDIA H200", MemoryBytes: ptr(int64(141 << 30)), MemoryUsed: ptr(int64(100+i) << 30), Utilization: ptr(0.5 + float64(i)/10), MemoryBusy: ptr(0.25),
			PowerWatts: ptr(412.5), PowerLimit: ptr(700.0), Temperature: ptr(50 + i), SMClockMHz: ptr(1980), Processes: []cluster.GPUProcess{{PID: 4711, MemoryBytes: ptr(int64(99 << 30))}},
		})
	}
	r.GPUs[1].Throttled, r.GPUs[1].SMClockMHz = []string{"power cap", "too warm"}, ptr(1305)
	r.GPUs[2].Processes = append(r.GPUs[2].Processes, cluster.GPUProcess{PID: 12})
	r.GPUs[3].Processes = []cluster.GPUProcess{}
	r.GPUs[5] = cluster.GPU{Index: 5, Name: "NVIDIA H200", MemoryBytes: ptr(int64(141 << 30)), Failed: "the GPU has fallen off the bus, or cannot be reached"}
	return r
}

// labSnapshot is the cluster of the pictures: two prefill and five decode
// workers, one of them on a CPU, one short of KV blocks, one draining.
func labSnapshot() cluster.Snapshot {
	now := noon()
	s := cluster.Snapshot{
		Time: now, Cluster: "lab", Leader: "n1",
		Fresh:    cluster.Freshness{EtcdOK: true, EtcdRTT: 2 * time.Millisecond, NATSOK: true, NATSRTT: time.Millisecond},
		Topology: &cluster.Topology{Model: cluster.ModelSpec{Name: "qwen3-0.6b", Path: "/models/qwen3-0.6b"}, Prefill: 2, Decode: 5},
		Nodes: []cluster.Node{{ID: "n1", Name: "n1", Host: "lab-01", Version: "0.3.0", Devices: []cluster.Device{{ID: "cpu:0", Cores: 32, ISA: "avx512 bf16", MemoryBytes: 256 << 30}},
			PID: 4711, InstanceID: 0x7e01, StartedAt: now.Add(-132 * time.Minute), RequestPlane: "10.0.0.1:41233", FrontendURL: "http://10.0.0.1:8000", EmbeddedEtcd: true, EmbeddedNATS: true}},
		Notices: []string{"worker-4 KV blocks 97% used: expect preemption. Enter on the row to inspect."},
	}
	for g := range 6 {
		s.Nodes[0].Devices = append(s.Nodes[0].Devices, cluster.Device{ID: fmt.Sprintf("gpu:%d", g), Name: "NVIDIA H200", MemoryBytes: 141 << 30})
	}
	s.Nodes[0].GPU = labGPUs()
	add := func(n int, role cluster.Role, device string, state cluster.State, seqs, used, total int, toks, hit float64, lease, up time.Duration) *cluster.Worker {
		s.Workers = append(s.Workers, cluster.Worker{
			WorkerStatus: cluster.WorkerStatus{
				Name: cluster.WorkerName(n), Role: role, Model: "qwen3-0.6b", TensorParallel: 1 + n/4, Node: "n1", Device: device, State: state,
				InstanceID: cluster.InstanceID(0x7f00 + n), LeaseTTLMS: 10000, StartedAt: now.Add(-up), UpdatedAt: now.Add(-400 * time.Millisecond), Generation: 1,
				Stats: cluster.WorkerStats{Running: seqs, MaxSeqs: 64, BlockSize: 16, KVTotal: total, KVActive: used, KVCached: (total - used) / 2,
					RequestsTotal: 1802, FinishedTotal: 1780, GeneratedTotal: 412044, StepsTotal: 98211, TransfersTotal: 40, TransferBytesTotal: 54 << 20, TransferNanosTotal: 25e6},
			},
			Desire: cluster.DesireRun, Lease: ptr(lease), Uptime: ptr(up), TokS: ptr(toks), HitRate: ptr(hit), Busy: ptr(hit),
		})
		s.Leases = append(s.Leases, cluster.Lease{ID: cluster.InstanceID(0x7f00 + n), Owner: cluster.WorkerName(n), TTL: 10 * time.Second, Left: lease, Renewed: 10*time.Second - lease,
			Endpoints: []string{role.Component() + "/generate", role.Component() + "/stats"}})
		return &s.Workers[len(s.Workers)-1]
	}
	ms := time.Millisecond
	add(1, cluster.RolePrefill, "gpu:0", cluster.StateReady, 6, 2457, 4096, 9800, 0.71, 8700*ms, 2*time.Hour+11*time.Minute)
	add(2, cluster.RolePrefill, "gpu:1", cluster.StateReady, 5, 2130, 4096, 9100, 0.64, 7900*ms, 2*time.Hour+11*time.Minute)
	add(3, cluster.RoleDecode, "gpu:2", cluster.StateReady, 14, 3602, 4096, 1100, 0.58, 9200*ms, 2*time.Hour+11*time.Minute)
	w4 := add(4, cluster.RoleDecode, "gpu:3", cluster.StateDegraded, 17, 3968, 4096, 1200, 0.61, 8100*ms, 2*time.Hour+10*time.Minute)
	w4.Reason, w4.Stats.Waiting = "kv-high", 2
	add(5, cluster.RoleDecode, "gpu:4", cluster.StateReady, 9, 2211, 4096, 800, 0.49, 9600*ms, 62*time.Minute)
	add(6, cluster.RoleDecode, "cpu:0", cluster.StateReady, 2, 310, 1024, 38, 0.22, 6400*ms, 14*time.Minute)
	w7 := add(7, cluster.RoleDecode, "gpu:5", cluster.StateDraining, 3, 655, 4096, 210, 0.55, 9000*ms, 2*time.Hour+11*time.Minute)
	w7.Desire = cluster.DesireDrain
	w7.Drain = &cluster.DrainStatus{Step: cluster.DrainSequences, Routers: 2, Acknowledged: 2, StartedAt: now.Add(-19 * time.Second), Deadline: now.Add(4*time.Minute + 41*time.Second),
		Sequences: 14, Left: 3, Finished: 11,
		Open: []cluster.OpenSequence{{RequestID: "r-8e77", OutTokens: 1204, AgeMS: 128000}, {RequestID: "r-8f02", OutTokens: 310, AgeMS: 31000}, {RequestID: "r-8f0a", OutTokens: 12, AgeMS: 2000}}}
	s.Leases = append(s.Leases, cluster.Lease{ID: 0x7e01, Owner: "n1", TTL: 10 * time.Second, Left: 9500 * ms, Renewed: 500 * ms})
	order := []int{5, 1, 3, 0, 6, 2, 7, 4}
	sorted := make([]cluster.Lease, len(order))
	for i, j := range order {
		sorted[i] = s.Leases[j]
	}
	s.Leases = sorted

	s.Queue = cluster.QueueStats{Prefill: ptr(5), PrefillBusy: ptr(2), Waiting: ptr(2), RemoteWait: ptr(2), InFlight: ptr(56), AdmittedS: ptr(18.4), Preempted: 1, Cancelled: 2}
	s.Queue.Dead = ptr(0)
	for i := range 7 {
		q := cluster.QueuedPrefill{RequestID: fmt.Sprintf("r-8f%x", 0x22+i), Worker: cluster.WorkerName(3 + i%3), PromptTokens: 576 + 64*i, Blocks: 36 + 4*i, Bytes: int64(36+4*i) * 1835008,
			EnqueuedAt: now.Add(-time.Duration(900-100*i) * ms), Deadline: now.Add(time.Duration(29100+100*i) * ms), InWork: i < 2}
		if i == 6 { // not to be read
			q = cluster.QueuedPrefill{RequestID: "m-6", EnqueuedAt: now.Add(-300 * ms)}
		}
		s.Queue.Messages = append(s.Queue.Messages, q)
	}
	for i := range 60 {
		if i == 40 || i == 41 {
			s.Queue.History = append(s.Queue.History, nil)
			continue
		}
		s.Queue.History = append(s.Queue.History, ptr(math.Round(32+31*math.Sin(float64(i)/6))))
	}
	s.Latency = cluster.Latency{WindowS: 60, Requests: 1104,
		TTFT:      cluster.Percentiles{P50: ptr(142.0), P95: ptr(388.0), P99: ptr(612.0)},
		ITL:       cluster.Percentiles{P50: ptr(11.2), P95: ptr(19.8), P99: ptr(31.0)},
		Queue:     cluster.Percentiles{P50: ptr(24.0), P95: ptr(170.0)},
		Transfers: cluster.Percentiles{P50: ptr(7.9), P95: ptr(16.2), P99: ptr(22.0)},
		Transfer:  ptr(9.4), TransferBS: ptr(2.1e9)}
	event := func(ago time.Duration, worker int, kind cluster.KVEventKind, count, start int, hash uint64, reason string) {
		e := cluster.KVEvent{Worker: cluster.WorkerName(worker), EventID: uint64(100 - len(s.Events)), Kind: kind, Count: count, StartPosition: start, Reason: reason, Time: now.Add(-ago)}
		switch kind {
		case cluster.KVStored:
			e.Stored = []cluster.KVStoredBlock{{BlockHash: hash}}
		case cluster.KVRemoved:
			e.Removed = []uint64{hash}
		}
		s.Events = append(s.Events, e)
	}
	event(49*ms, 3, cluster.KVStored, 4, 108, 0x9f3a<<48, "")
	event(62*ms, 1, cluster.KVStored, 16, 92, 0x9f3a<<48, "")
	event(130*ms, 4, cluster.KVRemoved, 8, 0, 0x77c0<<48, "lru")
	event(296*ms, 2, cluster.KVStored, 12, 0, 0xb41e<<48, "")
	event(299*ms, 6, cluster.KVCleared, 310, 0, 0, "")
	for i := range 15 {
		event(time.Duration(300+i*20)*ms, 1+i%6, cluster.KVStored, i, i, uint64(i)<<50, "")
	}
	s.KVEventRate, s.KVEventLag = ptr(312.0), ptr(3*ms)
	s.Caches, s.Planner = labCaches(s.Workers), labPlanner()
	decide := func(id, pre, why, chosen string, overlap, blocks int, cost, second float64) {
		way := "pull"
		if pre == "local" {
			way = ""
		}
		s.Decisions = append(s.Decisions, cluster.RouterDecision{RequestID: id, Time: now.Add(-time.Duration(len(s.Decisions)) * 80 * ms), Model: "qwen3-0.6b",
			Phase: cluster.RoleDecode, Policy: "kv", Weighed: []string{cluster.TermUncached, cluster.TermLoad}, Chosen: chosen, PromptToks: blocks * 16, Blocks: blocks, DecidedNS: 210000, Prefill: pre, PrefillWhy: why, PrefillWay: way, Overlap: overlap, Predicted: overlap + len(s.Decisions)%2, Reusable: ptr(max(overlap, 2)),
			Candidates: []cluster.RouteCandidate{
				{Worker: chosen, Cost: cost, Load: 14, Overlap: overlap},
				{Worker: "worker-2", Cost: second, Load: 9, Overlap: overlap / 2},
				{Worker: "worker-4", Load: 17, Excluded: "KV blocks 97% used, limit 95%"},
				{Worker: "worker-7", Load: 3, Excluded: "draining"},
			}})
	}
	decide("r-8f21", "worker-1", "", "worker-3", 28, 36, 17, 23)
	decide("r-8f20", "worker-2", "", "worker-5", 0, 12, 19, 21)
	decide("r-8f1f", "worker-1", "", "worker-3", 30, 31, 11, 20)
	decide("r-8f1e", "local", "short", "worker-5", 4, 5, 8, 9)
	decide("r-8f1d", "local", "short", "worker-6", 0, 2, 3, 9)
	s.Activity = labActivity()
	return s
}

// labCaches are the KV caches of the workers: one is late, one is often false, one approximate,
// and no frontend knows the last.
func labCaches(workers []cluster.Worker) *cluster.KVCaches {
	c := &cluster.KVCaches{At: noon().Add(-1500 * time.Millisecond), Frontends: 2}
	for i, w := range workers {
		x := cluster.KVIndexWorker{Worker: w.Name, InstanceID: w.InstanceID, Device: w.Stats.KVActive + w.Stats.KVCached, Epoch: 0x9f3a77c0b41e + uint64(i), Next: uint64(1000 * i),
			Accuracy: cluster.KVAccuracy{Requests: 900, Predicted: 20000, Found: 19990, False: 10}, Recent: &cluster.KVAccuracy{Requests: 40, Predicted: 800, Found: 800}}
		k := cluster.KVCache{Worker: w.Name, InstanceID: w.InstanceID, Index: &x, EventRate: ptr(float64(40 + i)), EventAt: noon().Add(-time.Duration(i) * 700 * time.Millisecond)}
		switch i {
		case 2:
			x.OutOfDateSince, x.GapsTotal = noon().Add(-6*time.Second), 312
		case 3:
			x.Recent.Found, x.Recent.False, x.Host, x.Disk = 690, 110, 512, 8192
		case 4:
			x.Recent = &cluster.KVAccuracy{}
		case 5:
			k.Approximate, k.EventRate, k.EventAt = true, ptr(0.0), time.Time{}
		case 6:
			k = cluster.KVCache{Worker: w.Name, InstanceID: w.InstanceID}
		}
		c.Workers = append(c.Workers, k)
	}
	return c
}

// labActivity is what worker-4 of the pictures does.
func labActivity() *cluster.Activity {
	a := &cluster.Activity{Worker: "worker-4", At: noon(), SequencesTotal: 19, TransfersTotal: 3}
	add := func(id string, state cluster.SequenceState, prompt, cached, computed, out, blocks int, age time.Duration) {
		a.Sequences = append(a.Sequences, cluster.Sequence{ID: id + "~1", RequestID: id, State: state, PromptTokens: prompt, CachedTokens: cached,
			ComputedTokens: computed, OutTokens: out, Blocks: blocks, AgeMS: age.Milliseconds()})
	}
	add("r-8e77", cluster.SequenceDecode, 1802, 256, 3005, 1204, 188, 128*time.Second)
	add("r-8e10", cluster.SequencePreempted, 240, 0, 0, 911, 0, 97*time.Second)
	add("r-8f02", cluster.SequenceDecode, 576, 512, 885, 310, 56, 31*time.Second)
	add("r-8f0a", cluster.SequenceMoving, 64, 0, 74, 11, 5, 2*time.Second)
	for i := range 11 {
		add(fmt.Sprintf("chatcmpl-%x", 0x7f3a51c0+i), cluster.SequenceDecode, 100+i, 16*i, 120+i, 21, 8, time.Duration(1900-10*i)*time.Millisecond)
	}
	add("r-8f22", cluster.SequenceRemote, 496, 0, 0, 0, 31, 340*time.Millisecond)
	add("r-8f23", cluster.SequenceRemote, 192, 0, 0, 0, 12, 300*time.Millisecond)
	add("r-8f24", cluster.SequencePrefill, 4096, 16, 1024, 0, 257, 240*time.Millisecond)
	add("r-8f25", cluster.SequenceWaiting, 80, 0, 0, 0, 0, 20*time.Millisecond)
	const block = 1835008
	a.Transfers = []cluster.Transfer{
		{RequestID: "r-8f22", Direction: cluster.TransferIn, Peer: "worker-1", Transport: "shm", Kind: cluster.TransferWrite, State: cluster.TransferActive, Blocks: 31, BlocksDone: ptr(13), Bytes: 31 * block, BytesDone: ptr(int64(13 * block)), AgeMS: 320},
		{RequestID: "r-8f23", Direction: cluster.TransferIn, Kind: cluster.TransferWrite, State: cluster.TransferWaits, Blocks: 12, Bytes: 12 * block, AgeMS: 290},
		{RequestID: "r-8f0a", Direction: cluster.TransferOut, Peer: "worker-5", Transport: "tcp", Kind: cluster.TransferHandover, State: cluster.TransferActive, Blocks: 5, BlocksDone: ptr(0), Bytes: 5 * block, BytesDone: ptr(int64(0)), AgeMS: 12},
	}
	return a
}

// staleSnapshot is the cluster of the pictures after etcd went away; a worker was lost,
// another one is silent.
func staleSnapshot() cluster.Snapshot {
	s := labSnapshot()
	s.Fresh = cluster.Freshness{EtcdErr: "etcd 127.0.0.1:2379: deadline exceeded after 3s", NATSOK: true, NATSRTT: time.Millisecond, StaleSince: noon().Add(-7 * time.Second), NextAttempt: noon().Add(1500 * time.Millisecond)}
	s.Workers[4].State, s.Workers[4].Stale, s.Workers[4].HeardAt = cluster.StateLost, true, noon().Add(-19*time.Second)
	s.Workers[5].Stale, s.Workers[5].HeardAt = true, noon().Add(-6*time.Second)
	return s
}

// oddSnapshot holds what goes wrong: unknown values, lost, failed and unplaced
// workers, wide characters, control characters, stale data.
func oddSnapshot() cluster.Snapshot {
	now := noon()
	return cluster.Snapshot{
		Time: now, Cluster: "lab",
		Fresh: cluster.Freshness{EtcdErr: "etcd 127.0.0.1:2379: deadline exceeded after 3s", NATSOK: true, StaleSince: now.Add(-7 * time.Second), NextAttempt: now.Add(2 * time.Second)},
		Workers: []cluster.Worker{
			{WorkerStatus: cluster.WorkerStatus{Name: "worker-1", Role: cluster.RolePrefill, State: cluster.StatePending, Reason: "no node has a free device"}},
			{WorkerStatus: cluster.WorkerStatus{Name: "worker-2", Role: cluster.RoleDecode, State: cluster.StateLoading, Progress: 0.63, Device: "gpu:1", UpdatedAt: now}},
			{WorkerStatus: cluster.WorkerStatus{Name: "worker-3", Role: cluster.RoleDecode, State: cluster.StateLost, Device: "gpu:2", UpdatedAt: now.Add(-time.Minute), Stats: cluster.WorkerStats{Running: 3, KVTotal: 4096, KVActive: 4096}}, Stale: true, HeardAt: now.Add(-time.Minute), Lease: ptr(time.Duration(0))},
			{WorkerStatus: cluster.WorkerStatus{Name: "worker-4", Role: cluster.RoleDecode, State: cluster.StateFailed, Reason: "needs 9.4 GiB, 3.1 GiB free", Restarts: 3, RetryAt: now.Add(8 * time.Second), UpdatedAt: now, Stats: cluster.WorkerStats{KVTotal: 1024}}, Lease: ptr(8 * time.Second), TokS: ptr(0.0), HitRate: ptr(0.0), Uptime: ptr(time.Duration(0))},
			{WorkerStatus: cluster.WorkerStatus{Name: "模型-worker", Role: "vision", State: "odd", Device: "gpu:\x1b[31m9", Model: "多语言模型-大", UpdatedAt: now, Stats: cluster.WorkerStats{KVTotal: 10, KVActive: 50}}},
		},
		Leases:  []cluster.Lease{{ID: 1, Owner: "worker-4", TTL: 10 * time.Second, Left: 8 * time.Second, Renewed: 2 * time.Second}},
		Notices: []string{"worker-3 is lost", "worker-4 failed"},
	}
}

// manyWorkers is a cluster of n workers.
func manyWorkers(n int) cluster.Snapshot {
	s := labSnapshot()
	base := s.Workers
	s.Workers, s.Leases = nil, nil
	for i := range n {
		w := base[i%len(base)]
		w.Name = cluster.WorkerName(i + 1)
		w.Stats.Running = i % 64
		s.Workers = append(s.Workers, w)
		s.Leases = append(s.Leases, cluster.Lease{ID: cluster.InstanceID(i + 1), Owner: w.Name, TTL: 10 * time.Second, Left: time.Duration(i%100) * 100 * time.Millisecond})
	}
	return s
}
