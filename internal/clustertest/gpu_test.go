package clustertest_test

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/nixl/cudaipc"
	"github.com/dynctl/dynctl/internal/patience"
)

// pretendedGPUs makes drivers with four GPUs each, one for every agent. When the test ends,
// after the agents, they tell of missing waits, use after free and leaks.
func pretendedGPUs(t *testing.T) func() (driver.Driver, error) {
	t.Helper()
	ks, err := kerneltest.Kernels()
	if err != nil {
		t.Fatal(err)
	}
	gpu := driver.Properties{Name: "Pretended H200", Major: 9, Multiprocessors: 132, MemoryBytes: 1 << 28, SharedBytes: 227 << 10}
	var mu sync.Mutex
	var all []*fake.Driver
	t.Cleanup(func() {
		for _, f := range all {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return func() (driver.Driver, error) {
		mu.Lock()
		defer mu.Unlock()
		f := fake.New(fake.Options{Kernels: ks, Devices: slices.Repeat([]driver.Properties{gpu}, 4)})
		all = append(all, f)
		return kept{f}, nil
	}
}

// kept is a driver that the test closes itself, to see what is left.
type kept struct{ *fake.Driver }

func (kept) Close() error { return nil }

// Facts that one device has read are recalled by another: two GPUs of a process, of two
// processes, or over TCP, and a GPU beside a CPU, which keep the same blocks; and groups of
// tensor-parallel GPUs, beside each other and beside one.
func TestRecallOnGPUs(t *testing.T) {
	t.Parallel()
	if patience.RaceDetector {
		t.Skip("arithmetic in one goroutine, which would take minutes; package gpu and transports run with the race detector on their own")
	}
	known := facts(t, 4)[0]
	two := []clustertest.Node{{Roles: []string{"decode"}}, {Roles: []string{"prefill"}}}
	for name, tc := range map[string]struct {
		prefill, decode string
		devices         string // all GPUs where empty
		nodes           []clustertest.Node
		transport       string
		linux           bool
		once            bool // by one strategy, where others are the same transfers
		kv              string
	}{
		"in one process":     {prefill: "gpu:0", decode: "gpu:1", transport: "local"},
		"of two processes":   {prefill: "gpu:0", decode: "gpu:0", nodes: two, transport: cudaipc.Name, linux: true},
		"from GPU to CPU":    {prefill: "gpu:0", decode: "cpu:0", transport: "local", once: true},
		"any device, on GPU": {transport: "local", once: true},

		"groups of two processes":           {devices: "0+1", prefill: "gpu:0+1", decode: "gpu:0+1", nodes: two, transport: cudaipc.Name, linux: true, once: true},
		"from a group to one GPU, over TCP": {devices: "0+1,2", prefill: "gpu:0+1", decode: "gpu:2", transport: "tcp", once: true},
		"from CPU to two ranks of a GPU":    {devices: "0+0", prefill: "cpu:0", decode: "gpu:0+0", transport: "local", once: true},
		"from GPU to CPU, int8":             {prefill: "gpu:0", decode: "cpu:0", transport: "local", kv: "int8", once: true},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.linux && runtime.GOOS != "linux" {
				t.Skip("a transport of Linux")
			}
			e := cluster.EngineSpec{BlockSize: blockSize, KVBlocks: 128, MaxModelLen: 1024, MaxSeqs: 4, KVDType: tc.kv}
			prefill, decode := e, e
			prefill.Device, decode.Device = tc.prefill, tc.decode
			c := clustertest.Start(t, clustertest.Options{
				Prefill: 1, Decode: 1, Nodes: tc.nodes, CUDA: pretendedGPUs(t), Engine: e, PrefillEngine: prefill, DecodeEngine: decode,
				Config: func(cfg *config.Dynamod) {
					cfg.NIXL.Transports, cfg.GPU.Devices = []string{tc.transport}, cmp.Or(tc.devices, config.GPUsAll)
				},
			})
			c.WaitRemotePrefill()
			for i, strategy := range strategies {
				if tc.once && i > 0 {
					break
				}
				c.Set(strategy.settings)
				c.WaitWay(strategy.way)
				recalled(t, c, known, strategy.way)
			}
			wantTransport(t, c, tc.transport)
		})
	}
}

// Running sequences move from one GPU to another when their worker drains: each client gets
// what the client of the same request gets whose worker stays.
func TestDrainHandsOverBetweenGPUs(t *testing.T) {
	t.Parallel()
	if patience.RaceDetector {
		t.Skip("arithmetic in one goroutine, which would take minutes; hand-overs run with the race detector on CPUs")
	}
	dir := modeltest.Generate(t, modeltest.Spec{Layers: 2, Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 64, FFN: 96, Vocab: 300, ContextLen: 4096, DType: "bf16", Seed: 8})
	for name, tc := range map[string]struct {
		nodes     []clustertest.Node
		transport string
	}{
		"in one process":   {transport: "local"},
		"of two processes": {nodes: []clustertest.Node{{}, {}}, transport: cudaipc.Name},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.nodes != nil && runtime.GOOS != "linux" {
				t.Skip("a transport of Linux")
			}
			c := clustertest.Start(t, clustertest.Options{
				Model: dir, Decode: 2, Nodes: tc.nodes, CUDA: pretendedGPUs(t),
				Engine: cluster.EngineSpec{Backend: cluster.BackendCUDA, BlockSize: blockSize, KVBlocks: 2048, MaxSeqs: 8},
				Config: func(cfg *config.Dynamod) {
					cfg.NIXL.Transports, cfg.GPU.Devices, cfg.GPU.BatchInvariant = []string{tc.transport}, "0,1", true
					cfg.Router.Policy = "round-robin"
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			var streams []*stream
			defer func() { // also when the test fails
				cancel()
				for _, s := range streams {
					<-s.ended
				}
			}()
			for i, p := range texts(3, 40) {
				for range 2 { // by turns, so that each worker has one
					s := &stream{ended: make(chan struct{})}
					body := clustertest.Body{"prompt": p, "max_tokens": 3500, "ignore_eos": true, "temperature": i % 2, "seed": i}
					go s.follow(ctx, c, body)
					streams = append(streams, s)
					s.reach(t, 3)
				}
			}
			// The worker that leaves is not beside the frontend, which counts what comes to the other one.
			var leaving string
			c.WaitView("workers are placed", func(v client.View) bool {
				for _, w := range v.Workers() {
					if w.Node == c.Nodes[len(c.Nodes)-1].ID {
						leaving = w.Name
					}
				}
				return leaving != ""
			})
			if err := c.Client.Drain(t.Context(), leaving, time.Now().Add(time.Minute), false); err != nil {
				t.Fatal(err)
			}
			var d cluster.DrainStatus
			c.WaitView(leaving+" is drained", func(v client.View) bool {
				for _, w := range v.Workers() {
					if w.Name == leaving && w.State == cluster.StateDrained && w.Drain != nil {
						d = *w.Drain
						return true
					}
				}
				return false
			})
			if d.Moved != len(streams)/2 || d.Cancelled > 0 {
				t.Errorf("%+v, want %d sequences moved", d, len(streams)/2)
			}
			for _, s := range streams {
				s.reach(t, int(s.events.Load())+20)
			}
			wantTransport(t, c, tc.transport)
			if strings.Contains(c.Metrics(), "dynamo_frontend_model_migration_total{") {
				t.Errorf("sequences were computed again:\n%s", c.Metrics())
			}
			t.Logf("%s was drained when a stream had %d of 3500 tokens", leaving, streams[0].events.Load())
			cancel()
			for i := 0; i < len(streams); i += 2 {
				a, b := streams[i].text(), streams[i+1].text()
				if n := min(len(a), len(b)); n < 20 || a[:n] != b[:n] {
					t.Errorf("request %d: one client got %q, and the other one %q", i/2, a, b)
				}
			}
		})
	}
}

// stream is a completion that is followed until its context ends.
type stream struct {
	events atomic.Int64
	got    told // once ended is closed
	ended  chan struct{}
}

func (s *stream) follow(ctx context.Context, c *clustertest.Cluster, body clustertest.Body) {
	defer close(s.ended)
	s.got, _, _ = follow(ctx, c, body, func() { s.events.Add(1) }) // reach tells when it ends early
}

// reach waits for so many events.
func (s *stream) reach(t *testing.T, events int) {
	t.Helper()
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(time.Millisecond); int(s.events.Load()) < events; {
		select {
		case <-tick.C:
		case <-s.ended:
			t.Fatalf("the stream ended after %d events", s.events.Load())
		case <-deadline:
			t.Fatalf("%d events within a minute, want %d", s.events.Load(), events)
		}
	}
}

// text is what came until the end.
func (s *stream) text() string {
	<-s.ended
	return s.got.Texts[0]
}
