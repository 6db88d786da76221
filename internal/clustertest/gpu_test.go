package clustertest_test

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/fake"
	"github.com/dynctl/dynctl/internal/cuda/kernels/kerneltest"
	"github.com/dynctl/dynctl/internal/nixl/cudaipc"
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
	if raceDetector {
		t.Skip("arithmetic in one goroutine, which would take minutes; package gpu and transports run with the race detector on their own")
	}
	known := facts(t)[0]
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
		"from GPU to CPU":    {prefill: "gpu:0", decode: "cpu:0", transport: "local"},
		"any device, on GPU": {transport: "local"},

		"groups of one process":             {devices: "0+1,2+3", prefill: "gpu:0+1", decode: "gpu:2+3", transport: "local", once: true},
		"groups of two processes":           {devices: "0+1", prefill: "gpu:0+1", decode: "gpu:0+1", nodes: two, transport: cudaipc.Name, linux: true, once: true},
		"from a group to one GPU, over TCP": {devices: "0+1,2", prefill: "gpu:0+1", decode: "gpu:2", transport: "tcp"},
		"from CPU to two ranks of a GPU":    {devices: "0+0", prefill: "cpu:0", decode: "gpu:0+0", transport: "local"},
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
