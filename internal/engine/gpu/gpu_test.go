package gpu_test

import (
	"context"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/engine/gpu"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
	"github.com/dynctl/dynctl/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newDriver pretends to be a driver that knows all kernels, with so much memory. When the
// test ends it tells of missing waits, use after free and leaks.
func newDriver(t testing.TB, memory int64) *fake.Driver {
	t.Helper()
	f := newFake(t, memory)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// newFake is newDriver for a device that will be lost, of which nothing can be freed.
func newFake(t testing.TB, memory int64) *fake.Driver {
	t.Helper()
	return newFakes(t, memory, 1)
}

// newFakes is newFake with so many devices, of which some have no peers.
func newFakes(t testing.TB, memory int64, n int, alone ...int) *fake.Driver {
	t.Helper()
	ks, err := kerneltest.Kernels()
	if err != nil {
		t.Fatal(err)
	}
	return fake.New(fake.Options{Kernels: ks, NoPeers: alone, Devices: slices.Repeat([]driver.Properties{{
		Name: "Fake H200", Major: 9, Multiprocessors: 132, MemoryBytes: memory, L2Bytes: 50 << 20, SharedBytes: 227 << 10,
	}}, n)})
}

func newDevice(t testing.TB, f *fake.Driver) *gpu.Device {
	t.Helper()
	d, err := gpu.OpenDevice(t.Context(), f, 0, gpu.DeviceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return d
}

// rig is a backend with its pool.
type rig struct {
	engine.Backend
	memory engine.KVPool
	driver *fake.Driver // of a GPU
}

// kv is the memory of the pool on the device, with the heads of all ranks.
func (r rig) kv() (all []byte) {
	part := int(r.Info().KV.BlockBytes()) / len(r.memory)
	for at := 0; at < int(r.memory[0].(*gpu.KVMemory).Size()); at += part {
		for _, m := range r.memory {
			all = append(all, r.driver.Bytes(m.(*gpu.KVMemory).Address()+uint64(at), part)...)
		}
	}
	return all
}

// newRig loads a model on a device over the fake.
func newRig(t testing.TB, m *model.Model, blocks int, o gpu.Options) rig {
	t.Helper()
	f := newDriver(t, 1<<30)
	r := newRigOn(t, newDevice(t, f), m, blocks, o)
	r.driver = f
	return r
}

func newRigOn(t testing.TB, d *gpu.Device, m *model.Model, blocks int, o gpu.Options) rig {
	t.Helper()
	w, err := d.Load(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	b, err := w.NewBackend(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return withPool(t, b, blocks)
}

// withPool closes the backend and its pool when the test ends.
func withPool(t testing.TB, b engine.Backend, blocks int) rig {
	t.Helper()
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	memory, err := b.AllocKV(blocks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := memory.Close(); err != nil {
			t.Error(err)
		}
	})
	return rig{Backend: b, memory: memory}
}

// newCPURig is the engine that the GPU is compared with.
func newCPURig(t testing.TB, m *model.Model, blocks, blockSize int) rig {
	t.Helper()
	return newCPURigOf(t, m, blocks, cpu.Options{BlockSize: blockSize, KVDType: cpu.KVBF16})
}

func newCPURigOf(t testing.TB, m *model.Model, blocks int, o cpu.Options) rig {
	t.Helper()
	d, err := cpu.OpenDevice("cpu:0", cpu.DeviceOptions{Cores: 2, Activations: "f32"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	w, err := d.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	b, err := w.NewBackend(o)
	if err != nil {
		t.Fatal(err)
	}
	return withPool(t, b, blocks)
}

func (r rig) step(t testing.TB, batch ...engine.BatchSeq) {
	t.Helper()
	if err := r.Step(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

func (r rig) logits() []float32 { return make([]float32, r.Info().VocabSize) }

// table lists n blocks from first on.
func table(first, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(first + i)
	}
	return out
}
