package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/worker"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

// withGPUs gives an agent a pretended driver with so many GPUs.
func withGPUs(t *testing.T, n int) (*fake.Driver, func(*Options)) {
	t.Helper()
	ks, err := kerneltest.Kernels()
	if err != nil {
		t.Fatal(err)
	}
	f := fake.New(fake.Options{Kernels: ks, Devices: slices.Repeat([]driver.Properties{{
		Name: "Pretended H200", Major: 9, Multiprocessors: 132, MemoryBytes: 1 << 28, SharedBytes: 227 << 10,
	}}, n)})
	return f, func(o *Options) { o.CUDA = func() (driver.Driver, error) { return f, nil } }
}

func devicesOf(r *run) (ids []string) {
	for _, d := range r.node.Devices {
		ids = append(ids, d.ID)
	}
	return ids
}

func TestGPUDevices(t *testing.T) {
	for devices, want := range map[string][]string{
		config.GPUsNone: {"cpu:0"}, config.GPUsAll: {"cpu:0", "gpu:0", "gpu:1", "gpu:2"}, "2,0": {"cpu:0", "gpu:0", "gpu:2"},
		"1,2+0": {"cpu:0", "gpu:1", "gpu:2+0"}, "0+0": {"cpu:0", "gpu:0+0"},
	} {
		cfg := testConfig(t)
		cfg.GPU.Devices, cfg.GPU.MemoryUtilization = devices, 0.5
		_, with := withGPUs(t, 3)
		r := startAgent(t, cfg, with)
		if got := devicesOf(r); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", devices, got, want)
		}
		for _, d := range r.node.Devices[1:] {
			name, memory := "Pretended H200", int64(1<<27)
			if d.ID == "gpu:2+0" {
				name, memory = "Pretended H200 x2", 1<<28
			}
			if d.MemoryBytes != memory || d.Name != name {
				t.Errorf("%+v", d)
			}
		}
		if err := r.stop(); err != nil { // the fake tells of what is left
			t.Error(err)
		}
	}
}

// GPUs that are asked for and cannot be used end the start with the reason.
func TestGPUDevicesThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		devices string
		change  func(o *Options)
		want    string
	}{
		"no driver": {"all", func(o *Options) {
			o.CUDA = func() (driver.Driver, error) { return nil, driver.ErrNoLibrary }
		}, "gpu.devices is all: "},
		"no such GPU": {"0,3", nil, "open device 3"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			cfg.GPU.Devices = c.devices
			_, with := withGPUs(t, 1)
			if c.change != nil {
				with = c.change
			}
			if _, err := tryAgent(t, cfg, with); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Run() = %v, want %q", err, c.want)
			}
		})
	}
}

// A GPU that is lost ends the node with its reason: a new process can use it.
func TestLostGPU(t *testing.T) {
	cfg := testConfig(t)
	cfg.GPU.Devices = config.GPUsAll
	f, with := withGPUs(t, 2)
	r := startAgent(t, cfg, with)
	f.Lose(1, driver.UncorrectableECC)
	// Whoever uses it next sees it.
	if _, err := r.devices["gpu:1"].load(t.Context(), modeltest.Open(t, smallSpec)); err == nil {
		t.Error("weights are loaded to a lost device")
	}
	select {
	case err := <-r.ended:
		r.over = true
		if !errors.Is(err, ErrDeviceLost) || !strings.Contains(err.Error(), "gpu:1") || !strings.Contains(err.Error(), "uncorrectable ECC") {
			t.Errorf("Run() = %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the node goes on")
	}
	_ = f.Close() // nothing of a lost device can be freed
}

var smallSpec = modeltest.Spec{Family: "qwen3", Layers: 1, Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 64, FFN: 64, Vocab: 300, DType: "bf16"}

// Workers on a GPU share weights; the pool of one that names no size leaves room for others.
func TestModelsOnGPU(t *testing.T) {
	_, with := withGPUs(t, 1)
	cfg := testConfig(t)
	cfg.GPU.Devices = config.GPUsAll
	r := startAgent(t, cfg, with)
	r.models.memory = func() (int64, int64) { return 64 << 30, 64 << 30 }
	dir := modeltest.Generate(t, smallSpec)
	as := on(dir, "gpu:0")
	as.Engine.KVBlocks = 0
	var loaded []*worker.Loaded
	for range 3 {
		l, err := r.models.load(t.Context(), as, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		pool, err := l.Backend.AllocKV(l.Blocks)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := pool.Close(); err != nil {
				t.Error(err)
			}
		}()
		if _, ok := pool[0].(kv.DeviceKV); !ok {
			t.Errorf("%T is no memory of a device", pool[0])
		}
		if l.LeastBlocks >= l.Blocks || l.LeastBlocks < 1 {
			t.Errorf("%d blocks, at least %d", l.Blocks, l.LeastBlocks)
		}
		loaded = append(loaded, l)
	}
	if loaded[0].Blocks <= loaded[2].Blocks || r.models.held() != 1 {
		t.Errorf("%d blocks, and then %d; %d models", loaded[0].Blocks, loaded[2].Blocks, r.models.held())
	}
	as.Engine.KVBlocks = 1 << 20
	if _, err := r.models.load(t.Context(), as, func(float64) {}); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "--gpu-memory-utilization") {
		t.Errorf("more blocks than there is room for: %v", err)
	}
	if err := r.models.admit(as, ""); !errors.Is(err, ErrMemory) {
		t.Errorf("admitted with more blocks than there is room for: %v", err)
	}
	if err := r.models.admit(on(dir, "gpu:0"), ""); err != nil {
		t.Errorf("not admitted: %v", err)
	}
	for name, change := range map[string]func(e *cluster.EngineSpec){
		"keeps bf16 or int8, not f32": func(e *cluster.EngineSpec) { e.KVDType = "f32" }, "2 ranks requested, but gpu:0 has 1": func(e *cluster.EngineSpec) { e.TensorParallel = 2 },
		"does not compute on gpu:0": func(e *cluster.EngineSpec) { e.Backend = cluster.BackendCPU },
	} {
		bad := on(dir, "gpu:0")
		change(&bad.Engine)
		if _, err := r.models.load(t.Context(), bad, func(float64) {}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("load() = %v, want %q", err, name)
		}
		if err := r.models.admit(bad, ""); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("admit() = %v, want %q", err, name)
		}
	}
	for _, l := range loaded {
		give(t, l)
	}
}

// A worker on a group of GPUs has its ranks, asked for or not, and a pool with memory of each.
func TestModelsOnAGroup(t *testing.T) {
	_, with := withGPUs(t, 2)
	cfg := testConfig(t)
	cfg.GPU.Devices = "1+0"
	r := startAgent(t, cfg, with)
	spec := smallSpec
	spec.Heads, spec.KVHeads = 4, 2
	dir := modeltest.Generate(t, spec)
	for _, ranks := range []int{0, 2} {
		as := on(dir, "gpu:1+0")
		as.Engine.TensorParallel = ranks
		l, err := r.models.load(t.Context(), as, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		pool, err := l.Backend.AllocKV(l.Blocks)
		if err != nil {
			t.Fatal(err)
		}
		if n := l.Backend.Info().TensorParallel; n != 2 || len(pool) != 2 {
			t.Errorf("%d ranks with %d pools", n, len(pool))
		}
		for i, m := range pool {
			if d, ok := m.(kv.DeviceKV); !ok || m.(gpuMemory).Device() != 1-i {
				t.Errorf("rank %d: %T %v is not memory of GPU %d", i, m, d, 1-i)
			}
		}
		give(t, l)
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	}
	for ranks, want := range map[int]string{1: "1 ranks requested, but gpu:1+0 has 2", 4: "4 ranks requested, but gpu:1+0 has 2"} {
		as := on(dir, "gpu:1+0")
		as.Engine.TensorParallel = ranks
		if _, err := r.models.load(t.Context(), as, func(float64) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("load() = %v, want %q", err, want)
		}
	}
}
